"""How much too strict the demands are: the least by which some of them must give for the rest to hold.

Rows of the constraints named get slack, at a price: what they demand may be missed by an amount (of a sum or a count),
or be waived for a row altogether.  The cheapest way is found, everything else staying as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from mgmt.optimization.backends import AnswerStatus, Backend
from mgmt.optimization.columns import FALSE, LIMIT, Linear, Linears, Lists, Mask, integers, sum_of
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.problem import NO_BOUND, LiteralRows, Objective, Problem, Relation, Rows, Tag
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
    deadline: Deadline,
    seed: int,
) -> Slack | None:
    """The least that rows must give: of those of ``amounts`` the total, of those of ``waivers`` the number.

    What rows of one tag must give is one amount.  None when that cannot help: the rest clashes by itself, something
    that is no amount is to give by one, or no answer was found in time.
    """
    loose = _Loose(problem, amounts, waivers)
    paid = tuple(sorted(loose.paid))
    if loose.hopeless or not paid or deadline.passed:
        return None
    if sum(loose.problem.upper[list(paid)].tolist()) > LIMIT:
        return None
    total = Linear(0, paid, (1,) * len(paid))
    loose.problem.objectives.append(Objective("given", total, False, 1, 1))
    answer = backend.load(loose.problem).minimize(total, {}, deadline.left, seed, 1)
    if answer.values is None:
        return None
    values = answer.values.tolist()
    return Slack(tuple(loose.gives(values)), answer.status is AnswerStatus.OPTIMAL, None, values)


class _Loose:
    """A copy of a problem in which some rows may give."""

    def __init__(
        self, problem: Problem, amounts: Callable[[Tag], bool], waivers: Callable[[Tag], bool]
    ) -> None:
        # Redundant rows are not needed.
        self.problem = replace(
            problem,
            rows=list(problem.rows),
            redundant=[],
            operations=list(problem.operations),
            conjunctions=list(problem.conjunctions),
            gates=[],
            objectives=[],
            _lower=[problem.lower],
            _upper=[problem.upper],
        )
        self._above: dict[Tag, int] = {}
        self._below: dict[Tag, int] = {}
        self._waived: dict[Tag, int] = {}
        self.hopeless = False
        """Something is to give by an amount that has none."""
        for number, block in enumerate(problem.rows):
            if block.source is None:
                continue
            tags = [Tag(block.source.constraint, row) for row in block.source.rows.tolist()]
            if any(map(waivers, tags)):
                self.problem.rows[number] = self._waive(
                    block, [tag if waivers(tag) else None for tag in tags]
                )
            elif any(map(amounts, tags)):
                some: Mask = np.fromiter(map(amounts, tags), np.bool_, len(tags))
                self.problem.rows[number] = self._by_amounts(block, tags, some)

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

    def _waive(self, block: Rows, tags: Sequence[Tag | None]) -> Rows:
        """The block with a literal for each tag by which its rows are let go."""
        new = [tag for tag in dict.fromkeys(tags) if tag is not None and tag not in self._waived]
        self._waived.update(zip(new, self.problem.new_literals(len(new)).tolist(), strict=True))
        literals = integers([FALSE if tag is None else self._waived[tag] for tag in tags])
        if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
            owners = np.concatenate((block.literals.owners, np.arange(len(block.literals))))
            items = np.concatenate((block.literals.items, literals))
            return replace(block, literals=Lists.grouped(owners, items, len(block.literals)))
        return replace(block, enforcement=self.problem.conjunction(block.enforcement, literals ^ 1))

    def _by_amounts(self, block: Rows, tags: Sequence[Tag], some: Mask) -> Rows:
        if isinstance(block, LiteralRows):
            is_clause = block.relation is Relation.AT_LEAST_ONE
            self.hopeless |= not is_clause or bool(block.literals.lengths[some].any())
            return block
        low, high = self.problem.ranges(block.linears)
        linears = block.linears
        for slacks, most, sign in (
            (self._above, np.where(block.upper < NO_BOUND, high - block.upper, 0), -1),
            (self._below, np.where(block.lower > -NO_BOUND, block.lower - low, 0), 1),
        ):
            rows = np.flatnonzero((most > 0) & some)
            variables = [self._slack(slacks, tags[row], int(most[row])) for row in rows.tolist()]
            slack = Linears.single(integers(variables)).scaled(sign)
            linears = sum_of(linears, slack.summed(rows, len(linears)))
        return replace(block, linears=linears)

    def _slack(self, slacks: dict[Tag, int], tag: Tag, most: int) -> int:
        if tag not in slacks:
            slacks[tag] = int(self.problem.new_variables([0], [most])[0])
        upper = self.problem.upper
        upper[slacks[tag]] = max(int(upper[slacks[tag]]), most)
        return slacks[tag]
