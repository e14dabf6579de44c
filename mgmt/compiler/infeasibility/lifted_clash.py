"""Why an encoded problem has no solution, in the limits and bans that were found in it: as it was solved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mgmt.compiler.encoding.encoder import Encoding
from mgmt.compiler.infeasibility.clashes import core_member, slack_of_cells
from mgmt.errors import (
    CoreMember,
    OverflowError,  # noqa: A004 - the published name
    SolveTimeout,
    UnsupportedConstructError,
)
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.optimization.assignment import NONE, Indices, Mask
from mgmt.optimization.backends import Backend
from mgmt.optimization.columns import Integers, filled, integers
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility import elastic
from mgmt.optimization.infeasibility.assignment_core import Clashing, find_clash, least_gives
from mgmt.optimization.infeasibility.closed_form import blocked_alone, shortfall
from mgmt.optimization.infeasibility.constraint_instances import Give, Instance
from mgmt.optimization.infeasibility.count_problem import TooLargeError
from mgmt.optimization.infeasibility.lifted_constraints import LiftedConstraints
from mgmt.optimization.infeasibility.limit_overflow import overflow
from mgmt.optimization.infeasibility.problem_core import restricted
from mgmt.optimization.lifting import ChoiceCells, demands_of
from mgmt.optimization.problem import Problem, Tag
from mgmt.optimization.products import FactoredValues

_MOST_COUNTED = 200  # instances of a core; with more, the least that they must give is not found in time
_MOST_EXAMPLES = 200  # of which a REASON is asked for its text


@dataclass(slots=True)
class LiftedClash:
    """What clashes among the demands that are lifted; rows are described when they are first spoken of."""

    encoding: Encoding
    lifted: LiftedConstraints
    clashing: Clashing
    backend: Backend
    seed: int
    problem: Problem | None
    """Cell by cell, where rows that keep pairs apart may have to say which of them give."""
    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    _numbers: dict[tuple[str, bytes], int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, encoding: Encoding, cells: ChoiceCells, backend: Backend, *, deadline: Deadline, seed: int
    ) -> LiftedClash | None:
        """None where what is lifted does not clash, or that is not seen in time."""
        try:
            demands = demands_of(encoding.factored, cells, deadline)
            lifted = LiftedConstraints.of(demands)
            clashing = find_clash(lifted.constraints, deadline=deadline)
        except (TooLargeError, TimeoutError, OverflowError):
            return None
        if clashing is None or not clashing.instances:
            return None
        if any(instance.constraint not in encoding.rows for instance in clashing.instances):
            return None  # UNIQUE of a table is no query with rows to show
        lifted = lifted.without_needless_rows(clashing.instances, deadline)
        if any(one.is_skew and len(lifted.rows_of(one)) != 1 for one in clashing.instances):
            return None  # which of its rows it is, is seen cell by cell
        problem = None
        if any(map(lifted.is_paired, clashing.instances)):
            with suppress(SolveTimeout, UnsupportedConstructError):  # too large to be written down
                problem = encoding.written_out(deadline)
        return cls(encoding, lifted, clashing, backend, seed, problem)

    @property
    def core(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(instance.constraint for instance in self.clashing.instances))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.encoding.rows if name in self.lifted.names)

    @property
    def certain(self) -> bool:
        return self.lifted.whole and not any(map(self.lifted.is_paired, self.clashing.instances))

    @property
    def minimal(self) -> bool:
        return self.clashing.minimal

    def members(self, queries: Mapping[str, BoundQuery]) -> list[CoreMember]:
        found = []
        alone = blocked_alone(self.lifted.constraints, self.clashing.instances)
        for name in self.core:
            mine = self._instances(name)
            told = [rows for instance in mine for rows in self._rows_of(instance, alone)]
            numbers = dict.fromkeys(self._number(name, rows) for rows in told)
            described = [self.rows[name][number] for number in numbers]
            # What several rows have in common may lack what a REASON speaks of, which each of them has.
            examples = [self.encoding.rows[name][int(rows[0])] for rows in told[:_MOST_EXAMPLES]]
            missing = self._shortfall(mine)
            found.append(core_member(name, queries.get(name), described, missing, examples=examples))
        return found

    def missing(self, name: str) -> int:
        short = self._shortfall(self._instances(name))
        return 0 if short is None else short[0] - short[1]

    def slack(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        if any(one.constraint in names and self.lifted.is_paired(one) for one in self.clashing.instances):
            return self._of_pairs(names, deadline, whole=whole)
        found = self._counted(names, deadline, whole=whole)
        return found or self._overflow(names, deadline.part(1 / 2), whole=whole)

    def _counted(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        """The least that they must give."""
        core = self.clashing.instances
        if len(core) > _MOST_COUNTED:
            return None
        try:
            gives = least_gives(
                self.lifted.constraints, frozenset(names), core, whole=whole, deadline=deadline
            )
        except TooLargeError:
            return None
        return None if gives is None else elastic.Slack(tuple(self._given(gives)), True)

    def _overflow(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        """Not the least, but found where there is too much for all buckets together."""
        assignment = self.lifted.assignment
        found = overflow(assignment, names, deadline=deadline)
        if found is None or not found.above:
            return None
        gives = []
        for place, group, bucket, above in found.above:
            instance = Instance(assignment.limits[place].name, place, group, bucket)
            gives.append(Give(instance, waived=True) if whole else Give(instance, above))
        return elastic.Slack(tuple(self._given(gives)), False, self._placement(found.choice))

    def _of_pairs(self, names: set[str], deadline: Deadline, *, whole: bool) -> elastic.Slack | None:
        """Of rows that are pairs cliques do not tell which must give; others may clash besides, and then do."""
        if self.problem is None:
            return None
        found = None
        for problem in (self.problem, restricted(self.problem, constraints={*names, *self.core})):
            found = found or slack_of_cells(
                problem, self.backend, names, whole=whole, deadline=deadline, seed=self.seed
            )
        if found is None:
            return None
        gives = []
        for give in found.gives:
            number = self._number(give.tag.constraint, integers([give.tag.row]))
            gives.append(replace(give, tag=Tag(give.tag.constraint, number)))
        return replace(found, gives=tuple(gives))

    def _given(self, gives: Iterable[Give]) -> Iterator[elastic.Give]:
        for give in gives:
            name = give.instance.constraint
            if give.instance.is_ban:
                for chooser in give.rows:
                    number = self._number(name, self.lifted.rows_of(give.instance, chooser))
                    yield elastic.Give(Tag(name, number), waived=True)
                continue
            above, below = self.lifted.beyond(give)
            for row in self.lifted.rows_of(give.instance):
                yield elastic.Give(Tag(name, self._number(name, row[None])), above, below, give.waived)

    def _shortfall(self, mine: Sequence[Instance]) -> tuple[int, int] | None:
        """What the rows of these need and allow; what pairs of rows do, their cliques do not tell."""
        if any(map(self.lifted.is_paired, mine)):
            return None
        return shortfall(self.lifted.constraints, self.clashing.instances, mine)

    def _placement(self, choice: Indices) -> elastic.Placement:
        problem, cells = self.encoding.factored, self.lifted.cells
        grids, variables, told = cells.held(choice)
        values = filled(problem.variables - problem.grid_cells, 0)
        values[variables - problem.grid_cells] = told
        nothing = [filled(grid.rows, NONE) for grid in problem.grids]
        chosen = [
            grids.get(grid.first, none) if grid.rows and grid.values else none
            for grid, none in zip(problem.grids, nothing, strict=True)
        ]
        held = FactoredValues(problem, np.concatenate([filled(0, 0), *chosen]), values)
        return {
            (column.table.name, column.column.name): dict(zip(column.keys, column.decode(held), strict=True))
            for column in self.encoding.columns
        }

    def _instances(self, name: str) -> list[Instance]:
        return [instance for instance in self.clashing.instances if instance.constraint == name]

    def _rows_of(self, instance: Instance, alone: Mask) -> Iterator[Integers]:
        """The rows an instance is told by: of a ban's choosing rows those that clash alone, or else each of them."""
        if not instance.is_ban:
            yield from self.lifted.rows_of(instance)[:, None]
            return
        mine = self.lifted.constraints.bans[instance.source].row_class == instance.group
        for chooser in np.flatnonzero(mine & alone if (mine & alone).any() else mine).tolist():
            yield self.lifted.rows_of(instance, chooser)

    def _number(self, name: str, rows: Integers) -> int:
        """The number of what some rows of a constraint have in common, described now if it was not before."""
        key = name, rows.tobytes()
        if key not in self._numbers:
            described = self.rows.setdefault(name, [])
            described.append(self.encoding.rows[name].common(rows))
            self._numbers[key] = len(described) - 1
        return self._numbers[key]
