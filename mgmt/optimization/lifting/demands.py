"""What is demanded of an assignment, out of clauses: allowed values, limits on loads, and conditions.

A bound on the cells of one row says which values it may have; one on a sum of rank one is a limit on a load, or keeps
two rows apart; clauses of several are alternatives, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mgmt.optimization.assignment import UNLIMITED, Amounts, Condition, Either, Limit, Occupancy, Skew
from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, stacked
from mgmt.optimization.general.operators import Operator
from mgmt.optimization.lifting.cell_sums import CellSums
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.clauses import Clauses, over, shifted
from mgmt.optimization.lifting.factors import Factors, factors_of
from mgmt.optimization.lifting.families import Family, PlacedRows, families_of
from mgmt.optimization.lifting.matches import matches_of
from mgmt.optimization.lifting.normal_form import (
    Ranges,
    as_literals,
    disjoined,
    is_membership,
    normalized,
    values_within,
)
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.row_pairs import PairedRows, RowPairs
from mgmt.optimization.lifting.skews import skews_of
from mgmt.optimization.problem import NO_BOUND


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
        self._sums, self._cells, self.following = sums, sums.cells, sums.following
        self.allowed = self._cells.allowed()
        self.required = self._cells.required.copy()
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []
        self.origins: dict[Limit | Skew, Callable[[], PlacedRows | PairedRows]] = {}
        """Of limits and skews: the rows of the constraint that demand them, put together when somebody asks."""
        self.bounds_on_rows: list[tuple[str, Ranges]] = []
        """By constraint the bounds on the cells of single rows, which say what is allowed."""
        self.impossible: list[str] = []
        self.left_out: list[LeftOut] = []
        self._pairs = RowPairs(self._cells)

    @property
    def cells(self) -> ChoiceCells:
        """What they are about."""
        return self._cells

    def add(self, clauses: Clauses) -> None:
        """Take in clauses; what has no structure is left out."""
        clauses = self._merged(clauses)
        sizes = np.bincount(clauses.owners, minlength=len(clauses))
        if not sizes.all():
            self.impossible.append(clauses.name)
        single = clauses.take(np.flatnonzero(sizes == 1))
        atomic = self._sums.atomic(single.linears)
        self._try(clauses.name, self._add_ranges, single.take(np.flatnonzero(~atomic)))
        self._try(clauses.name, self._add_counts, single.take(np.flatnonzero(atomic)))
        for size in np.unique(sizes[sizes > 1]).tolist():
            self._try(clauses.name, self._add_alternatives, clauses.take(np.flatnonzero(sizes == size)))

    def finish(self) -> None:
        """Take in what is known when all clauses are."""
        for name in self._pairs.names:
            try:
                for demand, origin in self._pairs.demands(name):
                    if isinstance(demand, Limit):
                        self.limits.append(demand)
                        self.origins[demand] = partial(_itself, origin)
                    else:
                        self.conditions.append(demand)
            except NotLiftedError as reason:
                self.left_out.append(LeftOut(name, str(reason)))

    def _try(self, name: str, add: Callable[[Clauses], None], clauses: Clauses) -> None:
        if len(clauses):
            try:
                add(clauses)
            except NotLiftedError as reason:
                self.left_out.append(LeftOut(name, str(reason)))

    # ---- clauses of several bounds ------------------------------------------------------------------

    def _merged(self, clauses: Clauses) -> Clauses:
        """All that a clause says of what rows have in one bound, and of what they do not have in another."""
        plain = ~self._sums.atomic(clauses.linears)
        several = np.bincount(clauses.owners, minlength=len(clauses))[clauses.owners] > 1
        one_sided = (clauses.lower == -NO_BOUND) | (clauses.upper == NO_BOUND)
        mask = np.flatnonzero(plain & (several | one_sided))
        bounds = clauses.linears.take(mask), clauses.lower[mask], clauses.upper[mask]
        some = mask[is_membership(*bounds, self._cells)]
        others = np.setdiff1d(np.arange(len(clauses.owners)), some)
        literals = as_literals(clauses.linears.take(some), clauses.lower[some], self._cells)
        owner = clauses.owners[others]
        has, has_not, always = disjoined(literals, clauses.owners[some], len(clauses), self._cells.values)
        made = []
        for linears, least in ((has, True), (has_not, False)):
            there = np.flatnonzero(linears.terms.lengths)
            parts = linears.take(there)
            most = self._rows_in(parts) - 1
            none = filled(len(there), NO_BOUND)
            made.append((there, parts, filled(len(there), 1) if least else -none, none if least else most))
        owners = np.concatenate((owner, *(part[0] for part in made)))
        whole = stacked([clauses.linears.take(others), *(part[1] for part in made)])
        lower = np.concatenate((clauses.lower[others], *(part[2] for part in made)))
        upper = np.concatenate((clauses.upper[others], *(part[3] for part in made)))
        order = np.argsort(owners, kind="stable")
        merged = Clauses(
            clauses.name, clauses.rows, owners[order], whole.take(order), lower[order], upper[order]
        )
        return merged.take(np.flatnonzero(~always)) if always.any() else merged

    def _rows_in(self, linears: Linears) -> Integers:
        owners, rows = linears.terms.owners, self._sums.row_of(linears.terms.items)
        first, _ = group_numbers(owners, rows)
        return np.bincount(owners[first], minlength=len(linears))

    def _add_alternatives(self, clauses: Clauses) -> None:
        """One of several bounds on sums over cells holds."""
        if self._sums.atomic(clauses.linears).any():
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
        factors = [factors_of(column.linears, self._cells.values) for column in columns]
        for family in families_of(factors, self._cells.rows, self._cells.values):
            limits = tuple(
                Limit(name, load, *self._bounds_at(family, column))
                for load, column in zip(family.loads, columns, strict=True)
            )
            # Places that no clause is about may have anything.
            self.conditions.append(Either(name, limits))

    def _bounds_at(self, family: Family, ranges: Ranges) -> tuple[Amounts, Amounts]:
        lower = np.maximum(ranges.lower, 0)
        upper = np.minimum(ranges.upper, UNLIMITED)
        return family.spread(lower, 0), family.spread(upper, int(UNLIMITED))

    def _add_mismatches(self, clauses: Clauses) -> None:
        """One of several pairs of rows does not match."""
        terms = clauses.linears.terms
        alone = bool((terms.lengths == 1).all())
        if not alone or not bool(self._sums.is_defined(Operator.MATCH, terms.items).all()):
            raise NotLiftedError("alternatives of what is no sum over cells")
        _, high = over(clauses.lower, clauses.upper, clauses.linears.coefficients)
        if bool((high > 0).any()):
            raise NotLiftedError("alternatives of pairs that match")
        found = matches_of(self._sums, terms.items)
        self.conditions.extend(found.not_all(clauses.name, clauses.owners, len(clauses), self._may_have()))

    def _may_have(self) -> Mask:
        """(R, 1 + V) what rows may have, first of all no value."""
        return np.concatenate((~self._cells.required[:, None], self._cells.allowed()), axis=1)

    def _normalized(self, clauses: Clauses) -> tuple[Ranges, Integers, Integers]:
        """The bounds of clauses."""
        rows = clauses.rows[clauses.owners]
        ranges = Ranges.of(clauses.linears, clauses.lower, clauses.upper, rows)
        return normalized(ranges, self._cells)

    # ---- single bounds ------------------------------------------------------------------------------

    def _add_ranges(self, clauses: Clauses) -> None:
        ranges, least, most = self._normalized(clauses)
        if bool(((ranges.lower > most) | (ranges.upper < least)).any()):
            self.impossible.append(clauses.name)
        self._add_normalized(clauses.name, ranges.take((ranges.lower > least) | (ranges.upper < most)))

    def _add_normalized(self, name: str, ranges: Ranges) -> None:
        """Bounds that say something."""
        rows = self._rows_in(ranges.linears)
        self._ban(name, ranges.take(rows == 1))
        unit = ~ranges.linears.terms.any(ranges.linears.coefficients != 1)
        apart = (rows == 2) & unit & (ranges.upper == 1) & (ranges.lower <= 0)
        self._pairs.add(name, ranges.take(apart))
        ranges = ranges.take((rows > 1) & ~apart)
        if not len(ranges):
            return
        factors = factors_of(ranges.linears, self._cells.values)
        clause = is_membership(ranges.linears, ranges.lower, ranges.upper, self._cells)
        whole = factors.whole & ~ranges.linears.terms.any(ranges.linears.coefficients < 0)
        self._add_clauses(name, ranges.take(~whole & clause))
        differences = ranges.take(~whole & ~clause).multiplied()
        for skew, told in skews_of(name, differences, self._cells).items():
            self.conditions.append(skew)
            self.origins[skew] = partial(_itself, told)
        ranges, factors = ranges.take(whole), factors.take(np.flatnonzero(whole))
        for family in families_of([factors], self._cells.rows, self._cells.values):
            (load,) = family.loads
            limit = Limit(name, load, *self._bounds_at(family, ranges))
            self.limits.append(limit)
            self.origins[limit] = partial(family.placed, ranges.demanded)

    def _add_clauses(self, name: str, some: Ranges) -> None:
        """One of several rows has, or has not, some values: those that are asked about the same are one alternative."""
        if not len(some):
            return
        literals = as_literals(some.linears, some.lower, self._cells)
        if literals.negated.any() and not literals.negated.all():
            raise NotLiftedError("values of some rows that depend on those of others")
        values = Lists(literals.cells.starts, self._sums.value_of(literals.cells.items))
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
            rows, kept = values_within(ranges, self._cells)
            self.required[rows[~kept[:, -1]]] = True
            np.logical_and.at(self.allowed, rows, kept[:, :-1])
            self.bounds_on_rows.append((name, ranges))

    # ---- how many sums are not nothing --------------------------------------------------------------

    def _add_counts(self, clauses: Clauses) -> None:
        """Bounds on the number of sums that are not nothing: how many buckets are used."""
        linears, sums = clauses.linears, self._sums
        terms, factors, owners = linears.terms.items, linears.coefficients, linears.terms.owners
        if bool(sums.is_defined(Operator.MATCH, terms).all()):
            self._add_matches(clauses)
            return
        if not bool(sums.is_defined(Operator.AT_MOST_ZERO, terms).all()):
            raise NotLiftedError("a bound on what is no sum over cells")
        operands, _ = sums.operands(terms)
        if sums.atomic(operands).any():
            raise NotLiftedError("how many are used of what is no sum over cells")
        open_ = filled(len(operands), -NO_BOUND), -operands.constants
        used, _, _ = normalized(Ranges.of(operands.plus(-operands.constants), *open_), self._cells)
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
        factored = factors_of(used.linears, self._cells.values).without_weights()
        self._add_occupancies(clauses.name, factored, owners, lower, upper)

    def _add_matches(self, clauses: Clauses) -> None:
        """Pairs of rows match."""
        terms = clauses.linears.terms
        if bool((terms.lengths != 1).any()):
            raise NotLiftedError("how many pairs match")
        low, _ = over(clauses.lower, clauses.upper, clauses.linears.coefficients[terms.starts[:-1]])
        if bool((low < 1).any()):
            raise NotLiftedError("how many pairs match")
        found = matches_of(self._sums, terms.items)
        for condition, rows in found.together(clauses.name, self._cells.rows):
            self.conditions.append(condition)
            self.required[rows] = True
            self.allowed[np.ix_(rows, np.flatnonzero(condition.load.bucket < 0))] = False

    def _add_occupancies(
        self, name: str, factored: Factors, owners: Integers, lower: Integers, upper: Integers
    ) -> None:
        """Bounds that are about the same buckets, together."""
        _, kind = factored.values.alike()
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


def _itself(rows: PlacedRows | PairedRows) -> PlacedRows | PairedRows:
    return rows
