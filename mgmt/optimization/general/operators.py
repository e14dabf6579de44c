"""The definitions of a problem as operators: each variable the value of one operator over linear expressions.

So a solution is complete as soon as the choices are known: all that is defined follows, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, integers, stacked, truncated
from mgmt.optimization.general.evaluation import amounts, hold
from mgmt.optimization.problem import (
    NO_BOUND,
    Conjunctions,
    Definitions,
    Equalities,
    Gated,
    LiteralRows,
    OperationKind,
    Operations,
    Problem,
    Relation,
    Rows,
    Thresholds,
    defined_by,
)
from mgmt.optimization.products import FactoredProblem, FactoredValues


class Operator(Enum):
    """Of which operands a variable is what."""

    TOTAL = "the only one"
    AT_MOST_ZERO = "1 where the only one is at most 0, else 0"
    MAXIMUM = "the greatest"
    PRODUCT = "the product of two"
    QUOTIENT = "one divided by the other, truncated"
    REMAINDER = "what is left of that"
    MATCH = "1 where both of some pair are 1, else 0"


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """Variables that are the operator over the operands ``starts[i]:starts[i + 1]`` each."""

    operator: Operator
    variables: Integers
    starts: Integers
    operands: Linears

    def __len__(self) -> int:
        return len(self.variables)

    def take(self, places: Integers) -> Defined:
        if len(places) == len(self):
            return self
        operands = Lists(self.starts, np.arange(len(self.operands))).take(places)
        return Defined(
            self.operator, self.variables[places], operands.starts, self.operands.take(operands.items)
        )


_OPERATORS = {
    OperationKind.MAXIMUM: Operator.MAXIMUM,
    OperationKind.PRODUCT: Operator.PRODUCT,
    OperationKind.QUOTIENT: Operator.QUOTIENT,
    OperationKind.REMAINDER: Operator.REMAINDER,
}


def defined(problem: Problem) -> Iterator[Defined]:
    """All definitions, each block after those that it speaks of."""
    for block in problem.definitions:
        yield _as_operator(block)


def _as_operator(block: Definitions) -> Defined:
    variables = defined_by(block)
    each = np.arange(len(variables) + 1)
    if isinstance(block, Operations):
        return Defined(_OPERATORS[block.kind], variables, block.starts, block.operands)
    if isinstance(block, Conjunctions):
        missing = Linears.literals(block.literals.items ^ 1).summed(block.literals.owners, len(variables))
        negated = block.targets & 1  # then the variable says that something is missing
        tested = missing.scaled(1 - 2 * negated).plus(negated)
        return Defined(Operator.AT_MOST_ZERO, variables, each, tested)
    if isinstance(block, Thresholds):
        return Defined(Operator.AT_MOST_ZERO, variables, each, block.linears)
    if isinstance(block, Gated):
        both = _alternating(Linears.literals(block.literals), block.linears.take(_places(block)))
        return Defined(Operator.PRODUCT, variables, 2 * each, both)
    if isinstance(block, Equalities):
        pairs = _alternating(Linears.literals(block.literals.items), Linears.literals(block.counterparts))
        return Defined(Operator.MATCH, variables, 2 * block.literals.starts, pairs)
    return Defined(Operator.TOTAL, variables, each, block.linears)


def _places(block: Gated) -> Integers:
    return np.arange(len(block.variables))


def _alternating(one: Linears, other: Linears) -> Linears:
    order = np.arange(2 * len(one)).reshape(2, len(one)).T.ravel()
    return stacked([one, other]).take(order)


def operate(operator: Operator, starts: Integers, values: Integers) -> Integers:
    """The operator over the values ``starts[i]:starts[i + 1]``, for each i."""
    first = starts[:-1]
    if operator is Operator.TOTAL:
        return values[first]
    if operator is Operator.AT_MOST_ZERO:
        return (values[first] <= 0).astype(np.int64)
    if operator is Operator.MAXIMUM:
        return integers(np.maximum.reduceat(values, first)) if len(first) else values
    if operator is Operator.MATCH:
        both = np.append(values[::2] * values[1::2], 0)
        sums = np.concatenate(([0], np.cumsum(both)))
        return (sums[starts[1:] // 2] > sums[first // 2]).astype(np.int64)
    one, other = values[first], values[first + 1]
    if operator is Operator.PRODUCT:
        return one * other
    quotient = truncated(one, other)
    return quotient if operator is Operator.QUOTIENT else one - other * quotient


def completed(
    problem: FactoredProblem, chosen: Mapping[int, Integers], known: Integers, values: Integers
) -> FactoredValues | None:
    """The values of all variables (and sums), given these; None if something is neither known nor defined.

    ``chosen``: by the first cell of a grid the place of the value that each row takes, or -1.
    """
    flagged = {each.grid.first for each in problem.flagged_grids}
    cells, count = problem.grid_cells, problem.variables - problem.grid_cells
    others, told = filled(count, 0), np.zeros(count, np.bool_)
    others[0], told[0] = 1, True
    others[known - cells], told[known - cells] = values, True
    choices = [filled(grid.rows, NONE) for grid in problem.grids]
    for number, grid in enumerate(problem.grids):
        # One without rows or values has its first cell where the next grid has its own.
        if grid.rows and grid.values and grid.first not in flagged:
            if grid.first not in chosen:
                return None
            choices[number] = chosen[grid.first]
    whole = np.concatenate([filled(0, 0), *choices])
    problem.flag_choices(whole, others)
    found = FactoredValues(problem, whole, others).with_sums()
    for block in defined(problem):
        places = block.variables - cells
        new = np.flatnonzero(~told[places])
        if len(new):
            operands = amounts(block.operands, found)
            found.others[places] = operate(block.operator, block.starts, operands)
            told[places] = True
    return found if told.all() else None


def holds(problem: FactoredProblem, values: FactoredValues) -> bool:
    """Whether all demands hold."""
    return not any(True for _ in broken_rows(problem, values)) and problem.cells_hold(values)


def broken_rows(problem: FactoredProblem, values: FactoredValues) -> Iterator[tuple[Rows, Mask]]:
    """Each block of demands with the rows of it that do not hold; those on cells alone are not among them."""
    for block in problem.rows:
        if isinstance(block, LiteralRows):
            held = hold(block.literals.items, values)
            number = np.bincount(block.literals.owners[held], minlength=len(block.enforcement))
            low, high = {
                Relation.AT_LEAST_ONE: (1, NO_BOUND),
                Relation.AT_MOST_ONE: (0, 1),
                Relation.EXACTLY_ONE: (1, 1),
            }[block.relation]
            wrong = (number < low) | (number > high)
        else:
            worth = amounts(block.linears, values)
            wrong = (worth < block.lower) | (worth > block.upper)
        wrong &= hold(block.enforcement, values)
        if wrong.any():
            yield block, wrong
