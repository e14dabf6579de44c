"""Rows about two numbers: literals that say how far apart they are at least, and clauses of such literals.

A *difference* is ``before + gap <= after``; where a row bounds one number alone, the other one is ZERO.  Clauses are
what is demanded, without the conjunctions that stand in it: one that holds is all of its literals, and that one does
not hold says that one of them does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from mgmt.optimization.columns import TRUE, Mask
from mgmt.optimization.problem import NO_BOUND, LinearRows, LiteralRows, Problem, Relation

ZERO = 0
"""In place of a variable: variable 0 is a constant, and of no use in a difference."""
MOST_ROWS = 200_000
"""Rows that are looked at one by one: what has more is for no solver that needs to know of schedules."""


class Difference(NamedTuple):
    before: int
    gap: int
    after: int


Clause: TypeAlias = tuple[int, ...]


class Differences:
    """Those of a problem, and what is demanded of them."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @cached_property
    def implied(self) -> dict[int, Difference]:
        """By literal, what it implies; TRUE is left out."""
        found: dict[int, Difference] = {}
        for block in self._linear():
            for row in np.flatnonzero(self._is_difference(block) & (block.enforcement != TRUE)).tolist():
                found[int(block.enforcement[row])] = self._difference(block, row)
        return found

    @cached_property
    def conjunctions(self) -> dict[int, list[int]]:
        """By literal, those that hold exactly when it does, all of them."""
        found: dict[int, list[int]] = {}
        for block in self._problem.conjunctions:
            for row, target in enumerate(block.targets.tolist()):
                found[target] = block.literals.row(row).tolist()
        return found

    @property
    def few(self) -> bool:
        """Whether there are any that solvers could put to use, and not too many to look at."""
        counts = [
            (int(np.count_nonzero(self._is_difference(block))), len(block.enforcement))
            for block in self._linear()
        ]
        return any(some for some, _ in counts) and sum(rows for _, rows in counts) <= MOST_ROWS

    def spelt_out(self, literal: int) -> Difference | None:
        """The difference that holds exactly when this literal does."""
        one, other = self.implied.get(literal), self.implied.get(literal ^ 1)
        if one is None or other != Difference(one.after, 1 - one.gap, one.before):
            return None
        return one

    def clauses(self) -> Iterator[Clause]:
        """What rows demand in which a literal stands that implies a difference."""
        marked = np.zeros(2 * self._problem.variables, np.bool_)
        marked[list(self.implied)] = True
        targets = np.array([*self.conjunctions], np.int64)
        marked[targets] = marked[targets ^ 1] = True
        for block in self._problem.rows:
            if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
                wanted = block.literals.any(marked[block.literals.items]) & (block.enforcement == TRUE)
                for row in np.flatnonzero(wanted).tolist():
                    yield from self._expanded(tuple(block.literals.row(row).tolist()))

    def _expanded(self, clause: Clause) -> Iterator[Clause]:
        """The same in as many clauses as it takes, without conjunctions."""
        if len(clause) == 1 and clause[0] in self.conjunctions:
            for literal in self.conjunctions[clause[0]]:
                yield from self._expanded((literal,))
        elif len(clause) == 1 and clause[0] ^ 1 in self.conjunctions:
            yield from self._expanded(tuple(each ^ 1 for each in self.conjunctions[clause[0] ^ 1]))
        else:
            yield tuple(dict.fromkeys(each for literal in clause for each in self._alternatives(literal)))

    def _alternatives(self, literal: int) -> list[int]:
        """One of these holds exactly when it does."""
        parts = self.conjunctions.get(literal ^ 1)
        if parts is None:
            return [literal]
        return [each for part in parts for each in self._alternatives(part ^ 1)]

    def equal(self, literals: set[int]) -> dict[int, list[tuple[int, int]]]:
        """By literal, pairs of others that cannot both hold unless it does."""
        found: dict[int, list[tuple[int, int]]] = {}
        wanted = np.zeros(2 * self._problem.variables, np.bool_)
        wanted[list(literals)] = True
        for block in self._problem.rows:
            if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
                three = (block.literals.lengths == 3) & (block.enforcement == TRUE)
                for row in np.flatnonzero(three & block.literals.any(wanted[block.literals.items])).tolist():
                    some = block.literals.row(row).tolist()
                    for literal in some:
                        if wanted[literal]:
                            one, other = (each ^ 1 for each in some if each != literal)
                            found.setdefault(literal, []).append((one, other))
        return found

    # ---- rows ---------------------------------------------------------------------------------------

    def _linear(self) -> Iterator[LinearRows]:
        yield from (block for block in self._problem.rows if isinstance(block, LinearRows))

    def _is_difference(self, block: LinearRows) -> Mask:
        """Which rows bound a number on one side, or how far two are apart."""
        lengths, factors = block.linears.terms.lengths, block.linears.coefficients
        starts = block.linears.terms.starts[:-1]
        one_sided = (block.lower == -NO_BOUND) ^ (block.upper == NO_BOUND)
        units = ~block.linears.terms.any(np.abs(factors) != 1) & one_sided
        two = units & (lengths == 2)
        total = np.zeros(len(lengths), np.int64)
        total[two] = factors[starts[two]] + factors[starts[two] + 1]
        found: Mask = (two & (total == 0)) | (units & (lengths == 1))
        return found

    def _difference(self, block: LinearRows, row: int) -> Difference:
        linear = block.linears.row(row)
        sign, bound = (
            (1, int(block.upper[row])) if block.upper[row] < NO_BOUND else (-1, -int(block.lower[row]))
        )
        ends = {
            sign * factor: name for name, factor in zip(linear.variables, linear.coefficients, strict=True)
        }
        return Difference(ends.get(1, ZERO), sign * linear.constant - bound, ends.get(-1, ZERO))
