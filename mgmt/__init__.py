"""The management plane: state database, policy language, compiler, solvers, plans and the control loop.

Names are resolved on first use, so that a process which never solves does not load the solver, the SQL
parser or numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgmt.control_errors import (
        ControlError,
        DrainRefusedError,
        EngineUnreachableError,
        IntentError,
        NotControllerError,
        PlacementError,
        SolverUnavailableError,
        UndecidedError,
        UnknownHostError,
    )
    from mgmt.control_events import ControlEvent
    from mgmt.control_settings import ControlSettings
    from mgmt.controller import Controller
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
    from mgmt.execution import ExecutionLimits
    from mgmt.hosts import Host, HostView, controller_of
    from mgmt.intent import Intent, PolicyChoice
    from mgmt.model import Model
    from mgmt.placement_solver import PlacementSolver, PolicySolver
    from mgmt.plan import Move, Plan
    from mgmt.policies import PolicyPack, load_pack
    from mgmt.requests import DryRun
    from mgmt.solution import Delta, ObjectiveValue, Solution, SolveStatus
    from mgmt.solvers import AsyncSolver, ThreadSolver
    from mgmt.source import Position, SourceText

_HOMES = {
    "mgmt.control_errors": (
        "ControlError",
        "DrainRefusedError",
        "EngineUnreachableError",
        "IntentError",
        "NotControllerError",
        "PlacementError",
        "SolverUnavailableError",
        "UndecidedError",
        "UnknownHostError",
    ),
    "mgmt.control_events": ("ControlEvent",),
    "mgmt.control_settings": ("ControlSettings",),
    "mgmt.controller": ("Controller",),
    "mgmt.execution": ("ExecutionLimits",),
    "mgmt.hosts": (
        "Host",
        "HostView",
        "controller_of",
    ),
    "mgmt.intent": (
        "Intent",
        "PolicyChoice",
    ),
    "mgmt.placement_solver": (
        "PlacementSolver",
        "PolicySolver",
    ),
    "mgmt.plan": (
        "Move",
        "Plan",
    ),
    "mgmt.requests": ("DryRun",),
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
    "mgmt.solvers": ("AsyncSolver", "ThreadSolver"),
    "mgmt.source": ("Position", "SourceText"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Every name of the table above; a test keeps the two equal.
__all__ = [
    "AmbiguousColumnError",
    "AsyncSolver",
    "ControlError",
    "ControlEvent",
    "ControlSettings",
    "Controller",
    "CoreMember",
    "DataError",
    "Database",
    "Delta",
    "DrainRefusedError",
    "DryRun",
    "DuplicateNameError",
    "EmptyDomainError",
    "EngineUnreachableError",
    "ExecutionLimits",
    "Host",
    "HostView",
    "InfeasibleError",
    "Intent",
    "IntentError",
    "Model",
    "Move",
    "NoConstraintsError",
    "NotControllerError",
    "ObjectiveValue",
    "OverflowError",
    "PlacementError",
    "PlacementSolver",
    "Plan",
    "PolicyChoice",
    "PolicyError",
    "PolicyPack",
    "PolicySolver",
    "PolicySyntaxError",
    "Position",
    "Snapshot",
    "Solution",
    "SolveStatus",
    "SolveTimeout",
    "SolverUnavailableError",
    "SourceText",
    "StalePlanError",
    "ThreadSolver",
    "TypeMismatchError",
    "UnboundedDomainError",
    "UndecidedError",
    "UnknownColumnError",
    "UnknownFunctionError",
    "UnknownHostError",
    "UnknownTableError",
    "UnsupportedConstructError",
    "VerificationError",
    "controller_of",
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
