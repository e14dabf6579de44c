"""Who is in: strongly consistent membership of a cluster, as a library to embed.

    async with membership.join("10.0.0.5:7946", seeds=["10.0.0.1:7946"]) as cluster:
        async for change in cluster.changes():
            ...

The same for asyncio is `membership.aio.join`, for threads `membership.blocking.join`.

The names below are the public surface; everything else may change. The protocol's core, its messages
and effects are for hosts that drive it themselves, such as the simulator: see `membership.protocol.core`.
"""

import importlib
from typing import TYPE_CHECKING

from membership.address import Address, AddressError
from membership.errors import EdgeError, EvictionError, MembershipError, RecoveryError
from membership.protocol.dissemination.broadcaster import Broadcaster, epidemic, unicast_to_all
from membership.protocol.monitoring.edge_detector import DetectorFactory, EdgeDetector, windowed
from membership.protocol.monitoring.phi_detector import phi_accrual
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member, MemberError
from membership.settings import Settings, SettingsError
from membership.wire.key_ring import Key, KeyNotInRingError, KeyRing, KeyRingError

if TYPE_CHECKING:
    from membership import aio, blocking
    from membership.cluster import Cluster, JoinArgumentError, join
    from membership.ensemble.voter import EnsembleError
    from membership.ensemble_service import Ensemble, serve_ensemble
    from membership.protocol.core.suspicions import Suspicions
    from membership.runtime.application_checks import ApplicationCheckError, application_check
    from membership.runtime.change_feed import Change, ChangeFeed, ClusterStatus, MembershipEndedError
    from membership.runtime.core_factory import Mode
    from membership.runtime.event_loops.trio_block import NotInTrioError
    from membership.runtime.join_diagnosis import (
        JoinError,
        JoinRefusedError,
        JoinTimeoutError,
        SeedForeignClusterError,
        SeedKeyError,
        SeedNotRotaError,
        SeedsUnreachableError,
    )
    from membership.runtime.last_view import LastViewError
    from membership.runtime.transport_setup import InsecureBindError
    from membership.runtime.voter_storage import StateError
    from membership.surface import ClusterSurface, WaitTimeoutError
    from membership.transport import (
        BindError,
        FrameStream,
        InMemoryNetwork,
        Transport,
        TransportError,
        open_service,
    )
    from membership.transport.faults import FaultInjector, Faults

# What needs trio is imported when it is first asked for: the simulator and tools that only parse
# addresses start without it.
_LAZY = {
    "ApplicationCheckError": "membership.runtime.application_checks",
    "application_check": "membership.runtime.application_checks",
    "FaultInjector": "membership.transport.faults",
    "Faults": "membership.transport.faults",
    "Mode": "membership.runtime.core_factory",
    "BindError": "membership.transport",
    "Change": "membership.runtime.change_feed",
    "ChangeFeed": "membership.runtime.change_feed",
    "Cluster": "membership.cluster",
    "ClusterStatus": "membership.runtime.change_feed",
    "ClusterSurface": "membership.surface",
    "FrameStream": "membership.transport",
    "InMemoryNetwork": "membership.transport",
    "Ensemble": "membership.ensemble_service",
    "EnsembleError": "membership.ensemble.voter",
    "InsecureBindError": "membership.runtime.transport_setup",
    "JoinArgumentError": "membership.cluster",
    "JoinError": "membership.runtime.join_diagnosis",
    "JoinRefusedError": "membership.runtime.join_diagnosis",
    "JoinTimeoutError": "membership.runtime.join_diagnosis",
    "LastViewError": "membership.runtime.last_view",
    "MembershipEndedError": "membership.runtime.change_feed",
    "NotInTrioError": "membership.runtime.event_loops.trio_block",
    "SeedForeignClusterError": "membership.runtime.join_diagnosis",
    "SeedKeyError": "membership.runtime.join_diagnosis",
    "SeedNotRotaError": "membership.runtime.join_diagnosis",
    "SeedsUnreachableError": "membership.runtime.join_diagnosis",
    "Transport": "membership.transport",
    "TransportError": "membership.transport",
    "WaitTimeoutError": "membership.surface",
    "aio": "membership.aio",
    "blocking": "membership.blocking",
    "join": "membership.cluster",
    "StateError": "membership.runtime.voter_storage",
    "Suspicions": "membership.protocol.core.suspicions",
    "open_service": "membership.transport",
    "serve_ensemble": "membership.ensemble_service",
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
    "NotInTrioError",
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


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
