"""Why a row is where it is, and why it is not elsewhere: ask for the opposite, solve again, and compare."""

from __future__ import annotations

from dataclasses import dataclass

from mgmt.compiler.model import Model
from mgmt.errors import CoreMember, InfeasibleError, Relaxation
from mgmt.explaining.solutions.decisions import ASKED, Decision, decisions_of, required
from mgmt.explaining.solutions.difference import Difference, diff
from mgmt.language.names.catalog import domain_sql
from mgmt.solution import PrimaryKey, Solution, SolveStatus, Value


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of asking for another value.

    ``other`` is the value then: the one asked for, or the next best.  If it cannot be, ``core`` holds the constraints
    that forbid it (none: it is no value of the column at all); if it can, ``difference`` is what it costs.
    """

    decision: Decision
    chosen: Value
    before: Value
    other: Value
    core: tuple[CoreMember, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    difference: Difference | None = None
    proven: bool = True

    @property
    def possible(self) -> bool:
        return self.difference is not None

    @property
    def tie(self) -> bool:
        """Whether it is just as good."""
        return self.difference is not None and not self.difference.objectives


class Why(Verdict):
    """Why a decision is as it is: what happens if the value chosen is forbidden."""

    __slots__ = ()

    def __str__(self) -> str:
        subject = f"{self.decision}: {self.decision.variable} = {_shown(self.chosen)}"
        if not self.possible:
            if not self.core:
                return f"{subject}: there is no other value"
            return f"{subject} is required: without it these clash: {_names(self.core)}"
        if self.tie:
            return f"{subject} is one of several that are equally good; {_shown(self.other)} is another"
        assert self.difference is not None
        costs = ", ".join(map(str, self.difference.decisive))
        return f"{subject}: the next best is {_shown(self.other)}, and with it {costs}"


class WhyNot(Verdict):
    """Why a decision is not another value: what happens if it is."""

    __slots__ = ()

    def __str__(self) -> str:
        subject = f"{self.decision}: {self.decision.variable} = {_shown(self.other)}"
        if self.possible and self.chosen == self.other:
            return f"{subject} is what was chosen"
        if not self.possible:
            if not self.core:
                return f"{subject} cannot be: it is not one of the values to choose from"
            return f"{subject} cannot be: it clashes with {_names(self.core)}"
        if self.tie:
            return f"{subject} would be equally good; {_shown(self.chosen)} was chosen"
        assert self.difference is not None
        costs = ", ".join(map(str, self.difference.decisive))
        return f"{subject} can be, but then {costs}"


def why(
    model: Model,
    table: str,
    key: PrimaryKey,
    column: str | None = None,
    *,
    budget: float = 2.0,
    seed: int = 0,
) -> tuple[Why, ...]:
    """For each decision of a row (or that of a column): why it is as it is in the best solution.

    Raises InfeasibleError when there is no solution, SolveTimeout, and the errors of ``decisions_of``.
    """
    model = model.at()  # all that is compared is of one moment
    found = decisions_of(model, table, key, column)
    best = model.solve(budget, seed)
    return tuple(_why(model, decision, best, budget, seed) for decision in found)


def why_not(
    model: Model,
    table: str,
    key: PrimaryKey,
    value: Value,
    column: str | None = None,
    *,
    budget: float = 2.0,
    seed: int = 0,
) -> WhyNot:
    """Why a row does not have a value: the constraints that forbid it, or which tier gets worse by how much.

    Raises as :func:`why`; ``column`` is needed where the solver decides several.
    """
    model = model.at()
    found = decisions_of(model, table, key, column)
    fitting = [decision for decision in found if _in_domain(model, decision, value)]
    decision = (fitting or list(found))[0]
    best = model.solve(budget, seed)
    chosen, before = _chosen(model, best, decision)
    if not fitting:
        return WhyNot(decision, chosen, before, value)
    if chosen == value:
        return WhyNot(decision, chosen, before, value, difference=Difference((), ()))
    asked = required(model, decision, value)
    try:
        other = asked.solve(budget, seed)
    except InfeasibleError as error:
        core = tuple(member for member in error.core if member.constraint != ASKED)
        helpful = tuple(
            relaxation
            for relaxation in error.relaxations
            if all(waiver.constraint != ASKED for waiver in relaxation.waivers)
        )
        return WhyNot(decision, chosen, before, value, core, helpful)
    return WhyNot(
        decision, chosen, before, value, difference=diff(best, other), proven=_proven(best) and _proven(other)
    )


def _why(model: Model, decision: Decision, best: Solution, budget: float, seed: int) -> Why:
    chosen, before = _chosen(model, best, decision)
    asked = required(model, decision, chosen, equal=False)
    try:
        other = asked.solve(budget, seed)
    except InfeasibleError as error:
        core = tuple(member for member in error.core if member.constraint != ASKED)
        return Why(decision, chosen, before, None, core)
    next_best = other.value(decision.table, decision.variable, *decision.primary_key)
    return Why(
        decision,
        chosen,
        before,
        next_best,
        difference=diff(best, other),
        proven=_proven(best) and _proven(other),
    )


def _chosen(model: Model, best: Solution, decision: Decision) -> tuple[Value, Value]:
    """The value in a solution, and today's."""
    chosen = best.value(decision.table, decision.variable, *decision.primary_key)
    before = chosen
    for delta in best.deltas:
        place = (delta.table, delta.primary_key, delta.variable)
        if place == (decision.table, decision.primary_key, decision.variable):
            before = delta.old
    return chosen, before


def _in_domain(model: Model, decision: Decision, value: Value) -> bool:
    column = model.catalog.schema.table(decision.table).column(decision.variable)
    if value is None:
        return column.nullable
    if column.range is not None:
        return isinstance(value, int) and column.range[0] <= value <= column.range[1]
    sql = domain_sql(model.catalog, decision.table, decision.variable)
    return bool(model.database.execute(f"SELECT 1 FROM ({sql}) AS domain WHERE value = ?", (value,)))


def _proven(solution: Solution) -> bool:
    return solution.status is not SolveStatus.FEASIBLE


def _shown(value: Value) -> str:
    return "NULL" if value is None else str(value)


def _names(core: tuple[CoreMember, ...]) -> str:
    return ", ".join(str(member) for member in core)
