"""The agent of an ensemble member: a voter, and its HTTP interface for those who want to know.

It carries no store and is no member of the cluster it serves: the whole cluster's views wait for its disk and its loop.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import trio

import membership
from membership import Ensemble, EnsembleError, Faults, KeyRingError, MembershipError, Settings
from rota.access.access import Access
from rota.access.tls import TlsFiles
from rota.agent.parent_process import is_parent_told
from rota.agent.settings import AgentSettings, default_data_dir
from rota.errors import AgentError, ApiError, UsageProblem, first_error
from rota.http.answers import Event, Members, Status
from rota.http.api import build_application
from rota.http.server import UnixSocket, reload_access, serve
from rota.services.event_log import EventLog
from rota.services.key_service import KeyService
from rota.services.view_report import dropped, members_of, view_event
from rota.version import VERSION

log = logging.getLogger("rota")

FOLLOW_INTERVAL = 0.3
"""Seconds between two looks at the events for somebody who follows them."""
PRESETS: dict[str, Callable[[], Settings]] = {
    "lan": Settings.lan,
    "wan": Settings.wan,
    "local": Settings.local,
}
_WHY_NOT = {
    "evict": "ask a member of the cluster",
    "leave": "it goes when its process is stopped, and comes back with its directory",
    "tags": "it has none",
    "recover": "start the members of the ensemble again, each with its own directory",
}


class EnsembleNode:
    """One voter.  ``run`` lasts until it is asked to stop; the others then count it as away."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.address = settings.advertise or settings.listen
        self.name = settings.name or str(self.address)
        self.api_address = settings.api
        self._keys = KeyService(self.name, settings.key_file)
        self._events = EventLog()
        self._api = EnsembleApi(self.name, self._events, self._keys)
        self._access = Access(
            settings.api_tokens,
            TlsFiles.of(settings.api_certificate, settings.api_key, settings.api_client_ca),
        )
        self._stop = trio.Event()

    @property
    def leaving(self) -> bool:
        return self._stop.is_set()

    @property
    def has_tls(self) -> bool:
        """Whether the HTTP interface speaks TLS."""
        return self._access.tls is not None

    def request_leave(self) -> None:
        """Stop; ``run`` then returns."""
        self._stop.set()

    async def reload(self) -> None:
        """Take over what the files of keys, tokens and certificate say; `rota keys` reaches members only."""
        try:
            if await self._keys.reload():
                log.info("the key file was read again")
        except KeyRingError as error:
            log.warning("keys: the ring stays as it was: %s", error)
        await reload_access(self._access)

    async def run(self, on_listening: Callable[[EnsembleNode], None]) -> None:
        """Raises :class:`AgentError`: an address is taken, the list makes no ensemble, the state is unusable."""
        settings = self._settings
        directory: Path = settings.data_dir or default_data_dir(self.name)
        try:
            async with trio.open_nursery() as nursery:
                application = build_application(self._api, self._access)
                self.api_address = await nursery.start(
                    partial(serve, or_any_port=is_parent_told()),
                    application,
                    settings.api,
                    self._access,
                    UnixSocket.of(settings.api_socket, settings.api_socket_group),
                )
                async with membership.serve_ensemble(
                    settings.listen,
                    settings.ensemble,
                    state=directory,
                    name=self.name,
                    advertise=settings.advertise,
                    expect=settings.expect,
                    settings=PRESETS[settings.preset](),
                    faults=Faults(ingress_loss=settings.loss),
                    keys=self._keys.ring,
                    insecure=settings.insecure,
                    on_listening=lambda _: on_listening(self),
                ) as ensemble:
                    self._api.ensemble = ensemble
                    nursery.start_soon(self._follow, ensemble)
                    await self._stop.wait()
                nursery.cancel_scope.cancel()
        except (MembershipError, BaseExceptionGroup) as error:
            cause = first_error(error)
            if isinstance(cause, EnsembleError):
                raise UsageProblem(str(cause)) from error
            if isinstance(cause, MembershipError):
                raise AgentError(str(cause)) from error
            raise

    async def _follow(self, ensemble: Ensemble) -> None:
        """Record what the ensemble decides; membership itself logs it."""
        async for change in ensemble.changes():
            if change.previous is None:
                names = ", ".join(str(member.address) for member in ensemble.electorate)
                log.info("the ensemble has formed: %s", names)
                self._events.add("ensemble", f"the ensemble has formed: {names}")
            event = view_event(change)
            if event is not None:
                self._events.add("view", *event)
            elif not change.quorum:
                text = "no majority of the ensemble is within reach; views cannot change until one is"
                self._events.add("quorum-lost", text)
            else:
                self._events.add("status", "a majority of the ensemble is within reach")


class EnsembleApi:
    """What a voter answers over HTTP: what it knows of the cluster it serves, and why it does nothing else.

    Implements ``rota.http.backend.Backend``.  What asks for a member of the cluster, or for the store, is refused with
    whom to ask instead.  ``ensemble`` is set once the voter runs.
    """

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

    async def host(self, name: str) -> NoReturn:
        raise _no_member("it reaches no host but the voters")

    async def measured(self) -> NoReturn:
        raise _no_member("it measures nothing")

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
