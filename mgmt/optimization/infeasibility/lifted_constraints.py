"""Lifted demands as constraints of which instances may be dropped, and which rows of a problem each instance is.

Amounts are those of the rows, not of the normal form that lifting finds loads by: what is said of an instance can be
said of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from mgmt.optimization.assignment import NONE, UNLIMITED, Assignment, Limit, Skew
from mgmt.optimization.columns import Integers, Lists, filled
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.dense_ranks import alike_rows, firsts, joint_ranks
from mgmt.optimization.infeasibility.constraint_instances import Ban, ConstraintSet, Give, Instance
from mgmt.optimization.infeasibility.count_problem import solve
from mgmt.optimization.infeasibility.deletion_filter import minimal_core
from mgmt.optimization.lifting import ChoiceCells, Demands, assignment_of
from mgmt.optimization.lifting.choices import AllowedValues
from mgmt.optimization.lifting.pairs.row_pairs import PairedRows
from mgmt.optimization.lifting.sums.families import PlacedRows
from mgmt.optimization.lifting.sums.normal_form import values_within


@dataclass(frozen=True, slots=True, eq=False)
class LiftedConstraints:
    """Constraints of an assignment, with where they come from."""

    constraints: ConstraintSet
    cells: ChoiceCells
    assignment: Assignment
    """With the same limits."""
    limit_rows: tuple[PlacedRows | PairedRows, ...]
    skew_rows: tuple[PlacedRows | PairedRows, ...]
    ban_rows: tuple[Lists, ...]
    """Of each ban, by choosing row the rows of the constraint that forbid it something."""
    whole: bool
    """Whether this is all that is demanded."""

    @classmethod
    def of(cls, demands: Demands) -> LiftedConstraints:
        cells = demands.cells
        placed = [(limit, demands.origins[limit]()) for limit in (*demands.limits, *demands.banning)]
        limits = tuple(chain.from_iterable(_in_units(limit, rows) for limit, rows in placed))
        skews = [(one, demands.origins[one]()) for one in demands.conditions if isinstance(one, Skew)]
        bans = _bans(demands, cells)
        table = cells.may_have
        rank, number = alike_rows(table)
        constraints = ConstraintSet(
            rank[cells.column],
            table[firsts(rank, number)],
            tuple(limit for limit, _ in limits),
            tuple(ban for ban, _ in bans),
            tuple(skew for skew, _ in skews),
        )
        assignment = replace(assignment_of(demands), limits=constraints.limits)
        return cls(
            constraints,
            cells,
            assignment,
            tuple(rows for _, rows in limits),
            tuple(rows for _, rows in skews),
            tuple(rows for _, rows in bans),
            not demands.left_out and not demands.impossible and len(skews) == len(assignment.conditions),
        )

    @property
    def names(self) -> frozenset[str]:
        """The constraints that are lifted, or some of what they demand."""
        some: tuple[Limit | Ban | Skew, ...] = (
            *self.constraints.limits,
            *self.constraints.bans,
            *self.constraints.skews,
        )
        return frozenset(one.name for one in some)

    def is_paired(self, instance: Instance) -> bool:
        """Whether it is of pairs of rows that keep apart: amounts say nothing of these."""
        return instance.is_limit and isinstance(self.limit_rows[instance.source], PairedRows)

    def rows_of(self, instance: Instance, chooser: int = NONE) -> Integers:
        """The rows of the constraint that an instance is; of a ban those that forbid a choosing row something."""
        if instance.is_ban:
            return self.ban_rows[instance.source].row(chooser)
        rows = (self.skew_rows if instance.is_skew else self.limit_rows)[instance.source]
        at = max(instance.group, 0), instance.bucket
        if isinstance(rows, PairedRows):
            return rows.rows_of(self.constraints.load(instance), *at)
        found: Integers = np.unique(rows.at(*at).rows)
        return found

    def beyond(self, give: Give) -> tuple[int, int]:
        """By how much the rows must give: above their bound, and below."""
        instance = give.instance
        rows = (self.skew_rows if instance.is_skew else self.limit_rows)[instance.source]
        if isinstance(rows, PlacedRows):
            told = rows.at(max(instance.group, 0), instance.bucket)
            if bool((told.factors < 0).any()):  # what the row bounds is the negation of the load
                return give.below, give.above
        return give.above, give.below

    def without_needless_rows(self, core: Sequence[Instance], deadline: Deadline) -> LiftedConstraints:
        """The same with cliques of pairs as small as they can be for these to clash."""
        cliques = dict.fromkeys((one.source, one.group) for one in core if self.is_paired(one))
        members = [
            (place, row)
            for place, group in cliques
            for row in np.flatnonzero(self.constraints.limits[place].load.group == group).tolist()
        ]

        def clash(some: Sequence[tuple[int, int]]) -> bool | None:
            return solve(self._without({*members} - {*some}).constraints, core, deadline).clashes

        return self._without({*members} - {*minimal_core(members, clash, deadline)[0]}) if members else self

    def _without(self, members: set[tuple[int, int]]) -> LiftedConstraints:
        """With no choosing rows in groups that these, by the places of limits, are taken from."""
        limits = list(self.constraints.limits)
        for place in {place for place, _ in members}:
            load = limits[place].load
            group = load.group.copy()
            group[[row for other, row in members if other == place]] = NONE
            limits[place] = replace(limits[place], load=replace(load, group=group))
        return replace(self, constraints=replace(self.constraints, limits=tuple(limits)))


def _in_units(limit: Limit, rows: PlacedRows | PairedRows) -> Iterator[tuple[Limit, PlacedRows | PairedRows]]:
    """A limit in the amounts of the rows: once for each factor that these have in a group, mostly one."""
    if isinstance(rows, PairedRows):
        yield limit, rows
        return
    load, told = limit.load, rows.demanded
    group, sizes = rows.places // rows.buckets, np.abs(told.factors)
    kind, number = joint_ranks([group, sizes], len(group))
    group_of_kind = group[firsts(kind, number)]
    turn = np.arange(number) - np.searchsorted(group_of_kind, group_of_kind)
    for layer in range(int(turn.max(initial=-1)) + 1):
        mine = np.flatnonzero(turn[kind] == layer)
        factor = filled(load.groups, 1)
        factor[group[mine]] = sizes[mine]
        lower = filled(load.groups * load.buckets, 0)
        upper = np.full(len(lower), UNLIMITED)
        lower[rows.places[mine]] = np.maximum(told.lower[mine], 0)
        upper[rows.places[mine]] = np.minimum(told.upper[mine], UNLIMITED)
        shape = load.groups, load.buckets
        weight = load.weight * np.where(load.group >= 0, factor[load.group], 1)
        bounds = lower.reshape(shape), upper.reshape(shape)
        yield Limit(limit.name, replace(load, weight=weight), *bounds), rows


def _bans(demands: Demands, cells: ChoiceCells) -> list[tuple[Ban, Lists]]:
    """By constraint what bounds on single rows forbid, and the rows of the constraint by choosing row."""
    allowed: dict[str, AllowedValues] = {}
    told: dict[str, list[tuple[Integers, Integers]]] = {}

    def allowed_by(name: str, choosers: Integers, rows: Integers) -> AllowedValues:
        told.setdefault(name, []).append((choosers, rows))
        return allowed.setdefault(name, AllowedValues.everything(cells.rows, cells.values + 1))

    for block in demands.forbidden_cells:
        choosers, values = block.rows.members, block.values.members
        tags = block.row_tags[choosers.owners][:, None] + block.value_tags[values.owners][None, :]
        mine = allowed_by(block.constraint, np.repeat(choosers.items, len(values.items)), tags.ravel())
        mine.forbid(np.unique(choosers.items), values.items)
    for name, ranges in demands.bounds_on_rows:
        chooser, number, allows = values_within(ranges, demands.sums)
        allowed_by(name, chooser, ranges.demanded.rows).keep(chooser, number, allows)
    found = []
    for name, mine in allowed.items():
        rank, patterns = mine.classes()
        everything = np.asarray(patterns.all(axis=1))
        row_class = np.where(everything[rank], NONE, rank)
        choosers_of_name, rows = (np.concatenate(column) for column in zip(*told[name], strict=True))
        by_chooser = Lists.grouped(choosers_of_name, rows, cells.rows).distinct()
        found.append((Ban(name, row_class.astype(np.intp), ~patterns), by_chooser))
    return found
