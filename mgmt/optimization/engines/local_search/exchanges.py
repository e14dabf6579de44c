"""Local search by exchanges: rows change values with each other, move, or take the place of rows left out.

Linear relaxations and CP-SAT say little about peaks over many places with several rows each: the last percent is bin
packing.  Here a place that is above its target gives a row away, or changes it for one of another place, whichever
is best: a sample of exchanges is weighed at once, with numpy, by what each limit and each tier has of it.  An exchange
is never made for less than the tiers before the one that is improved; in that tier it is one that brings the squared
excess of peaks over their targets down, or the sum.  Where none helps, a few at random are made.  Targets lie between
the best peaks seen and the bounds.

The limits are the tier before all others: a choice that breaks some is repaired by the same exchanges.

Where few rows may leave today's values, the right ones must: more exchanges are weighed at a time, by what each is
worth for a row that it makes leave.  When no more may, some go back, and others are tried.

What it is not: it proves nothing, and it gives only choices that are better than the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Assignment,
    Indices,
    Load,
    LoadCost,
    Mask,
    MoveLimit,
    RowCost,
    Skew,
    Tier,
)
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.delta_evaluation.states import CostState, LimitState, LoadState, Numbers, Reals
from mgmt.optimization.engines.model.cost_functions import UnsuitableError
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses
from mgmt.optimization.load_functions import LoadNumber, Positive

_PATIENCE = 20
"""Steps without a smaller excess before some exchanges are made at random."""
_PATIENCE_OF_FEW = 6
"""The same before some rows go back, where few may leave."""
_GIVES_UP = 10_000
"""Steps without a better choice before the search ends."""
_GIVES_UP_PER_CELL = 20
"""The same where there are few cells, class by value: all exchanges have been tried long before."""
_GIVES_UP_PER_CELL_OF_SUMS = 3
_SHAKES = 3
_AIMS_ANEW = 0.1
_NEARLY = 1e-9
_PAIRS = 600
"""Exchanges looked at in one step, at most: with all of them a step takes longer and the search repeats itself."""
_PAIRS_OF_FEW = 20_000
"""The same where few rows may leave today's values."""
_MOST_GIVEN = 60
_GOALS = 4
"""Values of a place that has too little to which rows may come."""
_LEAST_BAD = 20
"""Of so many one is made at random where none helps: what is far off is seldom a way out."""
_ASKED_OF_CONDITIONS = 8
_COMES_BACK = 4
"""What exchanges are worth that make no row leave, beside those that make one leave."""
_RETURNS = 600
"""Steps without a better choice before the search of a sum goes on from near the best one (iterated local search)."""
_LEAVES = 1200
"""So many before it begins anew."""
_KICKS = (10, 30, 60)
"""So many exchanges away from it: near enough to keep what is good, far enough not to come back to it."""


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Rows ``one`` go from ``here`` to ``there``, rows ``other`` the other way; NONE is no row, or no value."""

    one: Numbers
    here: Numbers
    other: Numbers
    there: Numbers

    def only(self, some: Mask | Numbers) -> Exchange:
        return Exchange(self.one[some], self.here[some], self.other[some], self.there[some])


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Per exchange a place, the last of which stands for none, and by how much the load there grows."""

    place: Numbers
    by: Amounts


def _changes(load: LoadState, made: Exchange) -> list[_Change]:
    here, there = load.bucket[made.here], load.bucket[made.there]
    differs = here != there
    one, other = load.weight[made.one], load.weight[made.other]
    if load.groups == 1:
        net = (other - one) * differs
        return [_Change(here, net), _Change(there, -net)]  # NONE is the last
    same = load.group[made.one] == load.group[made.other]
    first = np.where(differs, one - np.where(same, other, 0), 0)
    second = np.where(differs & ~same, other, 0)
    return [
        _Change(load.places(made.one, made.here), -first),
        _Change(load.places(made.one, made.there), first),
        _Change(load.places(made.other, made.there), -second),
        _Change(load.places(made.other, made.here), second),
    ]


@dataclass(slots=True, eq=False)
class _Changes:
    """What exchanges change, load by load, for those that are asked for."""

    loads: dict[Load, LoadState]
    made: Exchange
    known: dict[Load, list[_Change]] = field(default_factory=dict)

    def of(self, load: Load) -> list[_Change]:
        found = self.known.get(load)
        if found is None:
            found = self.known[load] = _changes(self.loads[load], self.made)
        return found


@dataclass(slots=True, eq=False)
class _Limit:
    state: LimitState
    unit: float = field(init=False)
    """The mean weight of a row."""
    _most: int = field(init=False)
    _tight: int = field(init=False)
    """Places that the heaviest row would break."""

    def __post_init__(self) -> None:
        load = self.state.load
        used = load.weight[load.weight > 0]
        self.unit = float(used.mean()) if len(used) else 1.0
        self._most = int(load.weight.max(initial=0))
        self._tight = int((load.total + self._most > self.state.upper).sum())

    def slack(self) -> bool:
        """Whether no single row more or less anywhere can break it."""
        return not self.state.wants and not self._tight

    def broken(self) -> Reals:
        """(places,) by how many rows, about."""
        return self.state.excess(self.state.load.total, slice(None)) / self.unit

    def growth(self, changes: Sequence[_Change]) -> Reals:
        """(n,) by how much more is broken after an exchange."""
        total: Amounts = np.zeros(len(changes[0].by), np.int64)
        for change in changes:
            before = self.state.load.total[change.place]
            total += self.state.excess(before + change.by, change.place)
            total -= self.state.excess(before, change.place)
        return total / self.unit

    def changed(self, place: int, before: int, after: int) -> None:
        free = self.state.upper[place] - self._most
        self._tight += int(after > free) - int(before > free)


@dataclass(slots=True, eq=False)
class _RowCost:
    weight: int
    row_class: Indices
    price: Amounts
    """(classes + 1, V + 1) the last are for no row, and for no value."""
    moved: Amounts
    current: Indices

    @classmethod
    def of(cls, cost: RowCost, current: Indices) -> _RowCost:
        price = np.concatenate((cost.cost, cost.unplaced[:, None]), axis=1)
        price = np.concatenate((price, np.zeros((1, price.shape[1]), np.int64)))
        row_class = np.append(cost.row_class, len(price) - 1).astype(np.int32)
        return cls(cost.weight, row_class, price, np.append(cost.moved, 0), np.append(current, NONE))

    def of_rows(self, row: Numbers, value: Numbers) -> Amounts:
        away = value != self.current[row]
        return np.asarray(
            self.weight * (self.price[self.row_class[row], value] + np.where(away, self.moved[row], 0))
        )

    def growth(self, made: Exchange) -> Amounts:
        one, other, here, there = made.one, made.other, made.here, made.there
        more = self.of_rows(one, there) - self.of_rows(one, here)
        return more + self.of_rows(other, here) - self.of_rows(other, there)


@dataclass(slots=True, eq=False)
class _Tier:
    rows: list[_RowCost]
    sums: list[CostState]
    peaks: list[CostState]
    tops: list[int] = field(init=False)
    """What the peaks were at first."""

    def __post_init__(self) -> None:
        self.tops = [peak.top for peak in self.peaks]


def peaks_of(assignment: Assignment, tier: int) -> list[LoadCost] | None:
    """The peaks a tier consists of; None when there is anything else in it, or a peak that is to be high."""
    costs = [cost for cost in assignment.tiers[tier].costs if cost.weight]
    peaks = [cost for cost in costs if isinstance(cost, LoadCost) and cost.peak and cost.weight > 0]
    return peaks if peaks and len(peaks) == len(costs) else None


def _improvable(assignment: Assignment, tier: int) -> bool:
    """Whether a tier is of peaks alone, or of sums alone, and no peak of one before is to be high."""
    costs = [cost for own in assignment.tiers[: tier + 1] for cost in own.costs if cost.weight]
    if any(isinstance(cost, LoadCost) and cost.peak and cost.weight < 0 for cost in costs):
        return False
    own = assignment.tiers[tier].costs
    return peaks_of(assignment, tier) is not None or not any(
        isinstance(cost, LoadCost) and cost.peak and cost.weight for cost in own
    )


def exchanged(
    classes: EquivalenceClasses,
    choice: Indices,
    tier: int,
    known_bounds: Sequence[int],
    *,
    deadline: Deadline,
    seed: int,
) -> Iterator[Indices]:
    """Better and better choices for a tier, none worse in those before; ends when it finds no more.

    ``known_bounds`` are of each of its peaks.  Nothing comes where costs of single places are not known.
    """
    if not _improvable(classes.assignment, tier):
        return
    try:
        search = Search(classes, choice, tier, known_bounds, deadline, seed)
    except UnsuitableError:
        return
    best = near = search.total()
    idle = idle_near = 0
    is_sum = bool(classes.assignment.tiers[tier].costs) and not known_bounds
    per_cell = _GIVES_UP_PER_CELL_OF_SUMS if is_sum else _GIVES_UP_PER_CELL
    most_idle = min(_GIVES_UP, per_cell * classes.number * classes.assignment.values)
    while not deadline.passed and idle < most_idle:
        search.step()
        idle, idle_near = idle + 1, idle_near + 1
        if search.total() < near:
            near, idle_near = search.total(), 0
            search.aim()
            if near < best:
                best, idle = near, 0
                yield search.choice.copy()
                if search.at_bounds():
                    return
        elif is_sum and idle_near == _LEAVES:
            search.go_to(choice)
            search.aim()
            near, idle_near = search.total(), 0
        elif is_sum and not idle_near % _RETURNS:
            search.start_nearby()


def repaired(classes: EquivalenceClasses, *, deadline: Deadline, seed: int) -> Indices | None:
    """A choice that keeps everything, by exchanges from one that does not; None when it finds none.

    Rows keep today's values where they may, and begin anywhere else.
    """
    assignment = classes.assignment
    allowed = assignment.allowed[assignment.row_class]
    drawn = (np.random.default_rng(seed).random(allowed.shape) * allowed).argmax(axis=1)
    stays = (assignment.current >= 0) & allowed[np.arange(assignment.rows), assignment.current]
    start = np.where(stays, assignment.current, np.where(assignment.required, drawn, NONE)).astype(np.int32)
    if not any(assignment.broken(start)):
        return start
    level = tuple(cost for one in assignment.conditions if isinstance(one, Skew) for cost in _leveling(one))
    plain = replace(classes, assignment=replace(assignment, tiers=(Tier(0, level),)), known={})
    floors = [-int(UNLIMITED)] * len(level)
    for choice in exchanged(plain, start, 0, floors, deadline=deadline, seed=seed):
        if not any(assignment.broken(choice)):
            return choice
    return None


def _leveling(skew: Skew) -> tuple[LoadCost, LoadCost]:
    """Peaks that are the lower the nearer a condition on how uneven a load is comes to being kept."""

    load, asked, counted = LoadNumber(0), skew.above > -UNLIMITED, skew.base < UNLIMITED
    height = Positive(load - skew.excused) * asked * (load + np.where(asked, skew.above, 0))
    depth = -(load + np.where(counted, skew.base, 0)) * counted + np.where(counted, 0, -UNLIMITED // 4)
    return LoadCost(skew.name, 1, (skew.load,), height, True), LoadCost(
        skew.name, 1, (skew.load,), depth, True
    )


class Search:
    """A choice that is being changed, exchange by exchange; after each it breaks no more than before."""

    def __init__(
        self,
        classes: EquivalenceClasses,
        choice: Indices,
        tier: int,
        known_bounds: Sequence[int],
        deadline: Deadline,
        seed: int,
    ) -> None:
        assignment = classes.assignment
        self._chosen = np.append(choice, NONE)
        """(R + 1,) the last stands for no row."""
        self.choice = self._chosen[:-1]
        self._best_choice = choice.copy()
        self._classes, self._assignment = classes, assignment
        self._deadline = deadline
        self._random = np.random.default_rng(seed)
        self._move_limits = [one for one in assignment.conditions if isinstance(one, MoveLimit)]
        limited = np.zeros(assignment.rows, np.bool_)
        for moves in self._move_limits:
            limited |= moves.group >= 0
        self._home = np.append(np.where(limited, assignment.current, NONE), NONE)
        """(R + 1,) today's values of rows of which only so many may leave."""
        conditions = [one for one in assignment.conditions if not isinstance(one, MoveLimit)]
        self._conditions = [one for one in conditions if one.holds(choice, assignment.current)]
        self._not_held = [one for one in conditions if one not in self._conditions]
        self._loads: dict[Load, LoadState] = {}
        self._limits = [_Limit(LimitState.of(limit, self._of(limit.load))) for limit in assignment.limits]
        self._tiers = [self._tier(number) for number in range(tier + 1)]
        self._limits_of: dict[Load, list[_Limit]] = {}
        for limit, own in zip(assignment.limits, self._limits, strict=True):
            self._limits_of.setdefault(limit.load, []).append(own)
        self._costs_of: dict[Load, list[CostState]] = {}
        for cost in (cost for own in self._tiers for cost in (*own.sums, *own.peaks)):
            for load in cost.cost.loads:
                self._costs_of.setdefault(load, []).append(cost)
        self._row_class = np.append(assignment.row_class, len(assignment.allowed)).astype(np.int32)
        allowed = np.concatenate(
            (assignment.allowed, np.zeros((len(assignment.allowed), 1), np.bool_)), axis=1
        )
        self._allowed: Mask = np.concatenate((allowed, np.ones((1, allowed.shape[1]), np.bool_)))
        self._leavable = np.append(~assignment.required, True)
        self._of_row = np.append(classes.of_row, classes.number)
        self._broken = self._how_broken()
        self._rising = not self._broken and all(peak.rising for peak in self._tiers[-1].peaks)
        self._sum = 0
        self._before = [0] * tier
        open_tier = self._tiers[-1]
        weights = [peak.cost.weight for peak in open_tier.peaks]
        self._bounds = np.array(
            [w * floor for w, floor in zip(weights, known_bounds, strict=True)], np.float64
        )
        self._units = np.array([peak.unit() for peak in open_tier.peaks])
        self._targets = self._bounds.copy()
        self._idle, self._least = 0, np.inf
        self._best = self._tops()
        self.retarget()

    def _of(self, load: Load) -> LoadState:
        if load not in self._loads:
            self._loads[load] = LoadState.of(load, slice(None), self.choice)
        return self._loads[load]

    def _tier(self, number: int) -> _Tier:
        costs = [cost for cost in self._assignment.tiers[number].costs if cost.weight]
        current = self._assignment.current
        over_loads = [
            CostState.of(self._classes, cost, [self._of(load) for load in cost.loads], cost.weight)
            for cost in costs
            if isinstance(cost, LoadCost)
        ]
        for cost in over_loads:
            if not cost.local:
                raise UnsuitableError(f"{cost.cost.name} is neither affine nor a table")
        return _Tier(
            [_RowCost.of(cost, current) for cost in costs if isinstance(cost, RowCost)],
            [cost for cost in over_loads if not cost.cost.peak],
            [cost for cost in over_loads if cost.cost.peak],
        )

    # ---- what has been reached --------------------------------------------------------------------------

    def total(self) -> tuple[float, ...]:
        """What is broken, what the tiers before grew by, and what this one has come to; lower is better."""
        broken = self._broken + len(self._not_held)
        return (broken, *self._before, self._sum + float(self._tops().sum()))

    def _how_broken(self) -> float:
        return sum(float(limit.broken().sum()) for limit in self._limits if not limit.slack())

    def at_bounds(self) -> bool:
        return bool(self._tiers[-1].peaks) and bool((self._tops() <= self._bounds).all())

    def aim(self) -> None:
        """What has been reached is the best so far."""
        self._best = self._tops()
        self._best_choice = self.choice.copy()
        self.retarget()

    def go_to(self, choice: Indices) -> None:
        """Have this choice, which was had before."""
        for row in np.flatnonzero(self.choice != choice).tolist():
            self._move(row, int(choice[row]))

    def start_nearby(self) -> None:
        """Go back to the best so far, and on from some exchanges beside it that are not too bad."""
        self.go_to(self._best_choice)
        for _ in range(int(self._random.choice(_KICKS))):
            self._exchange(self._any(), shaking=True)

    def retarget(self) -> None:
        """Aim at a better total: how much each peak may keep of what it is above its floor is drawn anew."""
        self._idle, self._least = 0, np.inf
        if not len(self._best):
            return
        above = np.maximum(self._best - self._bounds, 0)
        if self._move_limits:
            self._targets = self._best - self._random.uniform(0.5, 1.0) * above
            return
        spare = float(above.sum()) - float(self._units.min())
        spare *= self._random.choice((1.0, 1.0, 0.5))
        shares = self._random.dirichlet(np.full(len(above), 0.5))
        keeps = np.floor(shares * max(0.0, spare) / self._units + _NEARLY) * self._units
        self._targets = self._bounds + np.minimum(keeps, above)

    def _tops(self) -> Reals:
        return np.array([peak.top for peak in self._tiers[-1].peaks], np.float64)

    # ---- steps ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One exchange: the best for one of the places that are off, or some at random where nothing helps."""
        loads, excess = self._off()
        total = float(excess.sum())
        criterion = total if self._tiers[-1].peaks else total + self._sum
        if criterion < self._least:
            self._least, self._idle = criterion, 0
        self._idle += 1
        patience = _PATIENCE_OF_FEW if self._move_limits else _PATIENCE
        if self._idle > patience or (not total and self._tiers[-1].peaks):
            self._shake()
            return
        if not total:
            self._exchange(self._any(), shaking=False)
            return
        drawn = int(np.searchsorted(np.cumsum(excess), self._random.random() * total, side="right"))
        place = min(drawn, int(np.flatnonzero(excess)[-1]))
        if self._move_limits and self._idle == 1:
            place = int(np.argmax(excess))
        for each in loads:
            if place < len(each.total):
                self._exchange(self._at(each, place, high=self._rising), shaking=False)
                return
            place -= len(each.total)

    def _off(self) -> tuple[list[LoadState], Reals]:
        """How far places are from where they should be, those of one load after the other: first of all in limits."""
        if self._broken:
            return [limit.state.load for limit in self._limits], np.concatenate(
                [limit.broken() for limit in self._limits]
            )
        peaks = self._tiers[-1].peaks
        excess = [self._excess(number, peak.now) for number, peak in enumerate(peaks)]
        return [peak.loads[0] for peak in peaks], np.concatenate(excess) if excess else np.zeros(0)

    def _excess(self, number: int, heights: Amounts) -> Reals:
        above = np.maximum(heights - self._targets[number], 0)
        return np.asarray(above * above)

    def _shake(self) -> None:
        if self._move_limits:
            self._return_some()
        else:
            for _ in range(_SHAKES):
                self._exchange(self._any(), shaking=True)
        if self._move_limits or self._random.random() < _AIMS_ANEW:
            self.retarget()
        self._idle, self._least = 0, np.inf

    def _return_some(self) -> None:
        """To the best so far, without rows that need not have left today's values, and without some of the others."""
        assignment, home, best = self._assignment, self._home[:-1], self._best_choice
        for row in np.flatnonzero((home != NONE) & (best != home)).tolist():
            if self._deadline.passed:
                break
            changed = best.copy()
            changed[row] = home[row]
            if assignment.worth(changed) <= assignment.worth(best) and not any(assignment.broken(changed)):
                best = changed
        self._best_choice = best
        away = self._random.permutation(np.flatnonzero((home != NONE) & (best != home)))
        some = away[: self._random.integers(1, len(away) // 2 + 2)]
        fewer = best.copy()
        fewer[some] = home[some]
        fewer = best if any(assignment.broken(fewer)) else fewer
        self.go_to(fewer)

    # ---- what may be exchanged --------------------------------------------------------------------------

    def _any(self) -> Exchange:
        """Exchanges with rows of any value, or with those that have none."""
        at = int(
            self._random.integers(-1 if bool((self.choice == NONE).any()) else 0, self._assignment.values)
        )
        return self._pairs(np.flatnonzero(self.choice == at), np.array([at]), np.array([at]))

    def _at(self, loads: LoadState, place: int, *, high: bool) -> Exchange:
        """Exchanges with rows of a place, and moves to it, if it may be off because it has too little."""
        group, bucket = divmod(place, loads.buckets)
        values = np.flatnonzero(loads.bucket[:-1] == bucket)
        inside = loads.bucket[self.choice] == bucket
        gives = np.flatnonzero(inside & (loads.group[:-1] == group))
        return self._pairs(gives, values, values[:0] if high else self._random.permutation(values)[:_GOALS])

    def _pairs(self, gives: Numbers, values: Numbers, goals: Numbers) -> Exchange:
        """Rows at some values, or none for some of these, with rows elsewhere, or none for a value elsewhere."""
        if len(gives) > _MOST_GIVEN:
            gives = self._random.choice(gives, _MOST_GIVEN, replace=False)
        gives = np.concatenate((gives, np.full(len(goals), NONE)))
        here = np.concatenate((self.choice[gives[: len(gives) - len(goals)]], goals))
        inside = np.zeros(self._assignment.values + 1, np.bool_)
        inside[values] = True
        takes = np.flatnonzero(~inside[self.choice])
        others = np.flatnonzero(~inside[:-1])
        if bool(self._leavable[:-1].any()) and not inside[NONE]:
            others = np.append(others, NONE)
        pairs = _PAIRS_OF_FEW if self._move_limits else _PAIRS
        number, most = len(takes) + len(others), max(1, pairs // max(1, len(gives)))
        some = self._random.choice(number, most, replace=False) if number > most else np.arange(number)
        take = np.concatenate((takes, np.full(len(others), NONE)))[some]
        there = np.concatenate((self.choice[takes], others))[some]
        one, at = np.repeat(gives, len(take)), np.repeat(here, len(take))
        made = Exchange(one, at, np.tile(take, len(gives)), np.tile(there, len(gives)))
        good = self._of_row[made.one] != self._of_row[made.other]
        good &= self._may(made.one, made.there) & self._may(made.other, made.here)
        return made.only(good)

    def _may(self, row: Numbers, value: Numbers) -> Mask:
        may = self._allowed[self._row_class[row], value]
        return np.asarray(np.where(value == NONE, self._leavable[row], may))

    # ---- which is made ----------------------------------------------------------------------------------

    def _exchange(self, offered: Exchange, *, shaking: bool) -> None:
        """Make the best of some exchanges, if it is one that helps; when shaking, one that is not too bad."""
        changes = _Changes(self._loads, offered)
        score = self._score(offered, changes)
        if not self._broken:
            if not shaking:
                helps = np.flatnonzero(score <= 0)
                offered, score = offered.only(helps), score[helps]
            offered, score = self._within_limits(offered, score)
            changes = _Changes(self._loads, offered)
        breaks = self._breaks(offered, changes) if self._broken else np.zeros(len(score))
        before: list[Reals | Amounts] = [breaks]
        before += [self._growth(tier, offered, changes) for tier in self._tiers[:-1]]
        worse, better = np.zeros(len(score), np.bool_), np.zeros(len(score), np.bool_)
        for column in before:
            better |= ~worse & (column < -_NEARLY)
            worse |= ~better & (column > _NEARLY)
        some = np.flatnonzero(~worse & self._keeps_moves(offered) & (better | (score <= 0) | shaking))
        if not len(some):
            return
        if shaking:
            few = np.argpartition(score[some], min(_LEAST_BAD, len(some) - 1))[:_LEAST_BAD]
            order = self._random.permutation(some[few])
        elif self._move_limits:
            leaving = self._leaving(offered)[some]
            worth = np.where(leaving > 0, score[some] / np.maximum(leaving, 1), _COMES_BACK * score[some])
            order = some[np.lexsort((worth, *(column[some] for column in before[::-1])))]
        elif self._conditions or bool(better[some].any()):
            order = some[np.lexsort((score[some], *(column[some] for column in before[::-1])))]
        else:
            order = some[[int(np.argmin(score[some]))]]
        best = self._first_kept(offered, order)
        even = best is not None and not better[best] and not score[best]
        if best is None or (even and not shaking and self._random.random() < 0.5):
            return
        self._sum += 0 if self._tiers[-1].peaks else int(score[best])
        for number, column in enumerate(before[1:]):
            self._before[number] += int(column[best])
        self._place(int(offered.one[best]), int(offered.there[best]))
        self._place(int(offered.other[best]), int(offered.here[best]))
        for condition in [one for one in self._not_held if one.holds(self.choice, self._assignment.current)]:
            self._not_held.remove(condition)
            self._conditions.append(condition)
        if self._broken:
            self._broken = self._how_broken()
            self._rising = not self._broken and all(peak.rising for peak in self._tiers[-1].peaks)

    def _within_limits(self, offered: Exchange, score: Reals) -> tuple[Exchange, Reals]:
        """Those that break no limit, where none is broken; each limit is asked of what those before it have left."""
        for limit, of in zip(self._limits, self._assignment.limits, strict=True):
            if not limit.slack():
                growth = limit.growth(_changes(self._loads[of.load], offered))
                kept = np.flatnonzero(growth <= _NEARLY)
                if len(kept) < len(score):
                    offered, score = offered.only(kept), score[kept]
        return offered, score

    def _breaks(self, offered: Exchange, changes: _Changes) -> Reals:
        """(n,) by how much more limits are broken."""
        broken = np.zeros(len(offered.one))
        for limit, of in zip(self._limits, self._assignment.limits, strict=True):
            if not limit.slack():
                broken += limit.growth(changes.of(of.load))
        return broken

    def _growth(self, tier: _Tier, offered: Exchange, changes: _Changes) -> NDArray[np.int64]:
        """(n,) by how much a tier before the open one grows: its sums, and its peaks above what they were."""
        total = np.zeros(len(offered.one), np.int64)
        for row_cost in tier.rows:
            total += row_cost.growth(offered)
        for cost in tier.sums:
            for place, paid in self._after(cost, changes):
                total += paid - cost.now[place]
        for top, peak in zip(tier.tops, tier.peaks, strict=True):
            for _, paid in self._after(peak, changes):
                total += np.maximum(paid - top, 0)
        return total

    def _score(self, offered: Exchange, changes: _Changes) -> Reals:
        """(n,) by how much the open tier grows: its sums, or the excess of its peaks."""
        tier = self._tiers[-1]
        if not tier.peaks:
            return self._growth(tier, offered, changes).astype(np.float64)
        score = np.zeros(len(offered.one))
        for number, peak in enumerate(tier.peaks):
            was = self._excess(number, peak.now)
            for place, paid in self._after(peak, changes):
                score += self._excess(number, paid) - was[place]
        return score

    def _after(self, cost: CostState, changes: _Changes) -> list[tuple[Numbers, Amounts]]:
        """For each place an exchange changes, that and what it pays then."""
        found, none = [], len(cost.now) - 1
        for parts in zip(*(changes.of(load) for load in cost.cost.loads), strict=True):
            place = parts[0].place
            for part in parts[1:]:  # where a row is not in a load, its place there is none
                place = np.where((place < 0) | (place == none), part.place, place)
            loads = [own.total[place] + part.by for own, part in zip(cost.loads, parts, strict=True)]
            found.append((place, cost.at(place, loads)))
        return found

    def _keeps_moves(self, offered: Exchange) -> Mask:
        """(n,) whether no more rows leave today's values than may."""
        good = np.ones(len(offered.one), np.bool_)
        for limit in self._move_limits:
            group = np.append(np.where(self._home[:-1] != NONE, limit.group, NONE), NONE)
            moved = group[:-1][(group[:-1] != NONE) & (self.choice != self._home[:-1])]
            used = np.bincount(moved, minlength=len(limit.upper))
            room = np.append(np.maximum(limit.upper - used, 0), UNLIMITED)
            one, other = group[offered.one], group[offered.other]
            leaves = self._leaves(offered.one, offered.here, offered.there)
            comes = self._leaves(offered.other, offered.there, offered.here)
            same = one == other
            good &= leaves + np.where(same, comes, 0) <= room[one]
            good &= comes + np.where(same, leaves, 0) <= room[other]
        return good

    def _leaving(self, offered: Exchange) -> Amounts:
        """(n,) how many more rows have left today's values after an exchange."""
        leaves = self._leaves(offered.one, offered.here, offered.there)
        return leaves + self._leaves(offered.other, offered.there, offered.here)

    def _leaves(self, row: Numbers, here: Numbers, there: Numbers) -> Amounts:
        """(n,) 1 for a row that leaves today's value, -1 for one that comes back."""
        home = self._home[row]
        return np.where(home == NONE, 0, (there != home).astype(np.int64) - (here != home))

    def _first_kept(self, offered: Exchange, order: Numbers) -> int | None:
        """The first that keeps all conditions."""
        if not self._conditions:
            return int(order[0])
        current = self._assignment.current
        for at in order[:_ASKED_OF_CONDITIONS].tolist():
            changed = self.choice.copy()
            for row, value in ((offered.one[at], offered.there[at]), (offered.other[at], offered.here[at])):
                if row != NONE:
                    changed[row] = value
            if all(condition.holds(changed, current) for condition in self._conditions):
                return int(at)
        return None

    def _move(self, row: int, value: int) -> None:
        """Place a row where it was before; what that costs is counted."""
        here = np.array([self.choice[row]])
        made = Exchange(np.array([row]), here, np.array([NONE]), np.array([value]))
        changes = _Changes(self._loads, made)
        for number, tier in enumerate(self._tiers[:-1]):
            self._before[number] += int(self._growth(tier, made, changes)[0])
        self._sum += int(self._score(made, changes)[0])
        self._place(row, value)

    def _place(self, row: int, value: int) -> None:
        if row == NONE:
            return
        here = int(self.choice[row])
        self.choice[row] = value
        for key, loads in self._loads.items():
            group, weight = int(loads.group[row]), int(loads.weight[row])
            left, reached = int(loads.bucket[here]), int(loads.bucket[value])
            if group == NONE or left == reached:
                continue
            if left >= 0:
                self._add(key, loads, group * loads.buckets + left, -weight)
            if reached >= 0:
                self._add(key, loads, group * loads.buckets + reached, weight)

    def _add(self, key: Load, loads: LoadState, place: int, by: int) -> None:
        before = int(loads.total[place])
        loads.total[place] = before + by
        for limit in self._limits_of.get(key, ()):
            limit.changed(place, before, before + by)
        for cost in self._costs_of.get(key, ()):
            cost.update(np.array([place]))
