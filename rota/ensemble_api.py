"""What an ensemble member answers over HTTP: what it knows of the cluster it serves, and why it does nothing else.

It implements ``rota.api.Backend``.  A voter is no member of the cluster: what asks for one, or for the store, is
refused with whom to ask instead.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NoReturn

import trio

from membership import Ensemble
from rota.answers import Event, Members, Status
from rota.errors import ApiError
from rota.event_log import EventLog
from rota.key_service import KeyService
from rota.version import VERSION
from rota.view_report import dropped, members_of

log = logging.getLogger("rota")

FOLLOW_INTERVAL = 0.3
"""Seconds between two looks at the events for somebody who follows them."""
_WHY_NOT = {
    "evict": "ask a member of the cluster",
    "leave": "it goes when its process is stopped, and comes back with its directory",
    "tags": "it has none",
    "recover": "start the members of the ensemble again, each with its own directory",
}


class EnsembleApi:
    """``ensemble`` is set once the voter runs."""

    def __init__(self, name: str, events: EventLog, key_service: KeyService) -> None:
        self._name = name
        self._events = events
        self._keys = key_service
        self.ensemble: Ensemble | None = None

    # -- reports ------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        ensemble = self.ensemble
        return ensemble is not None and ensemble.view is not None and ensemble.quorum

    async def look(self) -> None:
        """A voter has no store."""

    def status(self) -> Status:
        ensemble = self.ensemble
        view = None if ensemble is None else ensemble.view
        statistics = {} if ensemble is None else ensemble.statistics()
        cluster_id = None if ensemble is None else ensemble.cluster_id
        return {
            "version": VERSION,
            "name": self._name,
            "address": None if ensemble is None else str(ensemble.me.address),
            "state": "forming" if view is None else "voter",
            "ensemble": []
            if ensemble is None
            else [{"name": voter.name, "address": str(voter.address)} for voter in ensemble.electorate],
            "cluster_id": None if cluster_id is None else cluster_id.hex(),
            "epoch": None if view is None else view.epoch,
            "id": None if view is None else view.id.hex(),
            "size": 0 if view is None else len(view),
            "recoveries": [],
            "quorum": self.is_ready(),
            "controller": None,
            "layout_epoch": None,
            "open_moves": 0,
            "control": None,
            "solver": None,
            "engine": None,
            "keys": self._keys.status(),
            "dropped": dropped(statistics),
            "statistics": statistics,
        }

    def members(self) -> Members:
        view = None if self.ensemble is None else self.ensemble.view
        if view is None:
            raise ApiError(
                "the ensemble has not formed yet: all its members must have met once", code="forming"
            )
        return members_of(view)

    def local_events(self, after: int) -> list[Event]:
        return self._events.after(after)

    async def events(self, after: int) -> dict[str, Any]:
        return {"agent": self._name, "events": self._events.after(after)}

    async def follow(self, after: int) -> AsyncGenerator[Event, None]:
        while True:
            for event in self._events.after(after):
                after = event["number"]
                yield event
            await trio.sleep(FOLLOW_INTERVAL)

    def record(self, kind: str, text: str, data: Mapping[str, Any]) -> None:
        """Something for this voter's events and its log."""
        log.info("%s: %s", kind, text)
        self._events.add(kind, text, data)

    async def keys(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """This voter's own keys, by id; they change with its key file."""
        if action != "list":
            raise ApiError(
                "an ensemble member takes over its keys from its key file: change that and send SIGHUP",
                code="voter",
                status=409,
            )
        return {"action": action, "agreed": True, "hosts": {self._name: await self._keys.change("list", {})}}

    # -- what does not apply ------------------------------------------------------------------------

    def suspicions(self) -> NoReturn:
        raise _no_member("it suspects nobody itself")

    async def views(self) -> NoReturn:
        raise _no_member("it installs none of the views it decides; its events tell of them")

    async def control(self, request: str, arguments: dict[str, Any]) -> NoReturn:
        raise _no_store()

    async def operate(self, action: str, arguments: dict[str, Any]) -> NoReturn:
        raise ApiError(
            f"this is an ensemble member, not one of the cluster: {_WHY_NOT[action]}",
            code="voter",
            status=409,
        )

    async def answered(self) -> None:
        """There is no leave to answer."""

    def store(self) -> NoReturn:
        raise _no_store()


def _no_member(why: str) -> ApiError:
    text = f"this is an ensemble member, not one of the cluster: {why}; ask a member of the cluster"
    return ApiError(text, code="voter", status=404)


def _no_store() -> ApiError:
    return ApiError(
        "this is an ensemble member and has no store; a cluster with an ensemble has none yet",
        code="no_store",
        status=404,
    )
