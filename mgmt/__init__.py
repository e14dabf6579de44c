"""The management plane: state database, policy language, compiler, solvers, plans and the control loop.

Names are resolved on first use, so that a process which never solves does not load the solver, the SQL
parser or numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.control.controller import Controller
    from mgmt.control.dry_run import DryRun
    from mgmt.control.events import ControlEvent
    from mgmt.control.execution import ExecutionLimits
    from mgmt.control.settings import ControlSettings
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
        Relaxation,
        SolveTimeout,
        StalePlanError,
        StateDatabaseError,
        StatementTimeoutError,
        TypeMismatchError,
        UnboundedDomainError,
        UnknownColumnError,
        UnknownFunctionError,
        UnknownTableError,
        UnsupportedConstructError,
        VerificationError,
        Waiver,
    )
    from mgmt.explaining.bundles import Bundle
    from mgmt.explaining.decision_log import LoggedMove, decision_log
    from mgmt.explaining.difference import Difference, diff
    from mgmt.explaining.headroom import Headroom, headroom
    from mgmt.explaining.lint import Finding, lint
    from mgmt.explaining.placing import Why, WhyNot, why, why_not
    from mgmt.explaining.what_if import WhatIf, what_if
    from mgmt.language.policies import PolicyPack, load_pack
    from mgmt.placement.hosts import Host, HostView, controller_of
    from mgmt.placement.intent import Intent, PolicyChoice
    from mgmt.placement.moves import Move
    from mgmt.placement.plan import Plan
    from mgmt.solution import Delta, ObjectiveValue, Solution, SolveStatus, Unassigned
    from mgmt.solving.placement_solver import PlacementSolver, PolicySolver
    from mgmt.solving.solvers import AsyncSolver, ThreadSolver
    from mgmt.source import Position, SourceText
    from mgmt.state.database import Database, Snapshot

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
    "mgmt.control.events": ("ControlEvent",),
    "mgmt.control.settings": ("ControlSettings",),
    "mgmt.control.controller": ("Controller",),
    "mgmt.control.execution": ("ExecutionLimits",),
    "mgmt.placement.hosts": (
        "Host",
        "HostView",
        "controller_of",
    ),
    "mgmt.placement.intent": (
        "Intent",
        "PolicyChoice",
    ),
    "mgmt.solving.placement_solver": (
        "PlacementSolver",
        "PolicySolver",
    ),
    "mgmt.placement.plan": ("Plan",),
    "mgmt.control.dry_run": ("DryRun",),
    "mgmt.placement.moves": ("Move",),
    "mgmt.state.database": ("Database", "Snapshot"),
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
        "Relaxation",
        "SolveTimeout",
        "StalePlanError",
        "StateDatabaseError",
        "StatementTimeoutError",
        "TypeMismatchError",
        "UnboundedDomainError",
        "UnknownColumnError",
        "UnknownFunctionError",
        "UnknownTableError",
        "UnsupportedConstructError",
        "VerificationError",
        "Waiver",
    ),
    "mgmt.compiler.model": ("Model",),
    "mgmt.explaining.bundles": ("Bundle",),
    "mgmt.explaining.decision_log": (
        "LoggedMove",
        "decision_log",
    ),
    "mgmt.explaining.difference": (
        "Difference",
        "diff",
    ),
    "mgmt.explaining.headroom": (
        "Headroom",
        "headroom",
    ),
    "mgmt.explaining.lint": (
        "Finding",
        "lint",
    ),
    "mgmt.explaining.placing": (
        "Why",
        "WhyNot",
        "why",
        "why_not",
    ),
    "mgmt.explaining.what_if": (
        "WhatIf",
        "what_if",
    ),
    "mgmt.language.policies": ("PolicyPack", "load_pack"),
    "mgmt.solution": ("Delta", "ObjectiveValue", "Solution", "SolveStatus", "Unassigned"),
    "mgmt.solving.solvers": ("AsyncSolver", "ThreadSolver"),
    "mgmt.source": ("Position", "SourceText"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Every name of the table above; a test keeps the two equal.
__all__ = [
    "AmbiguousColumnError",
    "AsyncSolver",
    "Bundle",
    "ControlError",
    "ControlEvent",
    "ControlSettings",
    "Controller",
    "CoreMember",
    "DataError",
    "Database",
    "Delta",
    "Difference",
    "DrainRefusedError",
    "DryRun",
    "DuplicateNameError",
    "EmptyDomainError",
    "EngineUnreachableError",
    "ExecutionLimits",
    "Finding",
    "Headroom",
    "Host",
    "HostView",
    "InfeasibleError",
    "Intent",
    "IntentError",
    "LoggedMove",
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
    "Relaxation",
    "Snapshot",
    "Solution",
    "SolveStatus",
    "SolveTimeout",
    "SolverUnavailableError",
    "SourceText",
    "StalePlanError",
    "StateDatabaseError",
    "StatementTimeoutError",
    "ThreadSolver",
    "TypeMismatchError",
    "Unassigned",
    "UnboundedDomainError",
    "UndecidedError",
    "UnknownColumnError",
    "UnknownFunctionError",
    "UnknownHostError",
    "UnknownTableError",
    "UnsupportedConstructError",
    "VerificationError",
    "Waiver",
    "WhatIf",
    "Why",
    "WhyNot",
    "controller_of",
    "decision_log",
    "diff",
    "headroom",
    "lint",
    "load_pack",
    "what_if",
    "why",
    "why_not",
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
