"""Sums that go on from each other: of each, but for its last term, there is a row of its own.

What is in stock after a week is what was after the week before, and what is made in it.  With a variable for each sum
that goes on, a solver sees the flow from one to the next, and the bounds on it, and not long rows that overlap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from mgmt.optimization.columns import TRUE, Linear, Linears, difference, filled, integers
from mgmt.optimization.problem import NO_BOUND, LinearRows, Problem

_MOST_TERMS = 100_000
"""Of sums that are looked at one by one."""

_Terms: TypeAlias = frozenset[tuple[int, int]]
"""Variables with their coefficients."""


def with_running_sums(problem: Problem) -> Problem:
    """The same with variables for sums of numbers that others go on from."""
    sums = _sums(problem)
    before = {terms: (terms - {last}, last) for terms in sums for last in terms if terms - {last} in sums}
    continued = sorted({terms for terms, _ in before.values()}, key=lambda terms: (len(terms), sorted(terms)))
    if len(continued) < 2:
        return problem
    low, high = problem.ranges(Linears.of(*map(_linear, continued)))
    lower = np.maximum(low, integers([sums[terms][0] for terms in continued]))
    upper = np.minimum(high, integers([sums[terms][1] for terms in continued]))
    if (lower > upper).any():
        return problem
    found = replace(problem, rows=list(problem.rows), _lower=[problem.lower], _upper=[problem.upper])
    variables = found.new_variables(lower, upper)
    names = dict(zip(continued, variables.tolist(), strict=True))

    def written(terms: _Terms) -> Linear:
        if terms not in before:
            return _linear(terms)
        start, (variable, factor) = before[terms]
        return Linear(0, (variable, names[start]), (factor, 1))

    for number, block in enumerate(problem.rows):
        if isinstance(block, LinearRows):
            long = {
                row: replace(written(terms), constant=int(block.linears.constants[row]))
                for row, terms in _summed(problem, block).items()
                if terms in before
            }
            if long:
                linears = [long.get(row) or block.linears.row(row) for row in range(len(block.linears))]
                found.rows[number] = replace(block, linears=Linears.of(*linears))
    totals = difference(Linears.of(*map(written, continued)), Linears.single(variables))
    zero = filled(len(variables), 0)
    found.rows.append(LinearRows(totals, zero, zero, filled(len(variables), TRUE), None))
    return found


def _sums(problem: Problem) -> dict[_Terms, tuple[int, int]]:
    """Sums that are bounded, and by what."""
    found: dict[_Terms, tuple[int, int]] = {}
    blocks = [block for block in problem.rows if isinstance(block, LinearRows)]
    if sum(len(block.linears.terms.items) for block in blocks) > _MOST_TERMS:
        return found
    for block in blocks:
        for row, terms in _summed(problem, block).items():
            constant, low, high = (
                int(each[row]) for each in (block.linears.constants, block.lower, block.upper)
            )
            known = found.get(terms, (-NO_BOUND, NO_BOUND))
            low = low if low == -NO_BOUND else low - constant
            high = high if high == NO_BOUND else high - constant
            found[terms] = max(known[0], low), min(known[1], high)
    return found


def _summed(problem: Problem, block: LinearRows) -> dict[int, _Terms]:
    """The rows that always hold of sums in which there are numbers, not conditions alone."""
    terms = block.linears.terms
    numbers = problem.upper[terms.items] - problem.lower[terms.items] > 1
    wanted = (block.enforcement == TRUE) & terms.any(numbers)
    factors = block.linears.coefficients
    return {
        row: frozenset(
            zip(terms.row(row).tolist(), factors[slice(*terms.starts[row : row + 2])].tolist(), strict=True)
        )
        for row in np.flatnonzero(wanted).tolist()
    }


def _linear(terms: _Terms) -> Linear:
    ordered = sorted(terms)
    return Linear(0, tuple(variable for variable, _ in ordered), tuple(factor for _, factor in ordered))
