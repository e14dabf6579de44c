"""Who is in: strongly consistent membership of a cluster, as a library to embed.

    async with membership.join("10.0.0.5:7946", seeds=["10.0.0.1:7946"]) as cluster:
        async for change in cluster.changes():
            ...

The same for asyncio is `membership.aio.join`, for threads `membership.blocking.join`.

The names below are the public surface; everything else may change. The protocol's core, its messages
and effects are for hosts that drive it themselves, such as the simulator: see `membership.core`.
"""

import importlib
from typing import TYPE_CHECKING

from membership.address import Address, AddressError
from membership.broadcaster import Broadcaster, epidemic, unicast_to_all
from membership.configuration import Configuration
from membership.edge_detector import DetectorFactory, EdgeDetector, windowed
from membership.errors import EdgeError, EvictionError, MembershipError, RecoveryError
from membership.faults import FaultInjector, Faults
from membership.key_ring import Key, KeyNotInRingError, KeyRing, KeyRingError
from membership.member import Member, MemberError
from membership.member_check import ApplicationCheckError, application_check
from membership.mode import Mode
from membership.phi_detector import phi_accrual
from membership.settings import Settings, SettingsError

if TYPE_CHECKING:
    from membership import aio, blocking
    from membership.binding import InsecureBindError
    from membership.change import Change, ChangeFeed, ClusterStatus, MembershipEndedError
    from membership.cluster import Cluster, JoinArgumentError, join
    from membership.diagnosis import (
        JoinError,
        JoinRefusedError,
        JoinTimeoutError,
        SeedForeignClusterError,
        SeedKeyError,
        SeedNotRotaError,
        SeedsUnreachableError,
    )
    from membership.ensemble.service import Ensemble, serve_ensemble
    from membership.ensemble.storage import StateError
    from membership.ensemble.voter import EnsembleError
    from membership.last_view import LastViewError
    from membership.surface import ClusterSurface, WaitTimeoutError
    from membership.suspicions import Suspicions
    from membership.transport import (
        BindError,
        FrameStream,
        InMemoryNetwork,
        Transport,
        TransportError,
        open_service,
    )

# What needs trio is imported when it is first asked for: the simulator and tools that only parse
# addresses start without it.
_LAZY = {
    "BindError": "membership.transport",
    "Change": "membership.change",
    "ChangeFeed": "membership.change",
    "Cluster": "membership.cluster",
    "ClusterStatus": "membership.change",
    "ClusterSurface": "membership.surface",
    "FrameStream": "membership.transport",
    "InMemoryNetwork": "membership.transport",
    "Ensemble": "membership.ensemble.service",
    "EnsembleError": "membership.ensemble.voter",
    "InsecureBindError": "membership.binding",
    "JoinArgumentError": "membership.cluster",
    "JoinError": "membership.diagnosis",
    "JoinRefusedError": "membership.diagnosis",
    "JoinTimeoutError": "membership.diagnosis",
    "LastViewError": "membership.last_view",
    "MembershipEndedError": "membership.change",
    "SeedForeignClusterError": "membership.diagnosis",
    "SeedKeyError": "membership.diagnosis",
    "SeedNotRotaError": "membership.diagnosis",
    "SeedsUnreachableError": "membership.diagnosis",
    "Transport": "membership.transport",
    "TransportError": "membership.transport",
    "WaitTimeoutError": "membership.surface",
    "aio": "membership.aio",
    "blocking": "membership.blocking",
    "join": "membership.cluster",
    "StateError": "membership.ensemble.storage",
    "Suspicions": "membership.suspicions",
    "open_service": "membership.transport",
    "serve_ensemble": "membership.ensemble.service",
}

__all__ = [
    "Address",
    "AddressError",
    "ApplicationCheckError",
    "BindError",
    "Broadcaster",
    "Change",
    "ChangeFeed",
    "Cluster",
    "ClusterStatus",
    "ClusterSurface",
    "Configuration",
    "DetectorFactory",
    "EdgeDetector",
    "EdgeError",
    "Ensemble",
    "EnsembleError",
    "EvictionError",
    "FaultInjector",
    "Faults",
    "FrameStream",
    "InMemoryNetwork",
    "InsecureBindError",
    "JoinArgumentError",
    "JoinError",
    "JoinRefusedError",
    "JoinTimeoutError",
    "Key",
    "KeyNotInRingError",
    "KeyRing",
    "KeyRingError",
    "LastViewError",
    "Member",
    "MemberError",
    "MembershipEndedError",
    "MembershipError",
    "Mode",
    "RecoveryError",
    "SeedForeignClusterError",
    "SeedKeyError",
    "SeedNotRotaError",
    "SeedsUnreachableError",
    "Settings",
    "SettingsError",
    "StateError",
    "Suspicions",
    "Transport",
    "TransportError",
    "WaitTimeoutError",
    "aio",
    "application_check",
    "blocking",
    "epidemic",
    "join",
    "open_service",
    "phi_accrual",
    "serve_ensemble",
    "unicast_to_all",
    "windowed",
]


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'membership' has no attribute {name!r}")
    imported = importlib.import_module(module)
    value: object = imported if module == f"membership.{name}" else getattr(imported, name)
    globals()[name] = value
    return value
