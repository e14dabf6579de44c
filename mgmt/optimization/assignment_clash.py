"""Why an assignment is impossible, and by how much: on counts of rows, not on rows.

What each constraint demands is cut into *demands*: what one group may put into one bucket, or what one class of rows
may not choose.  Rows that no demand at hand tells apart are one kind with a count, values that none tells apart are
one value, so the fewer demands are looked at, the smaller the model.  Few are looked at: to begin with the bans, then
what a placement under those breaks, and so on, until there is no placement, or one that breaks nothing.

What it is not: it knows neither SQL nor policies, and it does not place anything (see ``engines``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Amounts, Limit, Mask

MOST_CELLS = 2_000_000
"""Kinds times values; beyond that the model is not built."""
_MOST_TO_DROP_SINGLY = 60
_MOST_WEIGHTS = 200
"""So many of a group's weights are looked at as "of this weight or more"."""


@dataclass(frozen=True, slots=True, eq=False)
class Ban:
    """What one constraint forbids rows of a class to choose; class -1 is not in it."""

    name: str
    row_class: NDArray[np.intp]
    """(R,)"""
    forbidden: Mask
    """(K, V + 1); the last value is to have none."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One bucket of one group of a limit, or one class of a ban."""

    constraint: str
    source: int
    """Place of the limit among the limits, or of the ban among the bans."""
    group: int
    """Group of the limit, or class of the ban."""
    bucket: int
    """Bucket of the limit; -1 for a ban."""

    @property
    def is_ban(self) -> bool:
        return self.bucket < 0


@dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """R rows choosing among V values under demands that may be dropped; ``nullable`` rows may have none."""

    rows: int
    values: int
    nullable: bool
    limits: tuple[Limit, ...]
    bans: tuple[Ban, ...]

    def all_bans(self) -> list[Demand]:
        """Every class of every ban that forbids anything."""
        return [
            Demand(ban.name, place, int(kind), -1)
            for place, ban in enumerate(self.bans)
            for kind in np.unique(ban.row_class[ban.row_class >= 0])
            if bool(ban.forbidden[kind].any())
        ]

    def bounds(self, limit: Limit) -> tuple[Amounts, Amounts]:
        """Both of the shape (groups, buckets)."""
        shape = (limit.load.groups, limit.load.buckets)
        return np.broadcast_to(limit.lower, shape), np.broadcast_to(limit.upper, shape)


@dataclass(frozen=True, slots=True)
class Give:
    """What one demand must give: above its upper bound, below its lower one, or all of it.

    Of a ban only ``rows`` are let go.
    """

    demand: Demand
    above: int = 0
    below: int = 0
    waived: bool = False
    rows: tuple[int, ...] = ()


@dataclass(slots=True)
class _Answer:
    status: str  # "feasible", "infeasible" or "unknown"
    core: list[Demand] = field(default_factory=list)
    gives: list[Give] = field(default_factory=list)
    counts: _Counts | None = None
    cells: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """(kinds, value kinds): how many rows, if feasible."""


@dataclass(frozen=True, slots=True)
class Clashing:
    """Demands that cannot hold together.  ``minimal``: without any one of them the others can."""

    demands: tuple[Demand, ...]
    minimal: bool


class TooLargeError(Exception):
    """The model would have too many cells."""


def find_clash(demands: Demands, *, seconds: float) -> Clashing | None:
    """A minimal set of demands that clash; None when they do not.

    TooLargeError when there are too many kinds of rows and values to look at, TimeoutError when time ended first.
    """
    deadline = time.monotonic() + seconds
    core, minimal = _fits_nowhere(demands) or _too_much_in_all(demands), True
    if not core:
        grown = _grow(demands, [], deadline)
        if grown is None:
            return None
        core = _solvers_core(demands, grown, deadline)
    names = list(dict.fromkeys(demand.constraint for demand in core))
    for name in list(names) if len(names) > 1 else ():
        # Not only the demands at hand: without this constraint others of the rest may clash.
        try:
            fewer = _grow(demands, [], deadline, only=frozenset(names) - {name})
        except TimeoutError:
            minimal = False
            continue
        if fewer is not None:
            core = _solvers_core(demands, fewer, deadline)
            names = [other for other in names if other != name]
    if len(core) > _MOST_TO_DROP_SINGLY:
        return Clashing(tuple(core), minimal and _all_needed(demands, core))
    for demand in list(core):
        if demand not in core:
            continue
        fewer = [other for other in core if other != demand]
        found = _solve(demands, fewer, deadline - time.monotonic())
        if found.status == "infeasible":
            core = fewer
        minimal = minimal and found.status != "unknown"
    return Clashing(tuple(core), minimal)


def least_gives(
    demands: Demands, constraints: frozenset[str], core: Sequence[Demand], *, whole: bool, seconds: float
) -> tuple[Give, ...] | None:
    """The least that demands of these constraints must give for all to hold: amounts, or with ``whole`` demands waived.

    Found among the demands of the core first; what then still clashes is added, until nothing does.  The least for some
    of the demands is a bound for all of them, so what is found is the least.  None if that does not help, or in time.
    """
    deadline = time.monotonic() + seconds
    known = list(core)
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        loose = {
            demand
            for demand in known
            if demand.constraint in constraints and not (demand.is_ban and not whole)
        }
        answer = _solve(demands, known, left, loose=loose, whole=whole)
        if answer.status != "feasible":
            return None
        gives = {give.demand: give for give in answer.gives}
        try:
            grown = _grow(_without_rows(demands, answer.gives), known, deadline, gives)
        except TimeoutError:
            return None
        if grown is None:
            return tuple(answer.gives)
        if set(grown) <= set(known):
            return None
        known = grown


def _without_rows(demands: Demands, gives: Sequence[Give]) -> Demands:
    """The bans without the rows that are let go."""
    bans = list(demands.bans)
    for give in gives:
        if give.rows:
            ban = bans[give.demand.source]
            row_class = ban.row_class.copy()
            row_class[list(give.rows)] = -1
            bans[give.demand.source] = replace(ban, row_class=row_class)
    return replace(demands, bans=tuple(bans))


def shortfall(demands: Demands, some: Sequence[Demand], wanted: Sequence[Demand]) -> tuple[int, int] | None:
    """What rows must put into the buckets of ``wanted`` at least, given ``some``, and what those allow.

    None when it is not too much, or cannot be added up.
    """
    if not wanted or any(demand.is_ban for demand in wanted):
        return None
    places = {demand.source for demand in wanted}
    if len(places) != 1:
        return None
    limit = demands.limits[places.pop()]
    _, upper = demands.bounds(limit)
    allowed = sum(int(upper[demand.group, demand.bucket]) for demand in wanted)
    if allowed >= UNLIMITED:
        return None
    choice = np.ones((demands.rows, demands.values + 1), np.bool_)
    choice[:, -1] = demands.nullable
    for demand in some:
        if demand.is_ban:
            ban = demands.bans[demand.source]
            choice[ban.row_class == demand.group] &= ~ban.forbidden[demand.group]
    inside = np.zeros((limit.load.groups, demands.values + 1), np.bool_)
    for demand in wanted:
        inside[demand.group, :-1] |= limit.load.bucket == demand.bucket
    counted = np.flatnonzero(limit.load.group >= 0)
    must = ~(choice[counted] & ~inside[limit.load.group[counted]]).any(axis=1)
    needed = int(limit.load.weight[counted[must]].sum())
    return (needed, allowed) if needed > allowed else None


# ---- few demands of many --------------------------------------------------------------------------------


def _fits_nowhere(demands: Demands) -> list[Demand]:
    """What keeps one row from every value, bans and too little room, without a solver; empty if nothing does."""
    columns = [np.zeros(demands.rows, np.int64)]
    for limit in demands.limits:
        columns.extend((limit.load.group.astype(np.int64), limit.load.weight))
    columns.extend(ban.row_class.astype(np.int64) for ban in demands.bans)
    examples, _, _ = _distinct(columns)
    if not demands.rows or len(examples) * (demands.values + 1) > MOST_CELLS:
        return []
    for row in examples.tolist():
        blocked = np.zeros(demands.values + 1, np.bool_)
        blocked[-1] = not demands.nullable
        core: list[Demand] = []
        for place, ban in enumerate(demands.bans):
            if ban.row_class[row] >= 0:
                forbidden = ban.forbidden[ban.row_class[row]]
                if bool((forbidden & ~blocked).any()):
                    core.append(Demand(ban.name, place, int(ban.row_class[row]), -1))
                    blocked |= forbidden
        for place, limit in enumerate(demands.limits):
            group, weight = int(limit.load.group[row]), int(limit.load.weight[row])
            if group < 0 or not weight:
                continue
            full = np.flatnonzero(demands.bounds(limit)[1][group] < weight)
            inside = np.isin(limit.load.bucket, full) & ~blocked[:-1]
            core.extend(
                Demand(limit.name, place, group, int(bucket))
                for bucket in np.unique(limit.load.bucket[inside])
            )
            blocked[:-1] |= inside
        if bool(blocked.all()):
            return core
    return []


def _too_much_in_all(demands: Demands) -> list[Demand]:
    """The bounds of all buckets of one group that together take less than its rows bring; empty if there are none.

    Less in amount, or fewer rows: of those of some weight or more, each bucket takes only as many as fit.
    """
    if demands.nullable:
        return []
    for place, limit in enumerate(demands.limits):
        buckets = np.unique(limit.load.bucket)
        if not len(buckets) or buckets[0] < 0:
            continue  # some value is in no bucket and takes everything
        upper = demands.bounds(limit)[1][:, buckets]
        counted = limit.load.group >= 0
        brought = np.zeros(limit.load.groups, np.float64)
        np.add.at(brought, limit.load.group[counted], limit.load.weight[counted])
        # In floating point only to see where it is worth an exact sum.
        short = brought * (1 + 1e-9) > upper.sum(axis=1, dtype=np.float64)
        crowded = np.bincount(limit.load.group[counted], minlength=limit.load.groups) > len(buckets)
        for group in np.flatnonzero(short | crowded).tolist():
            weights = limit.load.weight[limit.load.group == group]
            total = sum(weights.tolist())
            if total > sum(upper[group].tolist()) or _too_many(weights, upper[group]):
                return [Demand(limit.name, place, group, int(bucket)) for bucket in buckets.tolist()]
    return []


def _too_many(weights: Amounts, upper: Amounts) -> bool:
    """Whether there are more rows of some weight or more than buckets can take of these, each the lightest of them."""
    ordered = np.sort(weights[weights > 0])
    if float(ordered.sum(dtype=np.float64)) >= float(UNLIMITED):
        return False
    for start in np.unique(ordered, return_index=True)[1][:_MOST_WEIGHTS].tolist():
        filled = np.cumsum(ordered[start:])
        if int(np.searchsorted(filled, upper, side="right").sum()) < len(filled):
            return True
    return False


def _all_needed(demands: Demands, core: Sequence[Demand]) -> bool:
    """Whether without any one of many demands the others hold: they bound what the buckets of one group take.

    A bucket without its bound takes all rows, so all of them must be there.
    """
    if len({(demand.source, demand.group, demand.is_ban) for demand in core}) != 1 or core[0].is_ban:
        return False
    limit = demands.limits[core[0].source]
    return not bool((demands.bounds(limit)[0][core[0].group] > 0).any())


def _solvers_core(demands: Demands, some: list[Demand], deadline: float) -> list[Demand]:
    """Those of some clashing demands that the solver needed to see it; all of them when time ended first."""
    return _solve(demands, some, deadline - time.monotonic(), assume=True).core or some


def _grow(
    demands: Demands,
    known: Sequence[Demand],
    deadline: float,
    gives: Mapping[Demand, Give] | None = None,
    only: frozenset[str] | None = None,
) -> list[Demand] | None:
    """Demands that clash, these and what a placement under them breaks; None when there is one that breaks nothing.

    ``gives`` are taken as given; with ``only``, these constraints are all there is.  TimeoutError when it was not found
    out in time.
    """
    gives = gives or {}
    some = list(
        dict.fromkeys([*known, *(d for d in demands.all_bans() if only is None or d.constraint in only)])
    )
    while True:
        seconds = deadline - time.monotonic()
        asked = [demand for demand in some if not (demand in gives and gives[demand].waived)]
        answer = _solve(demands, asked, seconds, changed=gives)
        if answer.status == "infeasible":
            return some
        if answer.status != "feasible" or seconds <= 0:
            raise TimeoutError
        have = set(some)
        broken = [
            demand
            for demand in _broken(demands, _spread(demands, answer), gives)
            if demand not in have and (only is None or demand.constraint in only)
        ]
        if not broken:
            return None
        some.extend(broken)


def _broken(demands: Demands, loads: Sequence[Amounts], gives: Mapping[Demand, Give]) -> list[Demand]:
    found = []
    for place, (limit, load) in enumerate(zip(demands.limits, loads, strict=True)):
        lower, upper = demands.bounds(limit)
        wrong = np.argwhere((load < lower) | (load > upper))
        for group, bucket in wrong.tolist():
            demand = Demand(limit.name, place, group, bucket)
            give = gives.get(demand)
            if give is not None:
                low, high = int(lower[group, bucket]) - give.below, int(upper[group, bucket]) + give.above
                if give.waived or low <= int(load[group, bucket]) <= high:
                    continue
            found.append(demand)
    return found


def _spread(demands: Demands, answer: _Answer) -> list[Amounts]:
    """The loads under a placement by counts: among values that are alike, rows go where there is most room."""
    counts = answer.counts
    assert counts is not None
    loads = [np.zeros((limit.load.groups, limit.load.buckets), np.int64) for limit in demands.limits]
    uppers = [demands.bounds(limit)[1] for limit in demands.limits]
    for kind, cells in enumerate(answer.cells.tolist()):
        rows = iter(np.flatnonzero(counts.kind_of == kind).tolist())
        for place, number in enumerate(cells):
            if counts.value_example[place] >= demands.values:
                for _ in range(number):
                    next(rows)
                continue
            alike = np.flatnonzero(counts.value_of == place)
            for _ in range(number):
                _put(demands, next(rows), alike, loads, uppers)
    return loads


def _put(
    demands: Demands, row: int, alike: NDArray[np.intp], loads: Sequence[Amounts], uppers: Sequence[Amounts]
) -> None:
    """Add a row to the loads, at the value with the most room for it."""
    room = np.full(len(alike), int(UNLIMITED), np.int64)
    for limit, load, upper in zip(demands.limits, loads, uppers, strict=True):
        group = int(limit.load.group[row])
        if group >= 0 and limit.load.weight[row] > 0 and len(alike) > 1:
            buckets = limit.load.bucket[alike]
            left = (upper[group] - load[group])[np.maximum(buckets, 0)] // limit.load.weight[row]
            room = np.minimum(room, np.where(buckets >= 0, left, UNLIMITED))
    value = int(alike[int(room.argmax())])
    for limit, load in zip(demands.limits, loads, strict=True):
        group, bucket = int(limit.load.group[row]), int(limit.load.bucket[value])
        if group >= 0 and bucket >= 0:
            load[group, bucket] += limit.load.weight[row]


# ---- the model ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Counts:
    """Kinds of rows and kinds of values, as far as some demands tell them apart."""

    number: NDArray[np.int64]
    """(kinds,) rows of each kind."""
    kind_of: NDArray[np.intp]
    """(R,)"""
    kind_example: NDArray[np.intp]
    value_example: NDArray[np.intp]
    """(value kinds,) the last is to have no value, if that may be."""
    value_of: NDArray[np.intp]
    """(V,)"""


def _counts(demands: Demands, some: Sequence[Demand]) -> _Counts:
    rows = [np.zeros(demands.rows, np.int64)]
    values = [np.zeros(demands.values, np.int64)]
    for place in sorted({demand.source for demand in some if not demand.is_ban}):
        load = demands.limits[place].load
        mine = [demand for demand in some if not demand.is_ban and demand.source == place]
        groups = np.isin(load.group, np.unique([demand.group for demand in mine]))
        rows.append(np.where(groups, load.group.astype(np.int64), -1))
        rows.append(np.where(groups, load.weight, 0))
        buckets = np.isin(load.bucket, np.unique([demand.bucket for demand in mine]))
        values.append(np.where(buckets, load.bucket.astype(np.int64), -1))
    for place in sorted({demand.source for demand in some if demand.is_ban}):
        ban = demands.bans[place]
        kinds = np.unique([demand.group for demand in some if demand.is_ban and demand.source == place])
        inside = np.isin(ban.row_class, kinds)
        rows.append(np.where(inside, ban.row_class, -1))
        patterns = np.unique(ban.forbidden[kinds, :-1], axis=1, return_inverse=True)[1]
        values.append(patterns.reshape(-1))
    row_example, kind_of, number = _distinct(rows)
    value_example, value_of, _ = _distinct(values)
    if demands.nullable:
        value_example = np.append(value_example, demands.values)
    if len(row_example) * len(value_example) > MOST_CELLS:
        raise TooLargeError(f"{len(row_example)} kinds of rows and {len(value_example)} of values")
    return _Counts(number, kind_of, row_example, value_example, value_of)


def _distinct(
    columns: Sequence[NDArray[Any]],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """An example of each distinct row of these columns, which one each row is, and how many there are."""
    table = np.stack(columns, axis=1)
    _, example, inverse, number = np.unique(
        table, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return example, inverse.reshape(-1), number.astype(np.int64)


def _solve(
    demands: Demands,
    some: Sequence[Demand],
    seconds: float,
    *,
    assume: bool = False,
    loose: set[Demand] | frozenset[Demand] = frozenset(),
    whole: bool = False,
    changed: Mapping[Demand, Give] | None = None,
) -> _Answer:
    """Whether some demands can hold together; with ``assume`` which cannot, with ``loose`` what those must give."""
    if seconds <= 0:
        return _Answer("unknown")
    model = _Model(demands, some)
    for demand in some:
        model.add(demand, assume=assume, loose=demand in loose, whole=whole, give=(changed or {}).get(demand))
    return model.answer(seconds)


class _Model:
    """One CP-SAT model; it is written through its proto with lists, which costs a fraction of the calls."""

    def __init__(self, demands: Demands, some: Sequence[Demand]) -> None:
        from ortools.sat.python import cp_model

        self._cp_model = cp_model
        self._model = cp_model.CpModel()
        self._proto: Any = self._model.proto
        self._demands = demands
        self._counts = counts = _counts(demands, some)
        self._kinds, self._values = len(counts.number), len(counts.value_example)
        self._assumed: dict[int, Demand] = {}
        self._slack: list[tuple[Demand, str, int]] = []
        add = self._proto.variables.add
        for number in counts.number.tolist():
            for _ in range(self._values):
                add().domain.extend([0, number])
        for kind, number in enumerate(counts.number.tolist()):
            first = kind * self._values
            self._linear(list(range(first, first + self._values)), [1] * self._values, number, number)
        self._rows_of: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._values_in: dict[tuple[int, int], list[int]] = {}
        self._index(some)

    def _index(self, some: Sequence[Demand]) -> None:
        """Kinds of rows by limit and group, with their weight; kinds of values by limit and bucket."""
        counts = self._counts
        real = counts.value_example[counts.value_example < self._demands.values]
        for place in {demand.source for demand in some if not demand.is_ban}:
            load = self._demands.limits[place].load
            for kind, row in enumerate(counts.kind_example.tolist()):
                if load.group[row] >= 0 and load.weight[row] > 0:
                    key = (place, int(load.group[row]))
                    self._rows_of.setdefault(key, []).append((kind, int(load.weight[row])))
            for number, value in enumerate(real.tolist()):
                self._values_in.setdefault((place, int(load.bucket[value])), []).append(number)

    def add(self, demand: Demand, *, assume: bool, loose: bool, whole: bool, give: Give | None) -> None:
        enforcement: list[int] = []
        if assume:
            literal = self._new(0, 1)
            self._assumed[literal] = demand
            enforcement = [literal]
        elif loose and whole and not demand.is_ban:
            waived = self._new(0, 1)
            self._slack.append((demand, "waived", waived))
            enforcement = [-waived - 1]
        if demand.is_ban:
            self._add_ban(demand, enforcement, loose)
        else:
            self._add_limit(demand, enforcement, loose and not whole, give)

    def _add_ban(self, demand: Demand, enforcement: list[int], loose: bool) -> None:
        ban = self._demands.bans[demand.source]
        forbidden = np.flatnonzero(ban.forbidden[demand.group][self._counts.value_example]).tolist()
        kinds = np.flatnonzero(ban.row_class[self._counts.kind_example] == demand.group).tolist()
        cells = [kind * self._values + value for kind in kinds for value in forbidden]
        if loose:
            # One for each row that is let go.
            self._slack.extend((demand, "rows", cell) for cell in cells)
        elif cells:
            self._linear(cells, [1] * len(cells), 0, 0, enforcement)

    def _add_limit(self, demand: Demand, enforcement: list[int], slack: bool, give: Give | None) -> None:
        limit = self._demands.limits[demand.source]
        lower, upper = self._demands.bounds(limit)
        low = int(lower[demand.group, demand.bucket]) - (give.below if give is not None else 0)
        high = int(upper[demand.group, demand.bucket]) + (give.above if give is not None else 0)
        cells, factors = [], []
        values = self._values_in.get((demand.source, demand.bucket), ())
        for kind, weight in self._rows_of.get((demand.source, demand.group), ()):
            for value in values:
                cells.append(kind * self._values + value)
                factors.append(weight)
        most = sum(
            weight * int(self._counts.number[kind])
            for kind, weight in self._rows_of.get((demand.source, demand.group), ())
        )
        if slack and high < most:
            cells.append(self._new(0, most - high))
            factors.append(-1)
            self._slack.append((demand, "above", cells[-1]))
        if slack and low > 0:
            cells.append(self._new(0, low))
            factors.append(1)
            self._slack.append((demand, "below", cells[-1]))
        self._linear(cells, factors, low, min(high, most + max(0, low)), enforcement)

    def answer(self, seconds: float) -> _Answer:
        solver = self._cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.01, seconds)
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        if self._assumed:
            # Assumptions and presolve do not go together: feasible models end unknown with it.
            self._proto.assumptions.extend(list(self._assumed))
            solver.parameters.cp_model_presolve = False
            solver.parameters.linearization_level = 2
        if self._slack:
            self._proto.objective.vars.extend([variable for _, _, variable in self._slack])
            self._proto.objective.coeffs.extend([1] * len(self._slack))
        status = solver.solve(self._model)
        if status == self._cp_model.INFEASIBLE:
            found = set(solver.sufficient_assumptions_for_infeasibility()) if self._assumed else set()
            return _Answer(
                "infeasible", [demand for literal, demand in self._assumed.items() if literal in found]
            )
        if status == self._cp_model.OPTIMAL or (status == self._cp_model.FEASIBLE and not self._slack):
            values = list(solver.response_proto.solution)
            cells = np.array(values[: self._kinds * self._values], np.int64)
            return _Answer(
                "feasible",
                gives=self._gives(values),
                counts=self._counts,
                cells=cells.reshape(self._kinds, self._values),
            )
        return _Answer("unknown")

    def _gives(self, values: Sequence[int]) -> list[Give]:
        amounts: dict[Demand, dict[str, int]] = {}
        rows: dict[Demand, list[int]] = {}
        for demand, what, variable in self._slack:
            if not values[variable]:
                continue
            amounts.setdefault(demand, {})[what] = int(values[variable])
            if what == "rows":
                # Rows of a kind are alike, so it may be any of them; those taken already are others.
                mine = np.flatnonzero(self._counts.kind_of == variable // self._values).tolist()
                taken = rows.setdefault(demand, [])
                taken.extend([row for row in mine if row not in taken][: int(values[variable])])
        return [
            Give(
                demand,
                what.get("above", 0),
                what.get("below", 0),
                bool(what.get("waived")),
                tuple(sorted(rows.get(demand, ()))),
            )
            for demand, what in amounts.items()
        ]

    def _new(self, low: int, high: int) -> int:
        self._proto.variables.add().domain.extend([low, high])
        return len(self._proto.variables) - 1

    def _linear(
        self, variables: list[int], factors: list[int], low: int, high: int, enforcement: Sequence[int] = ()
    ) -> None:
        constraint = self._proto.constraints.add()
        if low > high:
            constraint.bool_or.literals.extend([])  # nothing satisfies it
        else:
            constraint.linear.vars.extend(variables)
            constraint.linear.coeffs.extend(factors)
            constraint.linear.domain.extend([low, high])
        constraint.enforcement_literal.extend(list(enforcement))
