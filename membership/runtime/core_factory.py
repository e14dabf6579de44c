"""Makes the cores of one process: one per incarnation, all with the same identity.

A process that is evicted or restarted joins again with a new incarnation, and so with a new core. Cores in one event
loop share their configurations. What drives a core is in `driver`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from membership.address import Address
from membership.ensemble.client import Client
from membership.protocol.context.alert_signatures import Signer, incarnation_of
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import INCARNATION_BYTES, Member
from membership.settings import Settings


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
    """Makes the cores of one process. `identity` may be replaced: the next core then has the new one.

    `new_signer`: gives each core what signs for it, or None. `cache`: shared by all cores of one event loop, or of one
    simulation: configurations are by far the largest thing each holds.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        settings: Settings,
        rng: random.Random,
        cache: ConfigurationCache,
        mode: Mode = Mode.DECENTRALISED,
        new_signer: Callable[[], Signer | None] = lambda: None,
        detectors: DetectorFactory | None = None,
        broadcaster: Broadcaster | None = None,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self._new_signer = new_signer
        self._cache = cache
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
        stable: StableState,
        is_copy: bool,
        has_disk: bool,
        is_new: bool,
    ) -> Core | Client:
        """The next core, without seeds; the arguments are those of `Core`."""
        signer = self._new_signer()
        me = Member.create(
            self.identity.name,
            self.identity.address,
            self._rng.randbytes(INCARNATION_BYTES) if signer is None else incarnation_of(signer.public_key),
            self.identity.metadata,
        )
        if self._mode is Mode.CENTRALISED:
            return Client(
                me,
                seeds=(),
                settings=self.settings,
                rng=random.Random(self._rng.getrandbits(64)),
                cluster_id=cluster_id,
                is_new=is_new,
                cache=self._cache,
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
            is_new=is_new,
            cache=self._cache,
            detectors=self._detectors,
            signer=signer,
            broadcaster=self._broadcaster,
        )
