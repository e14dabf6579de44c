"""Makes the cores of one process: one per incarnation, all with the same identity.

A process that is evicted or restarted joins again with a new incarnation, and so with a new core. Cores in one event
loop share their configurations. What drives a core is in `driver`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

import trio

from membership.address import Address
from membership.ensemble.client import Client
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import INCARNATION_BYTES, Member
from membership.runtime.transport_setup import new_signer
from membership.settings import Settings
from membership.transport.transport import Transport

# Members that live in one event loop share their configurations, by far the largest thing each holds.
_CACHE: trio.lowlevel.RunVar[ConfigurationCache] = trio.lowlevel.RunVar("membership configurations")


def _shared_cache() -> ConfigurationCache:
    try:
        return _CACHE.get()
    except LookupError:
        _CACHE.set(ConfigurationCache())
        return _CACHE.get()


class Mode(StrEnum):
    """Who agrees on views. One mode for a whole cluster."""

    DECENTRALISED = "decentralised"
    """All members, among themselves: the default. It works as long as a majority of them can talk."""
    CENTRALISED = "centralised"
    """An ensemble of a few voters, for all others: it works as long as a majority of the ensemble can talk."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process wants to be in the cluster; the incarnation is drawn per core."""

    name: str
    address: Address
    metadata: tuple[tuple[str, str], ...]


class CoreFactory:
    """Makes the cores of one process. `identity` may be replaced: the next core then has the new one."""

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        *,
        settings: Settings,
        rng: random.Random,
        mode: Mode,
        detectors: DetectorFactory | None,
        broadcaster: Broadcaster | None,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self._transport = transport
        self._rng = rng
        self._mode = mode
        self._detectors = detectors
        self._broadcaster = broadcaster

    def make(
        self,
        *,
        found: bool,
        expect: int,
        cluster_id: bytes | None,
        stable: StableState | None = None,
        is_copy: bool = False,
        has_disk: bool = False,
    ) -> Core | Client:
        """The next core, without seeds; the arguments are those of `Core`."""
        signer = new_signer(self._transport)
        me = Member.create(
            self.identity.name,
            self.identity.address,
            self._rng.randbytes(INCARNATION_BYTES) if signer is None else signer.incarnation,
            self.identity.metadata,
        )
        if self._mode is Mode.CENTRALISED:
            return Client(
                me,
                seeds=(),
                settings=self.settings,
                rng=random.Random(self._rng.getrandbits(64)),
                cluster_id=cluster_id,
                cache=_shared_cache(),
                detectors=self._detectors,
                signer=signer,
            )
        return Core(
            me,
            seeds=(),
            settings=self.settings,
            rng=random.Random(self._rng.getrandbits(64)),
            found=found,
            expect=expect,
            cluster_id=cluster_id,
            stable=stable,
            is_copy=is_copy,
            has_disk=has_disk,
            cache=_shared_cache(),
            detectors=self._detectors,
            signer=signer,
            broadcaster=self._broadcaster,
        )
