"""What a function of loads is like, read off its tree: where it lies, grows and bends, over whole ranges of loads.

Ranges are in steps, whole numbers of a load's common divisor.  Over a range a node is a polynomial of degree two at
most, of which all is known; or what its operator keeps of its parts (interval arithmetic, and the rules of disciplined
convex programming: Grant, Boyd and Ye 2006).  A function of one load is a polynomial, or the quotient of one, between
the places where a comparison changes sides: those are found by bisection, so it is cut there into pieces.

All arrays are (pieces, groups, buckets), or broadcast to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from mgmt.optimization.assignment import Amounts, Mask
from mgmt.optimization.load_functions import (
    Constant,
    Greatest,
    LoadFunction,
    LoadNumber,
    Positive,
    Product,
    Quotient,
    Total,
    quotient,
)

LARGEST = 2.0**62
_MOST_PIECES = 24
_YES = np.ones((1, 1, 1), np.bool_)
_NO = np.zeros((1, 1, 1), np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """From where to where loads are, in steps; both are inside."""

    steps: tuple[int, ...]
    first: tuple[Amounts, ...]
    last: tuple[Amounts, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Bend:
    """What is known of a node over a range; all of it holds, but more may be true."""

    low: Amounts
    high: Amounts
    rises: Mask
    """No step of any load makes it less."""
    falls: Mask
    convex: Mask
    """Each step of its load costs as much as the one before, or more."""
    concave: Mask
    superadditive: Mask
    """Over a range from no load on: what loads cost together, beside nothing, is at least what each does alone."""
    terms: Mapping[tuple[int, ...], Amounts] | None
    """As a polynomial in steps: the factor of each load, and of each two; None if it is none.

    Of a load with itself it is that of ``steps * (steps - 1) / 2``: so factors are whole wherever the values are.
    """

    @property
    def affine(self) -> bool:
        return self.terms is not None and max(map(len, self.terms), default=0) <= 1


@dataclass(frozen=True, slots=True)
class Analysis:
    """The nodes of functions over one range, each analysed once."""

    range: Range
    _known: dict[int, tuple[LoadFunction, Bend]] = field(default_factory=dict)

    def of(self, node: LoadFunction) -> Bend:
        if id(node) not in self._known:
            bend = self._tight(node, self._of(node))
            if len(node.loads) < 2:
                bend = replace(bend, superadditive=bend.superadditive | bend.convex)
            self._known[id(node)] = node, bend
        return self._known[id(node)][1]

    def _tight(self, node: LoadFunction, bend: Bend) -> Bend:
        """With the values at the ends of the range, where it only grows or only falls."""
        if bend.terms is not None or not bool((bend.rises | bend.falls).any()):
            return bend
        whole = self.range
        begin, end = (
            node(tuple(load * step for load, step in zip(loads, whole.steps, strict=True)))
            for loads in (whole.first, whole.last)
        )
        low = np.where(bend.rises, begin, np.where(bend.falls, end, bend.low))
        high = np.where(bend.rises, end, np.where(bend.falls, begin, bend.high))
        return replace(bend, low=low, high=high)

    def _of(self, node: LoadFunction) -> Bend:
        if isinstance(node, Constant):
            return self._polynomial({(): node.values[None]})
        if isinstance(node, LoadNumber):
            step = np.full((1, 1, 1), self.range.steps[node.number], np.int64)
            return self._polynomial({(): np.zeros_like(step), (node.number,): step})
        if isinstance(node, Total):
            return self._total([self.of(part) for part in node.terms])
        if isinstance(node, Product):
            return self._product(self.of(node.one), self.of(node.other))
        if isinstance(node, Quotient):
            nothing = node.dividend(tuple(np.zeros_like(load) for load in self.range.first))
            return self._quotient(self.of(node.dividend), self.of(node.divisor), nothing)
        if isinstance(node, Positive):
            return self._positive(self.of(node.number))
        if isinstance(node, Greatest):
            return self._greatest([self.of(part) for part in node.terms])
        unknown = np.full((1, 1, 1), int(LARGEST), np.int64)
        return Bend(-unknown, unknown, _NO, _NO, _NO, _NO, _NO, None)

    # ---- polynomials --------------------------------------------------------------------------------

    def _polynomial(self, terms: Mapping[tuple[int, ...], Amounts], general: Bend | None = None) -> Bend:
        """All of a polynomial of one load, or of degree one; else what is known in ``general``, and the terms."""
        loads = sorted({number for term in terms for number in term})
        degree = max(map(len, terms), default=0)
        if degree > 2 or (degree == 2 and len(loads) > 1):
            assert general is not None
            kept = terms if degree <= 2 else None
            return replace(general, terms=kept)
        constant = terms.get((), np.zeros((1, 1, 1), np.int64))
        if degree == 2:
            return self._quadratic(loads[0], terms)
        low = high = constant
        rises = falls = _YES
        for number in loads:
            slope, first, last = terms[(number,)], self.range.first[number], self.range.last[number]
            ends = slope * first, slope * last
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
            still = first == last
            rises, falls = rises & ((slope >= 0) | still), falls & ((slope <= 0) | still)
        return Bend(low, high, rises, falls, _YES, _YES, _YES, terms)

    def _quadratic(self, number: int, terms: Mapping[tuple[int, ...], Amounts]) -> Bend:
        nothing = np.zeros((1, 1, 1), np.int64)
        constant, slope = terms.get((), nothing), terms.get((number,), nothing)
        bend = terms[number, number]
        first, last = self.range.first[number], self.range.last[number]

        def at(step: Amounts) -> Amounts:
            return np.asarray(constant + step * slope + step * (step - 1) // 2 * bend)

        # The first step costs the slope, and each one after it the bend more.
        begin, end = (slope + bend * step for step in (first, np.maximum(first, last - 1)))
        still, straight = first == last, (bend == 0) | (last - first < 2)
        turn = np.clip(turning(slope, bend), first, last)
        values = np.broadcast_arrays(at(first), at(last), at(turn))
        return Bend(
            np.minimum.reduce(values),
            np.maximum.reduce(values),
            ((begin >= 0) & (end >= 0)) | still,
            ((begin <= 0) & (end <= 0)) | still,
            (bend > 0) | straight,
            (bend < 0) | straight,
            (bend > 0) | straight,
            terms,
        )

    # ---- operators ----------------------------------------------------------------------------------

    def _total(self, parts: Sequence[Bend]) -> Bend:
        low, high, rises, falls, convex, concave = parts[0].low, parts[0].high, _YES, _YES, _YES, _YES
        superadditive = _YES
        terms: dict[tuple[int, ...], Amounts] | None = {}
        for number, part in enumerate(parts):
            if number:
                low, high = low + part.low, high + part.high
            rises, falls = rises & part.rises, falls & part.falls
            convex, concave = convex & part.convex, concave & part.concave
            superadditive = superadditive & part.superadditive
            terms = None if terms is None or part.terms is None else _added(terms, part.terms)
        general = Bend(low, high, rises, falls, convex, concave, superadditive, None)
        return general if terms is None else self._polynomial(terms, general)

    def _product(self, one: Bend, other: Bend) -> Bend:
        ends = np.broadcast_arrays(*(a * b for a in (one.low, one.high) for b in (other.low, other.high)))
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
        rises, falls, convex, concave, superadditive = _NO, _NO, _NO, _NO, _NO
        for left, right in ((one, other), (other, one)):
            fixed = left.low == left.high
            up, down = fixed & (left.low >= 0), fixed & (left.low <= 0)
            rises = rises | (up & right.rises) | (down & right.falls)
            falls = falls | (up & right.falls) | (down & right.rises)
            convex = convex | (up & right.convex) | (down & right.concave)
            concave = concave | (up & right.concave) | (down & right.convex)
            superadditive = superadditive | (up & right.superadditive)
        both = (one.low >= 0) & (other.low >= 0)
        up, down = both & one.rises & other.rises, both & one.falls & other.falls
        rises, falls = rises | up, falls | down
        convex = convex | ((up | down) & one.convex & other.convex)
        general = Bend(low, high, rises, falls, convex, concave, superadditive, None)
        if one.terms is None or other.terms is None:
            return general
        terms: dict[tuple[int, ...], Amounts] = {}
        for left_loads, left_factor in one.terms.items():
            for right_loads, right_factor in other.terms.items():
                loads, factor = tuple(sorted(left_loads + right_loads)), left_factor * right_factor
                if left_loads == right_loads and len(loads) == 2:
                    terms = _added(terms, {loads[:1]: factor})
                    factor = 2 * factor
                terms = _added(terms, {loads: factor})
        terms = {loads: factor for loads, factor in terms.items() if not loads or factor.any()}
        return self._polynomial(terms, general)

    def _quotient(self, part: Bend, by: Bend, start: Amounts) -> Bend:
        divisor = by.low
        if bool((divisor != by.high).any()):
            most = np.maximum(np.abs(part.low), np.abs(part.high))
            return Bend(-most, most, _NO, _NO, _NO, _NO, _NO, None)
        divisor = np.where(divisor == 0, 1, divisor)
        ends = quotient(part.low, divisor), quotient(part.high, divisor)
        low, high = np.minimum(*ends), np.maximum(*ends)
        up, still = divisor > 0, low == high
        rises = np.where(up, part.rises, part.falls) | still
        falls = np.where(up, part.falls, part.rises) | still
        if part.terms is not None and all(not (factor % divisor).any() for factor in part.terms.values()):
            convex = np.where(up, part.convex, part.concave)
            concave = np.where(up, part.concave, part.convex)
            scaled = Bend(low, high, rises, falls, convex, concave, up & part.superadditive, None)
            return self._polynomial(
                {loads: factor // divisor for loads, factor in part.terms.items()}, scaled
            )
        terms = _fixed(low, still)
        whole = up & (part.low >= 0) & part.superadditive & (start % divisor == 0)
        return Bend(low, high, rises, falls, still, still, whole | still, terms)

    def _positive(self, part: Bend) -> Bend:
        low, high = (part.low > 0).astype(np.int64), (part.high > 0).astype(np.int64)
        still = low == high
        terms = _fixed(low, still)
        return Bend(low, high, part.rises | still, part.falls | still, still, still, still, terms)

    def _greatest(self, parts: Sequence[Bend]) -> Bend:
        found = parts[0]
        for part in parts[1:]:
            found = self._greater(found, part)
        return found

    def _greater(self, one: Bend, other: Bend) -> Bend:
        low, high = np.maximum(one.low, other.low), np.maximum(one.high, other.high)
        above, below = one.low >= other.high, one.high <= other.low
        if one.terms is not None and other.terms is not None:
            apart = self._total([one, _negated(other)])
            above, below = apart.low >= 0, apart.high <= 0
            if bool((above | below).all()):
                loads = {*one.terms, *other.terms}
                none = np.zeros((1, 1, 1), np.int64)
                terms = {
                    each: np.where(above, one.terms.get(each, none), other.terms.get(each, none))
                    for each in loads
                }
                known = Bend(low, high, _NO, _NO, _NO, _NO, _NO, None)
                return self._polynomial(terms, known)

        def where(first: Mask, second: Mask, neither: Mask) -> Mask:
            return np.where(above, first, np.where(below, second, neither))

        return Bend(
            low,
            high,
            where(one.rises, other.rises, one.rises & other.rises),
            where(one.falls, other.falls, one.falls & other.falls),
            where(one.convex, other.convex, one.convex & other.convex),
            where(one.concave, other.concave, _NO),
            where(one.superadditive, other.superadditive, _NO),
            None,
        )


def _fixed(value: Amounts, still: Mask) -> dict[tuple[int, ...], Amounts] | None:
    return {(): value} if bool(still.all()) else None


def _added(
    one: Mapping[tuple[int, ...], Amounts], other: Mapping[tuple[int, ...], Amounts]
) -> dict[tuple[int, ...], Amounts]:
    total = dict(one)
    for loads, factor in other.items():
        total[loads] = total[loads] + factor if loads in total else factor
    return total


def _negated(part: Bend) -> Bend:
    assert part.terms is not None
    terms = {loads: -factor for loads, factor in part.terms.items()}
    return Bend(-part.high, -part.low, part.falls, part.rises, part.concave, part.convex, _NO, terms)


def turning(slope: Amounts, bend: Amounts) -> Amounts:
    """The step from which a quadratic polynomial goes the other way; 0 where it has none."""
    return np.where(bend == 0, 0, -(slope // np.where(bend == 0, 1, bend)))


def pieces_of(function: LoadFunction, step: int, most: Amounts) -> Amounts:
    """(pieces + 1, groups, buckets): where pieces of a function of one load begin, and where the last one ends.

    The first is that of no load at all.  Pieces may be empty.
    """
    edges = np.stack((np.zeros_like(most), np.ones_like(most), most + 1))
    for node in function.walk():
        for crossing in _crossings(node):
            edges = _turned(crossing, edges, step, most)
            edges = _crossed(crossing, edges, step, most)
            if len(edges) > _MOST_PIECES:
                return edges
    return _turned(function, edges, step, most)


def range_of(edges: Amounts, step: int, most: Amounts) -> Range:
    """The range of each piece; empty ones are of one load that there is."""
    first = np.minimum(edges[:-1], most)
    return Range((step,), (first,), (np.maximum(first, edges[1:] - 1),))


def _crossings(node: LoadFunction) -> Iterator[LoadFunction]:
    """What changes its sign where the node becomes another polynomial."""
    if isinstance(node, Positive):
        yield node.number
    elif isinstance(node, Greatest):
        for one, other in combinations(node.terms, 2):
            yield one - other


def _turned(function: LoadFunction, edges: Amounts, step: int, most: Amounts) -> Amounts:
    """With an edge where a quadratic piece turns round."""
    within = range_of(edges, step, most)
    terms = Analysis(within).of(function).terms
    if terms is None or (0, 0) not in terms:
        return edges
    turn = turning(terms.get((0,), np.zeros((1, 1, 1), np.int64)), terms[0, 0])
    return _with_edges(edges, np.where((turn > within.first[0]) & (turn <= within.last[0]), turn, edges[:-1]))


def _crossed(function: LoadFunction, edges: Amounts, step: int, most: Amounts) -> Amounts:
    """With an edge in each piece at whose ends the function is on different sides of 0, by bisection."""
    within = range_of(edges, step, most)
    bend, first, last = Analysis(within).of(function), within.first[0], within.last[0]

    def above(load: Amounts) -> Mask:
        return np.broadcast_to(function((load * step,)) > 0, load.shape)

    begins = above(first)
    changes = (bend.rises | bend.falls) & (begins != above(last))
    low, high = first, np.where(changes, last, first)
    while bool((high - low > 1).any()):
        middle = low + (high - low) // 2
        same = above(middle) == begins
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return _with_edges(edges, np.where(changes, high, edges[:-1]))


def _with_edges(edges: Amounts, further: Amounts) -> Amounts:
    """Edges in order, without those that are the same everywhere."""
    edges = np.sort(np.concatenate((edges, further)), axis=0)
    kept = np.append((edges[1:] != edges[:-1]).any(axis=(1, 2)), True)
    return np.asarray(edges[kept])
