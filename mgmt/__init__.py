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
    from mgmt.control.settings import ControlSettings
    from mgmt.control.step_scheduling import ExecutionLimits
    from mgmt.errors import (
        AmbiguousColumnError,
        ControlError,
        CoreMember,
        DataError,
        DrainRefusedError,
        DuplicateNameError,
        EmptyDomainError,
        EngineUnreachableError,
        InfeasibleError,
        IntentError,
        NoConstraintsError,
        NotControllerError,
        OverflowError,  # noqa: A004 - the published name
        PlacementError,
        PolicyError,
        PolicySyntaxError,
        Relaxation,
        SolverUnavailableError,
        SolveTimeout,
        StalePlanError,
        StateDatabaseError,
        StatementTimeoutError,
        TypeMismatchError,
        UnboundedDomainError,
        UndecidedError,
        UnknownColumnError,
        UnknownFunctionError,
        UnknownHostError,
        UnknownTableError,
        UnsupportedConstructError,
        VerificationError,
        Waiver,
    )
    from mgmt.explaining.policies.lint import Finding, lint, remarks
    from mgmt.explaining.solutions.decision_log import LoggedMove, decision_log
    from mgmt.explaining.solutions.difference import Difference, diff
    from mgmt.explaining.solutions.headroom import Headroom, headroom
    from mgmt.explaining.solutions.replay_bundle import Bundle
    from mgmt.explaining.solutions.what_if import WhatIf, what_if
    from mgmt.explaining.solutions.why import Why, WhyNot, why, why_not
    from mgmt.language.policy_packs import PolicyPack, load_pack
    from mgmt.placement.hosts import Host, HostView, controller_of
    from mgmt.placement.intent import Intent, PolicyChoice
    from mgmt.plans.moves import Move
    from mgmt.plans.plan import Plan
    from mgmt.solution import Delta, ObjectiveValue, Solution, SolveStatus, Unassigned
    from mgmt.solving.async_solver import AsyncSolver, ThreadSolver
    from mgmt.solving.placement_solver import PlacementSolver, PolicySolver
    from mgmt.source_text import Position, SourceText
    from mgmt.state.database import Database, Snapshot

_HOMES = {
    "mgmt.control.events": "ControlEvent",
    "mgmt.control.settings": "ControlSettings",
    "mgmt.control.controller": "Controller",
    "mgmt.control.step_scheduling": "ExecutionLimits",
    "mgmt.placement.hosts": "Host HostView controller_of",
    "mgmt.placement.intent": "Intent PolicyChoice",
    "mgmt.solving.placement_solver": "PlacementSolver PolicySolver",
    "mgmt.plans.plan": "Plan",
    "mgmt.control.dry_run": "DryRun",
    "mgmt.plans.moves": "Move",
    "mgmt.state.database": "Database Snapshot",
    "mgmt.errors": (
        "AmbiguousColumnError ControlError CoreMember DataError DrainRefusedError "
        "DuplicateNameError EmptyDomainError EngineUnreachableError InfeasibleError IntentError "
        "NoConstraintsError NotControllerError OverflowError PlacementError PolicyError "
        "PolicySyntaxError Relaxation SolveTimeout SolverUnavailableError StalePlanError "
        "StateDatabaseError StatementTimeoutError TypeMismatchError UnboundedDomainError "
        "UndecidedError UnknownColumnError UnknownFunctionError UnknownHostError "
        "UnknownTableError UnsupportedConstructError VerificationError Waiver"
    ),
    "mgmt.compiler.model": "Model",
    "mgmt.explaining.solutions.replay_bundle": "Bundle",
    "mgmt.explaining.solutions.decision_log": "LoggedMove decision_log",
    "mgmt.explaining.solutions.difference": "Difference diff",
    "mgmt.explaining.solutions.headroom": "Headroom headroom",
    "mgmt.explaining.policies.lint": "Finding lint remarks",
    "mgmt.explaining.solutions.why": "Why WhyNot why why_not",
    "mgmt.explaining.solutions.what_if": "WhatIf what_if",
    "mgmt.language.policy_packs": "PolicyPack load_pack",
    "mgmt.solution": "Delta ObjectiveValue Solution SolveStatus Unassigned",
    "mgmt.solving.async_solver": "AsyncSolver ThreadSolver",
    "mgmt.source_text": "Position SourceText",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

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
    "remarks",
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
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
