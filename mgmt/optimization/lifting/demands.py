"""What is demanded of an assignment, out of clauses: allowed values, limits on loads, and conditions.

A bound on the cells of one row says which values it may have; one on a sum of rank one is a limit on a load, or keeps
two rows apart; clauses of several are alternatives, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mgmt.optimization.assignment import NONE, UNLIMITED, Amounts, Condition, Either, Limit, Occupancy, Skew
from mgmt.optimization.columns import (
    LIMIT,
    Integers,
    Linears,
    Lists,
    Mask,
    filled,
    group_numbers,
    others,
    stacked,
    sum_of,
)
from mgmt.optimization.general.operators import Operator
from mgmt.optimization.lifting.choices import AllowedValues, ChoiceCells
from mgmt.optimization.lifting.clauses import Clauses, clauses_of, over, shifted
from mgmt.optimization.lifting.move_limits import are_move_limits, move_limits
from mgmt.optimization.lifting.pairs.matches import matches_of
from mgmt.optimization.lifting.pairs.row_pairs import PairedRows, RowPairs, one_part_only
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.skews import skews_above_least, skews_of
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.factors import Factors, places_in
from mgmt.optimization.lifting.sums.families import Family, PlacedRows, families_of, loads_of
from mgmt.optimization.lifting.sums.normal_form import (
    Demanded,
    Ranges,
    Rowwise,
    as_literals,
    disjoined,
    is_membership,
    normalized,
    values_within,
)
from mgmt.optimization.problem import NO_BOUND, Rows
from mgmt.optimization.products import CellRows

_MANY = 3
"""Of rows: more than a pair."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A constraint or an objective that is not lifted, or not all of it."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}" if self.name else self.why


class Demands:
    """Collects what clauses demand."""

    def __init__(self, sums: CellSums) -> None:
        self.sums, self._cells, self.following = sums, sums.cells, sums.following
        self.allowed = AllowedValues.of(self._cells)
        self.required = self._cells.required.copy()
        self.limits: list[Limit] = []
        self.banning: list[Limit] = []
        """Limits of 0: what is allowed says them, too."""
        self.conditions: list[Condition] = []
        self.origins: dict[Limit | Skew, Callable[[], PlacedRows | PairedRows]] = {}
        """Of limits and skews: the rows of the constraint that demand them, put together when somebody asks."""
        self.bounds_on_rows: list[tuple[str, Ranges]] = []
        """By constraint the bounds on the cells of single rows, which say what is allowed."""
        self.forbidden_cells: list[CellRows] = []
        """Of rows and values of all choices."""
        self.impossible: list[str] = []
        self.left_out: list[LeftOut] = []
        self._pairs = RowPairs(sums)

    @property
    def cells(self) -> ChoiceCells:
        """What they are about."""
        return self._cells

    @property
    def allowing(self) -> frozenset[str]:
        """Constraints that say which values rows may have."""
        return frozenset(
            (
                *(name for name, _ in self.bounds_on_rows),
                *(block.constraint for block in self.forbidden_cells),
                *(limit.name for limit in self.banning),
            )
        )

    def add(self, block: Rows) -> None:
        """Take in what rows demand; what has no structure is left out."""
        self.sums.deadline.check()
        name = "" if block.source is None else block.source.constraint
        try:
            clauses = self._with_values(clauses_of(block, self.sums))
            unmixed = self.sums.unmixed(clauses.linears, clauses.owners)
            clauses = self._merged(replace(clauses, linears=unmixed))
        except NotLiftedError as reason:
            self.left_out.append(LeftOut(name, str(reason)))
            return
        sizes = np.bincount(clauses.owners, minlength=len(clauses))
        if not sizes.all():
            self.impossible.append(clauses.name)
        single = clauses.where(sizes == 1)
        atomic = self.sums.atomic(single.linears)
        self._try(clauses.name, self._add_ranges, single.where(~atomic))
        self._try(clauses.name, self._add_counts, single.where(atomic))
        for size in np.unique(sizes[sizes > 1]).tolist():
            self._try(clauses.name, self._add_alternatives, clauses.take(np.flatnonzero(sizes == size)))

    def add_cells(self, block: CellRows) -> None:
        """Take in what is demanded of cells, or leave it out."""
        self.sums.deadline.check()
        try:
            self._add_cells(block)
        except NotLiftedError as reason:
            self.left_out.append(LeftOut(block.constraint, str(reason)))

    def _add_cells(self, block: CellRows) -> None:
        if not self.sums.places.knows(block.grid):
            raise NotLiftedError("flags of another choice than the one that they follow")
        rows, values = self.sums.places.sides(block)
        if block.none:
            self.allowed.forbid(np.unique(rows.members.items), values.members.items)
            self.forbidden_cells.append(replace(block, rows=rows, values=values))
            return
        sizes, disjoint = (
            rows.members.lengths,
            len(np.unique(values.members.items)) == len(values.members.items),
        )
        two = rows.members.take(np.flatnonzero(sizes == 2)).items
        if len(two) and disjoint:
            bucket = filled(self._cells.values, NONE)
            bucket[values.members.items] = values.members.owners
            pairs = two[::2], two[1::2], bucket, block.row_tags[sizes == 2], block.value_tags
            self._pairs.add_apart(block.constraint, *pairs)
        some, there = np.flatnonzero(sizes > (2 if disjoint else 1)), np.flatnonzero(values.members.lengths)
        if not len(some):
            return
        zero = np.zeros((1, 1), np.int64)
        for load, groups, buckets in loads_of(rows.take(some), values.take(there), self._cells):
            limit = Limit(block.constraint, load, zero, zero + 1)
            self.limits.append(limit)
            told = block.row_tags[some[groups]], block.value_tags[there[buckets]]
            self.origins[limit] = partial(_placed_cells, *told)

    def finish(self) -> None:
        """Take in what is known when all clauses are."""
        for name in self._pairs.names:
            try:
                for demand in self._pairs.demands(name):
                    if isinstance(demand, Limit):
                        self.limits.append(demand)
                        self.origins[demand] = partial(self._pairs.rows_of, name)
                    elif isinstance(demand, Ranges):
                        self._ban(name, demand)
                    elif isinstance(demand, tuple):
                        self._add_either(name, list(demand))
                    else:
                        self.conditions.append(demand)
            except NotLiftedError as reason:
                self.left_out.append(LeftOut(name, str(reason)))

    def _try(self, name: str, add: Callable[[Clauses], None], clauses: Clauses) -> None:
        """What has no other structure may be about pairs of rows."""
        self.sums.deadline.check()
        if not len(clauses):
            return
        try:
            try:
                add(clauses)
            except NotLiftedError:
                pairs = self._pairs.add_clauses(clauses)
                if not pairs.any():
                    raise
                self._try(name, add, clauses.take(np.flatnonzero(~pairs)))
        except NotLiftedError as reason:
            self.left_out.append(LeftOut(name, str(reason)))

    # ---- clauses of several bounds ------------------------------------------------------------------

    def _merged(self, clauses: Clauses) -> Clauses:
        """All that a clause says of what rows have in one bound, and of what they do not have in another."""
        clauses = self._with_memberships(clauses)
        plain = ~self.sums.atomic(clauses.linears)
        several = np.bincount(clauses.owners, minlength=len(clauses))[clauses.owners] > 1
        one_sided = (clauses.lower == -NO_BOUND) | (clauses.upper == NO_BOUND)
        mask = np.flatnonzero(plain & (several | one_sided))
        bounds = clauses.linears.take(mask), clauses.lower[mask], clauses.upper[mask]
        some = mask[is_membership(*bounds, self.sums)]
        if not len(some):
            return clauses
        rest = others(len(clauses.owners), some)
        literals = as_literals(clauses.linears.take(some), clauses.lower[some], self.sums)
        has, has_not, always = disjoined(literals, clauses.owners[some], len(clauses), self.sums.stride)
        rest = rest[~self._implies(clauses, rest, has)]
        owner = clauses.owners[rest]
        made = []
        for linears, least in ((has, True), (has_not, False)):
            there = np.flatnonzero(linears.terms.lengths)
            parts = linears.take(there)
            most = self._rows_in(parts) - 1
            none = filled(len(there), NO_BOUND)
            made.append((there, parts, filled(len(there), 1) if least else -none, none if least else most))
        owners = np.concatenate((owner, *(part[0] for part in made)))
        whole = stacked([clauses.linears.take(rest), *(part[1] for part in made)])
        lower = np.concatenate((clauses.lower[rest], *(part[2] for part in made)))
        upper = np.concatenate((clauses.upper[rest], *(part[3] for part in made)))
        order = np.argsort(owners, kind="stable")
        merged = Clauses(
            clauses.name, clauses.rows, owners[order], whole.take(order), lower[order], upper[order]
        )
        return merged.take(np.flatnonzero(~always)) if always.any() else merged

    def _implies(self, clauses: Clauses, bounds: Integers, has: Linears) -> Mask:
        """Which bounds forbid so many cells that a row of theirs has one of those that its clause wants."""
        linears, owners = clauses.linears.take(bounds), clauses.owners[bounds]
        unit = ~linears.terms.any(linears.coefficients != 1) & (clauses.upper[bounds] <= 0)
        plain = ~self.sums.atomic(linears) & ~self.sums.is_product(linears)
        some = np.flatnonzero(unit & plain & (has.terms.lengths[owners] > 0))
        rowwise = Rowwise.of(sum_of(linears.take(some), has.take(owners[some])), self.sums)
        found = np.zeros(len(bounds), np.bool_)
        found[some] = np.bincount(rowwise.owners[rowwise.complete], minlength=len(some)) > 0
        return found

    def _with_values(self, clauses: Clauses) -> Clauses:
        """Where a bound, beside others, is on what one row has: the values that it has, or has not."""
        sums, cells = self.sums, self._cells
        several = np.bincount(clauses.owners, minlength=len(clauses))[clauses.owners] > 1
        plain = ~sums.atomic(clauses.linears) & ~sums.is_product(clauses.linears)
        some = np.flatnonzero(several & plain)
        some = some[self._rows_in(clauses.linears.take(some)) == 1]
        if not len(some):
            return clauses
        rows, number, allows = values_within(
            Ranges.of(clauses.linears.take(some), clauses.lower[some], clauses.upper[some]), sums
        )
        first, kind = group_numbers(number, cells.column[rows])
        may_have = cells.may_have[cells.column[rows[first]]]
        inside, outside = allows[number[first]] & may_have, ~allows[number[first]] & may_have
        told = np.asarray(inside.any(1) & outside.any(1))[kind]
        some, rows, kind = some[told], rows[told], kind[told]
        if not len(some):
            return clauses
        negated = inside[:, -1]
        sets = Lists.of(
            [np.flatnonzero(one).tolist() for one in np.where(negated[:, None], outside, inside)[:, :-1]]
        )
        values = sets.take(kind)
        terms = Lists(values.starts, rows[values.owners] * sums.stride + values.items)
        made = Linears(filled(len(some), 0), terms, filled(len(terms.items), 1))
        lower, upper = clauses.lower.copy(), clauses.upper.copy()
        lower[some] = np.where(negated[kind], -NO_BOUND, 1)
        upper[some] = np.where(negated[kind], 0, NO_BOUND)
        others = np.setdiff1d(np.arange(len(clauses.owners)), some)
        order = np.argsort(np.concatenate((others, some)))
        linears = stacked([clauses.linears.take(others), made]).take(order)
        return replace(clauses, linears=linears, lower=lower, upper=upper)

    def _with_memberships(self, clauses: Clauses) -> Clauses:
        """Products written out where a bound, beside others, asks only whether there is anybody."""
        several = np.bincount(clauses.owners, minlength=len(clauses))[clauses.owners] > 1
        asked = several & self.sums.is_product(clauses.linears) & (clauses.lower == 1)
        if not asked.any():
            return clauses
        order = np.argsort(np.concatenate((np.flatnonzero(~asked), np.flatnonzero(asked))))
        kept, written = (
            clauses.linears.take(np.flatnonzero(~asked)),
            clauses.linears.take(np.flatnonzero(asked)),
        )
        return replace(clauses, linears=stacked([kept, self.sums.written_out(written)]).take(order))

    def _rows_in(self, linears: Linears) -> Integers:
        """Of how many rows the cells are."""
        owners, rows = linears.terms.owners, self.sums.row_of(linears.terms.items)
        first, _ = group_numbers(owners, rows)
        return np.bincount(owners[first], minlength=len(linears))

    def _add_alternatives(self, clauses: Clauses) -> None:
        """One of several bounds on sums over cells holds."""
        if self._add_far_from_least(clauses):
            return
        if self.sums.atomic(clauses.linears).any():
            self._add_mismatches(clauses)
            return
        size = len(clauses.owners) // len(clauses)
        ranges, least, most = self._normalized(clauses)
        holds = ((ranges.lower <= least) & (ranges.upper >= most)).reshape(-1, size).any(1)
        fails = (ranges.lower > most) | (ranges.upper < least)
        kept = np.flatnonzero(~np.repeat(holds, size) & ~fails)
        owners, ranges = clauses.owners[kept], ranges.take(kept)
        sizes = np.bincount(owners, minlength=len(clauses))
        if bool((sizes[~holds] == 0).any()):
            self.impossible.append(clauses.name)
        for number in np.unique(sizes[sizes > 0]).tolist():
            some = ranges.take(np.flatnonzero(sizes[owners] == number))
            if number == 1:
                self._add_normalized(clauses.name, some)
                continue
            columns = [some.take(np.arange(place, len(some), number)) for place in range(number)]
            self._add_either(clauses.name, columns)

    def _add_either(self, name: str, columns: list[Ranges]) -> None:
        if len(columns) == 2:
            columns = self._add_excused_differences(name, columns)
            if not len(columns[0]):
                return
        factors = [self.sums.factors(column.linears) for column in columns]
        if len(columns) == 2:
            unconditional = self._unconditional(columns, factors)
            if unconditional.any():
                kept, some = np.flatnonzero(~unconditional), np.flatnonzero(unconditional)
                # Each of the rows says the same bound.
                told, bound = factors[0].take(some), columns[0].take(some)
                once, _ = group_numbers(told.row_kind, told.value_kind, bound.lower, bound.upper)
                self._add_normalized(name, bound.take(np.sort(once)))
                columns, factors = [one.take(kept) for one in columns], [one.take(kept) for one in factors]
            columns = self._with_guards_joined(columns, factors)
            factors = [self.sums.factors(column.linears) for column in columns]
            if not len(columns[0]) or self._add_all_or_none(name, columns, factors):
                return
        for family in families_of(factors, self._cells.rows, self._cells.values):
            limits = tuple(
                Limit(name, load, *self._bounds_at(family, column))
                for load, column in zip(family.loads, columns, strict=True)
            )
            # Places that no clause is about may have anything.
            self.conditions.append(Either(name, limits))

    def _add_excused_differences(self, name: str, columns: Sequence[Ranges]) -> list[Ranges]:
        """Skews where beside a difference of sums stands at most what the one comes to; the others are left."""
        mixed = [column.linears.terms.any(column.linears.coefficients < 0) for column in columns]
        for at in (0, 1):
            difference, excuse = columns[at], columns[1 - at]
            some = mixed[at] & ~mixed[1 - at] & (excuse.lower <= 0) & (excuse.upper < NO_BOUND)
            if some.any():
                excuse = excuse.take(some)
                excuse = replace(excuse, linears=self.sums.written_out(excuse.linears)).multiplied()
                self._add_skews(skews_of(name, difference.take(some).multiplied(), self.sums, excuse))
                columns, mixed = [one.take(~some) for one in columns], [one[~some] for one in mixed]
        return list(columns)

    def _add_far_from_least(self, clauses: Clauses) -> bool:
        """Skews where a sum with the negated least of some, too many to be written out, stands in each clause."""
        least = clauses.linears.terms.any(self.sums.is_defined(Operator.MAXIMUM, clauses.linears.terms.items))
        size = len(clauses.owners) // len(clauses)
        if size > 2 or not bool((np.bincount(clauses.owners[least], minlength=len(clauses)) == 1).all()):
            return False
        where, beside = np.flatnonzero(least), np.flatnonzero(~least)
        ranges = Ranges.of(
            clauses.linears.take(where), clauses.lower[where], clauses.upper[where], clauses.rows
        )
        excuses = Ranges.of(clauses.linears.take(beside), clauses.lower[beside], clauses.upper[beside])
        self._add_skews(skews_above_least(clauses.name, ranges, self.sums, excuses))
        return True

    def _add_skews(self, skews: Mapping[Skew, PlacedRows]) -> None:
        self.conditions.extend(skews)
        self.origins.update({skew: partial(_itself, told) for skew, told in skews.items()})

    def _with_guards_joined(self, columns: Sequence[Ranges], factors: Sequence[Factors]) -> list[Ranges]:
        """Where rows of several clauses are to have none of some values, or else the same holds, as one clause."""
        bound, guard = columns
        some = np.flatnonzero(self._forbids(guard) & factors[0].whole & factors[1].whole)
        told = (
            factors[0].row_kind[some],
            *(one.value_kind[some] for one in factors),
            bound.lower[some],
            bound.upper[some],
        )
        first, number = group_numbers(*told)
        if len(first) == len(some):
            return list(columns)
        whole = guard.linears.take(some).summed(number, len(first))
        whole = replace(whole, coefficients=np.ones_like(whole.coefficients))
        others = np.setdiff1d(np.arange(len(bound)), some)
        order = np.argsort(np.append(others, some[first]), kind="stable")
        kept = np.append(others, some[first])[order]
        linears = stacked([guard.linears.take(others), whole]).take(order)
        joined = replace(guard.take(kept), linears=linears)
        return [bound.take(kept), joined]

    def _forbids(self, guard: Ranges) -> Mask:
        """Which bounds are that none of some rows has one of some values."""
        even = ~guard.linears.terms.any(guard.linears.coefficients != 1)
        found: Mask = even & (guard.upper == 0) & (guard.lower <= 0) & ~self.sums.is_product(guard.linears)
        return found

    def _unconditional(self, columns: Sequence[Ranges], factors: Sequence[Factors]) -> Mask:
        """Which first bounds hold anyway: they are demanded of each row that counts there if it is there.

        A sum of no negative weight is 0 where nobody is.
        """
        bound, guard = columns
        terms, told = guard.linears.terms, factors[0]
        asked = told.whole & (bound.lower <= 0) & (bound.upper >= 0) & self._forbids(guard)
        asked &= ~told.rows.any(told.weights < 0)[told.row_kind]
        some = np.flatnonzero(asked)
        first, group = group_numbers(told.row_kind[some], told.value_kind[some], bound.upper[some])
        cells = terms.take(some)
        entry, _ = group_numbers(group[cells.owners], cells.items)
        owner, cell = group[cells.owners][entry], cells.items[entry]
        rows, values = (
            told.rows.take(told.row_kind[some[first]]),
            told.values.take(told.value_kind[some[first]]),
        )
        inside = places_in(rows, owner, self.sums.row_of(cell)) >= 0
        inside &= places_in(values, owner, self.sums.value_of(cell)) >= 0
        every = np.bincount(owner[inside], minlength=len(first)) == rows.lengths * values.lengths
        found = np.zeros(len(bound), np.bool_)
        found[some] = every[group]
        return found

    def _add_all_or_none(self, name: str, columns: Sequence[Ranges], factors: Sequence[Factors]) -> bool:
        """Rows that are all in a bucket or none of them, whichever it is, use one bucket; whether that is it."""
        (none, every), one = columns, factors[0]
        if bool((none.upper != 0).any()):
            none, every, one = every, none, factors[1]
        totals = filled(len(one.rows), 0)
        np.add.at(totals, one.rows.owners, one.weights)
        same = all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (every.linears.terms.starts, none.linears.terms.starts),
                (every.linears.terms.items, none.linears.terms.items),
                (every.linears.coefficients, none.linears.coefficients),
            )
        )
        if not same or bool((none.upper != 0).any()) or bool((every.lower != totals[one.row_kind]).any()):
            return False
        if not bool(one.whole.all()) or bool((one.weights <= 0).any()):
            return False
        families = families_of([one], self._cells.rows, self._cells.values)
        for family in families:
            (load,) = family.loads
            rows = np.flatnonzero(load.group >= 0)
            there = np.zeros((load.groups, load.buckets + 1), np.bool_)
            there[family.group, family.bucket] = True  # values of no bucket are of the last, where nothing is
            kinds, group = self.allowed.row_class[rows], load.group[rows].astype(np.int64)
            first, _ = group_numbers(kinds, group)
            elsewhere = ~there[group[first][:, None], load.bucket[None, :]]
            may_be = bool((self.allowed.table[kinds[first]] & elsewhere).any())
            if not bool(self._cells.required[rows].all()) or may_be:
                return False
        for family in families:
            (load,) = family.loads
            self.conditions.append(Occupancy(name, load, filled(load.groups, 0), filled(load.groups, 1)))
        return True

    def _bounds_at(self, family: Family, ranges: Ranges) -> tuple[Amounts, Amounts]:
        lower = np.maximum(ranges.lower, 0)
        upper = np.minimum(ranges.upper, UNLIMITED)
        return family.spread(lower, 0), family.spread(upper, int(UNLIMITED))

    def _add_mismatches(self, clauses: Clauses) -> None:
        """One of several pairs of rows does not match."""
        terms = clauses.linears.terms
        alone = bool((terms.lengths == 1).all())
        if not alone or not bool(self.sums.is_defined(Operator.MATCH, terms.items).all()):
            raise NotLiftedError("alternatives of what is no sum over cells")
        _, high = over(clauses.lower, clauses.upper, clauses.linears.coefficients)
        if bool((high > 0).any()):
            raise NotLiftedError("alternatives of pairs that match")
        found = matches_of(self.sums, terms.items)
        self.conditions.extend(found.not_all(clauses.name, clauses.owners, len(clauses), self._cells))

    def _normalized(self, clauses: Clauses) -> tuple[Ranges, Integers, Integers]:
        """The bounds of clauses."""
        rows = clauses.rows[clauses.owners]
        ranges = Ranges.of(clauses.linears, clauses.lower, clauses.upper, rows)
        return normalized(ranges, self.sums)

    # ---- single bounds ------------------------------------------------------------------------------

    def _add_ranges(self, clauses: Clauses) -> None:
        ranges, least, most = self._normalized(clauses)
        if bool(((ranges.lower > most) | (ranges.upper < least)).any()):
            self.impossible.append(clauses.name)
        self._add_normalized(clauses.name, ranges.take((ranges.lower > least) | (ranges.upper < most)))

    def _add_normalized(self, name: str, ranges: Ranges) -> None:
        """Bounds that say something."""
        rows = np.where(self.sums.is_product(ranges.linears), _MANY, self._rows_in(ranges.linears))
        self._ban(name, ranges.take(rows == 1))
        unit = ~ranges.linears.terms.any(ranges.linears.coefficients != 1)
        apart = (rows == 2) & unit & (ranges.upper == 1) & (ranges.lower <= 0)
        self._pairs.add(name, ranges.take(apart))
        ranges = ranges.take((rows > 1) & ~apart)
        if not len(ranges):
            return
        factors = self.sums.factors(ranges.linears)
        clause = is_membership(ranges.linears, ranges.lower, ranges.upper, self.sums)
        whole = factors.whole & ~ranges.linears.terms.any(ranges.linears.coefficients < 0)
        if not whole.all():
            self._add_clauses(name, ranges.take(~whole & clause))
            self._add_differences(name, ranges.take(~whole & ~clause).multiplied())
            ranges, factors = ranges.take(whole), factors.take(np.flatnonzero(whole))
        none = ranges.upper == 0
        if none.any():
            self._ban_products(factors.take(np.flatnonzero(none)))
        for mask, limits in ((~none, self.limits), (none, self.banning)):
            if not mask.any():
                continue
            some, their = ranges.take(mask), factors.take(np.flatnonzero(mask))
            for family in families_of([their], self._cells.rows, self._cells.values):
                (load,) = family.loads
                limit = Limit(name, load, *self._bounds_at(family, some))
                limits.append(limit)
                self.origins[limit] = partial(family.placed, some.demanded)

    def _add_differences(self, name: str, differences: Ranges) -> None:
        moves = are_move_limits(differences, self.sums, self._cells.current)
        self.conditions.extend(move_limits(name, differences.take(moves), self.sums, self._cells.rows))
        differences = differences.take(~moves)
        self._add_skews(skews_of(name, differences, self.sums))

    def _add_clauses(self, name: str, some: Ranges) -> None:
        """One of several rows has, or has not, some values: those that are asked about the same are one alternative."""
        if not len(some):
            return
        literals = as_literals(some.linears, some.lower, self.sums)
        if literals.negated.any() and not literals.negated.all():
            raise NotLiftedError("values of some rows that depend on those of others")
        values = Lists(literals.cells.starts, self.sums.value_of(literals.cells.items))
        _, kind = values.alike()
        first, part = group_numbers(literals.bounds, kind)
        terms = Lists.grouped(part[literals.cells.owners], literals.cells.items, len(first))
        parts = Linears(filled(len(first), 0), terms, filled(len(terms.items), 1))
        rows, none = np.bincount(part), filled(len(first), NO_BOUND)
        if literals.negated.any():
            limited = Ranges.of(parts, -none, rows - 1)
        else:
            limited = Ranges.of(parts, filled(len(first), 1), none)
        owners = literals.bounds[first]
        sizes = np.bincount(owners, minlength=len(some))
        for size in np.unique(sizes).tolist():
            mine = limited.take(np.flatnonzero(sizes[owners] == size))
            self._add_either(name, [mine.take(np.arange(at, len(mine), size)) for at in range(size)])

    def _ban(self, name: str, ranges: Ranges) -> None:
        """Bounds on single rows: which values they may have."""
        if len(ranges):
            rows, number, allows = values_within(ranges, self.sums)
            self.required[rows[~allows[number, -1]]] = True
            self.allowed.keep(rows, number, allows[:, :-1])
            self.bounds_on_rows.append((name, ranges))

    def _ban_products(self, factors: Factors) -> None:
        """Sums of no negative weight that are 0: none of the rows that count has one of the values."""
        kinds, number = np.unique(factors.row_kind, return_inverse=True)
        allows = np.ones((len(kinds), self._cells.values), np.bool_)
        values = factors.values.take(factors.value_kind)
        allows[number[values.owners], values.items] = False
        places, starts = factors.rows.places(kinds)
        kind = np.repeat(np.arange(len(kinds)), np.diff(starts))
        counts = factors.weights[places] > 0
        self.allowed.keep(factors.rows.items[places][counts], kind[counts], allows)

    # ---- how many sums are not nothing --------------------------------------------------------------

    def _add_counts(self, clauses: Clauses) -> None:
        """Bounds on the number of sums that are not nothing: how many buckets are used."""
        linears, sums = clauses.linears, self.sums
        terms, factors, owners = linears.terms.items, linears.coefficients, linears.terms.owners
        if self._add_far_from_least(clauses) or self._add_all_different(clauses):
            return
        if bool(sums.is_defined(Operator.MATCH, terms).all()):
            self._add_matches(clauses)
            return
        if not bool(sums.is_defined(Operator.AT_MOST_ZERO, terms).all()):
            raise NotLiftedError("a bound on what is no sum over cells")
        operands, _ = sums.operands(terms)
        if sums.atomic(operands).any():
            raise NotLiftedError("how many are used of what is no sum over cells")
        open_ = filled(len(operands), -NO_BOUND), -operands.constants
        used, _, _ = normalized(Ranges.of(operands.plus(-operands.constants), *open_), self.sums)
        empty = (used.lower == -NO_BOUND) & (used.upper == 0)
        if bool((used.linears.coefficients <= 0).any()) or bool((~empty & (used.lower != 1)).any()):
            raise NotLiftedError("how many are used of what may be less than nothing")
        # An atom says that a sum is nothing, or that it is not; what is counted are those that are not.
        prices = np.where(empty, -factors, factors)
        constants = filled(len(linears), 0)
        np.add.at(constants, owners, np.where(empty, factors, 0))
        if bool((linears.terms.lengths == 0).any()):
            raise NotLiftedError("how many are used, of none")
        first = prices[linears.terms.starts[:-1]]
        if bool((prices != first[owners]).any()):
            raise NotLiftedError("how many are used, at different prices")
        low, high = over(*shifted(clauses.lower, clauses.upper, -constants), first)
        lower, upper = np.maximum(low, 0), np.minimum(high, linears.terms.lengths)
        factored = self.sums.factors(used.linears).without_weights()
        self._add_occupancies(clauses.name, factored, owners, lower, upper)

    def _add_all_different(self, clauses: Clauses) -> bool:
        """As many sums are something as there can be rows in them: no sum is more than 1, and no row elsewhere."""
        sums, linears = self.sums, clauses.linears
        items, owners, atom = linears.terms.items, linears.terms.owners, sums.is_atom(linears.terms.items)
        defined = sums.is_defined(Operator.AT_MOST_ZERO, items[atom])
        if not atom.any() or not defined.all() or not bool(linears.terms.any(~atom).all()):
            return False
        operands = sums.written_out(sums.operands(items[atom])[0])
        factors, rising = linears.coefficients[atom], operands.terms.any(operands.coefficients > 0)
        # 1 less a sum is at most 0 where that is something, and a sum where it is nothing.
        sign = 1 if bool(((factors > 0) ^ rising).all()) else -1
        amounts = operands.scaled(np.where(rising, 1, -1)).plus(np.where(rising, 0, 1))
        even = (amounts.constants == 0) & ~amounts.terms.any(amounts.coefficients <= 0)
        if (
            sums.atomic(operands).any()
            or not even.all()
            or bool((factors * np.where(rising, -1, 1) != sign).any())
        ):
            return False
        lower = clauses.lower if sign > 0 else np.where(clauses.upper == NO_BOUND, -NO_BOUND, -clauses.upper)
        cells = Linears(
            filled(len(linears), 0), linears.terms.keep(~atom), sign * linears.coefficients[~atom]
        )
        whose = owners[atom]
        most = stacked([cells, amounts]).summed(np.append(np.arange(len(linears)), whose), len(linears))
        most = sums.unmixed(most, np.arange(len(most)))
        rowwise = Rowwise.of(most, sums)
        lower = lower + np.bincount(whose[rising], minlength=len(linears))
        if bool((lower < -LIMIT).any()) or bool((rowwise.ends(len(most))[1] != lower).any()):
            return False
        by_row = Linears(
            0 * rowwise.rows,
            Lists.grouped(rowwise.number, most.terms.items, len(rowwise.rows)),
            most.coefficients,
        )
        for linears, clause, low, high in (
            (by_row, rowwise.owners, rowwise.most, filled(len(by_row), NO_BOUND)),
            (amounts, whose, filled(len(amounts), -NO_BOUND), filled(len(amounts), 1)),
        ):
            self._add_ranges(
                Clauses(clauses.name, clauses.rows[clause], np.arange(len(clause)), linears, low, high)
            )
        return True

    def _add_matches(self, clauses: Clauses) -> None:
        """Pairs of rows match."""
        terms = clauses.linears.terms
        if bool((terms.lengths != 1).any()):
            raise NotLiftedError("how many pairs match")
        low, _ = over(clauses.lower, clauses.upper, clauses.linears.coefficients[terms.starts[:-1]])
        if bool((low < 1).any()):
            raise NotLiftedError("how many pairs match")
        found = matches_of(self.sums, terms.items)
        for condition, rows in found.together(clauses.name, self._cells.rows):
            self.conditions.append(condition)
            self.required[rows] = True
            self.allowed.forbid(rows, np.flatnonzero(condition.load.bucket < 0))

    def _add_occupancies(
        self, name: str, factored: Factors, owners: Integers, lower: Integers, upper: Integers
    ) -> None:
        """Bounds that are about the same buckets, together."""
        alone = (upper == 1) & (lower <= 0) & self._over_one_kind(factored, owners, len(upper))
        alone &= np.bincount(owners[~factored.whole], minlength=len(upper)) == 0
        if alone.any():
            self._add_one_part_only(name, factored, owners, np.flatnonzero(alone))
            kept = np.flatnonzero(~alone[owners])
            number = np.cumsum(~alone) - 1
            owners, factored = number[owners[kept]], factored.take(kept)
            lower, upper = lower[~alone], upper[~alone]
        kind = factored.value_kind
        order = np.lexsort((kind, owners))
        _, same = Lists.grouped(owners, kind[order], len(lower)).alike()
        found: list[Occupancy] = []
        for number in np.unique(same).tolist():
            mine = np.flatnonzero(same == number)
            inside = np.flatnonzero(np.isin(owners, mine))
            whose = np.searchsorted(mine, owners[inside])
            for family in families_of([factored.take(inside)], self._cells.rows, self._cells.values):
                (load,) = family.loads
                of_member = whose[family.members]
                counted = np.bincount(of_member, minlength=len(mine))
                whole = np.bincount(whose, minlength=len(mine))
                group = filled(len(mine), -1)
                group[of_member] = family.group
                _, times = np.unique(group[counted > 0], return_counts=True)
                # A bound of the whole clause is none of a part of it, and none of several groups.
                is_part = (counted > 0) & ((counted != load.buckets) | (counted != whole))
                several = group[of_member] != family.group
                if bool(is_part.any()) or bool(several.any()) or bool((times > 1).any()):
                    raise NotLiftedError("how many are used of several loads")
                low, high = filled(load.groups, 0), filled(load.groups, load.buckets)
                low[group[counted > 0]] = lower[mine][counted > 0]
                high[group[counted > 0]] = upper[mine][counted > 0]
                found.append(Occupancy(name, load, np.maximum(low, 0), np.minimum(high, load.buckets)))
        self.conditions.extend(found)

    def _over_one_kind(self, factored: Factors, owners: Integers, count: int) -> Mask:
        """Which bounds are on sums of several rows, all with the same values."""
        least, most = filled(count, len(factored.values)), filled(count, -1)
        np.minimum.at(least, owners, factored.value_kind)
        np.maximum.at(most, owners, factored.value_kind)
        found: Mask = (least == most) & (np.bincount(owners, minlength=count) > 1)
        return found

    def _add_one_part_only(self, name: str, factored: Factors, owners: Integers, bounds: Integers) -> None:
        """Of each of these bounds: at most one of its sums, over different rows and the same values, is something."""
        order = np.lexsort((factored.row_kind, owners))
        of_bound = Lists.grouped(owners[order], factored.row_kind[order], int(owners.max()) + 1).take(bounds)
        values = filled(int(owners.max()) + 1, 0)
        values[owners] = factored.value_kind
        first, same = of_bound.alike()
        for number, example in enumerate(first.tolist()):
            parts = factored.rows.take(of_bound.row(example))
            sets = factored.values.take(np.unique(values[bounds[same == number]]))
            if len(np.unique(parts.items)) < len(parts.items) or len(np.unique(sets.items)) < len(sets.items):
                raise NotLiftedError("how many are used of several loads that overlap")
            bucket = filled(self._cells.values, NONE)
            bucket[sets.items] = sets.owners
            self.conditions.extend(one_part_only(name, [parts], bucket, self._cells.rows))


def _itself(rows: PlacedRows) -> PlacedRows:
    return rows


def _placed_cells(row_tags: Integers, value_tags: Integers) -> PlacedRows:
    """The rows that demand of groups of cells, those of each two tags, that one of each holds at most."""
    buckets = len(value_tags)
    places = np.arange(len(row_tags) * buckets)
    group, bucket = places // buckets, places % buckets
    ones = filled(len(places), 1)
    return PlacedRows.of(
        buckets, group, bucket, Demanded(row_tags[group] + value_tags[bucket], ones, 0 * ones, ones)
    )
