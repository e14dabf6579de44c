"""The solver-neutral model: integer variables, rows of demands in columns, and tiers of objectives.

Demands come in blocks of rows of one kind: literals of which at least, at most or exactly one holds, and linear
expressions within bounds.  A block that a policy demands says which constraint it is of, and of which of its rows each
of its own is; definitions of auxiliary variables say nothing and stay when a constraint is dropped.

What it is not: it knows neither SQL nor a solver (see ``mgmt.compiler.encoding`` and ``mgmt.optimization.backends``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.optimization.columns import (
    FALSE,
    LIMIT,
    TRUE,
    Integers,
    Linear,
    Linears,
    Lists,
    Mask,
    difference,
    filled,
    group_numbers,
    integers,
    joined,
    largest,
    stacked,
    sum_of,
    too_large,
    truncated,
)

NO_BOUND = 2**63 - 1
"""As an upper bound; its negation as a lower one."""
_FEW_OPERANDS = 4
"""Of a maximum that is bounded by bounding what it is of."""


_MANY_OPERANDS = 6
"""Of a maximum that may be one of differences."""
_MOST_APART = 20
"""So many maxima of one kind are looked at."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Which constraint, and which of its rows, demands something."""

    constraint: str
    row: int


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What demands a block: a constraint, and for each row of the block the row of it."""

    constraint: str
    rows: Integers

    def take(self, rows: Integers | Mask) -> Source:
        return Source(self.constraint, self.rows[rows])


class Relation(StrEnum):
    AT_LEAST_ONE = "at least one"
    AT_MOST_ONE = "at most one"
    EXACTLY_ONE = "exactly one"


@dataclass(frozen=True, slots=True, eq=False)
class LiteralRows:
    """In each row so many of the literals hold as the relation says, if the row's enforcement literal does."""

    relation: Relation
    literals: Lists
    enforcement: Integers
    source: Source | None
    spells_out: bool = False
    """Whether it spells out, for a solver, what a choice or a definition says."""

    def take(self, rows: Integers) -> LiteralRows:
        source = None if self.source is None else self.source.take(rows)
        return replace(
            self, literals=self.literals.take(rows), enforcement=self.enforcement[rows], source=source
        )


@dataclass(frozen=True, slots=True, eq=False)
class LinearRows:
    """``lower <= linear <= upper`` in each row, if its enforcement literal holds."""

    linears: Linears
    lower: Integers
    upper: Integers
    enforcement: Integers
    source: Source | None
    spells_out: bool = False
    """Whether it spells out, for a solver, what a definition says."""

    def take(self, rows: Integers) -> LinearRows:
        return replace(
            self,
            linears=self.linears.take(rows),
            lower=self.lower[rows],
            upper=self.upper[rows],
            enforcement=self.enforcement[rows],
            source=None if self.source is None else self.source.take(rows),
        )


Rows: TypeAlias = LiteralRows | LinearRows


class OperationKind(StrEnum):
    MAXIMUM = "maximum"
    PRODUCT = "product"
    QUOTIENT = "quotient"  # truncates; the second operand is a constant other than 0
    REMAINDER = "remainder"  # has the sign of the first operand


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """In each row ``target`` equals the operation over the operands ``starts[row]:starts[row + 1]``."""

    kind: OperationKind
    targets: Integers
    starts: Integers
    operands: Linears


@dataclass(frozen=True, slots=True, eq=False)
class Conjunctions:
    """Each target literal holds exactly when all of its literals do."""

    targets: Integers
    literals: Lists


@dataclass(frozen=True, slots=True, eq=False)
class Gated:
    """Each variable is the expression where its literal holds, else 0.  Expressions of one number are the same."""

    variables: Integers
    literals: Integers
    numbers: Integers
    linears: Linears


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """Each target literal holds exactly when the expression is at most 0."""

    targets: Integers
    linears: Linears


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Each variable is the value of the expression."""

    variables: Integers
    linears: Linears


@dataclass(frozen=True, slots=True, eq=False)
class Equalities:
    """Each target literal holds exactly when a literal of a row and its counterpart do.

    Of the literals of a row never more than one holds, and of their counterparts neither: they are two choices, value
    by value.
    """

    targets: Integers
    literals: Lists
    counterparts: Integers


Definitions: TypeAlias = Operations | Conjunctions | Gated | Thresholds | Totals | Equalities


@dataclass(frozen=True, slots=True)
class Objective:
    """One policy's objective.  Tier 1 is optimised first; within a tier the weighted sum is."""

    name: str
    linear: Linear
    maximize: bool
    tier: int
    weight: int


@dataclass(slots=True)
class Problem:
    """Everything a backend needs.  Built by appending; nothing is removed."""

    rows: list[Rows] = field(default_factory=list)
    redundant: list[LinearRows] = field(default_factory=list)
    """Implied by all the others; they help linear relaxations."""
    operations: list[Operations] = field(default_factory=list)
    conjunctions: list[Conjunctions] = field(default_factory=list)
    gates: list[Gated] = field(default_factory=list)
    """Besides, they are spelled out in rows; as are the next three."""
    thresholds: list[Thresholds] = field(default_factory=list)
    totals: list[Totals] = field(default_factory=list)
    equalities: list[Equalities] = field(default_factory=list)
    written_sums: list[Totals] = field(default_factory=list)
    """Sums of cells alone, whatever their numbers are."""
    objectives: list[Objective] = field(default_factory=list)
    choices: list[Lists] = field(default_factory=list)
    """Groups of literals of which exactly one holds."""
    watch: Callable[[int], None] | None = None
    """Told before it grows of the cells it will have, to stop that by an error."""
    cells: int = 0
    """Variables, and what the demands and definitions say of each: what the memory that it takes goes by."""
    _lower: list[Integers] = field(default_factory=lambda: [integers([1])])
    _upper: list[Integers] = field(default_factory=lambda: [integers([1])])
    _count: int = 1
    _pairs: tuple[Integers, Integers] = field(default_factory=lambda: (integers([]), integers([])))
    """The conjunctions of two literals: sorted keys, and the literals that hold exactly when both do."""
    _zeros: dict[int, int] = field(default_factory=dict)
    """By literal, the number that is 0 exactly when it holds, and never less."""

    # ---- variables ----------------------------------------------------------------------------------

    @property
    def lower(self) -> Integers:
        """Of each variable."""
        return self._limits()[0]

    @property
    def upper(self) -> Integers:
        return self._limits()[1]

    def bounds(self, variables: Integers) -> tuple[Integers, Integers]:
        """The least and the greatest value of each of these."""
        lower, upper = self._limits()
        return lower[variables], upper[variables]

    def _limits(self) -> tuple[Integers, Integers]:
        if len(self._lower) > 1:
            self._lower, self._upper = [np.concatenate(self._lower)], [np.concatenate(self._upper)]
        return self._lower[0], self._upper[0]

    @property
    def variables(self) -> int:
        """How many there are, with the constant."""
        return self._count

    def new_variables(self, lower: ArrayLike, upper: ArrayLike) -> Integers:
        """New integer variables of these ranges."""
        low, high = integers(lower), integers(upper)
        for limits in (low, high):
            if len(limits) and max(int(limits.max()), -int(limits.min())) > LIMIT:
                raise OverflowError(
                    f"a value may reach {max(int(limits.max()), -int(limits.min()))}, beyond exact 64-bit integers",
                    hint="use a larger unit",
                )
        self.grow(len(low))
        self._lower.append(low)
        self._upper.append(high)
        self._count += len(low)
        return np.arange(self._count - len(low), self._count)

    def new_literals(self, count: int) -> Integers:
        return 2 * self.new_variables(np.zeros(count, np.int64), np.ones(count, np.int64))

    def grow(self, cells: int) -> None:
        """Count what is about to be made."""
        self.cells += int(cells)
        if self.watch is not None:
            self.watch(self.cells)

    def foresee(self, cells: int) -> None:
        """Stop before so many more are made, if they are too many."""
        if self.watch is not None:
            self.watch(self.cells + int(cells))

    # ---- demands ------------------------------------------------------------------------------------

    def _append(self, block: Rows) -> None:
        if len(block.enforcement):
            terms = block.literals if isinstance(block, LiteralRows) else block.linears.terms
            self.grow(len(terms.items))
            self.rows.append(block)

    def require_any(self, literals: Lists, source: Source | None = None, *, spells_out: bool = False) -> None:
        """In each row at least one literal holds."""
        literals = literals.keep(literals.items != FALSE).distinct()
        settled = literals.any(literals.items == TRUE) | _contradictory(literals)
        rows = np.flatnonzero(~settled)
        source = None if source is None else source.take(rows)
        block = LiteralRows(
            Relation.AT_LEAST_ONE, literals.take(rows), filled(len(rows), TRUE), source, spells_out
        )
        self._append(block)

    def require_one(
        self,
        literals: Lists,
        source: Source | None = None,
        *,
        exactly: bool = False,
        when: Integers | None = None,
        spells_out: bool = False,
    ) -> None:
        """In each row at most (or exactly) one literal holds, if ``when`` does."""
        enforcement = filled(len(literals), TRUE) if when is None else when
        literals = literals.keep(literals.items != FALSE)
        rows = np.flatnonzero((enforcement != FALSE) & (exactly | (literals.lengths > 1)))
        relation = Relation.EXACTLY_ONE if exactly else Relation.AT_MOST_ONE
        self._append(LiteralRows(relation, literals, enforcement, source, spells_out).take(rows))

    def require_choices(self, literals: Lists) -> None:
        """In each row exactly one literal holds, as values of a choice do."""
        self.require_one(literals, exactly=True)
        self.choices.append(literals)

    def require_range(
        self,
        linears: Linears,
        lower: Integers | int | None,
        upper: Integers | int | None,
        source: Source | None = None,
        *,
        when: Integers | None = None,
        spells_out: bool = False,
    ) -> None:
        """``lower <= linear <= upper`` in each row, if ``when`` holds."""
        count = len(linears)
        least = np.broadcast_to(integers(-NO_BOUND if lower is None else lower), (count,))
        most = np.broadcast_to(integers(NO_BOUND if upper is None else upper), (count,))
        enforcement = filled(count, TRUE) if when is None else when
        greatest = self._is_greatest(linears)
        if greatest.any():
            rows = np.flatnonzero(greatest)
            told = None if source is None else source.take(rows)
            self._require_greatest(linears.take(rows), least[rows], most[rows], enforcement[rows], told)
            rows = np.flatnonzero(~greatest)
            linears, least, most, enforcement = linears.take(rows), least[rows], most[rows], enforcement[rows]
            source = None if source is None else source.take(rows)
        low, high = self.ranges(linears)
        idle = (enforcement == FALSE) | ((low >= least) & (high <= most))
        broken = ~idle & ((least > most) | (high < least) | (low > most))
        rows = np.flatnonzero(broken)
        if len(rows):
            told = None if source is None else source.take(rows)
            self.require_any(Lists.side_by_side(enforcement[rows] ^ 1), told, spells_out=spells_out)
        block = LinearRows(linears, least, most, enforcement, source, spells_out)
        self._append(block.take(np.flatnonzero(~idle & ~broken)))

    def imply(self, linears: Linears, lower: int | None, upper: int | None) -> None:
        """Keep rows that follow from the others, for linear relaxations."""
        count = len(linears)
        least = filled(count, -NO_BOUND if lower is None else lower)
        most = filled(count, NO_BOUND if upper is None else upper)
        if count:
            self.grow(len(linears.terms.items))
            self.redundant.append(LinearRows(linears, least, most, filled(count, TRUE), None))

    # ---- defined values -----------------------------------------------------------------------------

    def ranges(self, linears: Linears) -> tuple[Integers, Integers]:
        """Bounds from the ranges of the variables alone; OverflowError beyond 64 bits."""
        factors = linears.coefficients
        if not len(factors) and largest(linears.constants) <= LIMIT:
            return linears.constants, linears.constants
        low, high = self.bounds(linears.terms.items)
        rising = factors > 0
        ends = [np.where(rising, low, high), np.where(rising, high, low)]
        size = np.abs(factors.astype(np.float64)) * np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        reach = _per_row(linears.terms, size) + np.abs(linears.constants.astype(np.float64))
        if len(reach) and float(reach.max()) > LIMIT:
            self._refuse_overflow(linears, ends)
        found = [_per_row(linears.terms, factors * end) + linears.constants for end in ends]
        return found[0], found[1]

    def _refuse_overflow(self, linears: Linears, ends: list[Integers]) -> None:
        for row in range(len(linears)):
            one = linears.row(row)
            places = slice(int(linears.terms.starts[row]), int(linears.terms.starts[row + 1]))
            reached = [
                one.constant + sum(f * v for f, v in zip(one.coefficients, end[places].tolist(), strict=True))
                for end in ends
            ]
            if reached[0] < -LIMIT or reached[1] > LIMIT:
                raise too_large(max(-reached[0], reached[1]))

    def conjunction(self, *columns: Integers) -> Integers:
        """In each row a literal that holds exactly when those of all columns do."""
        open_ = [column for column in columns if (column != TRUE).any()] or list(columns[:1])
        return open_[0] if len(open_) == 1 else self.conjunction_of(Lists.side_by_side(*open_))

    def disjunction(self, *columns: Integers) -> Integers:
        """In each row a literal that holds exactly when one of these does."""
        return self.conjunction(*(column ^ 1 for column in columns)) ^ 1

    def disjunction_of(self, literals: Lists) -> Integers:
        return self.conjunction_of(Lists(literals.starts, literals.items ^ 1)) ^ 1

    def conjunction_of(self, literals: Lists) -> Integers:
        """In each row a literal that holds exactly when all of the row's do."""
        literals = literals.keep(literals.items != TRUE)
        found = filled(len(literals), TRUE)
        if literals.lengths.max(initial=0) <= 1:
            found[literals.owners] = literals.items
            return found
        literals = literals.distinct()
        never = literals.any(literals.items == FALSE) | _contradictory(literals)
        found[never] = FALSE
        lengths = literals.lengths
        rows = np.flatnonzero(~never & (lengths == 1))
        found[rows] = literals.items[literals.starts[rows]]
        rows = np.flatnonzero(~never & (lengths == 2))
        if len(rows):
            first = literals.starts[rows]
            found[rows] = self._conjunction_of_two(literals.items[first], literals.items[first + 1])
        rows = np.flatnonzero(~never & (lengths > 2))
        if len(rows):
            some = literals.take(rows)
            first, number = some.alike()
            found[rows] = self._define(some.take(first))[number]
        return found

    def _conjunction_of_two(self, one: Integers, other: Integers) -> Integers:
        keys, number = np.unique((one << 32) | other, return_inverse=True)
        known, literals = self._pairs
        places = np.searchsorted(known, keys)
        is_known = np.zeros(len(keys), np.bool_)
        if len(known):
            is_known = known[np.minimum(places, len(known) - 1)] == keys
        new = keys[~is_known]
        if len(new):
            made = self._define(Lists.side_by_side(new >> 32, new & (2**32 - 1)))
            known, literals = np.concatenate((known, new)), np.concatenate((literals, made))
            order = np.argsort(known, kind="stable")
            self._pairs = known, literals = known[order], literals[order]
        found: Integers = literals[np.searchsorted(known, keys)]
        return found[number]

    def _define(self, literals: Lists) -> Integers:
        targets = self.new_literals(len(literals))
        self.grow(3 * len(literals.items) + len(targets))
        self.conjunctions.append(Conjunctions(targets, literals))
        return targets

    def one_of(self, literals: Lists) -> Integers:
        """In each row a literal that holds exactly when one of these does, of which never more than one holds."""
        literals = literals.keep(literals.items != FALSE)
        lengths = literals.lengths
        found = filled(len(literals), FALSE)
        certain = literals.any(literals.items == TRUE)
        rows = np.flatnonzero(lengths == 1)
        found[rows] = literals.items[literals.starts[rows]]
        found[certain] = TRUE
        rows = np.flatnonzero((lengths > 1) & ~certain)
        if len(rows):
            first, number = literals.take(rows).alike()
            some = literals.take(rows[first])
            made = self.new_literals(len(first))
            self.require_one(_with(some, made ^ 1), exactly=True, spells_out=True)
            ones = Linears.literals(some.items).summed(some.owners, len(some))
            self.totals.append(Totals(made >> 1, ones))
            found[rows] = made[number]
        return found

    def at_most(self, linears: Linears, bounds: Integers | int) -> Integers:
        """In each row a literal that holds exactly when the expression is at most the bound."""
        bounds = np.broadcast_to(integers(bounds), linears.constants.shape)
        low, high = self.ranges(linears)
        found = filled(len(linears), FALSE)
        found[high <= bounds] = TRUE
        is_open = (high > bounds) & (low <= bounds)
        greatest = np.flatnonzero(is_open & self._is_greatest(linears))
        if len(greatest):
            found[greatest] = self._greatest_at_most(linears.take(greatest), bounds[greatest])
            is_open[greatest] = False
        open_ = np.flatnonzero(is_open)
        if not len(open_):
            return found
        some = linears.take(open_)
        is_boolean = self._are_booleans(some)
        rows = np.flatnonzero(is_boolean)
        first = some.terms.starts[rows]  # it is the literal itself or its negation
        found[open_[rows]] = 2 * some.terms.items[first] + (some.coefficients[first] > 0)
        rows = np.flatnonzero(~is_boolean)
        if len(rows):
            found[open_[rows]] = self._thresholds(some.take(rows), bounds[open_[rows]])
        return found

    def _thresholds(self, linears: Linears, bounds: Integers) -> Integers:
        limits = Linears(linears.constants - bounds, linears.terms, linears.coefficients)
        keys = Lists.side_by_side(limits.terms.items, limits.coefficients)
        rows = joined([Lists(2 * limits.terms.starts, keys.items)])
        first, number = _with(rows, limits.constants).alike()
        some = limits.take(first)
        literals = self.new_literals(len(first))
        single = np.flatnonzero((some.terms.lengths == 1) & (some.constants == 0))
        variables = some.terms.items[some.terms.starts[single]]
        positive = (some.coefficients[some.terms.starts[single]] > 0) & (self.bounds(variables)[0] == 0)
        zeros = zip(literals[single[positive]].tolist(), variables[positive].tolist(), strict=True)
        self._zeros.update(zeros)
        self.require_range(some, None, 0, when=literals, spells_out=True)
        self.require_range(some, 1, None, when=literals ^ 1, spells_out=True)
        self.thresholds.append(Thresholds(literals, some))
        return literals[number]

    def _are_booleans(self, linears: Linears) -> Mask:
        """Which rows have one variable of 0 and 1 and nothing else."""
        found: Mask = linears.terms.lengths == 1
        variables = linears.terms.items[linears.terms.starts[:-1][found]]
        low, high = self.bounds(variables)
        found[found] = (low == 0) & (high == 1) & (variables > 0)
        return found

    def equals(self, linears: Linears, values: Integers | int = 0) -> Integers:
        """In each row a literal that holds exactly when the expression has the value.

        What depends on one choice, or two, is told value by value: bounds on sums over values tell a solver less.
        """
        linears = linears.plus(-np.broadcast_to(integers(values), linears.constants.shape))
        low, high = self.ranges(linears)
        found = filled(len(linears), FALSE)
        found[(low == 0) & (high == 0)] = TRUE
        is_open = (low <= 0) & (high >= 0) & (low < high)
        rows = np.flatnonzero(is_open & self._is_greatest(linears))
        if len(rows):  # |x| = c
            inside, by = self._absolute(linears.take(rows))
            rows = rows[by]
            size = -linears.constants[rows] * linears.coefficients[linears.terms.starts[rows]]
            found[rows] = self.disjunction(self.equals(inside, size), self.equals(inside, -size))
            found[rows[size < 0]] = FALSE
            is_open[rows] = False
        rows = np.flatnonzero(is_open)
        if len(rows):
            some = self.written_out(linears.take(rows))
            literals, told = self._equal_choices(some)
            found[rows[told]] = literals
            rows = np.delete(rows, told)
            some = linears.take(rows)
            found[rows] = self.conjunction(self.at_most(some, 0), self.at_most(some, -1) ^ 1)
        return found

    def choice_of(self, variables: Integers) -> Integers:
        """The number of the choice that each of these is a value of; -1 for others."""
        groups = joined(self.choices)
        found = filled(self._count, -1)
        found[groups.items >> 1] = groups.owners
        return np.where(variables < 0, -1, found[variables])

    def choice_literals(self, choices: Integers) -> Lists:
        """The literals of each of these choices, of which exactly one holds."""
        return joined(self.choices).take(choices)

    def _equal_choices(self, linears: Linears) -> tuple[Integers, Integers]:
        """Of rows that depend on at most two choices: literals that they are 0, and which rows these are."""
        whose, rows = self.choice_of(linears.terms.items), linears.terms.owners
        low, high = filled(len(linears), NO_BOUND), filled(len(linears), -1)
        np.minimum.at(low, rows, whose)
        np.maximum.at(high, rows, whose)
        between = linears.terms.any((whose != low[rows]) & (whose != high[rows]))
        told = np.flatnonzero((low >= 0) & (high >= 0) & ~between & (linears.terms.lengths > 1))
        if not len(told):
            return filled(0, 0), told
        some = linears.take(told)
        sides: list[tuple[Integers, Integers, Integers]] = []
        keys = (some.terms.owners << 32) | some.terms.items
        order = np.argsort(keys)
        for group, sign in ((low[told], 1), (high[told], -1)):
            values = self.choice_literals(group)
            wanted = (values.owners << 32) | (values.items >> 1)
            place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
            known = keys[order][place] == wanted
            worth = np.where(known, some.coefficients[order][place], 0)
            if sign > 0:
                worth = -worth - some.constants[values.owners]
            first, number = group_numbers(values.owners, worth)
            literals = self.one_of(Lists.grouped(number, values.items, len(first)))
            sides.append((values.owners[first], worth[first], literals))
        alone = low[told] == high[told]
        return self._matched(sides[0], sides[1], alone), told

    def _matched(
        self,
        one: tuple[Integers, Integers, Integers],
        other: tuple[Integers, Integers, Integers],
        alone: Mask,
    ) -> Integers:
        """Literals that two sides, of each row by value, are the same; where there is one side, that it is 0."""
        found = filled(len(alone), FALSE)
        owners, worth, literals = one
        zero = np.flatnonzero(alone[owners] & (worth == 0))
        found[owners[zero]] = literals[zero]
        _, keys = group_numbers(np.append(owners, other[0]), np.append(worth, other[1]))
        partner = filled(int(keys.max(initial=-1)) + 1, FALSE)
        partner[keys[len(owners) :]] = other[2]
        partners = partner[keys[: len(owners)]]
        rows = np.flatnonzero(~alone & (np.bincount(owners[partners != FALSE], minlength=len(alone)) > 0))
        kept = np.flatnonzero(np.isin(owners, rows))
        kept = kept[np.argsort(owners[kept], kind="stable")]
        values = Lists.grouped(np.searchsorted(rows, owners[kept]), literals[kept], len(rows))
        found[rows] = self.equality(values, partners[kept], filled(len(rows), FALSE))
        return found

    # ---- the greatest of a few ----------------------------------------------------------------------

    def _greatest(self, linears: Linears) -> Integers:
        """Of each row that is the greatest of a few, plus or minus, and a constant: its place; else -1."""
        single = (linears.terms.lengths == 1).nonzero()[0]
        first = linears.terms.starts[single]
        single = single[np.abs(linears.coefficients[first]) == 1]
        found, begin = filled(len(linears), -1), 0
        wanted = linears.terms.items[linears.terms.starts[single]]
        for block in self.operations:
            if block.kind is OperationKind.MAXIMUM and len(wanted):
                place = np.minimum(np.searchsorted(block.targets, wanted), len(block.targets) - 1)
                few = np.diff(block.starts)[place] <= _FEW_OPERANDS
                known = (block.targets[place] == wanted) & few
                found[single[known]] = begin + place[known]
            begin += len(block.targets)
        return found

    def _is_greatest(self, linears: Linears) -> Mask:
        found: Mask = self._greatest(linears) >= 0
        return found

    def _operands(self, linears: Linears) -> tuple[Linears, Integers]:
        """The operands of rows that are the greatest of a few, and the row that each is of."""
        lengths = [np.diff(block.starts) for block in self.operations]
        operands = stacked([block.operands for block in self.operations])
        starts = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
        places, begins = Lists(starts, np.arange(starts[-1])).places(self._greatest(linears))
        return operands.take(places), np.repeat(np.arange(len(linears)), np.diff(begins))

    def _greatest_at_most(self, linears: Linears, bounds: Integers) -> Integers:
        """Literals that the greatest of some, or minus that, is at most a bound."""
        operands, owners = self._operands(linears)
        rising = linears.coefficients > 0
        limit = np.where(rising, bounds - linears.constants, linears.constants - bounds - 1)
        holds = self.at_most(operands, limit[owners])
        return self.conjunction_of(Lists.grouped(owners, holds, len(linears))) ^ ~rising

    def _require_greatest(
        self, linears: Linears, lower: Integers, upper: Integers, when: Integers, source: Source | None
    ) -> None:
        operands, owners = self._operands(linears)
        rising, constants = linears.coefficients > 0, linears.constants
        low = np.where(lower == -NO_BOUND, lower, lower - constants)
        high = np.where(upper == NO_BOUND, upper, upper - constants)
        low, high = np.where(rising, low, -high), np.where(rising, high, -low)
        told = None if source is None else source.take(owners)
        self.require_range(operands, None, high[owners], told, when=when[owners])
        rows = np.flatnonzero(low > -NO_BOUND)
        kept = np.flatnonzero(np.isin(owners, rows))
        holds = self.at_most(operands.take(kept), low[owners[kept]] - 1) ^ 1
        alternatives = Lists.grouped(
            np.append(owners[kept], rows), np.append(holds, when[rows] ^ 1), len(low)
        )
        self.require_any(alternatives.take(rows), None if source is None else source.take(rows))

    def _absolute(self, linears: Linears) -> tuple[Linears, Integers]:
        """Of what rows that are the greatest of a few are the absolute value, if they are, and which these are."""
        operands, owners = self._operands(linears)
        two = np.bincount(owners, minlength=len(linears)) == 2
        places = np.flatnonzero(two[owners]).reshape(-1, 2)
        one, other = operands.take(places[:, 0]), operands.take(places[:, 1])
        none = sum_of(one, other)
        opposite = np.flatnonzero(none.is_constant & (none.constants == 0))
        return one.take(opposite), owners[places[opposite, 0]]

    def written_out(self, linears: Linears) -> Linears:
        """The same without variables that stand for expressions."""
        for total in self.totals:
            mine = np.isin(linears.terms.items, total.variables)
            if mine.any():
                rows, factors = linears.terms.owners[mine], linears.coefficients[mine]
                places = np.searchsorted(total.variables, linears.terms.items[mine])
                inside = total.linears.take(places).scaled(factors)
                kept = Linears(linears.constants, linears.terms.keep(~mine), linears.coefficients[~mine])
                both = stacked([kept, inside])
                linears = both.summed(np.append(np.arange(len(kept)), rows), len(kept))
        return linears

    # ---- conditions on values -----------------------------------------------------------------------
    def equality(self, literals: Lists, counterparts: Integers, null: Integers) -> Integers:
        """In each row a literal that holds exactly when a literal and its counterpart do.

        The literals of a row are values of one choice, the counterparts the same values of another; where none of the
        literals holds, ``null`` does.
        """
        targets = self.new_literals(len(literals))
        made, value = targets[literals.owners], literals.items
        for clauses in (
            Lists.side_by_side(made ^ 1, value ^ 1, counterparts),
            Lists.side_by_side(made, value ^ 1, counterparts ^ 1),
            Lists.side_by_side(targets ^ 1, null ^ 1),
        ):
            self.require_any(clauses, spells_out=True)
        self.equalities.append(Equalities(targets, literals, counterparts))
        return targets

    def gated(self, linears: Linears, literals: Integers) -> Linears:
        """Each expression where its literal holds, else 0."""
        literals = np.broadcast_to(literals, linears.constants.shape)
        if (literals == TRUE).all():
            return linears
        constant = linears.is_constant
        if constant.all():
            return Linears.literals(literals, linears.constants)
        found = [Linears.literals(np.where(constant, literals, FALSE), linears.constants)]
        nothing = self._is_nothing(linears, literals)
        found.append(Linears.literals(np.where(nothing, literals, FALSE), linears.constants))
        whole = linears.plus(np.where(nothing, -linears.constants, 0))
        kept = np.flatnonzero(~constant & ((literals == TRUE) | nothing))
        found.append(_at(kept, whole.take(kept), len(linears)))
        rows = np.flatnonzero(~constant & (literals > FALSE) & ~nothing)
        some, when = linears.take(rows), literals[rows]
        low, high = self.ranges(some)
        is_boolean = self._are_booleans(some) & (low == 0) & (high == 1)
        booleans = np.flatnonzero(is_boolean)
        if len(booleans):
            both = self.conjunction(self.at_most(some.take(booleans), 0) ^ 1, when[booleans])
            found.append(_at(rows[booleans], Linears.literals(both), len(linears)))
        others = np.flatnonzero(~is_boolean)
        if len(others):
            variables = self._gate(some.take(others), when[others], low[others], high[others])
            found.append(_at(rows[others], Linears.single(variables), len(linears)))
        return sum_of(*found)

    def _is_nothing(self, linears: Linears, literals: Integers) -> Mask:
        """Where the terms are one number that is 0 anyway where the literal does not hold."""
        found: Mask = np.zeros(len(linears), np.bool_)
        if self._zeros:
            rows = np.flatnonzero((linears.terms.lengths == 1) & (literals > FALSE))
            variables = linears.terms.items[linears.terms.starts[rows]].tolist()
            pairs = zip(variables, (literals[rows] ^ 1).tolist(), strict=True)
            found[rows] = [self._zeros.get(literal) == variable for variable, literal in pairs]
        return found

    def _gate(self, linears: Linears, literals: Integers, low: Integers, high: Integers) -> Integers:
        _, number = _signatures(linears).alike()
        first, places = group_numbers(number, literals)
        some, when = linears.take(first), literals[first]
        variables = self.new_variables(np.minimum(low[first], 0), np.maximum(high[first], 0))
        single = Linears.single(variables)
        self.require_range(difference(some, single), 0, 0, when=when, spells_out=True)
        self.require_range(single, 0, 0, when=when ^ 1, spells_out=True)
        self.gates.append(Gated(variables, when, number[first], some))
        return variables[places]

    def maximum(self, operands: Linears, owners: Integers, count: int) -> Linears:
        """``count`` rows, each the greatest of the operands whose owner it is; each has one."""
        low, high = self.ranges(operands)
        floor, ceiling = filled(count, -NO_BOUND), filled(count, -NO_BOUND)
        np.maximum.at(floor, owners, low)
        np.maximum.at(ceiling, owners, high)
        wanted = high >= floor[owners]
        constant = operands.is_constant
        settled = filled(count, -NO_BOUND)
        np.maximum.at(settled, owners[constant & wanted], operands.constants[constant & wanted])
        kept = np.flatnonzero(wanted & ~constant)
        order = kept[np.argsort(owners[kept], kind="stable")]
        first, _ = group_numbers(owners[order], _signatures(operands.take(order)).alike()[1])
        order = order[np.sort(first)]
        with_constant = np.flatnonzero(settled > -NO_BOUND)
        everything = stacked([operands.take(order), Linears.constant(settled[with_constant])])
        whose = np.concatenate((owners[order], with_constant))
        order = np.argsort(whose, kind="stable")
        lengths = np.bincount(whose, minlength=count)
        alone = lengths[whose[order]] == 1
        single = _at(whose[order][alone], everything.take(order[alone]), count)
        several = np.flatnonzero(lengths > 1)
        rising, falling = (everything.terms.any(sign * everything.coefficients > 0) for sign in (1, -1))
        mixed = np.bincount(whose, (rising & falling) | everything.is_constant, minlength=count) == lengths
        for owner in np.flatnonzero(mixed & (lengths >= _MANY_OPERANDS))[:_MOST_APART].tolist():
            apart = self._greatest_difference(everything.take(order[whose[order] == owner]))
            if apart is not None:
                single = sum_of(single, _at(integers([owner]), apart, count))
                several = several[several != owner]
        order = order[np.isin(whose[order], several)]
        if not len(several):
            return single
        targets = self.new_variables(floor[several], ceiling[several])
        starts = np.concatenate(([0], np.cumsum(lengths[several])))
        self._operate(OperationKind.MAXIMUM, targets, starts, everything.take(order))
        return sum_of(single, _at(several, Linears.single(targets), count))

    def _greatest_difference(self, operands: Linears) -> Linears | None:
        """The greatest of differences, each of some numbers less each of some others, as that of either."""
        constants = operands.constants[operands.is_constant]
        operands = operands.take(np.flatnonzero(~operands.is_constant))
        sides = []
        for sign in (1, -1):
            kept = sign * operands.coefficients > 0
            parts = Linears(filled(len(operands), 0), operands.terms.keep(kept), operands.coefficients[kept])
            sides.append((parts, *_signatures(parts.scaled(sign)).alike()))
        (more, first, one), (less, second, other) = sides
        pairs = len(group_numbers(one, other)[0])
        # Of a number less itself, which is 0, a constant tells.
        told = joined([_signatures(more.take(first)), _signatures(less.take(second).scaled(-1))])
        same = len(first) + len(second) - len(told.alike()[0])
        if (
            operands.constants.any()
            or pairs + same < len(first) * len(second)
            or constants.tolist() != [0] * min(same, 1)
        ):
            return None
        found = [self.maximum(one, filled(len(one), 0), 1) for one in (more.take(first), less.take(second))]
        return sum_of(*found)

    def _operate(self, kind: OperationKind, targets: Integers, starts: Integers, operands: Linears) -> None:
        self.grow(len(operands.terms.items) + len(operands))
        self.operations.append(Operations(kind, targets, starts, operands))

    def product(self, left: Linears, right: Linears) -> Linears:
        """The product in each row."""
        for one, other in ((left, right), (right, left)):
            if one.is_constant.all():
                return other.scaled(one.constants)
        count = len(left)
        parts: list[Linears] = []
        rows = np.arange(count)
        for one, other in ((left, right), (right, left)):
            some = rows[one.is_constant[rows]]
            parts.append(_at(some, other.take(some).scaled(one.constants[some]), count))
            rows = rows[~one.is_constant[rows]]
        for one, other in ((left, right), (right, left)):
            chosen = one.take(rows)
            low, high = self.ranges(chosen)
            mask = self._are_booleans(chosen) & (low == 0) & (high == 1)
            some = rows[mask]
            if len(some):
                when = self.at_most(one.take(some), 0) ^ 1
                parts.append(_at(some, self.gated(other.take(some), when), count))
                rows = rows[~mask]
        if len(rows):
            parts.append(_at(rows, self._multiply(left.take(rows), right.take(rows)), count))
        return sum_of(*parts)

    def _multiply(self, left: Linears, right: Linears) -> Linears:
        signatures = [_signatures(side).alike()[1] for side in (left, right)]
        first, number = group_numbers(*signatures)
        left, right = left.take(first), right.take(first)
        ends = [(a, b) for a in self.ranges(left) for b in self.ranges(right)]
        reach = max((float(np.abs(a.astype(np.float64) * b).max()) for a, b in ends), default=0)
        if reach > LIMIT:
            raise OverflowError(
                f"a value may reach {int(reach)}, beyond exact 64-bit integers", hint="use a larger unit"
            )
        corners = [a * b for a, b in ends]
        targets = self.new_variables(np.minimum.reduce(corners), np.maximum.reduce(corners))
        self._operate_on_two(OperationKind.PRODUCT, targets, left, right)
        return Linears.single(targets[number])

    def _operate_on_two(self, kind: OperationKind, targets: Integers, left: Linears, right: Linears) -> None:
        count = len(left)
        order = np.arange(2 * count).reshape(2, count).T.ravel()
        operands = stacked([left, right]).take(order)
        self._operate(kind, targets, np.arange(0, 2 * count + 1, 2), operands)

    def quotient(self, dividends: Linears, divisors: Integers) -> Linears:
        """``dividend / divisor`` in each row, truncated toward zero; no divisor is 0."""
        return self._divided(OperationKind.QUOTIENT, dividends, divisors)

    def remainder(self, dividends: Linears, divisors: Integers) -> Linears:
        """``dividend % divisor`` in each row, with the sign of the dividend."""
        return self._divided(OperationKind.REMAINDER, dividends, divisors)

    def _divided(self, kind: OperationKind, dividends: Linears, divisors: Integers) -> Linears:
        whole = kind is OperationKind.QUOTIENT
        constant = dividends.is_constant
        known = truncated(dividends.constants, divisors)
        if not whole:
            known = dividends.constants - divisors * known
        single = Linears.constant(np.where(constant, known, 0))
        rows = np.flatnonzero(~constant)
        if not len(rows):
            return single
        some, by = dividends.take(rows), divisors[rows]
        low, high = self.ranges(some)
        if whole:
            ends = truncated(low, by), truncated(high, by)
            lower, upper = np.minimum(*ends), np.maximum(*ends)
        else:
            by = np.abs(by)
            lower, upper = np.maximum(np.minimum(low, 0), 1 - by), np.minimum(np.maximum(high, 0), by - 1)
        targets = self.new_variables(lower, upper)
        self._operate_on_two(kind, targets, some, Linears.constant(by))
        return sum_of(single, _at(rows, Linears.single(targets), len(dividends)))

    def named(self, linears: Linears) -> Linears:
        """The same values, none of more than one term."""
        long = np.flatnonzero(linears.terms.lengths > 1)
        if not len(long):
            return linears
        some = linears.take(long)
        low, high = self.ranges(some)
        made = self.new_variables(low, high)
        single = Linears.single(made)
        self.require_range(difference(some, single), 0, 0, spells_out=True)
        self.totals.append(Totals(made, some))
        short = np.flatnonzero(linears.terms.lengths <= 1)
        return sum_of(_at(short, linears.take(short), len(linears)), _at(long, single, len(linears)))

    # ---- views of the whole -------------------------------------------------------------------------

    @property
    def definitions(self) -> list[Definitions]:
        """What defines variables, each block after those that it speaks of."""
        return [*self.written_sums, *in_order(self.defining_blocks)]

    @property
    def defining_blocks(self) -> list[Definitions]:
        """The same without sums of cells, in no order."""
        return [
            *self.operations,
            *self.conjunctions,
            *self.gates,
            *self.thresholds,
            *self.totals,
            *self.equalities,
        ]

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """Names of the constraints that demand anything, in order of first appearance."""
        return tuple(
            dict.fromkeys(block.source.constraint for block in self.rows if block.source is not None)
        )

    def fixed(self) -> tuple[Integers, Integers]:
        """Bounds of all variables, those that a demand of one literal settles being the same."""
        lower, upper = self.lower.copy(), self.upper.copy()
        literals = self.settled_literals()
        lower[literals >> 1] = upper[literals >> 1] = 1 - (literals & 1)
        return lower, upper

    def settled_literals(self) -> Integers:
        """Those that a demand of one literal says to hold."""
        found = [filled(0, 0)]
        for block in self.rows:
            if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
                single = (block.literals.lengths == 1) & (block.enforcement == TRUE)
                found.append(block.literals.items[block.literals.starts[:-1][single]])
        return np.concatenate(found)

    def restricted(self, keep: Callable[[Source], Mask | bool]) -> Problem:
        """The same without the demands that are not kept.  Definitions stay."""
        rows: list[Rows] = []
        for block in self.rows:
            kept = True if block.source is None else keep(block.source)
            if kept is True or (not isinstance(kept, bool) and bool(kept.all())):
                rows.append(block)
            elif not isinstance(kept, bool) and kept.any():
                rows.append(block.take(np.flatnonzero(kept)))
        return replace(self, rows=rows, redundant=[])


def in_order(blocks: Iterable[Definitions]) -> list[Definitions]:
    """Definitions by the first variable that each defines: after those that they speak of."""
    found = [block for block in blocks if len(defined_by(block))]
    return sorted(found, key=lambda block: int(defined_by(block)[0]))


def defined_by(block: Definitions) -> Integers:
    """The variables that a block defines, in order."""
    if isinstance(block, (Gated, Totals)):
        return block.variables
    return block.targets if isinstance(block, Operations) else block.targets >> 1


def least(linear: Linear, bounds: tuple[Integers, Integers]) -> int:
    """The least value within bounds of the variables."""
    variables = integers(linear.variables)
    pairs = zip(
        linear.coefficients, bounds[0][variables].tolist(), bounds[1][variables].tolist(), strict=True
    )
    terms: list[int] = [factor * (low if factor > 0 else high) for factor, low, high in pairs]
    return linear.constant + sum(terms)


def scale(linear: Linear, factor: int) -> Linear:
    if factor == 0:
        return Linear(0)
    if factor == 1:
        return linear
    return Linear(
        linear.constant * factor,
        linear.variables,
        tuple(coefficient * factor for coefficient in linear.coefficients),
    )


def add(*parts: Linear) -> Linear:
    """The sum, with each variable once and in order."""
    constant = 0
    terms: dict[int, int] = {}
    for part in parts:
        constant += part.constant
        for variable, coefficient in zip(part.variables, part.coefficients, strict=True):
            terms[variable] = terms.get(variable, 0) + coefficient
    kept = sorted((variable, coefficient) for variable, coefficient in terms.items() if coefficient)
    return Linear(constant, tuple(v for v, _ in kept), tuple(c for _, c in kept))


def _contradictory(literals: Lists) -> Mask:
    """Which rows, sorted and distinct, hold a literal and its negation."""
    marked = np.zeros(len(literals.items), np.bool_)
    owners, items = literals.owners, literals.items
    marked[1:] = (items[1:] == items[:-1] ^ 1) & (owners[1:] == owners[:-1]) & (items[1:] & 1 == 1)
    return literals.any(marked)


def _per_row(lists: Lists, values: Integers) -> Integers:
    """The sum of the values of each row's items."""
    found = np.zeros(len(lists), values.dtype)
    filled_rows = np.flatnonzero(lists.lengths)
    if len(filled_rows):
        found[filled_rows] = np.add.reduceat(values, lists.starts[:-1][filled_rows])
    return found


def _with(lists: Lists, items: Integers) -> Lists:
    """Each list with an item more, at its end."""
    owners = np.concatenate((lists.owners, np.arange(len(lists))))
    return Lists.grouped(owners, np.concatenate((lists.items, items)), len(lists))


def _at(rows: Integers, linears: Linears, count: int) -> Linears:
    """``count`` rows, of which these are the ones given, and the others 0."""
    return linears.summed(rows, count)


def _signatures(linears: Linears) -> Lists:
    """Lists that are the same where the expressions are."""
    pairs = Lists.side_by_side(linears.terms.items, linears.coefficients)
    return _with(Lists(2 * linears.terms.starts, pairs.items), linears.constants)
