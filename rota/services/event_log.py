"""The last events of one agent, numbered, for ``rota events`` and the event stream.

Bounded: a reader that asks for more than is kept gets what there is.  Following is asking again
(``rota.agent.node_api``), because it is the controller's events that are followed, whoever that is by then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rota.http.answers import Event

KEPT = 2000


class EventLog:
    """Numbered events: ``{"number", "time" (Unix seconds), "kind", "text", "data"}``."""

    def __init__(self, kept: int = KEPT, clock: Callable[[], float] = time.time) -> None:
        self._events: deque[Event] = deque(maxlen=kept)
        self._last = 0
        self._clock = clock

    def add(self, kind: str, text: str, data: Mapping[str, Any] | None = None) -> None:
        self._last += 1
        self._events.append(
            {
                "number": self._last,
                "time": self._clock(),
                "kind": kind,
                "text": text,
                "data": dict(data or {}),
            }
        )

    def after(self, number: int) -> list[Event]:
        """The kept events with a higher number, oldest first."""
        return [event for event in self._events if event["number"] > number]
