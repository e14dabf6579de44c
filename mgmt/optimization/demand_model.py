"""Demands on an assignment as a problem on counts of rows: whether they can hold, and what they must give.

Rows that none of the demands tells apart are one kind with a count, values that none tells apart are one value, so the
fewer demands are looked at, the smaller the model.

What it is not: it does not choose which demands to look at (see ``assignment_clash``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.demands import Demand, Demands, Give
from mgmt.optimization.elastic import least_slack
from mgmt.optimization.engines.ranks import firsts, joint_ranks
from mgmt.optimization.problem import TRUE, Linear, Problem, Row, Tag

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
    """Whether some demands can hold; where they can, with a placement by counts."""

    status: AnswerStatus
    counts: Counts | None = None
    cells: NDArray[np.int64] | None = None
    """(kinds, value kinds): how many rows."""

    @property
    def clashes(self) -> bool | None:
        """None: that was not found out."""
        return None if self.status is AnswerStatus.UNKNOWN else self.status is AnswerStatus.INFEASIBLE


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


def solve(demands: Demands, some: Sequence[Demand], seconds: float) -> Answer:
    """Whether some demands can hold together."""
    model = _model(demands, some, seconds)
    if model is None:
        return Answer(AnswerStatus.UNKNOWN)
    found = CpSatBackend().load(model.problem).minimize(None, {}, model.left, 0, 1)
    if found.values is None:
        return Answer(found.status)
    return Answer(found.status, model.counts, model.cells(found.values))


def solvers_core(
    demands: Demands, some: Sequence[Demand], kinds: Mapping[Demand, Hashable], seconds: float
) -> list[Demand]:
    """Those of some clashing demands that the solver needed to see it, kind by kind; all when time ended first."""
    model = _model(demands, some, seconds, lambda demand: kinds[demand])
    found = () if model is None else CpSatBackend().clashing_rows(model.problem, model.left, 0)
    core = [] if model is None else [demand for tag in found for demand in model.tagged[tag]]
    return core or list(some)


def least_given(
    demands: Demands, some: Sequence[Demand], names: Collection[str], seconds: float, *, whole: bool
) -> tuple[Give, ...] | None:
    """The least that those of some demands that are of these constraints must give for all to hold.

    None as in :func:`mgmt.optimization.elastic.least_slack`, or if it is not known to be the least.
    """

    def given_as(demand: Demand) -> Hashable:
        # One number allows all buckets of a skew so much, so it is the highest of what they need that counts.
        return demand if whole or not demand.is_skew else (demand.constraint, demand.source)

    model = _model(demands, some, seconds, given_as)
    if model is None:
        return None

    def bans(tag: Tag) -> bool:
        return model.tagged[tag][0].is_ban

    slack = least_slack(
        model.problem,
        CpSatBackend(),
        # Of a ban an amount is a number of rows.
        amounts=lambda tag: tag.constraint in names and bans(tag) == whole,
        waivers=lambda tag: tag.constraint in names and whole and not bans(tag),
        seconds=model.left,
        seed=0,
    )
    if slack is None or not slack.least:
        return None
    return tuple(
        Give(demand, rows=model.rows_let_go(demand, slack.values))
        if demand.is_ban
        else Give(demand, give.above, give.below, give.waived)
        for give in slack.gives
        for demand in model.tagged[give.tag]
    )


def _model(
    demands: Demands,
    some: Sequence[Demand],
    seconds: float,
    key: Callable[[Demand], Hashable] = lambda demand: demand,
) -> _Model | None:
    """None where there is no time to build it."""
    if seconds <= 0:
        return None
    deadline = time.monotonic() + seconds
    counts = counts_of(demands, some)
    if counts.cells > max(ALWAYS, CELLS_PER_SECOND * seconds):
        return None
    return _Model(demands, some, counts, key, deadline)


class _Model:
    """The problem; demands of one ``key`` have one tag."""

    def __init__(
        self,
        demands: Demands,
        some: Sequence[Demand],
        counts: Counts,
        key: Callable[[Demand], Hashable],
        deadline: float,
    ) -> None:
        self._demands, self.counts, self._deadline = demands, counts, deadline
        self._kinds, self._values = len(counts.number), len(counts.value_example)
        self.problem = Problem()
        self.tagged: dict[Tag, list[Demand]] = {}
        self._first = self.problem.new_booleans(counts.cells)
        self.problem.upper[self._first :] = np.repeat(counts.number, self._values).tolist()
        for kind, number in enumerate(counts.number.tolist()):
            cells = [self._cell(kind, value) for value in range(self._values)]
            self._require(cells, [1] * len(cells), number, number)
        self._bounds = {
            place: demands.bounds(demands.limits[place])
            for place in sorted({one.source for one in some if one.is_limit})
        }
        self._rows_of: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
        self._values_in: dict[tuple[bool, int, int], list[int]] = {}
        self._index(some)
        self._least = {
            place: self._least_of(place) for place in sorted({one.source for one in some if one.is_skew})
        }
        tags: dict[Hashable, Tag] = {}
        for demand in some:
            tag = tags.setdefault(key(demand), Tag(demand.constraint, len(tags)))
            self.tagged.setdefault(tag, []).append(demand)
            if demand.is_ban:
                cells = self._forbidden(demand)
                self._require(cells, [1] * len(cells), None, 0, tag)
            elif demand.is_skew:
                self._add_skew(demand, tag)
            else:
                lower, upper = self._bounds[demand.source]
                at = (demand.group, demand.bucket)
                self._require(*self._load(demand)[:2], int(lower[at]), int(upper[at]), tag)

    @property
    def left(self) -> float:
        """Seconds."""
        return self._deadline - time.monotonic()

    def cells(self, values: Sequence[int]) -> NDArray[np.int64]:
        """(kinds, value kinds): how many rows."""
        cells = np.array(values[self._first : self._first + self.counts.cells], np.int64)
        return cells.reshape(self._kinds, self._values)

    def rows_let_go(self, ban: Demand, values: Sequence[int]) -> tuple[int, ...]:
        """Rows that have what a ban forbids; those of a kind are alike, so it may be any of them."""
        taken: list[int] = []
        for cell in self._forbidden(ban):
            mine = np.flatnonzero(self.counts.kind_of == (cell - self._first) // self._values).tolist()
            taken.extend([row for row in mine if row not in taken][: values[cell]])
        return tuple(sorted(taken))

    def _cell(self, kind: int, value: int) -> int:
        return self._first + kind * self._values + value

    def _index(self, some: Sequence[Demand]) -> None:
        """Kinds of rows by load and group, with their weight; kinds of values by load and bucket."""
        counts = self.counts
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
        cells = [self._cell(kind, value) for kind, _ in kinds for value in values]
        factors = [weight for _, weight in kinds for _ in values]
        return cells, factors, sum(weight * int(self.counts.number[kind]) for kind, weight in kinds)

    def _forbidden(self, demand: Demand) -> list[int]:
        ban = self._demands.bans[demand.source]
        forbidden = np.flatnonzero(ban.forbidden[demand.group][self.counts.value_example]).tolist()
        kinds = np.flatnonzero(ban.row_class[self.counts.kind_example] == demand.group).tolist()
        return [self._cell(kind, value) for kind in kinds for value in forbidden]

    def _least_of(self, place: int) -> int:
        """A variable that is at most what every bucket of a skew has."""
        skew = self._demands.skews[place]
        base = {bucket: one for bucket, one in enumerate(skew.base.tolist()) if one < UNLIMITED}
        loads = {bucket: self._load(Demand(skew.name, place, -1, bucket)) for bucket in base}
        lowest = min(base.values(), default=0)
        most = min((one + loads[bucket][2] for bucket, one in base.items()), default=lowest)
        least = self.problem.new_variable(lowest, most)
        for bucket, one in base.items():
            cells, factors, _ = loads[bucket]
            self._require([*cells, least], [*factors, -1], -one, None)
        return least

    def _add_skew(self, demand: Demand, tag: Tag) -> None:
        """What the bucket has is no more than the least, or what is excused."""
        skew = self._demands.skews[demand.source]
        above, excused = int(skew.above[demand.bucket]), int(skew.excused[demand.bucket])
        cells, factors, most = self._load(demand)
        lowest = min((one for one in skew.base.tolist() if one < UNLIMITED), default=None)
        if lowest is None or most + above <= lowest or most <= excused:
            return
        when = TRUE
        if excused >= 0:
            free = self.problem.new_literal()
            self._require(cells, factors, None, excused, when=free)
            when = free ^ 1
        self._require([*cells, self._least[demand.source]], [*factors, -1], None, -above, tag, when=when)

    def _require(
        self,
        variables: list[int],
        factors: list[int],
        lower: int | None,
        upper: int | None,
        tag: Tag | None = None,
        *,
        when: int = TRUE,
    ) -> None:
        upper = None if upper is not None and upper >= UNLIMITED else upper
        linear = Linear(0, tuple(variables), tuple(factors))
        self.problem.rows.append(Row(linear, lower, upper, when, tag))
