"""The management plane: state database, policy language, compiler, solvers, plans and the control loop.

Names are resolved on first use, so that a process which never solves does not load the solver, the SQL
parser or numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgmt.database import Database, Snapshot
    from mgmt.errors import (
        AmbiguousColumnError,
        CoreMember,
        DataError,
        DuplicateNameError,
        EmptyDomainError,
        InfeasibleError,
        NoConstraintsError,
        OverflowError,  # noqa: A004 - the published name
        PolicyError,
        PolicySyntaxError,
        SolveTimeout,
        StalePlanError,
        TypeMismatchError,
        UnboundedDomainError,
        UnknownColumnError,
        UnknownFunctionError,
        UnknownTableError,
        UnsupportedConstructError,
        VerificationError,
    )
    from mgmt.model import Model
    from mgmt.policies import PolicyPack, load_pack
    from mgmt.solution import Delta, ObjectiveValue, Solution, SolveStatus
    from mgmt.source import Position, SourceText

_HOMES = {
    "mgmt.database": ("Database", "Snapshot"),
    "mgmt.errors": (
        "AmbiguousColumnError",
        "CoreMember",
        "DataError",
        "DuplicateNameError",
        "EmptyDomainError",
        "InfeasibleError",
        "NoConstraintsError",
        "OverflowError",
        "PolicyError",
        "PolicySyntaxError",
        "SolveTimeout",
        "StalePlanError",
        "TypeMismatchError",
        "UnboundedDomainError",
        "UnknownColumnError",
        "UnknownFunctionError",
        "UnknownTableError",
        "UnsupportedConstructError",
        "VerificationError",
    ),
    "mgmt.model": ("Model",),
    "mgmt.policies": ("PolicyPack", "load_pack"),
    "mgmt.solution": ("Delta", "ObjectiveValue", "Solution", "SolveStatus"),
    "mgmt.source": ("Position", "SourceText"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Every name of the table above; a test keeps the two equal.
__all__ = [
    "AmbiguousColumnError",
    "CoreMember",
    "DataError",
    "Database",
    "Delta",
    "DuplicateNameError",
    "EmptyDomainError",
    "InfeasibleError",
    "Model",
    "NoConstraintsError",
    "ObjectiveValue",
    "OverflowError",
    "PolicyError",
    "PolicyPack",
    "PolicySyntaxError",
    "Position",
    "Snapshot",
    "Solution",
    "SolveStatus",
    "SolveTimeout",
    "SourceText",
    "StalePlanError",
    "TypeMismatchError",
    "UnboundedDomainError",
    "UnknownColumnError",
    "UnknownFunctionError",
    "UnknownTableError",
    "UnsupportedConstructError",
    "VerificationError",
    "load_pack",
]


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'mgmt' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
