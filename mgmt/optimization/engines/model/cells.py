"""Cells: how many rows of a class take a value, for the classes and values that come into question.

All engines but the flow work on cells.  A class and a value make one cell, or two where leaving today's value costs
something: one for the rows that stay, one for those that come.  With the counts of the cells every load is a sum, so
limits are linear rows over the cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Indices, Load, Mask
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses


@dataclass(frozen=True, slots=True, eq=False)
class PlaceSums:
    """Sums of ``factor * cell``; the terms of row i are at ``start[i]:start[i + 1]``."""

    place: Amounts
    """(N,) of each row, group * buckets + bucket of the load it is about."""
    start: Amounts
    """(N + 1,)"""
    cell: Indices
    factor: Amounts

    def by_place(self, factor: Amounts) -> Iterator[tuple[int, list[int], list[int]]]:
        """Each place with its cells and factors for them."""
        cells, factors, starts = self.cell.tolist(), factor.tolist(), self.start.tolist()
        for place, begin, end in zip(self.place.tolist(), starts[:-1], starts[1:], strict=True):
            yield place, cells[begin:end], factors[begin:end]


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of some candidates, ordered by class."""

    classes: EquivalenceClasses
    class_: Indices
    value: Indices
    """NONE for staying or becoming without a value."""
    stays: Mask
    """Whether these are the rows that have the value today."""
    most: Amounts
    """How many rows the cell can have at most, by what it alone breaks."""
    costs: Amounts
    """(T, n) per tier what one row costs, apart from loads."""

    def __len__(self) -> int:
        return len(self.class_)

    @cached_property
    def enough(self) -> bool:
        """Whether the rows of every class fit into its cells, each cell for itself."""
        room = np.zeros(self.classes.number, np.int64)
        np.add.at(room, self.class_, self.most)
        return bool((room >= self.classes.count).all())

    def only(self, kept: Mask) -> Cells:
        """Some of the cells."""
        return Cells(
            self.classes,
            self.class_[kept],
            self.value[kept],
            self.stays[kept],
            self.most[kept],
            self.costs[:, kept],
        )

    def choice(self, count: Amounts) -> Indices:
        """(R,) the choice that cell counts stand for."""
        return self.classes.expand(self.class_, self.value, count)

    def counts(self, choice: Indices) -> Amounts | None:
        """The counts that stand for a choice; None when it has a value that is not a candidate."""
        places = self.classes.assignment.values + 1
        place = self.class_.astype(np.int64) * places + self.value + 1
        chosen = self.classes.of_row.astype(np.int64) * places + choice + 1
        used, wanted = np.unique(chosen, return_counts=True)
        # Where there are two cells, the one of those that stay comes first and is filled first.
        order = np.lexsort((~self.stays, place))
        sorted_place = place[order]
        first = np.asarray(np.searchsorted(sorted_place, used))
        if not len(order) or bool((sorted_place[np.minimum(first, len(order) - 1)] != used).any()):
            return None
        counts = np.zeros(len(self), np.int64)
        staying = np.minimum(wanted, np.where(self.stays[order[first]], self.most[order[first]], wanted))
        counts[order[first]] = staying
        rest = wanted - staying
        more = np.flatnonzero(rest)
        second = np.minimum(np.take(first, more) + 1, len(order) - 1)
        if bool((sorted_place[second] != used[more]).any()):
            return None
        counts[order[second]] = rest[more]
        return counts

    def places(self, load: Load) -> tuple[Amounts, Amounts]:
        """(n,) where each cell adds to a load, as group * buckets + bucket or NONE, and what a row of it adds."""
        group = self.classes.group(load)[self.class_].astype(np.int64)
        bucket = np.where(self.value >= 0, load.bucket[np.maximum(self.value, 0)], NONE)
        place = np.where((group >= 0) & (bucket >= 0), group * load.buckets + bucket, NONE)
        return place, self.classes.weight(load)[self.class_]

    def load(self, load: Load, counts: Amounts) -> Amounts:
        """(groups, buckets) what a load comes to with these counts."""
        place, weight = self.places(load)
        total = np.zeros(load.groups * load.buckets, np.int64)
        np.add.at(total, place[place >= 0], (weight * counts)[place >= 0])
        return total.reshape(load.groups, load.buckets)

    def rows(self, load: Load) -> PlaceSums:
        """A sum for every place of a load that a cell adds to."""
        place, weight = self.places(load)
        cell = np.flatnonzero(place >= 0)
        cell = cell[np.argsort(place[cell], kind="stable")]
        used, start = np.unique(place[cell], return_index=True)
        return PlaceSums(
            used,
            np.append(start, len(cell)).astype(np.int64),
            cell.astype(np.int32),
            weight[cell],
        )


def cells_of(
    classes: EquivalenceClasses, class_: Indices, value: Indices, deadline: Deadline = NEVER
) -> Cells:
    """The cells of candidates: classes with values they are allowed to have.

    Kinds that may stay without a value have that as a candidate besides.  Raises TimeoutError at the deadline.
    """
    places = classes.assignment.values + 1
    free = np.flatnonzero(~classes.required).astype(np.int32)
    class_ = np.concatenate((class_, free))
    value = np.concatenate((value, np.full(len(free), NONE, np.int32)))
    place = class_.astype(np.int64) * places + value + 1
    order = np.argsort(place, kind="stable")
    class_, value, place = class_[order], value[order], place[order]
    most = np.minimum(classes.count[class_], _room(classes, class_, value, deadline))
    stays = classes.stays
    today = stays.class_.astype(np.int64) * places + stays.value + 1
    found = np.minimum(np.searchsorted(place, today), max(0, len(place) - 1))
    is_cell = place[found] == today if len(place) else np.zeros(len(today), np.bool_)
    staying = np.zeros(len(place), np.int64)
    staying[found[is_cell]] = stays.count[is_cell]
    coming = (staying < classes.count[class_]) & (most > 0)
    twice = (staying > 0) & (most > 0)
    class_ = np.concatenate((class_[twice], class_[coming]))
    value = np.concatenate((value[twice], value[coming]))
    most = np.concatenate((np.minimum(most, staying)[twice], most[coming]))
    is_stay = np.arange(len(class_)) < int(twice.sum())
    order = np.lexsort((~is_stay, value, class_))
    class_, value, most, is_stay = class_[order], value[order], most[order], is_stay[order]
    return Cells(classes, class_, value, is_stay, most, classes.costs(class_, value, is_stay))


def all_candidates(classes: EquivalenceClasses) -> tuple[Indices, Indices]:
    """Every value that each class is allowed to have."""
    allowed = classes.assignment.allowed[classes.assignment.row_class[classes.representative]]
    class_, value = np.nonzero(allowed)
    return class_.astype(np.int32), value.astype(np.int32)


def _room(classes: EquivalenceClasses, class_: Indices, value: Indices, deadline: Deadline) -> Amounts:
    """How many rows of a class each value has room for when it has nothing else."""
    room = classes.count[class_].copy()
    placed = np.flatnonzero(value >= 0)
    for limit in classes.assignment.limits:
        deadline.check()
        load = limit.load
        group = classes.group(load)[class_[placed]]
        bucket = load.bucket[value[placed]]
        counted = (group >= 0) & (bucket >= 0)
        _, upper = limit.bounds
        most = np.maximum(upper[group[counted], bucket[counted]], 0)
        cell = placed[counted]
        room[cell] = np.minimum(room[cell], most // classes.weight(load)[class_[cell]])
    return room
