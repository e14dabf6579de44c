"""How much too strict the demands are: the least by which some of them must give for the rest to hold.

Rows of the constraints named get slack, at a price: what they demand may be missed by an amount (of a sum or a count),
or be waived for a row altogether.  The cheapest way is found, everything else staying as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mgmt.optimization.backends import AnswerStatus, Backend
from mgmt.optimization.problem import FALSE, LIMIT, Linear, Problem, Row, Tag, add
from mgmt.solution import PrimaryKey, Value

Placement: TypeAlias = Mapping[tuple[str, str], Mapping[PrimaryKey, Value]]


@dataclass(frozen=True, slots=True)
class Give:
    """What one row must give: ``above`` its upper bound, ``below`` its lower one, or all of it (``waived``)."""

    tag: Tag
    above: int = 0
    below: int = 0
    waived: bool = False


@dataclass(frozen=True, slots=True)
class Slack:
    """A way to make a problem satisfiable.  ``least``: no cheaper one exists."""

    gives: tuple[Give, ...]
    least: bool
    placement: Placement | None = None
    """The values of all variables, by table and column, that are satisfied then; None: they were not looked for."""
    values: Sequence[int] = ()
    """Those of the variables of the problem."""


def least_slack(
    problem: Problem,
    backend: Backend,
    *,
    amounts: Callable[[Tag], bool] = lambda tag: False,
    waivers: Callable[[Tag], bool] = lambda tag: False,
    seconds: float,
    seed: int,
) -> Slack | None:
    """The least that rows must give: of those of ``amounts`` the total, of those of ``waivers`` the number.

    What rows of one tag must give is one amount.  None when that cannot help: the rest clashes by itself, something
    that is no amount is to give by one, or no answer was found in time.
    """
    loose = _Loose(problem, amounts, waivers)
    paid = loose.paid
    if loose.hopeless or not paid or seconds <= 0:
        return None
    if sum(loose.problem.upper[variable] for variable in paid) > LIMIT:
        return None
    total = Linear(0, tuple(sorted(paid)), tuple(1 for _ in paid))
    answer = backend.load(loose.problem).minimize(total, {}, seconds, seed, 1)
    if answer.values is None:
        return None
    return Slack(
        tuple(loose.gives(answer.values)), answer.status is AnswerStatus.OPTIMAL, None, answer.values
    )


class _Loose:
    """A copy of a problem in which some rows may give."""

    def __init__(
        self, problem: Problem, amounts: Callable[[Tag], bool], waivers: Callable[[Tag], bool]
    ) -> None:
        # What is defined already is found again, redundant rows are not needed.
        self.problem = replace(
            problem,
            lower=list(problem.lower),
            upper=list(problem.upper),
            clauses=list(problem.clauses),
            cardinalities=list(problem.cardinalities),
            rows=list(problem.rows),
            redundant=[],
            operations=list(problem.operations),
            objectives=[],
            conjunctions=dict(problem.conjunctions),
        )
        self._amounts, self._waivers = amounts, waivers
        self._above: dict[Tag, int] = {}
        self._below: dict[Tag, int] = {}
        self._waived: dict[Tag, int] = {}
        self.hopeless = False
        """Something is to give by an amount that has none."""
        for number, clause in enumerate(problem.clauses):
            self._require_no_amount(clause.tag if clause.literals else None)
            literal = self._waive(clause.tag)
            if literal != FALSE:
                self.problem.clauses[number] = replace(clause, literals=(*clause.literals, literal))
        for number, part in enumerate(problem.cardinalities):
            self._require_no_amount(part.tag)
            literal = self._waive(part.tag)
            if literal != FALSE:
                enforcement = self.problem.conjunction((part.enforcement, literal ^ 1))
                self.problem.cardinalities[number] = replace(part, enforcement=enforcement)
        for number, row in enumerate(problem.rows):
            self.problem.rows[number] = self._row(row)

    @property
    def paid(self) -> list[int]:
        """The variables that say what is given."""
        waived = (literal // 2 for literal in self._waived.values())
        return [*self._above.values(), *self._below.values(), *waived]

    def gives(self, values: Sequence[int]) -> list[Give]:
        tags = dict.fromkeys((*self._above, *self._below, *self._waived))
        found = [
            Give(
                tag,
                values[self._above[tag]] if tag in self._above else 0,
                values[self._below[tag]] if tag in self._below else 0,
                tag in self._waived and bool(values[self._waived[tag] // 2]),
            )
            for tag in tags
        ]
        return [give for give in found if give.above or give.below or give.waived]

    def _require_no_amount(self, tag: Tag | None) -> None:
        self.hopeless |= tag is not None and self._amounts(tag)

    def _waive(self, tag: Tag | None) -> int:
        """A literal that holds where a tag is let go."""
        if tag is None or not self._waivers(tag):
            return FALSE
        if tag not in self._waived:
            self._waived[tag] = self.problem.new_literal()
        return self._waived[tag]

    def _row(self, row: Row) -> Row:
        literal = self._waive(row.tag)
        if literal != FALSE:
            return replace(row, enforcement=self.problem.conjunction((row.enforcement, literal ^ 1)))
        if row.tag is None or not self._amounts(row.tag):
            return row
        low, high = self.problem.range_of(row.linear)
        linear = row.linear
        if row.upper is not None and high > row.upper:
            linear = add(linear, Linear(0, (self._slack(self._above, row.tag, high - row.upper),), (-1,)))
        if row.lower is not None and low < row.lower:
            linear = add(linear, Linear(0, (self._slack(self._below, row.tag, row.lower - low),), (1,)))
        return replace(row, linear=linear)

    def _slack(self, slacks: dict[Tag, int], tag: Tag, most: int) -> int:
        if tag not in slacks:
            slacks[tag] = self.problem.new_variable(0, most)
        self.problem.upper[slacks[tag]] = max(self.problem.upper[slacks[tag]], most)
        return slacks[tag]
