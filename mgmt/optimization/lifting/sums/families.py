"""Families of sums that are loads together: in groups of disjoint rows and buckets of disjoint values.

Sums of equal rows and weights are of one group, of equal values of one bucket.  Where rows or values overlap, a family
falls into several, each of them loads.  Groups and buckets are numbered by their first members, so that equal families
are equal arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Load
from mgmt.optimization.columns import Integers, Lists, Mask, filled, group_numbers
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.factors import Factors
from mgmt.optimization.lifting.sums.normal_form import Demanded
from mgmt.optimization.products import Side

_MOST_LAYERS = 40


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows:
    """Rows of a constraint each of which demands something of a load at one place: a group and a bucket."""

    buckets: int
    places: Integers
    """Group times ``buckets`` plus bucket, in order."""
    demanded: Demanded

    @classmethod
    def of(cls, buckets: int, group: Integers, bucket: Integers, demanded: Demanded) -> PlacedRows:
        places = group * buckets + bucket
        order = np.argsort(places, kind="stable")
        return cls(buckets, places[order], demanded.take(order))

    def at(self, group: int, bucket: int) -> Demanded:
        """What is demanded there."""
        place = group * self.buckets + bucket
        first, last = np.searchsorted(self.places, [place, place + 1])
        return self.demanded.take(np.arange(first, last))


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Some of the sums as places of loads: one load for each of the sums that stand side by side."""

    members: Integers
    """Which of the sums."""
    loads: tuple[Load, ...]
    group: Integers
    bucket: Integers

    @property
    def shape(self) -> tuple[int, int]:
        return self.loads[0].groups, self.loads[0].buckets

    def spread(self, values: Integers, otherwise: int) -> Integers:
        """(groups, buckets): what the members say at their places."""
        found = np.full(self.shape, otherwise, np.int64)
        found[self.group, self.bucket] = values[self.members]
        return found

    def placed(self, demanded: Demanded) -> PlacedRows:
        """What demands each member, at its place."""
        return PlacedRows.of(self.shape[1], self.group, self.bucket, demanded.take(self.members))


def families_of(columns: Sequence[Factors], rows: int, values: int) -> list[Family]:
    """Families of the sums of several columns that stand side by side, all of rank one."""
    if not all(bool(column.whole.all()) for column in columns):
        raise NotLiftedError("amounts that depend on the row and on the value at once")
    if any(bool(column.rows.any(column.weights < 0)[column.row_kind].any()) for column in columns):
        raise NotLiftedError("amounts of both signs")
    if not len(columns[0]):
        return []
    first_of_values, of_values = group_numbers(*(column.value_kind for column in columns))
    sets = [column.values.take(column.value_kind[first_of_values]) for column in columns]
    layers, numbers, marks = layers_of(sets, values)
    value_layer, bucket = layers[of_values], numbers[of_values]
    found = []
    for layer in range(len(marks)):
        mine = np.flatnonzero(value_layer == layer)
        first, of_rows = group_numbers(*(column.row_kind[mine] for column in columns))
        sets = [column.rows.take(column.row_kind[mine[first]]) for column in columns]
        row_layers, groups, row_marks = layers_of(sets, rows)
        for row_layer in range(len(row_marks)):
            inside = np.flatnonzero(row_layers[of_rows] == row_layer)
            members = mine[inside]
            loads = tuple(
                _load(column, column.row_kind[mine[first[row_layers == row_layer]]], group, mark)
                for column, group, mark in zip(columns, row_marks[row_layer], marks[layer], strict=True)
            )
            found.append(Family(members, loads, groups[of_rows[inside]], bucket[members]))
    return [one for family in found for one in _with_each_place_once(family)]


def _with_each_place_once(family: Family) -> list[Family]:
    """Sums that are equal stand at one place, which a family has once."""
    place = family.group * family.shape[1] + family.bucket
    rank = _rank_within(place)
    return [
        Family(family.members[mask], family.loads, family.group[mask], family.bucket[mask])
        for turn in range(int(rank.max(initial=0)) + 1)
        for mask in [rank == turn]
    ]


def _rank_within(keys: Integers) -> Integers:
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.append(True, keys[order][1:] != keys[order][:-1]))
    rank = filled(len(keys), 0)
    rank[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return rank


def loads_of(rows: Side, values: Side, cells: ChoiceCells) -> Iterator[tuple[Load, Integers, Integers]]:
    """Every group of rows with every group of values, as loads: which groups and which buckets of values these are."""
    row_layer, _, row_marks = layers_of([rows.members], cells.rows)
    value_layer, _, value_marks = layers_of([values.members], cells.values)
    weight = filled(cells.rows, 0)
    for one, (group,) in enumerate(row_marks):
        for other, (bucket,) in enumerate(value_marks):
            groups, buckets = np.flatnonzero(row_layer == one), np.flatnonzero(value_layer == other)
            inside = rows.take(groups)
            own = weight.copy()
            own[inside.members.items] = inside.weights
            load = Load(group.astype(np.int32), len(groups), bucket.astype(np.int32), len(buckets), own)
            yield load, _in_order(groups, rows), _in_order(buckets, values)


def _in_order(some: Integers, side: Side) -> Integers:
    """By their first members, as layers number them; none is empty."""
    members = side.members
    return some[np.argsort(members.items[members.starts[some]], kind="stable")]


def _load(factors: Factors, kinds: Integers, group: Integers, bucket: Integers) -> Load:
    weight = filled(len(group), 0)
    places, _ = factors.rows.places(kinds)
    weight[factors.rows.items[places]] = factors.weights[places]
    return Load(
        group.astype(np.int32),
        int(group.max(initial=NONE)) + 1,
        bucket.astype(np.int32),
        int(bucket.max(initial=NONE)) + 1,
        weight,
    )


def layers_of(columns: Sequence[Lists], width: int) -> tuple[Integers, Integers, list[list[Integers]]]:
    """Sets in layers of disjoint ones: the layer of each, its number there, and by layer the number of each member.

    What stands side by side is one set: disjoint if all of it is.
    """
    count = len(columns[0])
    if all(int(np.bincount(column.items).max(initial=0)) <= 1 for column in columns):
        layer, layers = filled(count, 0), 1
    else:
        layer, layers = _greedy(columns, width)
    number, marks = filled(count, 0), []
    first, has_any = filled(count, width), columns[0].lengths > 0
    first[has_any] = columns[0].items[columns[0].starts[:-1][has_any]]
    for one in range(layers):
        mine = np.flatnonzero(layer == one)
        mine = mine[np.argsort(first[mine], kind="stable")]
        number[mine] = np.arange(len(mine))
        made = []
        for column in columns:
            mark = filled(width, NONE)
            some = column.take(mine)
            mark[some.items] = some.owners
            made.append(mark)
        marks.append(made)
    return layer, number, marks


def _greedy(columns: Sequence[Lists], width: int) -> tuple[Integers, int]:
    sizes = np.add.reduce([column.lengths for column in columns])
    order = np.lexsort((columns[0].items[columns[0].starts[:-1]], sizes))
    taken: list[list[Mask]] = []
    layer = filled(len(order), 0)
    for each in order.tolist():
        sets = [column.row(each) for column in columns]

        def is_free(marks: list[Mask], sets: list[Integers] = sets) -> bool:
            return not any(bool(mark[some].any()) for mark, some in zip(marks, sets, strict=True))

        number = next((number for number, marks in enumerate(taken) if is_free(marks)), len(taken))
        if number == len(taken):
            if number >= _MOST_LAYERS:
                raise NotLiftedError("rows or values that are grouped in too many ways")
            taken.append([np.zeros(width, np.bool_) for _ in columns])
        for mark, some in zip(taken[number], sets, strict=True):
            mark[some] = True
        layer[each] = number
    return layer, len(taken)
