"""Whether some demands can hold together: a CP-SAT model on counts of rows, not on rows.

Rows that none of the demands tells apart are one kind with a count, values that none tells apart are one value, so the
fewer demands are looked at, the smaller the model.

What it is not: it does not choose which demands to look at (see ``assignment_clash``).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED
from mgmt.optimization.demands import Demand, Demands, Give
from mgmt.optimization.engines.model.distinct import firsts, joint_ranks

MOST_CELLS = 2_000_000
"""Kinds times values; beyond that the model is not built."""
CELLS_PER_SECOND = 200_000
"""What can be built and read by the solver; neither can be stopped in the middle."""
ALWAYS = 10_000
"""So few cells are never too many."""


class TooLargeError(Exception):
    """The model would have too many cells."""


@dataclass(slots=True)
class Answer:
    status: str  # "feasible", "infeasible" or "unknown"
    core: list[Demand] = field(default_factory=list)
    gives: list[Give] = field(default_factory=list)
    counts: Counts | None = None
    cells: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """(kinds, value kinds): how many rows, if feasible."""


@dataclass(slots=True)
class Counts:
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

    @property
    def cells(self) -> int:
        return len(self.number) * len(self.value_example)


def counts_of(demands: Demands, some: Sequence[Demand]) -> Counts:
    rows = [np.zeros(demands.rows, np.int64)]
    values = [np.zeros(demands.values, np.int64)]
    for place in sorted({demand.source for demand in some if demand.is_limit}):
        load = demands.limits[place].load
        mine = [demand for demand in some if demand.is_limit and demand.source == place]
        groups = np.isin(load.group, np.unique([demand.group for demand in mine]))
        rows.append(np.where(groups, load.group.astype(np.int64), -1))
        rows.append(np.where(groups, load.weight, 0))
        buckets = np.isin(load.bucket, np.unique([demand.bucket for demand in mine]))
        values.append(np.where(buckets, load.bucket.astype(np.int64), -1))
    for place in sorted({demand.source for demand in some if demand.is_skew}):
        load = demands.skews[place].load  # any bucket may be the least, so all are told apart
        rows.append(np.where(load.group >= 0, load.weight, 0))
        values.append(load.bucket.astype(np.int64))
    for place in sorted({demand.source for demand in some if demand.is_ban}):
        ban = demands.bans[place]
        kinds = np.unique([demand.group for demand in some if demand.is_ban and demand.source == place])
        inside = np.isin(ban.row_class, kinds)
        rows.append(np.where(inside, ban.row_class, -1))
        patterns = np.unique(ban.forbidden[kinds, :-1], axis=1, return_inverse=True)[1]
        values.append(patterns.reshape(-1))
    row_example, kind_of, number = distinct(rows)
    value_example, value_of, _ = distinct(values)
    if demands.nullable:
        value_example = np.append(value_example, demands.values)
    if len(row_example) * len(value_example) > MOST_CELLS:
        raise TooLargeError(f"{len(row_example)} kinds of rows and {len(value_example)} of values")
    return Counts(number, kind_of, row_example, value_example, value_of)


def distinct(
    columns: Sequence[NDArray[Any]],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """An example of each distinct row of these columns, which one each row is, and how many there are."""
    of_row, number = joint_ranks(columns, len(columns[0]))
    return firsts(of_row, number), of_row, np.bincount(of_row, minlength=number)


def solve(
    demands: Demands,
    some: Sequence[Demand],
    seconds: float,
    *,
    kinds: Mapping[Demand, Hashable] | None = None,
    loose: set[Demand] | frozenset[Demand] = frozenset(),
    whole: bool = False,
    changed: Mapping[Demand, Give] | None = None,
) -> Answer:
    """Whether some demands can hold together; with ``loose`` what those must give.

    With ``kinds`` which of them cannot, kind by kind: those of one kind are needed together or not at all.
    """
    if seconds <= 0:
        return Answer("unknown")
    deadline = time.monotonic() + seconds
    counts = counts_of(demands, some)
    if counts.cells > max(ALWAYS, CELLS_PER_SECOND * seconds):
        return Answer("unknown")
    model = _Model(demands, some, counts)
    for demand in some:
        kind = None if kinds is None else kinds[demand]
        model.add(demand, kind, loose=demand in loose, whole=whole, give=(changed or {}).get(demand))
    return model.answer(deadline - time.monotonic())


class _Model:
    """One CP-SAT model; it is written through its proto with lists, which costs a fraction of the calls."""

    def __init__(self, demands: Demands, some: Sequence[Demand], counts: Counts) -> None:
        from ortools.sat.python import cp_model

        self._cp_model = cp_model
        self._model = cp_model.CpModel()
        self._proto: Any = self._model.proto
        self._demands = demands
        self._counts = counts
        self._kinds, self._values = len(counts.number), len(counts.value_example)
        self._assumed: dict[int, list[Demand]] = {}
        self._literal: dict[Hashable, int] = {}
        self._slack: list[tuple[Demand, str, int]] = []
        self._raised: dict[int, int] = {}
        add = self._proto.variables.add
        for number in counts.number.tolist():
            for _ in range(self._values):
                add().domain.extend([0, number])
        for kind, number in enumerate(counts.number.tolist()):
            first = kind * self._values
            self._linear(list(range(first, first + self._values)), [1] * self._values, number, number)
        self._bounds = {
            place: demands.bounds(demands.limits[place])
            for place in sorted({one.source for one in some if one.is_limit})
        }
        self._rows_of: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        self._values_in: dict[tuple[bool, int, int], list[int]] = {}
        self._index(some)
        self._least = {
            place: self._least_of(place) for place in sorted({one.source for one in some if one.is_skew})
        }

    def _index(self, some: Sequence[Demand]) -> None:
        """Kinds of rows by load and group, with their weight; kinds of values by load and bucket."""
        counts = self._counts
        real = counts.value_example[counts.value_example < self._demands.values]
        loads = {(one.is_skew, one.source): self._demands.load(one) for one in some if not one.is_ban}
        for place, load in loads.items():
            for kind, row in enumerate(counts.kind_example.tolist()):
                if load.group[row] >= 0 and load.weight[row] > 0:
                    key = (*place, int(load.group[row]))
                    self._rows_of.setdefault(key, []).append((kind, int(load.weight[row])))
            for number, value in enumerate(real.tolist()):
                self._values_in.setdefault((*place, int(load.bucket[value])), []).append(number)

    def _load(self, demand: Demand) -> tuple[list[int], list[int], int]:
        """The cells that a demand adds up, what each brings, and the most that can come of it."""
        place = (demand.is_skew, demand.source)
        kinds = self._rows_of.get((*place, max(demand.group, 0)), ())
        values = self._values_in.get((*place, demand.bucket), ())
        cells = [kind * self._values + value for kind, _ in kinds for value in values]
        factors = [weight for _, weight in kinds for _ in values]
        return cells, factors, sum(weight * int(self._counts.number[kind]) for kind, weight in kinds)

    def _least_of(self, place: int) -> int:
        """A variable that is at most what every bucket of a skew has."""
        skew = self._demands.skews[place]
        base = {bucket: one for bucket, one in enumerate(skew.base.tolist()) if one < UNLIMITED}
        loads = {bucket: self._load(Demand(skew.name, place, -1, bucket)) for bucket in base}
        lowest = min(base.values(), default=0)
        least = self._new(
            lowest, min((one + loads[bucket][2] for bucket, one in base.items()), default=lowest)
        )
        for bucket, one in base.items():
            cells, factors, most = loads[bucket]
            self._linear([*cells, least], [*factors, -1], -one, most - lowest)
        return least

    def add(
        self, demand: Demand, kind: Hashable | None, *, loose: bool, whole: bool, give: Give | None
    ) -> None:
        """``kind``: of the demands that are assumed together; None: it is not assumed but holds."""
        enforcement: list[int] = []
        if kind is not None:
            if kind not in self._literal:
                self._literal[kind] = self._new(0, 1)
            literal = self._literal[kind]
            self._assumed.setdefault(literal, []).append(demand)
            enforcement = [literal]
        elif loose and whole and not demand.is_ban:
            waived = self._new(0, 1)
            self._slack.append((demand, "waived", waived))
            enforcement = [-waived - 1]
        if demand.is_ban:
            self._add_ban(demand, enforcement, loose)
        elif demand.is_skew:
            self._add_skew(demand, enforcement, loose and not whole, give)
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
        lower, upper = self._bounds[demand.source]
        low = int(lower[demand.group, demand.bucket]) - (give.below if give is not None else 0)
        high = int(upper[demand.group, demand.bucket]) + (give.above if give is not None else 0)
        cells, factors, most = self._load(demand)
        if slack and high < most:
            cells.append(self._new(0, most - high))
            factors.append(-1)
            self._slack.append((demand, "above", cells[-1]))
        if slack and low > 0:
            cells.append(self._new(0, low))
            factors.append(1)
            self._slack.append((demand, "below", cells[-1]))
        self._linear(cells, factors, low, min(high, most + max(0, low)), enforcement)

    def _add_skew(self, demand: Demand, enforcement: list[int], slack: bool, give: Give | None) -> None:
        """What the bucket has is no more than the least, or what is excused."""
        skew = self._demands.skews[demand.source]
        above, excused = int(skew.above[demand.bucket]), int(skew.excused[demand.bucket])
        cells, factors, most = self._load(demand)
        lowest = min((one for one in skew.base.tolist() if one < UNLIMITED), default=None)
        if lowest is None or most + above <= lowest or most <= excused:
            return
        if excused >= 0:
            free = self._new(0, 1)
            self._linear(cells, factors, 0, excused, [*enforcement, free])
            enforcement = [*enforcement, -free - 1]
        cells, factors = [*cells, self._least[demand.source]], [*factors, -1]
        if slack:
            # One number allows all buckets so much, so it is the highest of what they need that counts.
            if demand.source not in self._raised:
                self._raised[demand.source] = self._new(0, most + int(skew.above.max()) - lowest)
            cells.append(self._raised[demand.source])
            factors.append(-1)
            self._slack.append((demand, "above", cells[-1]))
        allowed = (give.above if give is not None else 0) - above
        self._linear(cells, factors, -(2**62), allowed, enforcement)

    def answer(self, seconds: float) -> Answer:
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
            times: dict[int, int] = {}
            for _, what, variable in self._slack:
                # A row where several bans forbid it is let go by each; the number of a skew is one for its buckets.
                times[variable] = times.get(variable, 0) + 1 if what == "rows" else 1
            self._proto.objective.vars.extend(list(times))
            self._proto.objective.coeffs.extend(list(times.values()))
        status = solver.solve(self._model)
        if status == self._cp_model.INFEASIBLE:
            found = set(solver.sufficient_assumptions_for_infeasibility()) if self._assumed else set()
            core = [
                demand for literal, assumed in self._assumed.items() if literal in found for demand in assumed
            ]
            return Answer("infeasible", core)
        if status == self._cp_model.OPTIMAL or (status == self._cp_model.FEASIBLE and not self._slack):
            values = list(solver.response_proto.solution)
            cells = np.array(values[: self._kinds * self._values], np.int64)
            return Answer(
                "feasible",
                gives=self._gives(values),
                counts=self._counts,
                cells=cells.reshape(self._kinds, self._values),
            )
        return Answer("unknown")

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
