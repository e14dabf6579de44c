"""The agent of an ensemble member: a voter and its log, nothing else.

It carries no store, is no member of the cluster it serves, and has no HTTP interface: ask any member who is in.
Why so little: the whole cluster's views wait for its disk and its loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio

import membership
from agent.errors import AgentError, first_error
from agent.key_service import KeyService
from agent.settings import AgentSettings, default_data_dir
from membership import Ensemble, Faults, KeyRingError, MembershipError, Settings

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
        self.api_address = None
        self._keys = KeyService(self.name, settings.key_file)
        self._stop = trio.Event()

    @property
    def leaving(self) -> bool:
        return self._stop.is_set()

    def request_leave(self) -> None:
        """Stop; ``run`` then returns."""
        self._stop.set()

    async def reload(self) -> None:
        """Take over what the key file says now; `rota keys` reaches members of the cluster only."""
        try:
            if await self._keys.reload():
                log.info("the key file was read again")
        except KeyRingError as error:
            log.warning("keys: the ring stays as it was: %s", error)

    async def run(self, on_listening: Callable[[EnsembleNode], None]) -> None:
        """Raises :class:`AgentError`: an address is taken, the list makes no ensemble, the state is unusable."""
        settings = self._settings
        directory: Path = settings.data_dir or default_data_dir(self.name)
        try:
            async with (
                membership.serve_ensemble(
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
                ) as ensemble,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(_report, ensemble)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
        except (MembershipError, BaseExceptionGroup) as error:
            cause = first_error(error)
            if isinstance(cause, MembershipError):
                raise AgentError(str(cause)) from error
            raise


async def _report(ensemble: Ensemble) -> None:
    """One line when the ensemble has formed; its views are logged by membership itself."""
    await ensemble.wait_for(lambda view: True)
    names = ", ".join(str(member.address) for member in ensemble.electorate)
    log.info("the ensemble has formed: %s", names)
