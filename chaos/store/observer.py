"""What real agents say of themselves, asked over HTTP all the time: the control loop's state, the layout, the events.

A thread, so that an agent that does not answer holds nobody up. It may be behind: a host that is gone is still in the
last answers.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from chaos.checkers.store_outcome import has_enough_copies

_EVERY = 0.25
_PATIENCE = 1.0
"""Seconds an agent may take to answer."""
_TOLD = (
    "view",
    "plan",
    "plan-done",
    "plan-failed",
    "settled",
    "infeasible",
    "controller",
    "frozen",
    "trouble",
    "asks",
    "server-ended",
    "server-started",
)


class Observer:
    """Asks every agent it was told of, one after the other; `on_round` is called in its thread after each round."""

    def __init__(self, on_round: Callable[[Observer], None]) -> None:
        self.layout: dict[str, Any] | None = None
        """The newest `/v1/layout` that anybody gave."""
        self.controller: str | None = None
        self.placing = False
        """Whether a step of any plan was started."""
        self._on_round = on_round
        self._apis: dict[str, str] = {}
        self._settled: int | None = None
        self._events: dict[tuple[str, float, int], dict[str, Any]] = {}
        self._epochs: dict[tuple[str, float, int], int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, name: str, api: str) -> None:
        """Ask this agent, too."""
        self._apis[name] = api

    def begin(self) -> None:
        """Ask from now on."""
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """One round of questions."""
        layouts = []
        settled = None
        for name, api in list(self._apis.items()):
            status = _get(api, "/v1/status")
            if status is None:
                continue
            control = status.get("control")
            if control and status["name"] == status["controller"]:
                self.controller = name
                if control["settled"]:
                    settled = int(control["view_epoch"])
                layouts.append(_get(api, "/v1/layout"))
            self._keep_events(name, _get(api, "/v1/events?local=1"))
        answers = [layout for layout in layouts if layout is not None]
        if answers:
            self.layout = max(answers, key=lambda layout: int(layout["layout_epoch"]))
        self._settled = settled
        self._on_round(self)

    def _keep_events(self, name: str, answer: dict[str, Any] | None) -> None:
        """Each event once, with the view its agent stood in."""
        epoch = -1
        for event in () if answer is None else answer["events"]:
            key = (name, event["time"], event["number"])
            if event["kind"] == "view":
                epoch = event["data"]["epoch"]
            self.placing = self.placing or event["kind"] == "step-started"
            self._events[key] = event
            self._epochs[key] = epoch

    def settled(self, view_epoch: int) -> bool:
        """Whether the controller said in the last round that nothing is left to do for that view."""
        return self._settled == view_epoch

    def broken_segments(self, live: Mapping[str, str], copies: int) -> int:
        """Segments that lack copies, or hold them in too few racks, given whose agents run."""
        segments = [] if self.layout is None else self.layout["segments"]
        return sum(
            not has_enough_copies(
                [copy["host"] for copy in segment["replicas"] if copy["state"] == "in_sync"], live, copies
            )
            for segment in segments
        )

    def plans(self) -> dict[int, int]:
        """How many plans were begun in the view of each epoch."""
        found: dict[int, set[str]] = {}
        for key, event in self._events.items():
            if event["kind"] == "plan":
                found.setdefault(self._epochs[key], set()).add(event["data"]["agreed_as"])
        return {epoch: len(plans) for epoch, plans in found.items()}

    @property
    def story(self) -> list[tuple[float, str]]:
        """What the agents told, by the machine's monotonic clock; of a view, only who told it first."""
        seen: set[str] = set()
        lines = []
        shift = time.monotonic() - time.time()
        for (name, at, _), event in sorted(self._events.items(), key=lambda entry: entry[0][1]):
            if event["kind"] not in _TOLD or (event["kind"] == "view" and event["text"] in seen):
                continue
            seen.add(event["text"])
            told = event["text"] if event["kind"] == "view" else f"{name} {event['kind']}: {event['text']}"
            lines.append((at + shift, told))
        return lines


def _get(api: str, path: str) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(api, timeout=_PATIENCE)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return answer if response.status == 200 and isinstance(answer, dict) else None
