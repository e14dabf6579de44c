"""Pairs of rows that exclude each other: not both have a value of the same bucket, or of different ones.

Cliques of the former are limits of one, and groups of rows that exclude each other are alone in a bucket; rows of the
latter go together, in one bucket.  Which buckets there are is
found out for the pairs: values that exclude each other are of one, or else those that do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Either, Limit, Load, Occupancy
from mgmt.optimization.columns import (
    Integers,
    Lists,
    Mask,
    components,
    filled,
    group_numbers,
    joined,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.dense_ranks import alike_rows
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.normal_form import Ranges, Rowwise

_MOST_CLIQUES = 5_000
_MOST_IN_PARTS = 3_000
_MOST_PARTS = 100
_MOST_IN_SETS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _PairsOfCells:
    """Pairs of rows, of which some cells of the one and some of the other exclude each other."""

    left: Lists
    right: Lists
    rows: Integers
    """Of a constraint, that which demands each."""
    stride: int

    def rows_of(self, load: Load, group: int, bucket: int) -> Integers:
        choosing = (side.items[side.starts[:-1]] // self.stride for side in (self.left, self.right))
        inside = np.logical_and.reduce([load.group[each] == group for each in choosing])
        some = np.flatnonzero(inside)
        there = self.left.take(some)
        return self.rows[some[there.any(load.bucket[there.items % self.stride] == bucket)]]


@dataclass(frozen=True, slots=True, eq=False)
class _PairsApart:
    """Pairs of rows that are not both to have values of one bucket, (V,) the bucket of each value."""

    left: Integers
    right: Integers
    bucket: Integers
    row_tags: Integers
    value_tags: Integers
    """The sum of that of a pair and that of a bucket is the row of a constraint that demands it."""

    def rows_of(self, load: Load, group: int, bucket: int) -> Integers:
        inside = (load.group[self.left] == group) & (load.group[self.right] == group)
        own = np.unique(self.bucket[load.bucket == bucket])
        tags = self.row_tags[inside][:, None] + self.value_tags[own[own >= 0]][None, :]
        return np.asarray(tags.ravel(), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PairedRows:
    """Rows of a constraint each of which keeps two choosing rows apart: together they do so of all of a clique."""

    pairs: tuple[_PairsOfCells | _PairsApart, ...]

    def rows_of(self, load: Load, group: int, bucket: int) -> Integers:
        """Those of a bucket and a clique, which is a group of the load."""
        found: Integers = np.unique(
            np.concatenate([some.rows_of(load, group, bucket) for some in self.pairs])
        )
        return found


class RowPairs:
    """Collects pairs, by the constraint that demands them."""

    def __init__(self, sums: CellSums) -> None:
        self._sums, self._cells = sums, sums.cells
        self._found: dict[str, list[_PairsOfCells]] = {}
        self._apart: dict[str, list[_PairsApart]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._apart, *self._found)))

    def rows_of(self, name: str) -> PairedRows:
        """Of a constraint."""
        return PairedRows((*self._apart.get(name, ()), *self._found.get(name, ())))

    def add(self, name: str, ranges: Ranges) -> None:
        """Sums of some cells of two rows each, of which at most one is to hold."""
        sums, linears, tags = self._sums, ranges.linears, ranges.demanded.rows
        every = sums.is_every(linears.terms.items)
        placed = ~linears.terms.any(~every)  # not both have any value
        if placed.any():
            rows = sums.row_of(linears.take(np.flatnonzero(placed)).terms.items)
            one = filled(self._cells.values, 0)
            self.add_apart(name, rows[::2], rows[1::2], one, tags[placed], filled(1, 0))
        linears = sums.cell_by_cell(linears, every & ~placed[linears.terms.owners])
        linears, tags = linears.take(np.flatnonzero(~placed)), tags[~placed]
        if not len(linears):
            return
        rowwise = Rowwise.of(linears, sums)
        of_row = Lists.grouped(rowwise.number, linears.terms.items, len(rowwise.rows))
        left, right = of_row.take(np.arange(0, len(of_row), 2)), of_row.take(np.arange(1, len(of_row), 2))
        self._found.setdefault(name, []).append(_PairsOfCells(left, right, tags, sums.stride))

    def add_apart(
        self,
        name: str,
        left: Integers,
        right: Integers,
        bucket: Integers,
        row_tags: Integers,
        value_tags: Integers,
    ) -> None:
        """Rows that are not both to have values of one bucket, (V,) the bucket of each value."""
        self._apart.setdefault(name, []).append(_PairsApart(left, right, bucket, row_tags, value_tags))

    def demands(self, name: str) -> Iterator[Limit | Occupancy | Either]:
        """What says the same of an assignment."""
        for pairs in self._apart.get(name, ()):
            yield from self._excluding(name, pairs.left, pairs.right, pairs.bucket)
        if name not in self._found:
            return
        found = self._found[name]
        left, right = joined([pairs.left for pairs in found]), joined([pairs.right for pairs in found])
        both = joined([left, right])
        sets = Lists(both.starts, self._sums.value_of(both.items))
        kind_of, kinds = _kinds_of_values(sets, self._cells.values)
        (one, v), (other, w) = self._each_with_each(left, right, kind_of)
        first, edge = group_numbers(one, other)
        pattern, number_of = Lists.grouped(edge, v * kinds + w, len(first)).distinct().alike()
        for number in range(len(pattern)):
            self._sums.deadline.check()
            mine = np.flatnonzero(edge == pattern[number])
            some = first[np.flatnonzero(number_of == number)]
            bucket = _buckets(v[mine], w[mine], kinds)
            if bucket is not None:
                yield from self._excluding(name, one[some], other[some], bucket[kind_of])
                continue
            bucket = _buckets(*_others(v[mine], w[mine], kinds), kinds)
            if bucket is None or bool((bucket[kind_of] < 0).any()):
                # What excludes all others is in no bucket.
                raise NotLiftedError("values that exclude others in no pattern")
            for load in self._loads(
                Lists.of(_cliques(one[some], other[some], self._sums.deadline)), bucket[kind_of]
            ):
                yield Occupancy(name, load, filled(load.groups, 0), filled(load.groups, 1))

    def _each_with_each(
        self, left: Lists, right: Lists, kind_of: Integers
    ) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
        """The rows and the kinds of values of the cells of pairs, each of the one row with each of the other."""
        sides = []
        for cells in (left, right):
            row = self._sums.row_of(cells.items[cells.starts[:-1]])
            kinds = Lists(cells.starts, kind_of[self._sums.value_of(cells.items)]).distinct()
            sides.append((row, kinds))
        (one, left), (other, right) = sides
        sizes = right.lengths[left.owners]
        begins = np.concatenate(([0], np.cumsum(sizes)))
        places = np.repeat(right.starts[:-1][left.owners] - begins[:-1], sizes) + np.arange(begins[-1])
        pair = np.repeat(left.owners, sizes)
        return (one[pair], np.repeat(left.items, sizes)), (other[pair], right.items[places])

    def _excluding(
        self, name: str, left: Integers, right: Integers, bucket: Integers
    ) -> Iterator[Limit | Either]:
        """Rows all of which exclude each other are one group; and groups may exclude each other."""
        left, right = np.minimum(left, right), np.maximum(left, right)
        first, _ = group_numbers(left, right)
        left, right = left[first], right[first]
        component = components(left, right, self._cells.rows)
        sizes, edges = np.bincount(component[component >= 0]), np.bincount(component[left])
        whole = 2 * edges == sizes * (sizes - 1)
        of_row = Lists.grouped(component[component >= 0], np.flatnonzero(component >= 0), len(sizes))
        cliques = [of_row.take(np.flatnonzero(whole))]
        divided: list[Lists] = []
        for number in np.flatnonzero(~whole).tolist():
            self._sums.deadline.check()
            mine = component[left] == number
            parts = _parts(left[mine], right[mine], of_row.row(number))
            if parts is None:
                cliques.append(Lists.of(_cliques(left[mine], right[mine], self._sums.deadline)))
            else:
                divided.append(parts)
        yield from one_part_only(name, divided, bucket, self._cells.rows)
        zero = np.zeros((1, 1), np.int64)
        for load in self._loads(joined(cliques), bucket):
            yield Limit(name, load, zero, zero + 1)

    def _loads(self, cliques: Lists, bucket: Integers) -> Iterator[Load]:
        """Cliques that share no row are groups of one load."""
        layer = _disjoint(cliques, self._cells.rows, self._sums.deadline)
        for number in range(int(layer.max(initial=-1)) + 1):
            some = cliques.take(np.flatnonzero(layer == number))
            group = filled(self._cells.rows, NONE)
            group[some.items] = some.owners
            yield load_of(group, bucket)


def load_of(group: Integers, bucket: Integers) -> Load:
    """How many rows of each group (R,) have values of each bucket (V,)."""
    groups, buckets = int(group.max()) + 1, int(bucket.max()) + 1
    weight = np.ones(len(group), np.int64)
    return Load(group.astype(np.int32), groups, bucket.astype(np.int32), buckets, weight)


def one_part_only(name: str, divided: Sequence[Lists], bucket: Integers, rows: int) -> Iterator[Either]:
    """Of each of these groups of rows, divided into parts, rows of one part at most are in a bucket.

    Of each part there are none there, or of all others of its group.
    """
    most = max(map(len, divided), default=0)
    if most > _MOST_PARTS:
        raise NotLiftedError("groups of rows that exclude each other, too many")
    zero = np.zeros((1, 1), np.int64)
    for number in range(most):
        mine, others = filled(rows, NONE), filled(rows, NONE)
        groups = [parts for parts in divided if number < (len(parts) if len(parts) > 2 else 1)]
        for group, parts in enumerate(groups):
            others[parts.items] = group
            mine[parts.row(number)] = group
            others[parts.row(number)] = NONE
        if groups:
            loads = load_of(mine, bucket), load_of(others, bucket)
            yield Either(name, tuple(Limit(name, load, zero, zero) for load in loads))


def _parts(left: Integers, right: Integers, rows: Integers) -> Lists | None:
    """Groups that exclude each other, each with each; None if that is not what the pairs are."""
    if len(rows) > _MOST_IN_PARTS:
        return None
    near = np.zeros((len(rows), len(rows)), np.bool_)
    one, other = np.searchsorted(rows, left), np.searchsorted(rows, right)
    near[one, other] = near[other, one] = True
    rank, count = alike_rows(near)
    sizes = np.bincount(rank, minlength=count)
    if 2 * len(left) != len(rows) ** 2 - int((sizes**2).sum()):
        return None
    return Lists.grouped(rank, rows, count)


def _kinds_of_values(sets: Lists, values: int) -> tuple[Integers, int]:
    """(V,) a number for each value, alike where they are in the same sets, and how many kinds there are."""
    first, _ = sets.alike()
    if len(first) * values > _MOST_IN_SETS:
        return np.arange(values), values
    sets = sets.take(first)
    inside = np.zeros((values, len(sets)), np.bool_)
    inside[sets.items, sets.owners] = True
    rank, count = alike_rows(inside)
    return rank.astype(np.int64), count


def _others(one: Integers, other: Integers, values: int) -> tuple[Integers, Integers]:
    """The pairs of values that are not these."""
    free = np.ones((values, values), np.bool_)
    free[one, other] = False
    first, second = np.nonzero(free)
    return first, second


def _buckets(one: Integers, other: Integers, values: int) -> Integers | None:
    """(V,) the bucket of each value, if the pairs are all those of some buckets with themselves; else None."""
    bucket = components(one, other, values)
    sizes = np.bincount(bucket[bucket >= 0])
    first, _ = group_numbers(one, other)
    return bucket if len(first) == int((sizes * sizes).sum()) else None


def _cliques(left: Integers, right: Integers, deadline: Deadline) -> list[list[int]]:
    """Cliques that cover all edges, greedily."""
    near: dict[int, set[int]] = {}
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    todo = dict.fromkeys((min(a, b), max(a, b)) for a, b in zip(left.tolist(), right.tolist(), strict=True))
    found = []
    while todo:
        deadline.check()
        a, b = next(iter(todo))
        clique, common = [a, b], near[a] & near[b]
        while common:
            c = min(common)
            clique.append(c)
            common &= near[c]
        clique.sort()
        for place, x in enumerate(clique):
            for y in clique[place + 1 :]:
                todo.pop((x, y), None)
        found.append(clique)
        if len(found) > _MOST_CLIQUES:
            raise NotLiftedError("pairs of rows that are no few groups")
    return found


def _disjoint(cliques: Lists, rows: int, deadline: Deadline) -> Integers:
    """Layers of cliques that share no row, greedily."""
    layers: list[Mask] = []
    found = filled(len(cliques), 0)
    for number in range(len(cliques)):
        deadline.check()
        some = cliques.row(number)
        at = next((at for at, taken in enumerate(layers) if not taken[some].any()), len(layers))
        if at == len(layers):
            layers.append(np.zeros(rows, np.bool_))
        layers[at][some] = True
        found[number] = at
    return found
