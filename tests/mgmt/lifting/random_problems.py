"""Tiny random problems over choices, and their twin: every choice, with all that is defined following from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np

from mgmt.optimization.assignment import NONE, Indices
from mgmt.optimization.columns import Integers, Linear, Linears, Lists, filled, integers
from mgmt.optimization.general.operators import completed, holds
from mgmt.optimization.lifting import ChoiceCells, ChoiceColumn
from mgmt.optimization.problem import Objective, Source
from mgmt.optimization.products import CellRows, FactoredProblem, FactoredValues, Grid, Side


def choice_of(
    rows: int, values: int, nullable: bool, current: Indices, *, twice: bool = False
) -> tuple[FactoredProblem, ChoiceCells]:
    """A problem with one column of choices (``twice``: and a grid beside it), and its cells: row by row, then NULL."""
    problem = FactoredProblem()
    grid = problem.new_grids([(rows, values, nullable), (rows, values, False)][: 1 + twice])[0]
    null = grid.null >> 1 if nullable else integers([])
    column = ChoiceColumn(np.arange(values), grid.first, (values, 1), null, not nullable, current)
    return problem, ChoiceCells(values, [column])


def with_flags(problem: FactoredProblem, cells: ChoiceCells, today: Indices) -> ChoiceCells:
    """The choices, and a flag beside each, which is the first of their values or none."""
    rows = cells.rows
    literals = problem.new_literals(rows)
    if len(problem.grids) > 1:
        problem.flag(problem.grids[0], problem.grids[1], literals)
    flags = ChoiceColumn(integers([0]), int(literals[0] >> 1), (1, 0), integers([]), False, today)
    return ChoiceCells(cells.values, [*cells.columns, flags])


class ProblemMaker:
    """One random problem per seed."""

    def __init__(self, seed: int, *, flagged: bool = False) -> None:
        self.random = random = Random(seed)
        most = (3, 2) if flagged else (5, 3)
        self.rows, self.values = random.randint(1, most[0]), random.randint(1, most[1])
        today = [random.randrange(self.values) for _ in range(self.rows)]
        nullable = random.random() < 0.4
        twice = flagged and not nullable and random.random() < 0.7
        self.problem, self.cells = choice_of(
            self.rows, self.values, nullable, np.array(today, np.int32), twice=twice
        )
        self._literals = self.problem.grids[0].cells
        if nullable:
            self._literals = np.append(self._literals, self.problem.grids[0].null)
        self._flags = integers([])
        if flagged:
            flags = np.array([random.choice((0, NONE)) for _ in range(self.rows)], np.int32)
            self.cells = with_flags(self.problem, self.cells, flags)
            self._flags = 2 * self.cells.columns[1].variables(np.arange(self.rows), integers([0]))
        self._groups = [random.randrange(2) for _ in range(self.rows)]
        self._buckets = [random.randrange(2) for _ in range(self.values)]
        self._weights = [random.choice((1, 1, 2, 5)) for _ in range(self.rows)]
        self._names = 0
        for _ in range(random.randint(0, 3)):
            self._demand()
        for tier in range(1, random.randint(1, 3)):
            for _ in range(random.randint(1, 2)):
                self._objective(tier)

    # ---- expressions and literals -------------------------------------------------------------------

    def _cell(self, row: int, value: int) -> int:
        return int(self._literals[row * self.values + value])

    def _flagged(self, row: int, value: int) -> int:
        """Both that the row has the value and that its flag holds."""
        both = self.problem.conjunction(self._flags[[row]], integers([self._cell(row, value)]))
        return int(both[0])

    def _load(self) -> Linears:
        """What some rows bring to some values."""
        random = self.random
        if random.random() < 0.1:
            return self._unmoved()
        values = random.choice(
            ([random.randrange(self.values)], [v for v in range(self.values) if self._buckets[v]])
        )
        group = random.choice((None, 0, 1))
        rows = [row for row in range(self.rows) if group is None or self._groups[row] == group]
        weighted = random.random() < 0.5
        flagged = len(self._flags) and random.random() < 0.5
        grids = self.problem.grids[1:] if flagged else self.problem.grids[:1]
        if grids and random.random() < 0.7:
            return self._product(grids[0], rows, values, weighted)
        cell = self._flagged if flagged else self._cell
        terms = [(cell(r, v), self._weights[r] if weighted else 1) for r in rows for v in values]
        return self._total([literal for literal, _ in terms], [factor for _, factor in terms])

    def _unmoved(self) -> Linears:
        """How many rows have the values of today."""
        rows = sorted(self.random.sample(range(self.rows), self.random.randint(1, self.rows)))
        today = self.cells.current[rows].tolist()
        return self._total(
            [self._cell(row, value) for row, value in zip(rows, today, strict=True)], [1] * len(rows)
        )

    def _product(self, grid: Grid, rows: list[int], values: list[int], weighted: bool) -> Linears:
        """The same, not written out; now and then values weigh, too, or rows less than nothing."""
        sign, prices = self.random.choice((1, 1, 1, -1)), self.random.choice(((1,), (1,), (2,), (1, 3)))
        weights = integers([sign * self._weights[row] if weighted else sign for row in rows])
        worth = integers([self.random.choice(prices) for _ in values])
        sides = (
            Side.of(integers(rows), weights, filled(len(rows), 0), 1),
            Side.of(integers(values), worth, filled(len(values), 0), 1),
        )
        return self.problem.new_sums(grid, *sides, integers([0]), integers([0]))

    def _total(self, literals: list[int], factors: list[int]) -> Linears:
        parts = Linears.literals(integers(literals), integers(factors))
        return parts.summed(filled(len(literals), 0), 1)

    def _number(self, depth: int = 2) -> Linears:
        random, problem = self.random, self.problem
        kind = random.randrange(8) if depth else random.randrange(2)
        if kind < 3:
            return self._load()
        if kind == 3:
            return Linears.literals(self._literal(depth - 1), random.choice((1, -2)))
        if kind == 4:
            two = [self._number(depth - 1) for _ in range(random.choice((2, 2, 3)))]
            sign = random.choice((1, -1))
            every = _stacked(two).scaled(sign)
            return problem.maximum(every, filled(len(two), 0), 1).scaled(sign)
        if kind == 5:
            return problem.product(self._number(depth - 1), self._number(0))
        if kind == 6:
            return problem.quotient(self._number(depth - 1), integers([random.choice((2, 3))]))
        return problem.gated(self._number(depth - 1), self._literal(0))

    def _literal(self, depth: int = 2) -> Integers:
        random, problem = self.random, self.problem
        kind = random.randrange(6) if depth else 0
        if kind < 2:
            some = self._flags if len(self._flags) and random.random() < 0.4 else self._literals
            return integers([int(random.choice(some.tolist())) ^ random.choice((0, 0, 1))])
        if kind == 2:
            return problem.at_most(self._number(depth - 1), random.randint(0, 3)) ^ random.randint(0, 1)
        if kind == 3:
            parts = [self._literal(depth - 1) for _ in range(random.randint(2, 3))]
            return problem.conjunction(*parts) ^ random.randint(0, 1)
        if kind == 4 and self.rows > 1:
            return self._same() ^ random.randint(0, 1)
        inside = [v for v in range(self.values) if self._buckets[v]]
        row = random.randrange(self.rows)
        return problem.disjunction_of(Lists.of([[self._cell(row, v) for v in inside]]))

    def _same(self) -> Integers:
        one, other = self.random.sample(range(self.rows), 2)
        mine = integers([self._cell(one, v) for v in range(self.values)])
        theirs = integers([self._cell(other, v) for v in range(self.values)])
        literal = self.problem.grids[0].null[[one]]
        return self.problem.equality(Lists(integers([0, len(mine)]), mine), theirs, literal)

    def _of_pairs(self) -> tuple[list[tuple[int, int]], Lists]:
        """Some pairs of rows, and literals that say the same of each: of what both have, or have not."""
        random, problem = self.random, self.problem
        every = [(one, other) for other in range(self.rows) for one in range(other)]
        kind, chain = random.randrange(5), [(row, row + 1) for row in range(self.rows - 1)]
        some = random.sample(every, random.randint(1, len(every)))
        pairs = [every, every, chain, [(0, row) for row in range(1, self.rows)], some][kind]
        inside = [v for v in range(self.values) if self._buckets[v]]
        grid, parts = self.problem.grids[0], random.sample(range(6), random.randint(1, 3))
        turned = [random.choice((0, 1)) for _ in parts]

        def said(part: int, one: int, other: int) -> int:
            if part < 2:
                return int(grid.null[(one, other)[part]])
            if part < 4:
                return int(
                    problem.disjunction_of(
                        Lists.of([[self._cell((one, other)[part - 2], v) for v in inside]])
                    )[0]
                )
            sets = [[v] for v in range(self.values)]
            if part == 5:  # the same bucket
                sets = [[v for v in range(self.values) if self._buckets[v] == bucket] for bucket in (0, 1)]
            mine, theirs = (
                problem.disjunction_of(Lists.of([[self._cell(row, v) for v in some] for some in sets]))
                for row in (one, other)
            )
            return int(problem.equality(Lists(integers([0, len(mine)]), mine), theirs, grid.null[[one]])[0])

        literals = [
            [said(part, *pair) ^ turn for part, turn in zip(parts, turned, strict=True)] for pair in pairs
        ]
        return pairs, Lists.of(literals)

    def _price_of_pairs(self) -> Linears:
        """Pairs pay where all of their literals hold: the same, by weights of both, or anything."""
        pairs, literals = self._of_pairs()
        random, kind = self.random, self.random.randrange(3)
        prices = [self._weights[one] * self._weights[other] for one, other in pairs]
        prices = [prices, [random.choice((1, 2, -1)) for _ in pairs], [random.choice((1, 3))] * len(pairs)][
            kind
        ]
        return self._total(self.problem.conjunction_of(literals).tolist(), prices)

    # ---- demands and objectives ---------------------------------------------------------------------

    def _source(self) -> Source:
        self._names += 1
        return Source(f"c{self._names}", integers([0]))

    def _demand(self) -> None:
        random, problem = self.random, self.problem
        kind = random.randrange(12)
        if kind == 11:
            self._demand_different_buckets()
        elif kind == 10:
            self._demand_of_others()
        elif kind == 9:
            self._demand_evenness()
        elif kind == 6:
            self._demand_of_cells()
        elif kind > 6 and self.rows > 1:
            pairs, literals = self._of_pairs()
            tags = Source(self._source().constraint, np.arange(len(pairs)))
            problem.require_any(literals, tags)
        elif kind < 2:
            low, high = random.choice(((None, 2), (None, 4), (1, None), (0, 3), (None, 0)))
            when = self._literal(1) if random.random() < 0.3 else None
            problem.require_range(self._number(), low, high, self._source(), when=when)
        elif kind < 4:
            parts = [self._literal() for _ in range(random.randint(1, 3))]
            problem.require_any(Lists.side_by_side(*parts), self._source())
        elif kind == 4:
            parts = [self._literal(1) for _ in range(random.randint(2, 3))]
            exactly = random.random() < 0.2
            problem.require_one(Lists.side_by_side(*parts), self._source(), exactly=exactly)
        else:  # every pair of some rows apart, as joins of a table with itself say it
            source = self._source()
            for one in range(self.rows):
                for other in range(one):
                    for value in range(self.values):
                        both = integers([self._cell(one, value) ^ 1, self._cell(other, value) ^ 1])
                        problem.require_any(Lists.side_by_side(both[:1], both[1:]), source)

    def _demand_evenness(self) -> None:
        """What some values have, and something besides, is not far above the least that any of them has."""
        random, problem, source = self.random, self.problem, self._source()
        weighted = random.random() < 0.3
        weights = self._weights if weighted else [1] * self.rows
        beside = [random.choice((0, 0, 1, 3)) for _ in range(self.values)]
        loads = [
            self._total([self._cell(row, value) for row in range(self.rows)], weights).plus(integers([more]))
            for value, more in enumerate(beside)
        ]
        greatest = problem.maximum(_stacked(loads).scaled(-1), filled(self.values, 0), 1)
        most, excused = random.randint(0, 2), random.choice((None, 0, 1))
        for load, more in zip(loads, beside, strict=True):
            above = _stacked([load, greatest]).summed(filled(2, 0), 1)
            parts = [problem.at_most(above, most + random.choice((0, 0, 0, 1)))]
            if excused is not None:
                parts.append(problem.at_most(load, excused + more))
            problem.require_any(Lists.side_by_side(*parts), source)

    def _demand_different_buckets(self) -> None:
        """Rows are in as many buckets as they are, or as are placed."""
        random, problem = self.random, self.problem
        rows = sorted(random.sample(range(self.rows), random.randint(1, self.rows)))
        buckets = [[v for v in range(self.values) if self._buckets[v] == bucket] for bucket in (0, 1)]
        if random.random() < 0.5:
            buckets = [[value] for value in range(self.values)]
        parts = []
        for bucket in buckets[random.choice((0, 0, 1)) :]:
            cells = [self._cell(row, value) for row in rows for value in bucket]
            load = self._total(cells, [1] * len(cells))
            used = problem.at_most(load, 0) ^ 1
            parts.append(Linears.literals(used))
        every = [self._cell(row, value) for row in rows for value in range(self.values)]
        placed = self._total(every, [-1] * len(every))
        total = _stacked([*parts, placed]).summed(filled(len(parts) + 1, 0), 1)
        sign = random.choice((1, -1))
        low, high = random.choice(((0, 0), (0, None)))
        least, most = (low, high) if sign > 0 else (None if high is None else -high, -low)
        problem.require_range(total.scaled(sign), least, most, self._source())

    def _demand_of_others(self) -> None:
        """Rows with some values have so many others in the same bucket, each of the weight of its row."""
        random, problem, source = self.random, self.problem, self._source()
        by_value = [[value] for value in range(self.values)]
        two = [[v for v in range(self.values) if self._buckets[v] == bucket] for bucket in (0, 1)]
        buckets = random.choice((by_value, [bucket for bucket in two if bucket]))[random.choice((0, 0, -1)) :]
        every = range(self.rows)
        inside = [
            [
                int(problem.disjunction_of(Lists.of([[self._cell(row, v) for v in bucket]]))[0])
                for bucket in buckets
            ]
            for row in every
        ]
        placed = [int(problem.disjunction_of(Lists.of([own]))[0]) for own in inside]
        seen = [value for value in range(self.values) if random.random() < 0.7]
        weights = self._weights if random.random() < 0.3 else [1] * self.rows
        low, high = random.choice(((None, 1), (None, 2), (1, None), (2, None), (1, 1)))
        asked = [row for row in every if random.random() < 0.7]
        counted = [row for row in every if random.random() < 0.8]
        itself, gated = random.random() < 0.4, random.random() < 0.4
        for row in asked:
            literals = [placed[row]] if itself else []
            for other in counted:
                if other != row:
                    pair = Lists.of([inside[row]]), integers(inside[other]), integers([placed[row] ^ 1])
                    match = problem.equality(*pair)
                    both = problem.conjunction(match, integers([placed[other]])) if gated else match
                    literals.append(int(both[0]))
            weigh = [weights[row]] * itself + [weights[other] for other in counted if other != row]
            total = self._total(literals, weigh)
            away = problem.disjunction_of(Lists.of([[self._cell(row, v) for v in seen]])) ^ 1
            bounds = [problem.at_most(total, high)] if high is not None else []
            bounds += [problem.at_most(total.scaled(-1), -low)] if low is not None else []
            for bound in bounds:
                problem.require_any(Lists.side_by_side(away, bound), source)

    def _demand_of_cells(self) -> None:
        """Of the cells of each group of rows with each bucket of values at most one holds, or none."""
        random, ones = self.random, filled(max(self.rows, self.values), 1)
        groups, buckets = integers(self._groups), integers(self._buckets)
        none = random.random() < 0.2
        rows = Side.of(np.arange(self.rows), ones[: self.rows], groups, 2)
        values = Side.of(np.arange(self.values), ones[: self.values], buckets, 2)
        if none:
            rows, values = rows.take(integers([0])), values.take(integers([1]))
        tags = np.arange(len(rows)), np.arange(len(values))
        name = self._source().constraint
        self.problem.require_cells(CellRows(self.problem.grids[0], rows, values, none, name, *tags))

    def _objective(self, tier: int) -> None:
        random = self.random
        parts = [self._number() for _ in range(random.randint(1, 3))]
        if random.random() < 0.4 and self.rows > 1:
            parts.append(self._price_of_pairs())
        if random.random() < 0.3:
            moved = [self._cell(row, int(self.cells.current[row])) ^ 1 for row in range(self.rows)]
            parts.append(self._total(moved, [random.choice((1, 1, 3)) for _ in moved]))
        total = _stacked(parts).summed(filled(len(parts), 0), 1).row(0)
        self._names += 1
        maximize, weight = random.random() < 0.3, random.choice((1, 2))
        self.problem.objectives.append(Objective(f"o{self._names}", total, maximize, tier, weight))

    # ---- the twin -----------------------------------------------------------------------------------

    def choices(self) -> Iterator[tuple[Indices, FactoredValues | None]]:
        """Every choice with the values of all variables; None where it breaks a demand."""
        options = [
            ([] if required else [NONE]) + np.flatnonzero(allowed).tolist()
            for required, allowed in zip(
                self.cells.required, self.cells.domains[self.cells.column], strict=True
            )
        ]
        for values in product(*options):
            choice = np.array(values, np.int32)
            found = completed(self.problem, *self.cells.held(choice))
            assert found is not None
            yield choice, found if holds(self.problem, found) else None


def _stacked(parts: list[Linears]) -> Linears:
    rows: list[Linear] = [part.row(0) for part in parts]
    return Linears.of(*rows)
