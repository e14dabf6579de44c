"""Pairs of rows that exclude each other: not both have a value of the same bucket, or of different ones.

Cliques of the former are limits of one; rows of the latter go together, in one bucket.  Which buckets there are is
found out for the pairs: values that exclude each other are of one, or else those that do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Limit, Load, Occupancy
from mgmt.optimization.columns import Integers, Lists, Mask, components, filled, group_numbers
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.normal_form import Ranges, Rowwise
from mgmt.optimization.lifting.refusal import NotLiftedError

_MOST_CLIQUES = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class PairedRows:
    """Rows of a constraint each of which keeps two choosing rows apart: together they do so of all of a clique."""

    left: Integers
    right: Integers
    value: Integers
    """What the left one may not have where the right one has a value of the same bucket."""
    rows: Integers

    def rows_of(self, load: Load, group: int, bucket: int) -> Integers:
        """Those of a bucket and a clique, which is a group of the load."""
        inside = (load.group[self.left] == group) & (load.group[self.right] == group)
        found: Integers = np.unique(self.rows[inside & (load.bucket[self.value] == bucket)])
        return found


class RowPairs:
    """Collects pairs, by the constraint that demands them."""

    def __init__(self, cells: ChoiceCells) -> None:
        self._cells = cells
        self._found: dict[str, list[tuple[Integers, Integers, Integers]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._found)

    def add(self, name: str, ranges: Ranges) -> None:
        """Sums of some cells of two rows each, of which at most one is to hold."""
        linears = ranges.linears
        if not len(linears):
            return
        rowwise = Rowwise.of(linears, self._cells)
        of_row = Lists.grouped(rowwise.number, linears.terms.items, len(rowwise.rows))
        left, right = of_row.take(np.arange(0, len(of_row), 2)), of_row.take(np.arange(1, len(of_row), 2))
        # Each cell of the one row with each of the other.
        sizes = right.lengths[left.owners]
        one = np.repeat(left.items, sizes)
        begins = np.concatenate(([0], np.cumsum(sizes)))
        places = np.repeat(right.starts[:-1][left.owners] - begins[:-1], sizes) + np.arange(begins[-1])
        rows = np.repeat(ranges.demanded.rows[left.owners], sizes)
        self._found.setdefault(name, []).append((one, right.items[places], rows))

    def demands(self, name: str) -> Iterator[tuple[Limit | Occupancy, PairedRows]]:
        """What says the same of an assignment, and which rows demand it."""
        one, other, demanding = (np.concatenate(column) for column in zip(*self._found[name], strict=True))
        values = self._cells.values
        left, right, v, w = one // values, other // values, one % values, other % values
        first, edge = group_numbers(left, right)
        pattern, kind = Lists.grouped(edge, v * values + w, len(first)).distinct().alike()
        origin = PairedRows(left, right, v, demanding)
        for number in range(len(pattern)):
            mine = np.flatnonzero(edge == pattern[number])
            some = first[np.flatnonzero(kind == number)]
            cliques = Lists.of(_cliques(left[some], right[some]))
            bucket = _buckets(v[mine], w[mine], values)
            if bucket is not None:
                for load in self._loads(cliques, bucket):
                    yield Limit(name, load, filled(1, 0)[None], filled(1, 1)[None]), origin
                continue
            bucket = _buckets(*_others(v[mine], w[mine], values), values)
            if bucket is None or bool((bucket < 0).any()):  # what excludes all others is in no bucket
                raise NotLiftedError("values that exclude others in no pattern")
            for load in self._loads(cliques, bucket):
                yield Occupancy(name, load, filled(load.groups, 0), filled(load.groups, 1)), origin

    def _loads(self, cliques: Lists, bucket: Integers) -> Iterator[Load]:
        """Cliques that share no row are groups of one load."""
        layer = _disjoint(cliques, self._cells.rows)
        for number in range(int(layer.max(initial=-1)) + 1):
            some = cliques.take(np.flatnonzero(layer == number))
            group = filled(self._cells.rows, NONE)
            group[some.items] = some.owners
            yield Load(
                group.astype(np.int32),
                len(some),
                bucket.astype(np.int32),
                int(bucket.max()) + 1,
                filled(self._cells.rows, 1),
            )


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


def _cliques(left: Integers, right: Integers) -> list[list[int]]:
    """Cliques that cover all edges, greedily."""
    near: dict[int, set[int]] = {}
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    todo = dict.fromkeys((min(a, b), max(a, b)) for a, b in zip(left.tolist(), right.tolist(), strict=True))
    found = []
    while todo:
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


def _disjoint(cliques: Lists, rows: int) -> Integers:
    """Layers of cliques that share no row, greedily."""
    layers: list[Mask] = []
    found = filled(len(cliques), 0)
    for number in range(len(cliques)):
        some = cliques.row(number)
        at = next((at for at, taken in enumerate(layers) if not taken[some].any()), len(layers))
        if at == len(layers):
            layers.append(np.zeros(rows, np.bool_))
        layers[at][some] = True
        found[number] = at
    return found
