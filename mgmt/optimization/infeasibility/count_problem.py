"""Constraints on an assignment as a problem on counts of rows: whether they can hold, and what they must give.

Rows that no instance at hand tells apart are one kind with a count, values that none tells apart are one value, so the
fewer instances are looked at, the smaller the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Mask
from mgmt.optimization.backends import AnswerStatus
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.columns import TRUE, Linear, Linears, integers
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.dense_ranks import alike_rows, firsts, joint_ranks
from mgmt.optimization.infeasibility.constraint_instances import ConstraintSet, Give, Instance
from mgmt.optimization.infeasibility.elastic import least_slack
from mgmt.optimization.problem import NO_BOUND, LinearRows, Problem, Source, Tag

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
    """Whether some instances can hold; where they can, with a placement by counts."""

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
    """Kinds of rows and kinds of values, as far as some instances tell them apart."""

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


def counts_of(constraints: ConstraintSet, some: Sequence[Instance]) -> Counts:
    rows = [constraints.row_class.astype(np.int64)]
    values = [value_patterns(constraints.allowed)]
    for place in sorted({instance.source for instance in some if instance.is_limit}):
        load = constraints.limits[place].load
        mine = [instance for instance in some if instance.is_limit and instance.source == place]
        groups = np.isin(load.group, np.unique([instance.group for instance in mine]))
        rows.append(np.where(groups, load.group.astype(np.int64), -1))
        rows.append(np.where(groups, load.weight, 0))
        buckets = np.isin(load.bucket, np.unique([instance.bucket for instance in mine]))
        values.append(np.where(buckets, load.bucket.astype(np.int64), -1))
    for place in sorted({instance.source for instance in some if instance.is_skew}):
        load = constraints.skews[place].load  # any bucket may be the least, so all are told apart
        rows.append(np.where(load.group >= 0, load.weight, 0))
        values.append(load.bucket.astype(np.int64))
    for place in sorted({instance.source for instance in some if instance.is_ban}):
        ban = constraints.bans[place]
        kinds = np.unique(
            [instance.group for instance in some if instance.is_ban and instance.source == place]
        )
        inside = np.isin(ban.row_class, kinds)
        rows.append(np.where(inside, ban.row_class, -1))
        values.append(value_patterns(ban.forbidden[kinds]))
    row_example, kind_of, number = distinct(rows)
    value_example, value_of, _ = distinct(values)
    if constraints.allowed[:, -1].any():
        value_example = np.append(value_example, constraints.values)
    if len(row_example) * len(value_example) > MOST_CELLS:
        raise TooLargeError(f"{len(row_example)} kinds of rows and {len(value_example)} of values")
    return Counts(number, kind_of, row_example, value_example, value_of)


def value_patterns(table: Mask) -> NDArray[np.int64]:
    """(V,) the same number for values that a (K, V + 1) table of values and none does not tell apart."""
    return alike_rows(table[:, :-1].T)[0]


def distinct(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """An example of each distinct row of these columns, which one each row is, and how many there are."""
    of_row, number = joint_ranks(columns, len(columns[0]))
    return firsts(of_row, number), of_row, np.bincount(of_row, minlength=number)


def solve(constraints: ConstraintSet, some: Sequence[Instance], deadline: Deadline) -> Answer:
    """Whether some instances can hold together."""
    model = _model(constraints, some, deadline)
    if model is None:
        return Answer(AnswerStatus.UNKNOWN)
    found = CpSatBackend().load(model.problem).minimize(None, {}, deadline.left, 0, 1)
    if found.values is None:
        return Answer(found.status)
    return Answer(found.status, model.counts, model.cells(found.values))


def solvers_core(
    constraints: ConstraintSet,
    some: Sequence[Instance],
    kinds: Mapping[Instance, Hashable],
    deadline: Deadline,
) -> list[Instance]:
    """Those of some clashing instances that the solver needed to see it, kind by kind; all when time ended first."""
    model = _model(constraints, some, deadline, lambda instance: kinds[instance])
    found = () if model is None else CpSatBackend().clashing_rows(model.problem, deadline.left, 0)
    core = [] if model is None else [instance for tag in found for instance in model.tagged[tag]]
    if model is None or not core or solve(constraints, core, deadline).counts is not None:
        return list(some)  # also where the solver's core is none
    return core


def least_given(
    constraints: ConstraintSet,
    some: Sequence[Instance],
    names: Collection[str],
    deadline: Deadline,
    *,
    whole: bool,
) -> tuple[Give, ...] | None:
    """The least that those of some instances that are of these constraints must give for all to hold.

    None as in :func:`mgmt.optimization.infeasibility.elastic.least_slack`, or if it is not known to be the least.
    """

    def given_as(instance: Instance) -> Hashable:
        # One number allows all buckets of a skew so much, so it is the highest of what they need that counts.
        return instance if whole or not instance.is_skew else (instance.constraint, instance.source)

    model = _model(constraints, some, deadline, given_as)
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
        deadline=deadline,
        seed=0,
    )
    if slack is None or not slack.least:
        return None
    return tuple(
        Give(instance, rows=model.rows_let_go(instance, slack.values))
        if instance.is_ban
        else Give(instance, give.above, give.below, give.waived)
        for give in slack.gives
        for instance in model.tagged[give.tag]
    )


def _model(
    constraints: ConstraintSet,
    some: Sequence[Instance],
    deadline: Deadline,
    key: Callable[[Instance], Hashable] = lambda instance: instance,
) -> _Model | None:
    """None where there is no time to build it."""
    if deadline.passed:
        return None
    counts = counts_of(constraints, some)
    if counts.cells > max(ALWAYS, CELLS_PER_SECOND * deadline.left):
        return None
    try:
        return _Model(constraints, some, counts, key, deadline)
    except TimeoutError:
        return None


class _Model:
    """The problem; instances of one ``key`` have one tag."""

    def __init__(
        self,
        constraints: ConstraintSet,
        some: Sequence[Instance],
        counts: Counts,
        key: Callable[[Instance], Hashable],
        deadline: Deadline,
    ) -> None:
        self._constraints, self.counts = constraints, counts
        self._kinds, self._values = len(counts.number), len(counts.value_example)
        self.problem = Problem()
        self.tagged: dict[Tag, list[Instance]] = {}
        allowed = constraints.allowed[constraints.row_class[counts.kind_example]][:, counts.value_example]
        most = np.where(allowed, counts.number[:, None], 0).ravel()
        self._first = self.problem.variables
        self.problem.new_variables(np.zeros(len(most), np.int64), most)
        self._rows: dict[str | None, list[tuple[Linear, int, int, int, int]]] = {}
        """By constraint: linear expression, bounds, the literal it holds by, and the row of the constraint."""
        for kind, number in enumerate(counts.number.tolist()):
            deadline.check()
            cells = [self._cell(kind, value) for value in range(self._values)]
            self._require(cells, [1] * len(cells), number, number)
        self._bounds = {
            place: constraints.limits[place].bounds
            for place in sorted({one.source for one in some if one.is_limit})
        }
        self._rows_of: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
        self._values_in: dict[tuple[bool, int, int], list[int]] = {}
        self._index(some)
        self._least = {
            place: self._least_of(place) for place in sorted({one.source for one in some if one.is_skew})
        }
        tags: dict[Hashable, Tag] = {}
        for instance in some:
            deadline.check()
            tag = tags.setdefault(key(instance), Tag(instance.constraint, len(tags)))
            self.tagged.setdefault(tag, []).append(instance)
            if instance.is_ban:
                cells = self._forbidden(instance)
                self._require(cells, [1] * len(cells), None, 0, tag)
            elif instance.is_skew:
                self._add_skew(instance, tag)
            else:
                lower, upper = self._bounds[instance.source]
                at = (instance.group, instance.bucket)
                self._require(*self._load(instance)[:2], int(lower[at]), int(upper[at]), tag)
        self._write()

    def cells(self, values: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """(kinds, value kinds): how many rows."""
        cells = np.asarray(values[self._first : self._first + self.counts.cells], np.int64)
        return cells.reshape(self._kinds, self._values)

    def rows_let_go(self, ban: Instance, values: Sequence[int]) -> tuple[int, ...]:
        """Rows that have what a ban forbids; those of a kind are alike, so it may be any of them."""
        taken: list[int] = []
        for cell in self._forbidden(ban):
            mine = np.flatnonzero(self.counts.kind_of == (cell - self._first) // self._values).tolist()
            taken.extend([row for row in mine if row not in taken][: int(values[cell])])
        return tuple(sorted(taken))

    def _cell(self, kind: int, value: int) -> int:
        return self._first + kind * self._values + value

    def _index(self, some: Sequence[Instance]) -> None:
        """Kinds of rows by load and group, with their weight; kinds of values by load and bucket."""
        counts = self.counts
        real = counts.value_example[counts.value_example < self._constraints.values]
        loads = {(one.is_skew, one.source): self._constraints.load(one) for one in some if not one.is_ban}
        for place, load in loads.items():
            for kind, row in enumerate(counts.kind_example.tolist()):
                if load.group[row] >= 0 and load.weight[row] > 0:
                    key = (*place, int(load.group[row]))
                    self._rows_of.setdefault(key, []).append((kind, int(load.weight[row])))
            for number, value in enumerate(real.tolist()):
                self._values_in.setdefault((*place, int(load.bucket[value])), []).append(number)

    def _load(self, instance: Instance) -> tuple[list[int], list[int], int]:
        """The cells that an instance adds up, what each brings, and the most that can come of it."""
        place = (instance.is_skew, instance.source)
        kinds = self._rows_of.get((*place, max(instance.group, 0)), ())
        values = self._values_in.get((*place, instance.bucket), ())
        cells = [self._cell(kind, value) for kind, _ in kinds for value in values]
        factors = [weight for _, weight in kinds for _ in values]
        return cells, factors, sum(weight * int(self.counts.number[kind]) for kind, weight in kinds)

    def _forbidden(self, instance: Instance) -> list[int]:
        ban = self._constraints.bans[instance.source]
        forbidden = np.flatnonzero(ban.forbidden[instance.group][self.counts.value_example]).tolist()
        kinds = np.flatnonzero(ban.row_class[self.counts.kind_example] == instance.group).tolist()
        return [self._cell(kind, value) for kind in kinds for value in forbidden]

    def _least_of(self, place: int) -> int:
        """A variable that is at most what every bucket of a skew has."""
        skew = self._constraints.skews[place]
        base = {bucket: one for bucket, one in enumerate(skew.base.tolist()) if one < UNLIMITED}
        loads = {bucket: self._load(Instance(skew.name, place, -1, bucket)) for bucket in base}
        lowest = min(base.values(), default=0)
        most = min((one + loads[bucket][2] for bucket, one in base.items()), default=lowest)
        least = int(self.problem.new_variables([lowest], [most])[0])
        for bucket, one in base.items():
            cells, factors, _ = loads[bucket]
            self._require([*cells, least], [*factors, -1], -one, None)
        return least

    def _add_skew(self, instance: Instance, tag: Tag) -> None:
        """What the bucket has is no more than the least, or what is excused."""
        skew = self._constraints.skews[instance.source]
        above, excused = int(skew.above[instance.bucket]), int(skew.excused[instance.bucket])
        cells, factors, most = self._load(instance)
        lowest = min((one for one in skew.base.tolist() if one < UNLIMITED), default=None)
        if lowest is None or most + above <= lowest or most <= excused:
            return
        when = TRUE
        if excused >= 0:
            free = int(self.problem.new_literals(1)[0])
            self._require(cells, factors, None, excused, when=free)
            when = free ^ 1
        self._require([*cells, self._least[instance.source]], [*factors, -1], None, -above, tag, when=when)

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
        linear = Linear(0, tuple(variables), tuple(factors))
        least = -NO_BOUND if lower is None else lower
        most = NO_BOUND if upper is None or upper >= UNLIMITED else upper
        rows = self._rows.setdefault(None if tag is None else tag.constraint, [])
        rows.append((linear, least, most, when, -1 if tag is None else tag.row))

    def _write(self) -> None:
        """Put the rows into the problem, a block for each constraint."""
        for name, rows in self._rows.items():
            linears, lower, upper, when, numbers = zip(*rows, strict=True)
            source = None if name is None else Source(name, integers(numbers))
            block = LinearRows(Linears.of(*linears), integers(lower), integers(upper), integers(when), source)
            self.problem.rows.append(block)
