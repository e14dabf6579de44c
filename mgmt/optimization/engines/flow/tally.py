"""Which arcs carry what a count counts, so that what flows have in common can be read as numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import Amounts, Limit, Load
from mgmt.optimization.engines.flow.counts import Count, Places

_MOST_PLACES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The arcs of one count."""

    count: Count
    group: Places
    """(arcs,) NONE for an arc that carries nothing it counts."""
    bucket: Places
    first: int
    """The first of the arcs; the others follow it."""

    def limit(self, least: Amounts, most: Amounts) -> Limit | None:
        """What is counted, between what all arcs carry at least and at most; None for too many places to tell."""
        count = self.count
        shape = (count.groups, count.buckets)
        if count.groups * count.buckets > _MOST_PLACES:
            return None
        counted = np.flatnonzero((self.group >= 0) & (self.bucket >= 0))
        arcs = self.first + counted
        lower, upper = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        place = self.group[counted], self.bucket[counted]
        np.add.at(lower, place, least[arcs])
        np.add.at(upper, place, most[arcs])
        load = Load(
            count.group, count.groups, count.bucket, count.buckets, np.ones(len(count.group), np.int64)
        )
        return Limit(f"{count.name}, at best", load, lower, upper)
