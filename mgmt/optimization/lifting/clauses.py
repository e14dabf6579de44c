"""Demands as clauses: of several bounds on expressions one at least holds.

What stands in a demand is replaced by what defines it until bounds on sums over cells are left, as far as that goes: a
conjunction that must hold is its parts, one that must not is one of their negations; a greatest is at most a bound if
all are, and at least one if one of them is; a number that counts under a condition is 0 where that does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.columns import (
    LIMIT,
    Integers,
    Linears,
    Lists,
    Mask,
    filled,
    group_numbers,
    integers,
    others,
    stacked,
    sum_of,
)
from mgmt.optimization.general.operators import Operator
from mgmt.optimization.lifting.guards import with_matches_known
from mgmt.optimization.lifting.sums.cell_sums import MOST_TERMS, CellSums
from mgmt.optimization.lifting.sums.normal_form import Rowwise
from mgmt.optimization.problem import NO_BOUND, LiteralRows, Relation, Rows

_MOST_ROUNDS = 40
_MOST_COPIES = 10_000
"""Of a clause, where what it is one of is several that all hold."""


@dataclass(frozen=True, slots=True, eq=False)
class Clauses:
    """In each of one or more bounds ``lower <= linear <= upper`` one at least holds."""

    name: str
    rows: Integers
    """The row of the constraint that demands each clause."""
    owners: Integers
    """Of each bound, in order, the clause that it is of; a clause without one fails."""
    linears: Linears
    """Without constants."""
    lower: Integers
    upper: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, wanted: Mask) -> Clauses:
        """Those that are wanted."""
        return self if wanted.all() else self.take(np.flatnonzero(wanted))

    def take(self, clauses: Integers) -> Clauses:
        places = Lists.grouped(self.owners, np.arange(len(self.owners)), len(self)).take(clauses)
        return Clauses(
            self.name,
            self.rows[clauses],
            places.owners,
            self.linears.take(places.items),
            self.lower[places.items],
            self.upper[places.items],
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """Bounds in place of others: the number of the one that each replaces."""

    of: Integers
    linears: Linears
    lower: Integers
    upper: Integers

    def take(self, places: Integers | Mask) -> _Bounds:
        where: Integers = np.arange(len(self.of))[places]
        return _Bounds(self.of[where], self.linears.take(where), self.lower[where], self.upper[where])


def clauses_of(block: Rows, sums: CellSums) -> Clauses:
    """What a block of a problem demands.  NotLiftedError where it is too large to be written out."""
    return _Rewriter(sums).simplified(_as_clauses(block, sums))


def _as_clauses(block: Rows, sums: CellSums) -> Clauses:
    count = len(block.enforcement)
    rows = np.arange(count) if block.source is None else block.source.rows
    name = "" if block.source is None else block.source.constraint
    if isinstance(block, LiteralRows) and block.relation is Relation.AT_LEAST_ONE:
        literals = block.literals
        owners, bounds = literals.owners, _one_of(sums.of_literals(literals.items))
    else:
        owners = np.arange(count)
        if isinstance(block, LiteralRows):
            ones = Linears.literals(block.literals.items).summed(block.literals.owners, count)
            least = 1 if block.relation is Relation.EXACTLY_ONE else 0
            bounds = _bounds(sums.of(ones), filled(count, least), filled(count, 1))
        else:
            bounds = _bounds(sums.of(block.linears), block.lower, block.upper)
    gated = np.flatnonzero(block.enforcement != 0)
    idle = _one_of(sums.of_literals(block.enforcement[gated] ^ 1))
    order = np.argsort(np.concatenate((owners, gated)), kind="stable")
    whole = _joined([bounds, idle])
    whole = whole.take(order)
    return Clauses(
        name, rows, np.concatenate((owners, gated))[order], whole.linears, whole.lower, whole.upper
    )


def _one_of(literals: Linears) -> _Bounds:
    return _bounds(literals, filled(len(literals), 1), filled(len(literals), NO_BOUND))


def _bounds(linears: Linears, lower: Integers, upper: Integers, of: Integers | None = None) -> _Bounds:
    """With the constants on the other side."""
    low, high = shifted(lower, upper, -linears.constants)
    plain = linears.plus(-linears.constants)
    return _Bounds(np.arange(len(low)) if of is None else of, plain, low, high)


def _joined(parts: list[_Bounds]) -> _Bounds:
    return _Bounds(
        np.concatenate([filled(0, 0), *(part.of for part in parts)]),
        stacked([part.linears for part in parts]),
        np.concatenate([filled(0, 0), *(part.lower for part in parts)]),
        np.concatenate([filled(0, 0), *(part.upper for part in parts)]),
    )


class _Rewriter:
    """Rewrites clauses until nothing in them can be replaced by what defines it."""

    def __init__(self, sums: CellSums) -> None:
        self._sums = sums

    def simplified(self, clauses: Clauses) -> Clauses:
        for _ in range(_MOST_ROUNDS):
            clauses = self._settled(with_matches_known(self._settled(clauses), self._sums))
            changed = self._round(clauses)
            if changed is None or len(changed.linears.terms.items) > MOST_TERMS:
                break
            clauses = replace(changed, linears=self._sums.settled(changed.linears))
        return clauses

    def _settled(self, clauses: Clauses) -> Clauses:
        """Without bounds that never hold, and clauses one of whose bounds always does."""
        low, high = self._ranges(clauses.linears)
        always = (low >= clauses.lower) & (high <= clauses.upper)
        never = (high < clauses.lower) | (low > clauses.upper)
        if not (always.any() or never.any()):
            return clauses
        open_ = np.ones(len(clauses), np.bool_)
        open_[clauses.owners[always]] = False
        kept = np.flatnonzero(~never & open_[clauses.owners])
        number = np.cumsum(open_) - 1
        return replace(
            clauses,
            rows=clauses.rows[open_],
            owners=number[clauses.owners[kept]],
            linears=clauses.linears.take(kept),
            lower=clauses.lower[kept],
            upper=clauses.upper[kept],
        )

    def _ranges(self, linears: Linears) -> tuple[Integers, Integers]:
        """What expressions come to at least and at most, each row having one value, atoms whatever they may be."""
        return Rowwise.of(linears, self._sums).ends(len(linears))

    # ---- one round ----------------------------------------------------------------------------------

    def _round(self, clauses: Clauses) -> Clauses | None:
        """Replace what can be, or None: first bounds by others of the same clause, then clauses by several."""
        atomic = np.flatnonzero(self._sums.atomic(clauses.linears))
        if not len(atomic):
            return None
        bounds = _Bounds(atomic, clauses.linears.take(atomic), clauses.lower[atomic], clauses.upper[atomic])
        single = bounds.linears.terms.lengths == 1
        either, both = self._of_single(bounds.take(single))
        more, further = self._of_several(bounds.take(~single))
        either, both = _joined([either, more]), self._few(clauses, _joined([both, further]))
        if not len(either.of) and not len(both.of):
            return None
        return self._split(self._replaced(clauses, either), both)

    def _few(self, clauses: Clauses, parts: _Bounds) -> _Bounds:
        """Those of clauses that do not become too many."""
        number = np.bincount(parts.of, minlength=len(clauses.owners))
        copies = np.zeros(len(clauses))
        np.add.at(copies, clauses.owners, np.log(np.maximum(number, 1)))
        alone = np.bincount(clauses.owners, minlength=len(clauses)) == 1
        few = alone | (copies <= np.log(_MOST_COPIES))
        return parts.take(few[clauses.owners[parts.of]])

    def _replaced(self, clauses: Clauses, new: _Bounds) -> tuple[Clauses, Integers]:
        """Clauses with alternatives in place of bounds, and the number that each bound had before."""
        kept = others(len(clauses.owners), new.of)
        number = np.concatenate((kept, new.of))
        owners = clauses.owners[number]
        order = np.argsort(owners, kind="stable")
        old = _Bounds(kept, clauses.linears.take(kept), clauses.lower[kept], clauses.upper[kept])
        whole = _joined([old, new]).take(order)
        found = replace(
            clauses, owners=owners[order], linears=whole.linears, lower=whole.lower, upper=whole.upper
        )
        return found, np.where(np.isin(order, np.arange(len(kept))), number[order], -1)

    def _split(self, given: tuple[Clauses, Integers], parts: _Bounds) -> Clauses:
        """A bound that is several, all of which hold: the clause once with each; one bound of each clause."""
        clauses, number = given
        if not len(parts.of):
            return clauses
        place = filled(int(max(number.max(initial=-1), parts.of.max())) + 1, -1)
        place[number[number >= 0]] = np.flatnonzero(number >= 0)
        first = filled(len(clauses), len(clauses.owners))
        np.minimum.at(first, clauses.owners[place[parts.of]], place[parts.of])
        where = place[parts.of]
        mine = np.flatnonzero(first[clauses.owners[where]] == where)
        parts, clause = parts.take(mine), clauses.owners[where[mine]]
        plain = np.flatnonzero(first == len(clauses.owners))
        later = np.flatnonzero(first[clauses.owners] != np.arange(len(clauses.owners)))
        rest = Lists.grouped(clauses.owners[later], later, len(clauses))
        old = np.concatenate((plain, clause))
        beside = rest.take(old)
        made = len(plain) + np.arange(len(clause))
        owners = np.concatenate((beside.owners, made))
        order = np.argsort(owners, kind="stable")
        kept = _Bounds(
            beside.items,
            clauses.linears.take(beside.items),
            clauses.lower[beside.items],
            clauses.upper[beside.items],
        )
        whole = _joined([kept, parts]).take(order)
        return replace(
            clauses,
            rows=clauses.rows[old],
            owners=owners[order],
            linears=whole.linears,
            lower=whole.lower,
            upper=whole.upper,
        )

    def _of_single(self, bounds: _Bounds) -> tuple[_Bounds, _Bounds]:
        """Of bounds on one atom: what may take their place, one of it or all of it."""
        linears, sums = bounds.linears, self._sums
        factors, terms = linears.coefficients, linears.terms.items
        low, high = over(bounds.lower, bounds.upper, factors)
        either, both = [_none()], [_none()]
        # What is 1 where an expression is at most 0.
        mask = sums.is_defined(Operator.AT_MOST_ZERO, terms)
        some = np.flatnonzero(mask & ((low >= 1) ^ (high <= 0)))
        operands, _ = _operands(sums, terms[some])
        holds = low[some] >= 1
        lower, upper = np.where(holds, -NO_BOUND, 1), np.where(holds, 0, NO_BOUND)
        either.append(_bounds(operands, lower, upper, bounds.of[some]))
        # The greatest of several.
        mask = sums.is_defined(Operator.MAXIMUM, terms)
        above, below = low > -NO_BOUND, high < NO_BOUND
        for wanted, found in ((above & ~below, either), (below & ~above, both)):
            some = np.flatnonzero(mask & wanted)
            operands, owner = _operands(sums, terms[some])
            found.append(_bounds(operands, low[some][owner], high[some][owner], bounds.of[some][owner]))
        # Products with what is 0 or 1, and quotients by what is known.
        both.append(self._of_matches(bounds, terms, high))
        for found, part in zip((either, both), self._of_products(bounds, terms, low, high), strict=True):
            found.append(part)
        either.append(self._of_quotients(bounds, terms, low, high))
        two_sided = np.flatnonzero((mask | sums.is_defined(Operator.PRODUCT, terms)) & above & below)
        both.append(_sides(bounds.take(two_sided)))
        return _joined(either), _joined(both)

    def _of_matches(self, bounds: _Bounds, terms: Integers, high: Integers) -> _Bounds:
        """Where nothing is to match, not both of any pair are 1."""
        some = np.flatnonzero(self._sums.is_defined(Operator.MATCH, terms) & (high <= 0))
        operands, owners = _operands(self._sums, terms[some])
        pair = np.arange(len(operands)) // 2
        both = operands.summed(pair, len(operands) // 2)
        least, most = filled(len(both), -NO_BOUND), filled(len(both), 1)
        return _bounds(both, least, most, bounds.of[some][owners[::2]])

    def _of_products(
        self, bounds: _Bounds, terms: Integers, low: Integers, high: Integers
    ) -> tuple[_Bounds, _Bounds]:
        sums = self._sums
        one_sided = (low > -NO_BOUND) ^ (high < NO_BOUND)
        some = np.flatnonzero(sums.is_defined(Operator.PRODUCT, terms) & one_sided)
        operands, _ = _operands(sums, terms[some])
        left, right = (
            operands.take(np.arange(0, len(operands), 2)),
            operands.take(np.arange(1, len(operands), 2)),
        )
        least, most = self._ranges(left)
        gate = (least + left.constants >= 0) & (most + left.constants <= 1)
        kept = np.flatnonzero(gate)
        left, right, some = left.take(kept), right.take(kept), some[kept]
        lower, upper, of = low[some], high[some], bounds.of[some]
        free = np.where(lower > -NO_BOUND, lower <= 0, upper >= 0)
        off = _bounds(left, np.where(free, -NO_BOUND, 1), np.where(free, 0, NO_BOUND), of)
        held = _bounds(right, lower, upper, of)
        return (
            _joined([off.take(free), held.take(free)]),
            _joined([off.take(~free), held.take(~free)]),
        )

    def _of_quotients(self, bounds: _Bounds, terms: Integers, low: Integers, high: Integers) -> _Bounds:
        sums = self._sums
        some = np.flatnonzero(sums.is_defined(Operator.QUOTIENT, terms))
        operands, _ = _operands(sums, terms[some])
        dividend = operands.take(np.arange(0, len(operands), 2))
        by = operands.constants[1::2]
        kept = np.flatnonzero(by > 0)
        some, dividend, by = some[kept], dividend.take(kept), by[kept]
        lower, upper = low[some], high[some]
        least = np.where(lower > 0, lower * by, (lower - 1) * by + 1)
        most = np.where(upper >= 0, (upper + 1) * by - 1, upper * by)
        # Beyond what any sum reaches one bound is as good as another.
        least = np.where(np.abs(lower) < LIMIT // by, least, np.sign(lower) * (LIMIT + 1))
        most = np.where(np.abs(upper) < LIMIT // by, most, np.sign(upper) * (LIMIT + 1))
        return _bounds(
            dividend,
            np.where(lower == -NO_BOUND, lower, least),
            np.where(upper == NO_BOUND, upper, most),
            bounds.of[some],
        )

    def _of_several(self, bounds: _Bounds) -> tuple[_Bounds, _Bounds]:
        """Of bounds on sums: the operands of greatests in their place, or what sums of 0 and 1 say of their parts."""
        low, high = self._sums.limits(bounds.linears.terms.items)
        boolean = ~bounds.linears.terms.any((low != 0) | (high != 1))
        either, both = self._of_booleans(bounds.take(boolean))
        more, further = self._of_greatests(bounds.take(~boolean))
        return _joined([either, more]), _joined([both, further])

    def _of_greatests(self, bounds: _Bounds) -> tuple[_Bounds, _Bounds]:
        """A sum with a greatest is at most a bound with all of its operands, and at least one with one of them."""
        linears = bounds.linears
        owners, rising = linears.terms.owners, linears.coefficients > 0
        places = np.flatnonzero(self._sums.is_defined(Operator.MAXIMUM, linears.terms.items))
        first, _ = group_numbers(owners[places])  # one of each sum, the others in the next rounds
        places = places[first]
        above, below = bounds.lower[owners[places]] > -NO_BOUND, bounds.upper[owners[places]] < NO_BOUND
        one_of = np.where(rising[places], above, below)
        either = self._with_operands(bounds, places[(above ^ below) & one_of])
        both = self._with_operands(bounds, places[(above ^ below) & ~one_of])
        return either, _joined([both, _sides(bounds.take(owners[places[above & below]]))])

    def _with_operands(self, bounds: _Bounds, places: Integers) -> _Bounds:
        """Bounds with each operand of an atom in place of it: one atom of each bound, at these places of the terms."""
        linears = bounds.linears
        owners, factors = linears.terms.owners[places], linears.coefficients[places]
        rest = linears.take(owners)
        count = int(self._sums.operand_counts(linears.terms.items[places]).sum())
        if count * int(rest.terms.lengths.max(initial=1)) > MOST_TERMS:
            return _none()
        operands, owner = _operands(self._sums, linears.terms.items[places])
        kept = rest.terms.items != np.repeat(linears.terms.items[places], rest.terms.lengths)
        rest = Linears(rest.constants, rest.terms.keep(kept), rest.coefficients[kept])
        whole = sum_of(rest.take(owner), operands.scaled(factors[owner]))
        where = owners[owner]
        return _bounds(whole, bounds.lower[where], bounds.upper[where], bounds.of[where])

    def _of_booleans(self, bounds: _Bounds) -> tuple[_Bounds, _Bounds]:
        """Of bounds on sums of what is 0 or 1: all at their least, or one of them not; or the same of the most."""
        linears = bounds.linears
        low, high = self._ranges(linears)
        lower_free, upper_free = bounds.lower <= low, bounds.upper >= high
        is_fixed = (lower_free & (bounds.upper == low)) | (upper_free & (bounds.lower == high))
        either, both = [_none()], [_none()]
        for sign, found, wanted in (
            (-1, both, lower_free & (bounds.upper == low)),
            (1, both, upper_free & (bounds.lower == high)),
            (1, either, upper_free & (bounds.lower == low + 1) & ~is_fixed),
            (-1, either, lower_free & (bounds.upper == high - 1) & ~is_fixed),
        ):
            some = np.flatnonzero(wanted)
            if not len(some):
                continue
            up = found is either  # some term leaves the end where all are
            at_low = (sign < 0) ^ up
            parts = self._each_part(linears.take(some))
            least, most = self._ranges(parts.linears)
            none = filled(len(least), NO_BOUND)
            if at_low and not up:
                made = _Bounds(bounds.of[some][parts.of], parts.linears, -none, least)
            elif not up:
                made = _Bounds(bounds.of[some][parts.of], parts.linears, most, none)
            elif sign > 0:
                made = _Bounds(bounds.of[some][parts.of], parts.linears, least + 1, none)
            else:
                made = _Bounds(bounds.of[some][parts.of], parts.linears, -none, most - 1)
            found.append(made)
        return _joined(either), _joined(both)

    def _each_part(self, linears: Linears) -> _Bounds:
        """The atoms of sums one by one, and their cells together: each as a row, with the number of its sum."""
        terms, owners = linears.terms.items, linears.terms.owners
        cell = terms < self._sums.width
        key = np.where(cell, -1, np.arange(len(terms)))
        place = np.lexsort((key, owners))
        new = np.ones(len(place), np.bool_)
        new[1:] = (owners[place][1:] != owners[place][:-1]) | (key[place][1:] != key[place][:-1])
        number = np.cumsum(new) - 1
        count = int(number[-1]) + 1 if len(number) else 0
        starts = np.concatenate((np.flatnonzero(new), [len(place)])).astype(np.int64)
        parts = Linears(filled(count, 0), Lists(starts, terms[place]), linears.coefficients[place])
        return _Bounds(owners[place][new], parts, filled(count, 0), filled(count, 0))


def _operands(sums: CellSums, terms: Integers) -> tuple[Linears, Integers]:
    if len(terms):
        return sums.operands(terms)
    return Linears.constant([]), integers([])


def _none() -> _Bounds:
    return _Bounds(filled(0, 0), Linears.constant([]), filled(0, 0), filled(0, 0))


def _sides(bounds: _Bounds) -> _Bounds:
    """Each as two, one for each side."""
    none = filled(len(bounds.of), NO_BOUND)
    return _joined([replace(bounds, upper=none), replace(bounds, lower=-none)])


def shifted(lower: Integers, upper: Integers, by: Integers) -> tuple[Integers, Integers]:
    """Bounds of what is so much more."""
    low = np.where(lower == -NO_BOUND, lower, np.maximum(lower, -LIMIT) + by)
    return low, np.where(upper == NO_BOUND, upper, np.minimum(upper, LIMIT) + by)


def over(lower: Integers, upper: Integers, factors: Integers) -> tuple[Integers, Integers]:
    """Bounds of what times a factor, other than 0, is within these."""
    size, falling = np.abs(factors), factors < 0
    low = np.where(falling, -upper, lower)
    high = np.where(falling, -lower, upper)
    least = np.where(low == -NO_BOUND, low, -(-low // size))
    return least, np.where(high == NO_BOUND, high, high // size)
