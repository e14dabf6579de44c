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
        LogClient,
        LogClientError,
        LogError,
        LogUnavailableError,
        MapError,
        OutcomeUnknownError,
        Record,
        RecordLostError,
        ReplicatedDict,
        TrimmedError,
    )
    from membership import (
        Change,
        Cluster,
        Configuration,
        EvictionError,
        JoinError,
        Key,
        KeyRing,
        Member,
        MembershipEndedError,
        MembershipError,
        Settings,
        WaitTimeoutError,
        aio,
        application_check,
        blocking,
        join,
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
        load_pack,
    )

_HOMES = {
    "membership": (
        "Change",
        "Cluster",
        "Configuration",
        "EvictionError",
        "JoinError",
        "Key",
        "KeyRing",
        "Member",
        "MembershipEndedError",
        "MembershipError",
        "Settings",
        "WaitTimeoutError",
        "aio",
        "application_check",
        "blocking",
        "join",
    ),
    "datastore_adapter": (
        "LogClient",
        "LogClientError",
        "LogError",
        "LogUnavailableError",
        "MapError",
        "OutcomeUnknownError",
        "Record",
        "RecordLostError",
        "ReplicatedDict",
        "TrimmedError",
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
        "load_pack",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Change",
    "Cluster",
    "Configuration",
    "DataError",
    "Database",
    "EvictionError",
    "InfeasibleError",
    "JoinError",
    "Key",
    "KeyRing",
    "LogClient",
    "LogClientError",
    "LogError",
    "LogUnavailableError",
    "MapError",
    "Member",
    "MembershipEndedError",
    "MembershipError",
    "Model",
    "OutcomeUnknownError",
    "PolicyError",
    "Record",
    "RecordLostError",
    "ReplicatedDict",
    "Settings",
    "Solution",
    "SolveTimeout",
    "StalePlanError",
    "StateDatabaseError",
    "TrimmedError",
    "WaitTimeoutError",
    "aio",
    "application_check",
    "blocking",
    "join",
    "load_pack",
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
    return sorted({*globals(), *__all__, "__version__"})
