"""Loads as counts of rows, and convex costs of a count as pieces of arcs: what a network can carry.

A network moves units, so a load must count rows: all that add to it add alike.  Where they do not, an upper or lower
limit is replaced by one on the number of rows that every choice within the limit keeps; the answer is then checked
against the limit itself (a relaxation: what it proves impossible is impossible, what it bounds is bounded).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Indices,
    Limit,
    Load,
    LoadCost,
    Mask,
)
from mgmt.optimization.dense_ranks import firsts, ranks
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.load_functions import tree_of

MOST_SAMPLES = 1 << 24
"""Of a load cost's function, to see whether it is convex."""
_CHUNK = 1 << 20


class NotAFlowError(UnsuitableError):
    """The assignment does not have the structure of a network; the text says where, for people."""


@dataclass(slots=True, eq=False)
class Count:
    """How many rows of a group have a value of a bucket, with all that is demanded of and paid for it."""

    name: str
    group: Indices
    """(R,) NONE where the row adds nothing."""
    groups: int
    bucket: Indices
    """(V,) NONE where the value is in no bucket, or no row may have it."""
    buckets: int
    lower: Amounts
    """Of rows; two dimensions, broadcastable to (groups, buckets)."""
    upper: Amounts
    """As ``lower``; at least -1."""
    costs: list[tuple[int, LoadCost, tuple[int, ...]]] = field(default_factory=list)
    """With the place of its tier, and what a row adds to each of its loads."""
    sizes: Amounts = field(init=False)
    """(groups,) rows."""

    def __post_init__(self) -> None:
        self.sizes = np.bincount(self.group[self.group >= 0], minlength=self.groups).astype(np.int64)

    @property
    def binding(self) -> bool:
        """Whether anything is demanded or paid at all."""
        rows = self.sizes[:, None]
        return bool(self.costs or (self.lower > 0).any() or (self.upper < rows).any())

    @property
    def impossible(self) -> bool:
        """Whether no number of rows will do somewhere, or more are demanded than there are or where no value is."""
        nowhere = np.ones(self.buckets, np.bool_)
        nowhere[self.bucket[self.bucket >= 0]] = False
        lower = np.broadcast_to(self.lower, (self.groups, self.buckets))
        return bool(
            (self.upper < np.maximum(self.lower, 0)).any()
            or (self.lower > self.sizes[:, None]).any()
            or (lower[:, nowhere] > 0).any()
        )

    @property
    def single(self) -> bool:
        """Whether no bucket has two values."""
        used = self.bucket[self.bucket >= 0]
        return len(np.unique(used)) == len(used)


def counts_of(
    limits: Sequence[Limit], costs: Sequence[tuple[int, LoadCost]], usable: Mask
) -> tuple[list[Count], bool]:
    """The loads of limits and costs, each once, and whether the counts say all that the limits say.

    Raises NotAFlowError for a cost that is not a sum of functions of one count.
    """
    found: list[Count] = []
    exact = True
    for limit in limits:
        count = _same(found, limit.name, limit.load, usable)
        lower, upper, alike = _counted(limit)
        count.lower = np.maximum(count.lower, lower)
        count.upper = np.minimum(count.upper, upper)
        exact = exact and alike
    for tier, cost in costs:
        if cost.peak:
            raise NotAFlowError(f"{cost.name} is a peak, not a sum")
        count = _same(found, cost.name, cost.loads[0], usable)
        weights = []
        for load in cost.loads:
            if _same(found, cost.name, load, usable) is not count:
                raise NotAFlowError(f"{cost.name} is a function of two different loads")
            weights.append(_weight_of(load, cost.name))
        count.costs.append((tier, cost, tuple(weights)))
    return [count for count in found if count.binding], exact


def _same(found: list[Count], name: str, load: Load, usable: Mask) -> Count:
    """The count of this load: one that is there already, or a new one."""
    group = np.where(load.weight > 0, load.group, NONE).astype(np.int32)
    bucket = np.where(usable, load.bucket, NONE).astype(np.int32)
    for count in found:
        alike = (count.groups, count.buckets) == (load.groups, load.buckets)
        if alike and np.array_equal(count.group, group) and np.array_equal(count.bucket, bucket):
            return count
    none, all_of_them = np.zeros((1, 1), np.int64), np.full((1, 1), UNLIMITED)
    found.append(Count(name, group, load.groups, bucket, load.buckets, none, all_of_them))
    return found[-1]


def _weight_of(load: Load, name: str) -> int:
    weights = load.weight[(load.group >= 0) & (load.weight > 0)]
    if not len(weights):
        return 1
    if int(weights.min()) != int(weights.max()):
        raise NotAFlowError(f"{name} sums amounts that differ from row to row")
    return int(weights[0])


def _counted(limit: Limit) -> tuple[Amounts, Amounts, bool]:
    """Lower and upper limit as numbers of rows, and whether they say the same as the limit.

    Left as small as they come: a limit per segment and host has few values and millions of places.
    """
    load = limit.load
    lower, upper = np.atleast_2d(limit.lower), np.atleast_2d(limit.upper)
    counted = (load.group >= 0) & (load.weight > 0)
    weight, group = load.weight[counted], load.group[counted]
    total = np.zeros(load.groups, np.int64)
    np.add.at(total, group, weight)
    free = (upper >= total[:, None]) & (lower <= 0)
    if len(weight) and int(weight.min()) == int(weight.max()):
        one = weight[0]
        return -(-lower // one), np.maximum(upper // one, -1), True
    least, most = np.full(load.groups, UNLIMITED), np.ones(load.groups, np.int64)
    np.minimum.at(least, group, weight)
    np.maximum.at(most, group, weight)
    fewest, largest = -(-lower // most[:, None]), upper // least[:, None]
    if load.groups == 1 and len(weight):
        # The smallest rows together say how many there can be; the largest, how many there must be.
        rising = np.sort(weight)
        largest = np.minimum(largest, np.searchsorted(np.cumsum(rising), upper, side="right"))
        needed = np.searchsorted(np.cumsum(rising[::-1]), lower, side="left") + 1
        fewest = np.where(lower > 0, np.maximum(fewest, needed), fewest)
    largest = np.where(upper < 0, -1, np.where(free, UNLIMITED, largest))
    return fewest, largest.astype(np.int64), bool(free.all())


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What one row more costs: ``marginal[t, n, b]`` from n to n + 1 rows in bucket b, for the first few n.

    Beyond them the last one stands for all others, which cost at least as much.
    """

    marginal: Amounts
    """(tiers, n, groups * buckets)."""
    known: Amounts
    """(groups * buckets,) how many of them are told apart in a place: some more than it can have at least cost."""
    empty: Amounts
    """(tiers,) what all the buckets cost with no row in any."""


def steps_of(count: Count, tiers: int, largest: int, rows: int) -> Steps:
    """Sample a count's costs from 0 to ``largest`` rows; keep ``rows`` steps more than where a place is cheapest.

    Raises NotAFlowError if one of them is not convex.
    """
    cells = (count.groups, count.buckets)
    empty = np.zeros(tiers, np.int64)
    lowest = np.zeros(cells, np.int64)
    # Buckets of one sort cost alike, so one of each is asked.
    sampled = []
    for tier, whole, weights in count.costs:
        cost, sort = _of_sorts(whole)
        found = _sampled(cost, weights, largest)
        sampled.append((tier, cost, sort, weights, found))
        empty[tier] += np.broadcast_to(_spread(found.nothing, sort), cells).sum()
        np.maximum(lowest, _spread(found.least, sort), out=lowest)
    if tiers * math.prod(cells) * int(lowest.max(initial=0)) > MOST_SAMPLES:
        lowest[:] = 0
    known = np.clip(rows + lowest, 1, max(1, largest)).reshape(-1)
    kept = int(known.max(initial=1))
    marginal = np.zeros((tiers, kept, *cells), np.int64)
    for tier, cost, sort, weights, found in sampled:
        few = min(kept, largest)
        rises = found.rises
        if rises is None:
            rises = np.diff(_ask(cost, weights, np.arange(few + 1)), axis=0)
        marginal[tier, : len(rises[:few])] += _spread(rises[:few], sort)
    return Steps(marginal.reshape(tiers, kept, -1), known, empty)


def _of_sorts(cost: LoadCost) -> tuple[LoadCost, Amounts]:
    """A cost over one bucket of each sort, and (buckets,) of which of these each bucket is."""
    buckets = cost.loads[0].buckets
    sort, number = ranks(tree_of(cost).sorts(buckets))
    if number == buckets:
        return cost, np.arange(buckets)
    example = firsts(sort, number).astype(np.int32)
    return replace(cost, cost=tree_of(cost).of_buckets(example, buckets)), sort


def _spread(told: Amounts, sort: Amounts) -> Amounts:
    """What was told of one bucket of each sort, of all buckets; of none in particular where it is one for all."""
    return told if told.shape[-1] == 1 else np.asarray(told[..., sort])


@dataclass(frozen=True, slots=True, eq=False)
class _Sampled:
    """What a cost is like at every number of rows, place by place."""

    nothing: Amounts
    """What it is with no rows."""
    least: Amounts
    """With how many it is least; 0: with all."""
    rises: Amounts | None
    """What each row more costs, where all numbers were few enough to be asked at once."""


def _sampled(cost: LoadCost, weights: tuple[int, ...], largest: int) -> _Sampled:
    """Ask a cost for each number of rows up to ``largest``.

    Raises NotAFlowError if it is not convex.
    """
    # Loads are the same for all places, so a function that knows no place answers once for all of them.
    nothing = _ask(cost, weights, np.arange(1))[0]
    places = nothing.shape
    if (largest + 1) * math.prod(places) > MOST_SAMPLES:
        raise NotAFlowError(f"{cost.name} has too many loads to see whether it is convex")
    step = max(2, _CHUNK // max(math.prod(places), 1))
    last, least, rises = np.full((1, *places), -UNLIMITED), np.zeros(places, np.int64), None
    for start in range(0, largest + 1, step):
        # From the last load of the chunk before on.
        values = _ask(cost, weights, np.arange(max(start - 1, 0), min(start + step, largest + 1)))
        rises = np.diff(values, axis=0)
        if bool((np.diff(rises, axis=0, prepend=last) < 0).any()):
            raise NotAFlowError(f"{cost.name} is not convex")
        if len(rises):
            last = rises[-1:]
            least += (rises < 0).sum(axis=0)
    return _Sampled(nothing, np.where(last[0] < 0, 0, least), rises if largest < step else None)


def _ask(cost: LoadCost, weights: tuple[int, ...], numbers: Amounts) -> Amounts:
    """What so many rows cost, weight included: (n, groups or 1, buckets or 1)."""
    loads = tuple((numbers * weight)[:, None, None] for weight in weights)
    costs = np.asarray(cost.cost(loads), np.int64)
    costs = np.broadcast_to(costs, np.broadcast_shapes(costs.shape, (len(numbers), 1, 1)))
    if bool((np.abs(costs) > UNLIMITED // max(abs(cost.weight), 1)).any()):
        raise NotAFlowError(f"{cost.name} costs more than 62 bits can say")
    return cost.weight * costs
