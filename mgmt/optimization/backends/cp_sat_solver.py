"""CP-SAT as everything here asks it: without what it is known to get wrong, and on small models twice.

What is off in every model, of ortools 9.15:

- Presolve drops a condition whose row seems to hold without it, by sums of coefficients in 32 bits
  (google/or-tools 5293), so that solutions are lost, and what is left is called optimal, or a clash.  That is part of
  what ``presolve_inclusion_work_limit`` allows.
- Of conditional sums one of which holds, the loader learns a bound of both, wrong beyond 2^31, too: a clash that is
  none.  It runs where a model was not probed before: with little presolve or none, as for cores.  Where several workers
  share such a model the process aborts.
- A value is optimal where it is within ``absolute_gap_limit`` of the bound, both as floating-point numbers: beyond 2^53
  that is within some units.

``tests/mgmt/test_large_amounts.py`` decides whether a version of ortools still needs this, and whether it needs more.

What is called proven on a small model is asked for a second time, without presolve, where most errors have been.
Where the answers contradict each other nothing is proven, and the better solution is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.columns import Integers
from mgmt.optimization.contradictions import contradicted
from mgmt.optimization.deadline import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

KNOWN_ERRORS_OFF: Mapping[str, Any] = MappingProxyType(
    {
        "presolve_inclusion_work_limit": 0,
        "auto_detect_greater_than_at_least_one_of": False,
        "absolute_gap_limit": 0.0,
    }
)
"""Parameters that keep CP-SAT from what it is known to get wrong."""
_MOST_ASKED_TWICE = 300
"""Variables and constraints of a model that is asked for a second time."""
_WORK_FOR_A_SECOND_ANSWER = 0.02
"""In units that are about a second each: by work, so that the answer does not depend on who else is on the machine."""
_WORK_FOR_A_CORE = 2.0


class Effort(Enum):
    """What CP-SAT is to spend its time on."""

    NORMAL = MappingProxyType[str, Any]({})
    LIGHT = MappingProxyType[str, Any](
        {
            "cp_model_probing_level": 0,
            "symmetry_level": 0,
            "max_presolve_iterations": 1,
            "merge_at_most_one_work_limit": 0,
        }
    )
    """A first solution soon, without most of presolve, which brings bounds."""
    STRONG = MappingProxyType[str, Any]({"linearization_level": 2, "symmetry_level": 0})
    """Bounds."""
    CORE = MappingProxyType[str, Any](
        {
            "cp_model_presolve": False,
            "linearization_level": 2,
            "max_deterministic_time": _WORK_FOR_A_CORE,
        }
    )
    """Assumptions that clash.  They and presolve do not go together: feasible models end unknown with it."""
    SECOND = MappingProxyType[str, Any](
        {"cp_model_presolve": False, "max_deterministic_time": _WORK_FOR_A_SECOND_ANSWER}
    )
    """The same again, another way."""


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """``values`` of all variables, if a solution was found; ``bound`` on the objective, without its constant."""

    status: AnswerStatus
    values: Integers | None = None
    bound: int | None = None
    core: tuple[int, ...] = ()
    """Assumptions that clash."""


def ask(model: cp_model.CpModel, effort: Effort, *, seconds: float, seed: int, workers: int = 1) -> Reply:
    """What CP-SAT says of a model within so many seconds, the second answer included where it is asked twice.

    Raises OverflowError for a model whose sums leave 64 bits.
    """
    deadline = Deadline.after(seconds)
    first = _ask_once(model, effort, seconds, seed, workers)
    proto: Any = model.proto
    size = max(len(proto.variables), len(proto.constraints))
    claims = first.status in {AnswerStatus.OPTIMAL, AnswerStatus.INFEASIBLE}
    if not claims or size > _MOST_ASKED_TWICE or len(proto.assumptions) or deadline.passed:
        return first
    second = _ask_once(model, Effort.SECOND, deadline.left, seed, 1)
    return first if _agree(proto, first, second) else _contradicted(proto, first, second)


def _agree(proto: Any, first: Reply, second: Reply) -> bool:
    """Whether a second answer leaves what the first one claims as it is."""
    if second.status is AnswerStatus.UNKNOWN:
        return True
    if first.values is None or second.values is None:
        return first.values is second.values
    one, other = _worth(proto, first.values), _worth(proto, second.values)
    return one == other if second.status is AnswerStatus.OPTIMAL else one <= other


def _contradicted(proto: Any, first: Reply, second: Reply) -> Reply:
    """The better solution of two answers that contradict each other, with nothing proven."""
    found = [reply for reply in (first, second) if reply.values is not None]
    best = min(found, key=lambda reply: _worth(proto, reply.values))
    contradicted(f"CP-SAT: {_told(proto, first)}, and without presolve {_told(proto, second)}")
    return replace(best, status=AnswerStatus.FEASIBLE, bound=None)


def _told(proto: Any, reply: Reply) -> str:
    if reply.values is None or not proto.objective.vars:
        return str(reply.status)
    return f"{reply.status} at {_worth(proto, reply.values)}"


def _worth(proto: Any, values: Integers | None) -> int:
    """The objective, without its constant, of a solution."""
    assert values is not None
    terms = zip(proto.objective.vars, proto.objective.coeffs, strict=True)
    return sum(int(factor) * int(values[variable]) for variable, factor in terms)


def _ask_once(model: cp_model.CpModel, effort: Effort, seconds: float, seed: int, workers: int) -> Reply:
    from ortools.sat.python import cp_model  # brings pandas: half a second that few processes must pay

    solver = new_solver(seconds, seed, workers, effort)
    status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        reason = model.validate()
        if "overflow" in reason:
            raise OverflowError("sums may leave exact 64-bit integers", hint="use a larger unit")
        raise AssertionError(f"the solver rejects the model: {reason}")
    if status == cp_model.INFEASIBLE:
        core = tuple(solver.sufficient_assumptions_for_infeasibility())
        return Reply(AnswerStatus.INFEASIBLE, core=core)
    if status == cp_model.UNKNOWN:
        return Reply(AnswerStatus.UNKNOWN)
    response: Any = solver.response_proto
    values = np.array(response.solution, np.int64)
    bound = int(response.inner_objective_lower_bound)  # exact, where the other one is a floating-point number
    proven = status == cp_model.OPTIMAL and bound == _worth(model.proto, values)
    return Reply(AnswerStatus.OPTIMAL if proven else AnswerStatus.FEASIBLE, values, bound)


def new_solver(
    seconds: float, seed: int, workers: int = 1, effort: Effort = Effort.NORMAL
) -> cp_model.CpSolver:
    """A solver for a model: the only place where one is made."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters: Any = solver.parameters
    parameters.max_time_in_seconds = max(0.01, seconds)
    parameters.random_seed = seed % 2**31
    parameters.num_workers = workers
    if workers > 1:
        parameters.interleave_search = True  # the mode whose answer depends on the seed alone
    for name, value in {**effort.value, **KNOWN_ERRORS_OFF}.items():
        setattr(parameters, name, value)
    return solver
