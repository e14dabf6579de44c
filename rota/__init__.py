"""Who is in, and who does what: membership, a replicated log and policies in SQL, from one package.

    async with rota.join("10.0.0.5:7946", seeds=["10.0.0.1:7946"]) as cluster:
        async for change in cluster.changes():
            ...

What applications use is here, and is loaded on first use: who only joins a cluster loads no database and no solver.
The packages have more: ``membership``, ``datastore_adapter`` (the log), ``mgmt`` (policies).

The other modules of this package are the agent, the command line and the console; they are no public surface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datastore_adapter import (
        ExtentAwayError,
        LogClient,
        LogClientError,
        LogError,
        LogUnavailableError,
        MapError,
        MapSettings,
        OutcomeUnknownError,
        Record,
        RecordLostError,
        ReplicatedDict,
        Retention,
        TrimmedError,
        TrioRuntime,
    )
    from membership import (
        Address,
        Change,
        Cluster,
        ClusterStatus,
        Configuration,
        EdgeError,
        Ensemble,
        EvictionError,
        FaultInjector,
        Faults,
        FrameStream,
        JoinError,
        Key,
        KeyRing,
        Member,
        MembershipEndedError,
        MembershipError,
        Mode,
        Settings,
        TransportError,
        WaitTimeoutError,
        aio,
        application_check,
        blocking,
        epidemic,
        join,
        phi_accrual,
        serve_ensemble,
        unicast_to_all,
        windowed,
    )
    from mgmt import (
        Database,
        DataError,
        InfeasibleError,
        Model,
        PolicyError,
        Solution,
        SolveTimeout,
        StalePlanError,
        StateDatabaseError,
        decision_log,
        diff,
        headroom,
        lint,
        load_pack,
        remarks,
        what_if,
        why,
        why_not,
    )

_HOMES = {
    "membership": (
        "Address",
        "Change",
        "Cluster",
        "ClusterStatus",
        "Configuration",
        "EdgeError",
        "Ensemble",
        "EvictionError",
        "FaultInjector",
        "Faults",
        "FrameStream",
        "JoinError",
        "Key",
        "KeyRing",
        "Member",
        "MembershipEndedError",
        "MembershipError",
        "Mode",
        "Settings",
        "TransportError",
        "WaitTimeoutError",
        "aio",
        "application_check",
        "blocking",
        "epidemic",
        "join",
        "phi_accrual",
        "serve_ensemble",
        "unicast_to_all",
        "windowed",
    ),
    "datastore_adapter": (
        "ExtentAwayError",
        "LogClient",
        "LogClientError",
        "LogError",
        "LogUnavailableError",
        "MapError",
        "MapSettings",
        "OutcomeUnknownError",
        "Record",
        "RecordLostError",
        "ReplicatedDict",
        "Retention",
        "TrimmedError",
        "TrioRuntime",
    ),
    "mgmt": (
        "DataError",
        "Database",
        "InfeasibleError",
        "Model",
        "PolicyError",
        "Solution",
        "SolveTimeout",
        "StalePlanError",
        "StateDatabaseError",
        "decision_log",
        "diff",
        "headroom",
        "lint",
        "load_pack",
        "remarks",
        "what_if",
        "why",
        "why_not",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Address",
    "Change",
    "Cluster",
    "ClusterStatus",
    "Configuration",
    "DataError",
    "Database",
    "EdgeError",
    "Ensemble",
    "EvictionError",
    "ExtentAwayError",
    "FaultInjector",
    "Faults",
    "FrameStream",
    "InfeasibleError",
    "JoinError",
    "Key",
    "KeyRing",
    "LogClient",
    "LogClientError",
    "LogError",
    "LogUnavailableError",
    "MapError",
    "MapSettings",
    "Member",
    "MembershipEndedError",
    "MembershipError",
    "Mode",
    "Model",
    "OutcomeUnknownError",
    "PolicyError",
    "Record",
    "RecordLostError",
    "ReplicatedDict",
    "Retention",
    "Settings",
    "Solution",
    "SolveTimeout",
    "StalePlanError",
    "StateDatabaseError",
    "TransportError",
    "TrimmedError",
    "TrioRuntime",
    "WaitTimeoutError",
    "aio",
    "application_check",
    "blocking",
    "decision_log",
    "diff",
    "epidemic",
    "headroom",
    "join",
    "lint",
    "load_pack",
    "phi_accrual",
    "remarks",
    "serve_ensemble",
    "unicast_to_all",
    "what_if",
    "why",
    "why_not",
    "windowed",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from rota.version import VERSION

        return VERSION
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    try:
        found = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        from rota.imports import what_to_install

        raise ImportError(what_to_install(error, f"rota.{name}") or str(error), name=error.name) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})
