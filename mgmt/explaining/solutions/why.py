"""Why a row is where it is, and why it is not elsewhere: ask for the opposite, solve near the plan, and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgmt.compiler.model import Model
from mgmt.errors import CoreMember, DataError, InfeasibleError, Relaxation
from mgmt.explaining.solutions.decisions import ASKED, Decision, decisions_of, parsed_value, required
from mgmt.explaining.solutions.difference import Difference, diff
from mgmt.explaining.solutions.nearest import Tell, nearest
from mgmt.language.names.catalog import domain_sql
from mgmt.optimization.deadline import Deadline
from mgmt.solution import PrimaryKey, Solution, SolveStatus, Value
from mgmt.state.schema import TEXTUAL, SqlType, storage

FIRST_SHARE = 0.5
"""Of the time, for the plan that is asked about."""


def quiet(_: str) -> None:
    """Nobody waits."""


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

    @property
    def consequences(self) -> Difference:
        """What else changes with it."""
        return Difference((), ()) if self.difference is None else self.difference.without(self.decision)

    def sentence(self, subject: str = "") -> str:
        """The answer, about the row or whatever it is called."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.sentence()

    def _has(self, value: Value, verb: str = "") -> str:
        """``has host h1`` or, with a verb, ``could have host h1``; of a flag ``is primary``, ``could be primary``."""
        column = self.decision.column
        if value is False:
            return f"{_NOT[verb]} {column}"
        if value is True:
            return f"{verb} be {column}" if verb else f"is {column}"
        return f"{verb} have {self._instead(value)}" if verb else f"has {self._instead(value)}"

    def _instead(self, value: Value) -> str:
        column = self.decision.column
        if isinstance(value, bool):
            return f"to be {column}" if value else f"not to be {column}"
        return f"no {column}" if value is None else f"{column} {value}"


_NOT = {"": "is not", "could": "need not be", "must": "must not be", "cannot": "must be"}


class Why(Verdict):
    """Why a decision is as it is: what happens if the value chosen is forbidden."""

    __slots__ = ()

    def sentence(self, subject: str = "") -> str:
        subject = subject or str(self.decision)
        if not self.possible:
            if not self.core:
                return f"{subject} {self._has(self.chosen, 'must')}: there is nothing else to choose"
            return f"{subject} {self._has(self.chosen, 'must')}: else these clash: {_names(self.core)}"
        assert self.difference is not None
        if self.tie:
            other = f"it {self._has(self.other, 'could')} just as well, at no cost"
            return f"{subject} {self._has(self.chosen)}; {other}"
        better = all(change.worse_by < 0 for change in self.difference.decisive)  # in too short a time
        rank = "only later was found" if better else "the next best is"
        other = f"{rank} {self._instead(self.other)}, which {self.difference.cost}"
        return f"{subject} {self._has(self.chosen)}; {other}"


class WhyNot(Verdict):
    """Why a decision is not another value: what happens if it is."""

    __slots__ = ()

    def sentence(self, subject: str = "") -> str:
        subject = subject or str(self.decision)
        if self.possible and self.chosen == self.other:
            return f"{subject} {self._has(self.other)}: it is what was chosen"
        if not self.possible:
            cannot = f"{subject} {self._has(self.other, 'cannot')}"
            if not self.core:
                return f"{cannot}: it is not one of the values to choose from"
            return f"{cannot}: it clashes with {_names(self.core)}"
        assert self.difference is not None
        could = f"{subject} {self._has(self.other, 'could')}"
        if self.tie:
            return f"{could} just as well, at no cost; it {self._has(self.chosen)}"
        return f"{could}, which {self.difference.cost}; it {self._has(self.chosen)}"


def why(
    model: Model,
    table: str,
    key: PrimaryKey,
    column: str | None = None,
    *,
    budget: float = 2.0,
    seed: int = 0,
    tell: Tell = quiet,
) -> tuple[Why, ...]:
    """For each decision of a row (or that of a column): why it is as it is in the best solution.

    All of it takes ``budget`` seconds at most.  Raises InfeasibleError when there is no solution, SolveTimeout, and the
    errors of ``decisions_of``.
    """
    model = model.at()  # all that is compared is of one moment
    return why_each(model, decisions_of(model, table, key, column), budget=budget, seed=seed, tell=tell)


def why_each(
    model: Model, decisions: Sequence[Decision], *, budget: float = 2.0, seed: int = 0, tell: Tell = quiet
) -> tuple[Why, ...]:
    """The same for decisions of any rows, of a model whose time stands still."""
    question = _Question.begun(model, budget, seed, tell)
    left = range(len(decisions), 0, -1)
    return tuple(question.why(decision, share=1 / n) for decision, n in zip(decisions, left, strict=True))


def why_not(
    model: Model,
    table: str,
    key: PrimaryKey,
    value: Value,
    column: str | None = None,
    *,
    budget: float = 2.0,
    seed: int = 0,
    tell: Tell = quiet,
) -> WhyNot:
    """Why a row does not have a value: the constraints that forbid it, or which tier gets worse by how much.

    Raises as :func:`why`; ``column`` is needed where several that the solver decides can have the value.
    """
    model = model.at()
    decision, meant = _meant(model, decisions_of(model, table, key, column), value)
    (answer,) = why_not_each(model, [decision], meant, budget=budget, seed=seed, tell=tell)
    return answer


def _meant(model: Model, decisions: Sequence[Decision], value: Value) -> tuple[Decision, Value]:
    """The first decision that can have the value, which may be a text for a number; or the first of all."""
    typed, refused = list[tuple[Decision, Value]](), list[DataError]()
    for decision in decisions:
        column = model.catalog.schema.table(decision.table).column(decision.variable)
        try:
            is_text = isinstance(value, str) and column.type is not SqlType.TEXT
            typed.append((decision, parsed_value(column, str(value)) if is_text else value))
        except DataError as error:
            refused.append(error)
    if not typed:
        raise refused[0]
    return next((each for each in typed if _in_domain(model, *each)), typed[0])


def why_not_each(
    model: Model,
    decisions: Sequence[Decision],
    value: Value,
    *,
    budget: float = 2.0,
    seed: int = 0,
    tell: Tell = quiet,
) -> tuple[WhyNot, ...]:
    """The same for several decisions, of a model whose time stands still."""
    question = _Question.begun(model, budget, seed, tell)
    left = range(len(decisions), 0, -1)
    return tuple(
        question.why_not(decision, value, share=1 / n) for decision, n in zip(decisions, left, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """A plan, and the time there is to ask about it."""

    model: Model
    best: Solution
    deadline: Deadline
    seed: int
    tell: Tell

    @classmethod
    def begun(cls, model: Model, budget: float, seed: int, tell: Tell) -> _Question:
        deadline = Deadline.after(budget, model.clock)
        tell("looking for the best plan")
        best = model.solve(FIRST_SHARE * budget, seed)
        return cls(model, best, deadline, seed, tell)

    def why(self, decision: Decision, share: float) -> Why:
        chosen, before = _chosen(self.best, decision)
        asked = required(self.model, decision, chosen, equal=False)
        try:
            other = self._nearest(asked, decision, share)
        except InfeasibleError as error:
            return Why(decision, chosen, before, None, _core(error))
        next_best = other.value(decision.table, decision.variable, *decision.primary_key)
        difference = diff(self.best, other)
        return Why(
            decision, chosen, before, next_best, difference=difference, proven=_proven(self.best, other)
        )

    def why_not(self, decision: Decision, value: Value, share: float) -> WhyNot:
        chosen, before = _chosen(self.best, decision)
        if not _in_domain(self.model, decision, value):
            return WhyNot(decision, chosen, before, value)
        if chosen == value:
            return WhyNot(decision, chosen, before, value, difference=Difference((), ()))
        asked = required(self.model, decision, value)
        try:
            other = self._nearest(asked, decision, share)
        except InfeasibleError as error:
            self.tell("looking for what would help")
            helpful = tuple(
                relaxation
                for relaxation in error.relaxations_within(self.deadline.left)
                if all(waiver.constraint != ASKED for waiver in relaxation.waivers)
            )
            return WhyNot(decision, chosen, before, value, _core(error), helpful)
        difference = diff(self.best, other)
        return WhyNot(
            decision, chosen, before, value, difference=difference, proven=_proven(self.best, other)
        )

    def _nearest(self, asked: Model, decision: Decision, share: float) -> Solution:
        return nearest(
            asked,
            self.best,
            [(decision.table, decision.primary_key)],
            bounded=True,
            deadline=self.deadline.part(share),
            seed=self.seed,
            tell=self.tell,
        )


def _core(error: InfeasibleError) -> tuple[CoreMember, ...]:
    """What clashes, without the question itself."""
    return tuple(member for member in error.core if member.constraint != ASKED)


def _chosen(best: Solution, decision: Decision) -> tuple[Value, Value]:
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
    if isinstance(value, (int, float) if column.type in TEXTUAL else str):
        return False  # a text is no number
    sql = domain_sql(model.catalog, decision.table, decision.variable)
    own = f"TRY_CAST(? AS {storage(column.type)})"
    return bool(model.database.execute(f"SELECT 1 FROM ({sql}) AS domain WHERE value = {own}", (value,)))


def _proven(*solutions: Solution) -> bool:
    return all(solution.status is not SolveStatus.FEASIBLE for solution in solutions)


def _names(core: tuple[CoreMember, ...]) -> str:
    return ", ".join(str(member) for member in core)
