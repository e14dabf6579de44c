"""The agent of an ensemble member: a voter, and its HTTP interface for those who want to know.

It carries no store and is no member of the cluster it serves: the whole cluster's views wait for its disk and its loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio

import membership
from membership import Ensemble, EnsembleError, Faults, KeyRingError, MembershipError, Settings
from rota.access.access import Access
from rota.api import build_application
from rota.ensemble_api import EnsembleApi
from rota.errors import AgentError, UsageProblem, first_error
from rota.event_log import EventLog
from rota.http_server import reload_access, serve, unix_socket_of
from rota.key_service import KeyService
from rota.settings import AgentSettings, default_data_dir
from rota.view_report import view_event

log = logging.getLogger("rota")

PRESETS: dict[str, Callable[[], Settings]] = {
    "lan": Settings.lan,
    "wan": Settings.wan,
    "local": Settings.local,
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
        self._access = Access.of(settings)
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
                    serve, application, settings.api, self._access, unix_socket_of(settings)
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
