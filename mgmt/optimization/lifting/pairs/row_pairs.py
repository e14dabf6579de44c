"""Pairs of rows of which some choices exclude each other, as what excludes them: relations over the values of both.

Where values of one bucket exclude each other, cliques of rows are limits of one, and groups of rows that exclude each
other are alone in a bucket.  Where values of different buckets do, cliques go together, in one bucket; so do all that
are connected, where having no value is a bucket like others.  Any other relation is alternatives: the one row has none
of some values, or the other one has one of those that go with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mgmt.optimization.assignment import NONE, Either, Limit, Load, Occupancy
from mgmt.optimization.columns import (
    Integers,
    Linears,
    Lists,
    Mask,
    components,
    filled,
    group_numbers,
    integers,
    joined,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.dense_ranks import alike_rows
from mgmt.optimization.lifting.pairs.tables import PairFunctions, PairTables, kinds_of_values
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.normal_form import Ranges, Rowwise, joined_ranges

if TYPE_CHECKING:
    from mgmt.optimization.lifting.clauses import Clauses

_MOST_CLIQUES = 5_000
_MOST_IN_PARTS = 3_000
_MOST_PARTS = 100
_MOST_ENTRIES = 8_000_000


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
class _PairsInTables:
    """Pairs of rows, and the tables of what they break."""

    pairs: PairTables
    rows: Integers
    """Of a constraint, that which demands each."""

    def rows_of(self, load: Load, group: int, bucket: int) -> Integers:
        pairs = self.pairs
        kinds = np.unique(pairs.kind_of[load.bucket == bucket])
        broken = np.array([table[np.ix_(kinds, kinds)].any() for table in pairs.tables], np.bool_)
        inside = (load.group[pairs.left] == group) & (load.group[pairs.right] == group)
        found: Integers = self.rows[inside & broken[pairs.number]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class PairedRows:
    """Rows of a constraint each of which keeps two choosing rows apart: together they do so of all of a clique."""

    pairs: tuple[_PairsOfCells | _PairsApart | _PairsInTables, ...]

    def rows_of(self, load: Load, group: int, bucket: int) -> Integers:
        """Those of a bucket and a clique, which is a group of the load."""
        found: Integers = np.unique(
            np.concatenate([some.rows_of(load, group, bucket) for some in self.pairs])
        )
        return found


Demand: TypeAlias = Limit | Occupancy | Either | Ranges | tuple[Ranges, Ranges]
"""Bounds are on single rows; of two, line by line, one holds."""


class RowPairs:
    """Collects pairs, by the constraint that demands them."""

    def __init__(self, sums: CellSums) -> None:
        self._sums, self._cells = sums, sums.cells
        self._found: dict[str, list[_PairsOfCells]] = {}
        self._apart: dict[str, list[_PairsApart]] = {}
        self._tables: dict[str, list[_PairsInTables]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._apart, *self._found, *self._tables)))

    def rows_of(self, name: str) -> PairedRows:
        """Of a constraint."""
        found = (*self._apart.get(name, ()), *self._found.get(name, ()), *self._tables.get(name, ()))
        return PairedRows(found)

    @cached_property
    def _functions(self) -> PairFunctions:
        return PairFunctions(self._sums)

    def add_clauses(self, clauses: Clauses) -> Mask:
        """Take in those that are about two rows, however they say it; which these are."""
        pairs = self._functions.pairs_of(clauses)
        if pairs.any():
            some = clauses.take(np.flatnonzero(pairs))
            found = _PairsInTables(self._functions.broken(some), some.rows)
            self._tables.setdefault(clauses.name, []).append(found)
        return pairs

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

    def demands(self, name: str) -> Iterator[Demand]:
        """What says the same of an assignment."""
        for pairs in self._apart.get(name, ()):
            yield from self._excluding(name, pairs.left, pairs.right, pairs.bucket)
        found, related = self._found.get(name, []), self._tables.get(name, [])
        if not found and not related:
            return
        left, right = joined([pairs.left for pairs in found]), joined([pairs.right for pairs in found])
        both = joined([left, right])
        sets = Lists(both.starts, self._sums.value_of(both.items))
        own, _ = kinds_of_values(sets, self._cells.values)
        value, kind_of = group_numbers(own, *(each.pairs.kind_of for each in related))
        kinds = len(value)
        (one, v), (other, w) = self._each_with_each(left, right, kind_of)
        ones, others, codes, tables = [one], [other], [v * kinds + w], list[Mask]()
        for broken in (each.pairs for each in related):
            ones.append(broken.left)
            others.append(broken.right)
            codes.append(-1 - len(tables) - broken.number)
            line = np.append(broken.kind_of[value], -1)
            tables += [table[np.ix_(line, line)] > 0 for table in broken.tables]
        one, other = np.concatenate(ones), np.concatenate(others)
        first, edge = group_numbers(one, other)
        one, other = one[first], other[first]
        patterns = Lists.grouped(edge, np.concatenate(codes), len(first)).distinct()
        _, number = patterns.alike()
        example, number = group_numbers(number, self._cells.column[one], self._cells.column[other])
        for place, edge_number in enumerate(example.tolist()):
            self._sums.deadline.check()
            some, code = number == place, patterns.row(edge_number)
            plain, named = code[code >= 0], -1 - code[code < 0]
            bucket = None if len(named) else _buckets(plain // kinds, plain % kinds, kinds)
            if bucket is not None:
                yield from self._excluding(name, one[some], other[some], bucket[kind_of])
                continue
            if (kinds + 1) ** 2 > _MOST_ENTRIES:
                raise NotLiftedError("pairs of rows with too many kinds of values")
            wrong = np.zeros((kinds + 1, kinds + 1), np.bool_)
            wrong[plain // kinds, plain % kinds] = True
            for table in named.tolist():
                wrong |= tables[table]
            yield from self._related(name, one[some], other[some], wrong, kind_of)

    def _related(
        self, name: str, left: Integers, right: Integers, wrong: Mask, kind_of: Integers
    ) -> Iterator[Demand]:
        """Rows, all of two columns, with what is wrong: the kinds of the one's values by those of the other's.

        The last kind is that of no value.
        """
        may = np.stack([self._may_have(int(rows[0]), kind_of, len(wrong)) for rows in (left, right)])
        allowed = ~wrong & may[0][:, None] & may[1][None, :]
        live = np.stack((allowed.any(1), allowed.any(0)))
        for rows, never in zip((left, right), may & ~live, strict=True):
            yield from self._never(np.unique(rows), never, kind_of)
        wrong = ~allowed & live[0][:, None] & live[1][None, :]
        if not wrong.any():
            return
        placed = not (wrong[-1].any() or wrong[:, -1].any())
        first, second = np.nonzero(wrong)
        bucket = _buckets(first, second, len(wrong)) if placed else None
        if bucket is not None:
            yield from self._excluding(name, left, right, bucket[kind_of])
            return
        if np.array_equal(live[0], live[1]) and np.array_equal(wrong, wrong.T):
            alike = _classes(allowed, live[0])
            if alike is not None:
                yield from self._together(name, components(left, right, self._cells.rows), alike, kind_of)
                return
            alike = _classes(allowed, np.asarray(wrong.any(0))) if placed else None
            if alike is not None:
                for load in self._loads(Lists.of(_cliques(left, right, self._sums.deadline)), alike[kind_of]):
                    yield Occupancy(name, load, filled(load.groups, 0), filled(load.groups, 1))
                return
        yield self._alternatives(left, right, allowed, live, kind_of)

    def _may_have(self, row: int, kind_of: Integers, kinds: int) -> Mask:
        column = int(self._cells.column[row])
        found = np.zeros(kinds, np.bool_)
        found[kind_of[self._cells.domains[column]]] = True
        found[-1] = not self._cells.required[row]
        return found

    def _never(self, rows: Integers, never: Mask, kind_of: Integers) -> Iterator[Ranges]:
        """Bounds on single rows: what they have whatever others have."""
        values = self._values(rows, never, kind_of)
        if len(values):
            yield self._bound(rows, values, 0)
        if never[-1]:
            yield self._bound(rows, integers([self._cells.values]), 1)

    def _values(self, rows: Integers, kinds: Mask, kind_of: Integers) -> Integers:
        """The values of kinds that rows of a column may have."""
        return np.flatnonzero(kinds[kind_of] & self._cells.domains[self._cells.column[rows[0]]])

    def _bound(self, rows: Integers, values: Integers, number: int) -> Ranges:
        """Each row has one of the values, or none."""
        cells = rows[:, None] * self._sums.stride + values[None, :]
        terms = Lists(np.arange(len(rows) + 1) * len(values), cells.ravel())
        linears = Linears(filled(len(rows), 0), terms, filled(cells.size, 1))
        return Ranges.of(linears, filled(len(rows), number), filled(len(rows), number))

    def _together(
        self, name: str, group: Integers, alike: Integers, kind_of: Integers
    ) -> Iterator[Occupancy | Either]:
        """Rows of a group are all of one class of kinds; where that of no value is one, all are of it or none."""
        if alike[-1] != NONE:
            alike = np.where(alike == alike[-1], NONE, alike)
            whole = load_of(group, np.where(alike[kind_of] == NONE, NONE, 0))
            all_of_them, zero = np.bincount(group[group >= 0])[:, None], np.zeros((1, 1), np.int64)
            yield Either(name, (Limit(name, whole, zero, zero), Limit(name, whole, all_of_them, all_of_them)))
        load = load_of(group, alike[kind_of])
        if load.buckets > 1:
            yield Occupancy(name, load, filled(load.groups, 0), filled(load.groups, 1))

    def _alternatives(
        self, left: Integers, right: Integers, allowed: Mask, live: Mask, kind_of: Integers
    ) -> tuple[Ranges, Ranges]:
        """In each line one of two bounds holds, on the one row or on the other."""
        sides = [(left, right, allowed, live), (right, left, allowed.T, live[::-1])]
        told = [list(self._implied(*side, kind_of)) for side in sides]
        parts = min(
            told, key=lambda parts: sum(len(bound.linears.terms.items) for pair in parts for bound in pair)
        )
        one, other = (joined_ranges([pair[side] for pair in parts]) for side in (0, 1))
        return one, other

    def _implied(
        self, rows: Integers, others: Integers, allowed: Mask, live: Mask, kind_of: Integers
    ) -> Iterator[tuple[Ranges, Ranges]]:
        """What rows have not, or else what the others have."""
        rank, _ = alike_rows(allowed)
        for number in np.unique(rank[live[0]]).tolist():
            mine = live[0] & (rank == number)
            theirs = allowed[int(mine.argmax())]
            if not np.array_equal(theirs, live[1]):
                yield (
                    self._is_within(rows, live[0] & ~mine, live[0], kind_of),
                    self._is_within(others, theirs, live[1], kind_of),
                )

    def _is_within(self, rows: Integers, kinds: Mask, live: Mask, kind_of: Integers) -> Ranges:
        """Each row has one of these kinds, of those that it may have."""
        if kinds[-1]:
            return self._bound(rows, self._values(rows, live & ~kinds, kind_of), 0)
        return self._bound(rows, self._values(rows, kinds, kind_of), 1)

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


def _buckets(one: Integers, other: Integers, values: int) -> Integers | None:
    """(V,) the bucket of each value, if the pairs are all those of some buckets with themselves; else None."""
    bucket = components(one, other, values)
    sizes = np.bincount(bucket[bucket >= 0])
    first, _ = group_numbers(one, other)
    return bucket if len(first) == int((sizes * sizes).sum()) else None


def _classes(allowed: Mask, among: Mask) -> Integers | None:
    """(N,) a number of each of these, NONE of others: alike if and only if they are allowed together."""
    inside = allowed & among[:, None] & among[None, :]
    rank, _ = alike_rows(inside)
    same = (rank[:, None] == rank[None, :]) & among[:, None] & among[None, :]
    if not np.array_equal(same, inside):
        return None
    found = filled(len(among), NONE)
    found[among] = np.unique(rank[among], return_inverse=True)[1]
    return found


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
