"""Arcs that stand for a bounded link whose cost is convex in what it carries, and those that carry what is counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import Amounts, Integers, Limit, Load, Mask
from mgmt.optimization.engines.flow.counts import Count


@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """What a unit more on a link costs."""

    cost: Amounts
    """(tiers, n, links) from n to n + 1 units."""
    known: Amounts
    """(links,) so many of them are told; beyond, the last one of these stands for all."""


def links(
    lower: Amounts, upper: Amounts, marginal: Marginal | None
) -> tuple[Amounts, Amounts, Amounts, Amounts | None, Mask]:
    """Arcs that together cost what ``marginal`` says of each link.

    Returns the link of each arc, its bounds and costs, and whether it is beyond what ``marginal`` tells.
    """
    number = len(lower)
    if marginal is None:
        return np.arange(number), lower, upper, None, np.zeros(number, np.bool_)
    known = marginal.known
    changes = np.ones((number, marginal.cost.shape[1]), np.bool_)
    changes[:, 1:] = (marginal.cost[:, 1:] != marginal.cost[:, :-1]).any(axis=0).T
    changes &= np.arange(marginal.cost.shape[1])[None] < known[:, None]
    link, start = np.nonzero(changes)
    end = np.append(start[1:], 0)
    last = np.append(link[1:] != link[:-1], True)[: len(link)]
    end[last] = known[link[last]]
    costs = marginal.cost[:, start, link]
    more = np.flatnonzero(upper > known)
    link, start = np.append(link, more), np.append(start, known[more])
    end = np.append(end, upper[more])
    costs = np.concatenate([costs, marginal.cost[:, known[more] - 1, more]], axis=1)
    beyond = np.arange(len(link)) >= len(link) - len(more)
    room = np.minimum(end, upper[link]) - start
    used = room > 0
    forced = np.clip(lower[link] - start, 0, room)
    return link[used], forced[used], room[used], costs[:, used], beyond[used]


_MOST_PLACES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class CountedArcs:
    """The arcs of one count."""

    count: Count
    group: Integers
    """(arcs,) NONE for an arc that carries nothing it counts."""
    bucket: Integers
    first: int
    """The first of the arcs; the others follow it."""

    def limit(self, least: Amounts, most: Amounts) -> Limit | None:
        """What is counted, between what all arcs carry at least and at most; None for too many places to tell."""
        count = self.count
        structure = (count.groups, count.buckets)
        if count.groups * count.buckets > _MOST_PLACES:
            return None
        counted = np.flatnonzero((self.group >= 0) & (self.bucket >= 0))
        arcs = self.first + counted
        lower, upper = np.zeros(structure, np.int64), np.zeros(structure, np.int64)
        place = self.group[counted], self.bucket[counted]
        np.add.at(lower, place, least[arcs])
        np.add.at(upper, place, most[arcs])
        load = Load(
            count.group, count.groups, count.bucket, count.buckets, np.ones(len(count.group), np.int64)
        )
        return Limit(f"{count.name}, at best", load, lower, upper)
