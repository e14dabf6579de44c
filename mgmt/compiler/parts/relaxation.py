"""A first plan where some demands have no shape and there are many cells: from those that have one.

The others are left out, and the database says what they make of the plan.  If it breaks none of them it is a plan of
all, and optimal up to the first tier that something was left out of; if there is none, there is none of all either.
The constraint model goes on from it, and it stands where that takes too long.

What it is not: it does not look for another plan where one breaks what was left out (see ``constraint_model``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.compiler.decisions import Assignments, Decided, Impossible, no_assignments
from mgmt.compiler.parts.assignment import ColumnarPart
from mgmt.compiler.parts.constraint_model import GeneralPart
from mgmt.compiler.verification.oracle import Oracle, Verdict
from mgmt.errors import PolicyError, SolveTimeout
from mgmt.language.bound_queries.queries import Demand
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.general.lexicographic import TierResult
from mgmt.state.database import Snapshot

_SHARE = 0.25
"""Of the budget at most, so that some is left for what was left out."""
_ENCODED = 0.5
"""Of what is left then, all must be encoded in this share: what takes longer is not solved in the rest."""


@dataclass(frozen=True, slots=True)
class RelaxedPart:
    """A part without some of its demands."""

    columnar: ColumnarPart

    def solve(
        self, snapshot: Snapshot, oracle: Oracle, *, budget: float, seed: int, workers: int
    ) -> Decided | Impossible | None:
        """A plan that keeps what was left out, too; None where the one that was found does not."""
        try:
            found = self.columnar.solve(budget=_SHARE * budget, seed=seed, workers=workers)
        except (NotAnAssignment, SolveTimeout):
            return None
        if isinstance(found, Impossible):
            return found
        assignments: Assignments = no_assignments(snapshot.schema)
        assignments.update(found.assignments)
        verdict = oracle.examine(snapshot, assignments)
        if verdict.violations:
            return None
        demands = {each.demand.name: each.demand.bound.demand for each in self.columnar.part.formulations}
        objectives = {name: one for name, one in demands.items() if one is not None and one.is_objective}
        tiers = tuple(self._tiers(found, objectives, verdict))
        return replace(found, tiers=tiers, claims={}, objectives=tuple(objectives))

    def _tiers(self, found: Decided, objectives: Mapping[str, Demand], verdict: Verdict) -> list[TierResult]:
        """What the plan is worth, and the bounds of the tiers before the first that something was left out of."""
        known = {result.tier: result for result in found.tiers}
        values: dict[int, int] = {}
        for name, demand in objectives.items():
            sign = -1 if demand.maximize else 1
            value = sign * demand.tail.weight * verdict.objectives[name]
            values[demand.tail.tier] = values.get(demand.tail.tier, 0) + value
        unknown = min(
            (objectives[name].tail.tier for name in self.columnar.left_out.keys() & objectives.keys()),
            default=None,
        )
        return [
            known[tier] if unknown is None or tier < unknown else TierResult(tier, value, None, False)
            for tier, value in sorted(values.items())
        ]


@dataclass(frozen=True, slots=True)
class StartedPart:
    """A part with a first plan, and the same cell by cell."""

    relaxed: RelaxedPart
    first: Decided | Impossible
    general: GeneralPart | None
    """None where it would not better the plan, or takes too long."""

    @classmethod
    def encode(
        cls,
        snapshot: Snapshot,
        relaxed: RelaxedPart,
        first: Decided | Impossible,
        encode: Callable[[], GeneralPart],
        *,
        budget: float,
    ) -> StartedPart:
        """``encode``: encode all cell by cell."""
        general = None
        if isinstance(first, Decided) and not all(result.proven for result in first.tiers):
            # Too long, too many rows: whatever it is, the first plan stands.
            with suppress(PolicyError), snapshot.within(_ENCODED * budget):
                general = encode()
        return cls(relaxed, first, general)

    def current(self, assignments: Assignments) -> bool:
        """Put today's values in; whether every cell has one that needs one."""
        return self.relaxed.columnar.current(assignments)

    def solve(
        self, present: Verdict | None, *, deadline: Deadline, seed: int, workers: int
    ) -> Decided | Impossible:
        """The first plan, or a better one."""
        first = self.first
        if self.general is None or isinstance(first, Impossible):
            return first
        try:
            found = self.general.solve(
                present, deadline=deadline, seed=seed, workers=workers, first=first.assignments
            )
        except SolveTimeout:
            return first
        return found if isinstance(found, Impossible) or _values(found) <= _values(first) else first


def _values(decided: Decided) -> list[int]:
    return [result.value for result in sorted(decided.tiers, key=lambda result: result.tier)]
