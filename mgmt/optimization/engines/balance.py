"""Balance: exchanges of rows between values that bring down the peaks of loads.

Linear relaxations and CP-SAT say little about peaks over many values with several rows each: the last percent is bin
packing.  Here a value that is above the target gives a row away, or changes it for one of another value, whichever
brings the squared excess over all values down most; a sample of the exchanges is weighed at once, with numpy, and only
of those that help it is asked whether they keep the limits.  Where none helps, a few at random are made.  Targets lie
between the best peaks seen and the bounds.

What it is not: it proves nothing.  Each choice it gives keeps the limits, and it gives only better ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Amounts, Assignment, Indices, LoadCost, Mask
from mgmt.optimization.engines.cells import bounds_of
from mgmt.optimization.engines.kinds import Kinds
from mgmt.optimization.engines.ledger import one_place
from mgmt.optimization.engines.load_costs import Affine, UnsuitableError, widest_shape

Reals = NDArray[np.float64]
Numbers = NDArray[np.intp]

_MOST_CELLS = 1_000_000
_PATIENCE = 20
"""Steps without a smaller excess before some exchanges are made at random."""
_GIVES_UP = 4_000
"""Steps without a better choice before the search ends."""
_GIVES_UP_PER_CELL = 20
"""The same where there are few cells, kind by value: all exchanges have been tried long before."""
_SHAKES = 3
_AIMS_ANEW = 0.1
_NEARLY = 1e-9
_PAIRS = 600
"""Exchanges looked at in one step, at most: with all of them a step takes longer and the search repeats itself."""
_LEAST_BAD = 20
"""Of so many one is made at random where none helps: what is far off is seldom a way out."""


@dataclass(slots=True, eq=False)
class _Limit:
    lower: Amounts
    upper: Amounts
    load: Amounts
    bucket: Indices
    group: Indices
    """(K + 1,) the last one is for no row."""
    weight: Amounts
    lowest: bool = field(init=False)
    """Whether there is a lower limit at all."""
    _most: int = field(init=False)
    _tight: int = field(init=False)
    """Places that the heaviest row would break."""

    def __post_init__(self) -> None:
        self.lowest = bool((self.lower > 0).any())
        self._most = int(self.weight.max(initial=0))
        self._tight = int((self.load + self._most > self.upper).sum())

    def slack(self) -> bool:
        """Whether no single row more or less anywhere can break it."""
        return not self.lowest and not self._tight

    def add(self, kind: int, value: int, rows: int) -> None:
        """So many rows of a kind more (or less) at a value."""
        group, bucket = self.group[kind], self.bucket[value]
        if group == NONE or bucket < 0:
            return
        before = self.load[group, bucket]
        after = before + rows * self.weight[kind]
        self.load[group, bucket] = after
        free = self.upper[group, bucket] - self._most
        self._tight += int(after > free) - int(before > free)

    def keep(self, give: Numbers, take: Numbers, at: int, there: Numbers) -> Mask:
        """(n,) whether rows of kinds ``give`` at a value may change with ``take`` at others."""
        return self._one_way(give, take, at, there) & self._one_way(take, give, there, at)

    def _one_way(self, leaves: Numbers, comes: Numbers, here: Numbers | int, there: Numbers | int) -> Mask:
        """Whether ``leaves`` can go from here to there when ``comes`` goes the other way."""
        group, weight = self.group[leaves], self.weight[leaves]
        back = np.where(self.group[comes] == group, self.weight[comes], 0)
        bucket_here, bucket_there = self.bucket[here], self.bucket[there]
        same = bucket_here == bucket_there
        good = (group == NONE) | same | (bucket_there < 0)
        good = good | (self.load[group, bucket_there] + weight - back <= self.upper[group, bucket_there])
        if self.lowest:
            stays = (group == NONE) | same | (bucket_here < 0)
            good = good & (
                stays | (self.load[group, bucket_here] - weight + back >= self.lower[group, bucket_here])
            )
        return np.asarray(good)


def peaks_of(assignment: Assignment, tier: int) -> list[LoadCost] | None:
    """The peaks a tier consists of; None when there is anything else in it."""
    peaks = [cost for cost in assignment.tiers[tier].costs if cost.weight]
    if not peaks or any(not isinstance(cost, LoadCost) or not cost.peak or cost.weight < 0 for cost in peaks):
        return None
    return [cost for cost in peaks if isinstance(cost, LoadCost)]


def balanced(
    kinds: Kinds, choice: Indices, tier: int, floors: list[int], *, deadline: float, seed: int
) -> Iterator[Indices]:
    """Better and better choices for a tier of peaks, from one that keeps the limits; ends when it finds no more.

    ``floors`` bound each peak.  Nothing comes where the peaks are not of single values and affine.
    """
    peaks = peaks_of(kinds.assignment, tier)
    if peaks is None or kinds.number * kinds.assignment.values > _MOST_CELLS:
        return
    try:
        search = Search(kinds, choice, peaks, floors, seed)
    except UnsuitableError:
        return
    best, idle = search.total(), 0
    most_idle = min(_GIVES_UP, _GIVES_UP_PER_CELL * kinds.number * kinds.assignment.values)
    while time.monotonic() < deadline and idle < most_idle:
        search.step()
        idle += 1
        if search.total() < best:
            best, idle = search.total(), 0
            search.aim()
            yield search.choice()
            if search.at_floors():
                return


class Search:
    """A choice that is being changed, exchange by exchange; after each it keeps the limits."""

    def __init__(
        self, kinds: Kinds, choice: Indices, peaks: list[LoadCost], floors: list[int], seed: int
    ) -> None:
        self._kinds = kinds
        self._random = np.random.default_rng(seed)
        values, number = kinds.assignment.values, kinds.number
        self._counts = np.zeros((number, values), np.int64)
        placed = choice >= 0
        np.add.at(self._counts, (kinds.of_row[placed], choice[placed]), 1)
        self._unplaced = kinds.count - self._counts.sum(axis=1)
        self._allowed = np.ones((number + 1, values), np.bool_)
        self._allowed[:number] = kinds.assignment.allowed[kinds.assignment.row_class[kinds.row]]
        self._adds = np.stack([peak.weight * _adds(kinds, peak) for peak in peaks])
        """(peaks, K + 1, V) what a row of a kind adds to the height of a value, by the weight of the peak."""
        self._resting = np.array([peak.weight * _resting(kinds, peak) for peak in peaks])
        self._heights = np.stack([peak.weight * _heights(kinds, peak, choice) for peak in peaks])
        self._floors = np.array(
            [peak.weight * floor for peak, floor in zip(peaks, floors, strict=True)], np.float64
        )
        self._limits = list(_limits(kinds, self._counts))
        self._targets = self._floors.copy()
        self._idle = 0
        self._least = np.inf
        self._units = np.array([_unit(adds) for adds in self._adds])
        self._best = self._tops()
        self.retarget()

    def aim(self) -> None:
        """What has been reached is the best so far."""
        self._best = self._tops()
        self.retarget()

    def total(self) -> float:
        return float(self._tops().sum())

    def at_floors(self) -> bool:
        return bool((self._tops() <= self._floors).all())

    def choice(self) -> Indices:
        kind, value = np.nonzero(self._counts)
        unplaced = np.flatnonzero(self._unplaced)
        return self._kinds.spread(
            np.concatenate((kind, unplaced)).astype(np.int32),
            np.concatenate((value, np.full(len(unplaced), NONE))).astype(np.int32),
            np.concatenate((self._counts[kind, value], self._unplaced[unplaced])),
        )

    def retarget(self) -> None:
        """Aim at a better total: how much each peak may keep of what it is above its floor is drawn anew."""
        above = np.maximum(self._best - self._floors, 0)
        spare = float(above.sum()) - float(self._units.min())
        spare *= self._random.choice((1.0, 1.0, 0.5))
        shares = self._random.dirichlet(np.full(len(above), 0.5))
        keeps = np.floor(shares * max(0.0, spare) / self._units + _NEARLY) * self._units
        self._targets = self._floors + np.minimum(keeps, above)
        self._idle, self._least = 0, np.inf

    def step(self) -> None:
        """One exchange: the best for one of the highest values, or some at random where nothing helps."""
        excess = self._excess(self._heights)
        total = float(excess.sum())
        if total < self._least:
            self._least, self._idle = total, 0
        self._idle += 1
        if self._idle > _PATIENCE or not total:
            self._shake()
            return
        drawn = np.searchsorted(np.cumsum(excess), self._random.random() * total, side="right")
        self._exchange(min(int(drawn), int(np.flatnonzero(excess)[-1])), shaking=False)

    def _shake(self) -> None:
        for _ in range(_SHAKES):
            self._exchange(int(self._random.integers(self._kinds.assignment.values)), shaking=True)
        if self._random.random() < _AIMS_ANEW:
            self.retarget()
        self._idle, self._least = 0, np.inf

    def _exchange(self, at: int, *, shaking: bool) -> None:
        """Change a row of a value for one of another, or give it away."""
        give, take, there = self._pairs(at)
        change = self._change(give, take, at, there)
        if not shaking:
            helps = np.flatnonzero(change <= 0)
            give, take, there, change = give[helps], take[helps], there[helps], change[helps]
        keeps = np.flatnonzero(self._keep(give, take, at, there))
        if not len(keeps):
            return
        change = change[keeps]
        if shaking:
            few = np.argpartition(change, min(_LEAST_BAD, len(change) - 1))[:_LEAST_BAD]
            best = int(self._random.choice(few))
        else:
            best = int(np.argmin(change))
            if change[best] == 0 and self._random.random() < 0.5:
                return
        one = keeps[best]
        self._make(int(give[one]), at, int(take[one]), int(there[one]))

    def _pairs(self, at: int) -> tuple[Numbers, Numbers, Numbers]:
        """A kind that a value has, one that another has (or none), and that other value, by what is allowed."""
        gives = np.flatnonzero(self._counts[:, at])
        takes, other = np.nonzero(self._counts)
        values = np.arange(self._kinds.assignment.values)
        takes = np.concatenate((takes, np.full(len(values), self._kinds.number)))
        other = np.concatenate((other, values))
        most = max(1, _PAIRS // max(1, len(gives)))
        if len(takes) > most:
            some = self._random.choice(len(takes), most, replace=False)
            takes, other = takes[some], other[some]
        good = self._allowed[gives[:, None], other[None, :]]
        good &= (self._allowed[takes, at] & (other != at))[None, :]
        good &= gives[:, None] != takes[None, :]
        rows, columns = np.nonzero(good)
        return gives[rows], takes[columns], other[columns]

    def _change(self, give: Numbers, take: Numbers, at: int, there: Numbers) -> Reals:
        """(n,) by how much the excess grows with an exchange."""
        here, other = self._heights[:, at, None], self._heights[:, there]
        here_after = here - self._adds[:, give, at] + self._adds[:, take, at]
        other_after = other + self._adds[:, give, there] - self._adds[:, take, there]
        after = self._excess(here_after) + self._excess(other_after)
        return np.asarray(after - self._excess(other) - self._excess(here))

    def _keep(self, give: Numbers, take: Numbers, at: int, there: Numbers) -> Mask:
        """(n,) whether all limits are kept."""
        good = np.ones(len(give), np.bool_)
        for limit in self._limits:
            if not limit.slack():
                good &= limit.keep(give, take, at, there)
        return good

    def _make(self, give: int, at: int, take: int, there: int) -> None:
        for kind, source, goal in ((give, at, there), (take, there, at)):
            if kind == self._kinds.number:
                continue
            self._counts[kind, source] -= 1
            self._counts[kind, goal] += 1
            self._heights[:, source] -= self._adds[:, kind, source]
            self._heights[:, goal] += self._adds[:, kind, goal]
            for limit in self._limits:
                limit.add(kind, source, -1)
                limit.add(kind, goal, +1)

    def _tops(self) -> Reals:
        return np.asarray(np.maximum(self._heights.max(axis=1), self._resting))

    def _excess(self, heights: Reals) -> Reals:
        """(n,) from (peaks, n)."""
        above = np.maximum(heights - self._targets[:, None], 0)
        return np.asarray((above * above).sum(axis=0))


def _unit(adds: Reals) -> float:
    """What all heights change in steps of."""
    return float(np.gcd.reduce(np.abs(adds).astype(np.int64), axis=None)) or 1.0


def _affine(kinds: Kinds, peak: LoadCost) -> Affine:
    """Raises UnsuitableError when the peak is not affine over the loads of single values."""
    shape = widest_shape(kinds, peak)
    used = peak.loads[0].bucket[peak.loads[0].bucket >= 0]
    single = len(np.unique(used)) == len(used) and peak.loads[0].groups == 1
    if not isinstance(shape, Affine) or not single or one_place(kinds, peak.loads) is None:
        raise UnsuitableError(f"{peak.name} is not linear in the loads of single values")
    return shape


def _adds(kinds: Kinds, peak: LoadCost) -> Reals:
    """(K + 1, V); the last is for no row."""
    shape = _affine(kinds, peak)
    bucket = peak.loads[0].bucket
    adds = np.zeros((kinds.number + 1, kinds.assignment.values))
    for load, reach, slope in zip(peak.loads, shape.reaches, shape.slopes, strict=True):
        weight = np.where(kinds.group(load) != NONE, kinds.weight(load), 0) // reach.step
        adds[:-1] += weight[:, None] * np.where(bucket >= 0, slope[0][bucket], 0)[None, :]
    return adds


def _resting(kinds: Kinds, peak: LoadCost) -> float:
    """The highest of the buckets that no value is in."""
    shape = _affine(kinds, peak)
    bucket = peak.loads[0].bucket
    rest = np.delete(shape.constant[0], bucket[bucket >= 0])
    return float(rest.max()) if len(rest) else -np.inf


def _heights(kinds: Kinds, peak: LoadCost, choice: Indices) -> Reals:
    """(V,) what each value comes to; far below everything where it has no bucket."""
    loads = tuple(load.of(choice) for load in peak.loads)
    costs = np.broadcast_to(peak.cost(loads), loads[0].shape)[0].astype(np.float64)
    bucket = peak.loads[0].bucket
    return np.asarray(np.where(bucket >= 0, costs[bucket], -(2.0**60)))


def _limits(kinds: Kinds, counts: Amounts) -> Iterator[_Limit]:
    kind, value = np.nonzero(counts)
    for limit in kinds.assignment.limits:
        lower, upper = bounds_of(limit)
        group = np.append(kinds.group(limit.load), NONE).astype(np.int32)
        weight = np.where(group != NONE, np.append(kinds.weight(limit.load), 0), 0)
        load = np.zeros(lower.shape, np.int64)
        counted = (group[kind] != NONE) & (limit.load.bucket[value] >= 0)
        place = group[kind[counted]], limit.load.bucket[value[counted]]
        np.add.at(load, place, weight[kind[counted]] * counts[kind[counted], value[counted]])
        yield _Limit(lower, upper, load, limit.load.bucket, group, weight)
