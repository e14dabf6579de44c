"""Bounds beside others that forbid a row some values: what they are about counts only where it has one of these.

There whether that row matches another one is known as soon as the other one's value is, so that sums of matches are
sums over cells, once for each bucket of values that may match.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mgmt.optimization.assignment import NONE
from mgmt.optimization.columns import Integers, Linears, Lists, Mask, filled, group_numbers, stacked, sum_of
from mgmt.optimization.general.operators import Operator
from mgmt.optimization.lifting.pairs.matches import Matches, matches_of
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import MOST_TERMS, CellSums
from mgmt.optimization.lifting.sums.normal_form import Ranges, Rowwise, values_within
from mgmt.optimization.problem import NO_BOUND

if TYPE_CHECKING:
    from mgmt.optimization.lifting.clauses import Clauses


def with_matches_known(clauses: Clauses, sums: CellSums) -> Clauses:
    """With sums over cells where it is known in which bucket one of the rows is that are to match."""
    if sums.following.any or not any(block.operator is Operator.MATCH for block in sums.atoms):
        return clauses
    asked = _asks_for_matches(clauses, sums)
    try:
        guards = _guards(clauses, asked, sums)
        if guards is None:
            return clauses
        known = _Known.of(sums, np.unique(clauses.linears.terms.items), guards.sets)
        return _Split(clauses, sums, asked, guards, known).clauses()
    except NotLiftedError:
        return clauses


def _asks_for_matches(clauses: Clauses, sums: CellSums) -> Mask:
    """Which bounds on atoms demand more than that none of them holds, and not just that two choices are the same."""
    linears = clauses.linears
    least, most = Rowwise.of(linears, sums).ends(len(linears))
    atom = sums.is_atom(linears.terms.items)
    rising, falling = (linears.terms.any(atom & (sign * linears.coefficients > 0)) for sign in (1, -1))
    none = (clauses.upper <= least) & ~falling | (clauses.lower >= most) & ~rising
    alone = (linears.terms.lengths == 1) & linears.terms.any(
        sums.is_defined(Operator.MATCH, linears.terms.items)
    )
    found: Mask = (rising | falling) & ~none & ~alone
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Guards:
    """Of some clauses, a bound that forbids a row values of a set."""

    clauses: Integers
    bounds: Integers
    rows: Integers
    numbers: Integers
    """Of each, which of the sets."""
    sets: Mask
    """(sets, V)"""


def _guards(clauses: Clauses, asked: Mask, sums: CellSums) -> _Guards | None:
    """The first of each clause with bounds that ask for matches."""
    asks = np.bincount(clauses.owners[asked], minlength=len(clauses)) > 0
    some = np.flatnonzero(asks[clauses.owners] & ~asked & ~sums.atomic(clauses.linears))
    some = some[~sums.is_product(clauses.linears.take(some))]
    rowwise = Rowwise.of(clauses.linears.take(some), sums)
    some = some[np.bincount(rowwise.owners, minlength=len(some)) == 1]
    if not len(some):
        return None
    ranges = Ranges.of(clauses.linears.take(some), clauses.lower[some], clauses.upper[some])
    rows, number, allows = values_within(ranges, sums)
    first, kind = group_numbers(number, sums.cells.column[rows])
    forbidden = ~allows[number[first]] & sums.cells.may_have[sums.cells.column[rows[first]]]
    placed = np.flatnonzero(~forbidden[kind, -1])
    once, _ = group_numbers(clauses.owners[some[placed]])
    mine = placed[once]
    if not len(mine):
        return None
    return _Guards(clauses.owners[some[mine]], some[mine], rows[mine], kind[mine], forbidden[:, :-1])


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What matches are where a row of theirs has a value of a place: those of one bucket of every kind of matches."""

    sums: CellSums
    atoms: Integers
    matches: Matches
    classes: Lists
    """The values of each class, none of which any match tells apart."""
    class_of: Integers
    """Of each place."""
    places: Lists
    """The values of each."""
    set_of: Integers
    """Of each place, the set that it is a part of."""

    @classmethod
    def of(cls, sums: CellSums, terms: Integers, sets: Mask) -> _Known:
        """NotLiftedError where matches are not of two choices."""
        reached = _reached(terms, sums)
        atoms = reached[sums.is_defined(Operator.MATCH, reached)]
        if not len(atoms):
            raise NotLiftedError("nothing to match")
        matches = matches_of(sums, atoms)
        each, number = group_numbers(*matches.buckets)
        owners, values = np.nonzero(sets)
        first, place = group_numbers(owners, number[values])
        return cls(
            sums,
            atoms,
            matches,
            Lists.grouped(number, np.arange(sums.cells.values), len(each)),
            number[values[first]],
            Lists.grouped(place, values, len(first)),
            owners[first],
        )

    def atoms_at(self, atoms: Integers, rows: Integers, places: Integers) -> tuple[Linears, Mask]:
        """Each atom where a row has a value of a place; and whether that is a sum over the cells of another row."""
        first, number = group_numbers(atoms, rows, places)
        atoms, rows, places = atoms[first], rows[first], places[first]
        blocks = self.sums.block[self.sums.slots(atoms)]
        found, whose = [Linears.constant(filled(len(first), 0))], [np.arange(len(first))]
        good = np.zeros(len(first), np.bool_)
        for block in np.unique(blocks[blocks >= 0]).tolist():
            mine = np.flatnonzero(blocks == block)
            operator = self.sums.atoms[block].operator
            tell = self._matches_at if operator is Operator.MATCH else self._defined_at
            told, good[mine] = tell(atoms[mine], rows[mine], places[mine])
            found.append(told)
            whose.append(mine)
        return stacked(found).summed(np.concatenate(whose), len(first)).take(number), good[number]

    def _matches_at(self, atoms: Integers, rows: Integers, places: Integers) -> tuple[Linears, Mask]:
        number, matches = np.searchsorted(self.atoms, atoms), self.matches
        left, right = matches.left[number], matches.right[number]
        other = np.where(left == rows, right, np.where(right == rows, left, NONE))
        examples = self.places.items[self.places.starts[:-1]][places]
        bucket_of = np.stack(matches.buckets)
        bucket = bucket_of[matches.kind[number], examples]
        kinds, values = np.nonzero(bucket_of >= 0)
        width = int(bucket_of.max(initial=0)) + 1
        inside = Lists.grouped(kinds * width + bucket_of[kinds, values], values, len(bucket_of) * width)
        known = other != NONE
        there = np.flatnonzero(known & (bucket >= 0))
        members = inside.take(matches.kind[number[there]] * width + bucket[there])
        cells = other[there][members.owners] * self.sums.stride + members.items
        terms = Lists.grouped(there[members.owners], cells, len(atoms))
        return Linears(filled(len(atoms), 0), terms, filled(len(cells), 1)), known

    def _defined_at(self, atoms: Integers, rows: Integers, places: Integers) -> tuple[Linears, Mask]:
        sums, count = self.sums, len(atoms)
        operator = sums.atoms[int(sums.block[sums.slots(atoms[:1])][0])].operator
        operands, owners = sums.operands(atoms)
        told, good_operands = self.linears_at(operands, rows[owners], places[owners])
        good = np.bincount(owners[~good_operands], minlength=count) == 0
        owner, row = owners[told.terms.owners], sums.row_of(told.terms.items)
        lowest, highest = filled(count, sums.cells.rows), filled(count, -1)
        np.minimum.at(lowest, owner, row)
        np.maximum.at(highest, owner, row)
        good &= highest <= lowest
        some = np.flatnonzero(good)
        kept = Lists.grouped(owners, np.arange(len(owners)), count).take(some)
        table = sums.tabulated(operator, kept.starts, told.take(kept.items))
        return stacked([table]).summed(some, count), good

    def linears_at(self, linears: Linears, rows: Integers, places: Integers) -> tuple[Linears, Mask]:
        """Expressions where a row has a value of a place, whichever it is of these."""
        found, good = self.others_at(linears, rows, places)
        own = self.own_cells(linears, rows, places, self.places.take(places))
        least, most = _ends(own, len(linears))
        return found.plus(least), good & (least == most)

    def others_at(self, linears: Linears, rows: Integers, places: Integers) -> tuple[Linears, Mask]:
        """What others bring to them."""
        items, owners = linears.terms.items, linears.terms.owners
        atom = items >= self.sums.width
        kept = ~atom & (self.sums.row_of(items) != rows[owners])
        good = ~linears.terms.any(atom & ~self.sums.is_atom(items))
        told, known = self.atoms_at(items[atom], rows[owners[atom]], places[owners[atom]])
        good[owners[atom][~known]] = False
        others = Linears(linears.constants, linears.terms.keep(kept), linears.coefficients[kept])
        parts = stacked([others, told.scaled(linears.coefficients[atom])])
        return parts.summed(np.append(np.arange(len(linears)), owners[atom]), len(linears)), good

    def own_cells(
        self, linears: Linears, rows: Integers, places: Integers, values: Lists
    ) -> tuple[Integers, Integers, Integers]:
        """What the row itself brings with each of some values: whose, which value, and how much."""
        sums = self.sums
        items, owners = linears.terms.items, linears.terms.owners
        own = (items < sums.width) & (sums.row_of(items) == rows[owners])
        every = own & sums.is_every(items)
        usual = filled(len(linears), 0)
        usual[owners[every]] = linears.coefficients[every]
        amounts = usual[values.owners]
        single = own & ~every
        keys = np.append(owners[single] * sums.stride + sums.value_of(items[single]), -1)
        order = np.argsort(keys)
        wanted = values.owners * sums.stride + values.items
        at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        factors = np.append(linears.coefficients[single], 0)
        return values.owners, values.items, amounts + np.where(keys[at] == wanted, factors[at], 0)


def _reached(terms: Integers, sums: CellSums) -> Integers:
    """The atoms among these terms, and all that define them."""
    found = filled(0, 0)
    fresh = terms
    while True:
        fresh = np.setdiff1d(fresh[sums.is_atom(fresh)], found)
        fresh = fresh[sums.block[sums.slots(fresh)] >= 0]
        if not len(fresh):
            return found
        found = np.union1d(found, fresh)
        fresh = np.unique(sums.operands(fresh)[0].terms.items)


def _ends(own: tuple[Integers, Integers, Integers], count: int) -> tuple[Integers, Integers]:
    owners, _, amounts = own
    least, most = filled(count, 2**62), filled(count, -(2**62))
    np.minimum.at(least, owners, amounts)
    np.maximum.at(most, owners, amounts)
    return least, most


class _Split:
    """Clauses once for each place of the row that their guard is about."""

    def __init__(self, clauses: Clauses, sums: CellSums, asked: Mask, guards: _Guards, known: _Known) -> None:
        self._clauses, self._sums, self._guards, self._known = clauses, sums, guards, known
        places = Lists.grouped(known.set_of, np.arange(len(known.set_of)), len(guards.sets)).take(
            guards.numbers
        )
        self._guard, self._place = places.owners, places.items
        bounds = Lists.grouped(clauses.owners, np.arange(len(clauses.owners)), len(clauses))
        beside = bounds.take(guards.clauses[self._guard])
        if int(clauses.linears.terms.lengths[beside.items].sum()) > MOST_TERMS:
            raise NotLiftedError("too many places")
        self._copy, self._bound = beside.owners, beside.items
        self._asked = asked[self._bound]

    def clauses(self) -> Clauses:
        """The same demands."""
        clauses, guards = self._clauses, self._guards
        linears, lower, upper, good = self._bounds()
        failed = np.unique(self._guard[self._copy[self._asked][~good]])
        fine = ~np.isin(self._guard, failed)
        if not fine.any():
            return clauses
        kept_clauses = np.ones(len(clauses), np.bool_)
        kept_clauses[guards.clauses[np.unique(self._guard[fine])]] = False
        old = np.flatnonzero(kept_clauses)
        number = np.cumsum(fine) - 1 + len(old)
        bound, copy = self._bound, self._copy
        is_guard = bound == guards.bounds[self._guard[copy]]
        plain = np.flatnonzero(~self._asked & ~is_guard & fine[copy])
        known = np.flatnonzero(fine[copy[self._asked]])
        before = clauses.take(old)
        rows = guards.rows[self._guard[fine]]
        values = self._known.places.take(self._place[fine])
        cells = Lists(values.starts, rows[values.owners] * self._sums.stride + values.items)
        guarding = Linears(filled(len(rows), 0), cells, filled(len(cells.items), 1))
        none = filled(len(rows), 0)
        of_known = copy[self._asked][known]
        owners = np.concatenate((before.owners, number[copy[plain]], number[of_known], number[fine]))
        order = np.argsort(owners, kind="stable")
        beside = clauses.linears.take(bound[plain])
        return replace(
            clauses,
            rows=np.append(before.rows, clauses.rows[guards.clauses[self._guard[fine]]]),
            owners=owners[order],
            linears=stacked([before.linears, beside, linears.take(known), guarding]).take(order),
            lower=np.concatenate((before.lower, clauses.lower[bound[plain]], lower[known], none - NO_BOUND))[
                order
            ],
            upper=np.concatenate((before.upper, clauses.upper[bound[plain]], upper[known], none))[order],
        )

    def _bounds(self) -> tuple[Linears, Integers, Integers, Mask]:
        """Those that ask for matches at the places: sums, bounds, and whether that is what they are."""
        known, sums = self._known, self._sums
        bound, copy = self._bound[self._asked], self._copy[self._asked]
        rows, places = self._guards.rows[self._guard[copy]], self._place[copy]
        asked = sums.written_out(self._clauses.linears.take(bound))
        lower, upper = self._clauses.lower[bound], self._clauses.upper[bound]
        others, good = known.others_at(asked, rows, places)
        own_least, own_most = _ends(
            known.own_cells(asked, rows, places, known.places.take(places)), len(bound)
        )
        low, high = Rowwise.of(others, sums).ends(len(others))
        constants = others.constants
        # A bound that holds wherever the row has such a value asks for nothing.
        lower = np.where(low + constants + own_least >= lower, -NO_BOUND, lower)
        upper = np.where(high + constants + own_most <= upper, NO_BOUND, upper)
        owners, values, amounts = known.own_cells(
            asked, rows, places, known.classes.take(known.class_of[places])
        )
        counts = np.flatnonzero(amounts)
        cells = Lists.grouped(owners[counts], (rows[owners] * sums.stride + values)[counts], len(bound))
        own = Linears(filled(len(bound), 0), cells, amounts[counts])
        whole = sum_of(others.plus(-constants), own)
        lower = np.where(lower == -NO_BOUND, lower, lower - constants)
        upper = np.where(upper == NO_BOUND, upper, upper - constants)
        return *self._with_own_rows(whole, lower, upper, rows, places), good

    def _with_own_rows(
        self, linears: Linears, lower: Integers, upper: Integers, rows: Integers, places: Integers
    ) -> tuple[Linears, Integers, Integers]:
        """With the row itself in the sums, as one of the others, where that makes more of them equal."""
        count, stride = len(linears), self._sums.stride
        weight = np.zeros(count, np.int64)
        there = linears.terms.lengths > 0
        first = linears.coefficients[linears.terms.starts[:-1][there]]
        weight[there] = first
        even = there & ~linears.terms.any(linears.coefficients != weight[linears.terms.owners])
        even &= ~linears.terms.any(self._sums.row_of(linears.terms.items) == rows[linears.terms.owners])
        weight[~even] = 0
        values = self._known.classes.take(self._known.class_of[places])
        cells = Lists(values.starts, rows[values.owners] * stride + values.items)
        own = Linears(filled(count, 0), cells, filled(len(cells.items), 1)).scaled(weight)
        whole = sum_of(linears, own)
        if len(whole.terms.alike()[0]) >= len(linears.terms.alike()[0]):
            return linears, lower, upper
        low = np.where(lower == -NO_BOUND, lower, lower + weight)
        return whole, low, np.where(upper == NO_BOUND, upper, upper + weight)
