"""Clauses whose parts were once lifted with bounds that are of the whole, against every choice."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mgmt.compiler.model import Model
from mgmt.optimization.assignment import NONE, MoveLimit
from mgmt.optimization.columns import Linear, Linears, Lists, integers, stacked, sum_of
from mgmt.optimization.general.operators import broken_rows, completed
from mgmt.optimization.lifting import ChoiceCells, ChoiceColumn, lift
from mgmt.optimization.problem import Source
from mgmt.optimization.products import FactoredProblem
from mgmt.solution import SolveStatus
from tests.mgmt.support import database

Cells = list[tuple[int, int]]


class Choices:
    """A problem in which each of some rows chooses one of some values."""

    def __init__(self, rows: int, values: int, today: list[int] | None = None) -> None:
        self.problem = problem = FactoredProblem()
        (grid,) = problem.new_grids([(rows, values, False)])
        self.cell = (grid.cells >> 1).reshape(rows, values)
        current = np.array(today or [NONE] * rows, np.int32)
        column = ChoiceColumn(np.arange(values), grid.first, (values, 1), integers([]), True, current)
        self.cells = ChoiceCells(values, [column])

    def count(self, *cells: tuple[int, int], weight: int = 1) -> Linears:
        places = sorted(int(self.cell[each]) for each in cells)
        return Linears.of(Linear(0, tuple(places), (weight,) * len(places)))

    def used(self, *cells: tuple[int, int], above: int = 0) -> Linears:
        """1 if more than so many are chosen."""
        return Linears.literals(self.problem.at_most(self.count(*cells), above) ^ 1)

    def require(self, linears: Linears, lower: int | None, upper: int | None) -> None:
        rows = np.arange(len(linears))
        self.problem.require_range(linears, lower, upper, Source("rule", rows))

    def check(self) -> None:
        """What was lifted forbids nothing that is allowed, and allows nothing that is forbidden unless it says so."""
        lifted = lift(self.problem, self.cells)
        for choice in product(range(self.cells.values), repeat=self.cells.rows):
            chosen = np.array(choice, np.int32)
            values = completed(self.problem, *self.cells.held(chosen))
            holds = values is not None and next(iter(broken_rows(self.problem, values)), None) is None
            lifts = not lifted.impossible and not [*lifted.assignment.broken(chosen)]
            assert lifts or not holds, choice
            assert holds or not lifts or lifted.left_out, choice


@pytest.mark.parametrize("bounds", [(2, None), (None, 1), (None, 2)])
def test_tags_that_overlap_are_counted_together(bounds: tuple[int | None, int | None]) -> None:
    choices = Choices(2, 3)
    tags = [choices.used(*product((0, 1), values)) for values in ((0, 1), (1, 2), (0, 2))]
    choices.require(sum_of(*tags), *bounds)
    choices.check()


@pytest.mark.parametrize("above", [0, 1])
def test_rows_of_their_own_at_values_of_their_own_are_counted_together(above: int) -> None:
    choices = Choices(6, 3)
    homes = [
        choices.used(*product(rows, (value,)), above=above)
        for rows, value in (((0, 1), 0), ((2, 3), 1), ((4, 5), 2))
    ]
    choices.require(sum_of(*homes), None, 1)
    choices.check()


def test_sums_of_all_values_are_always_something() -> None:
    choices = Choices(6, 2)
    pairs = [choices.used(*product(rows, (0, 1)), above=1) for rows in ((0, 1), (2, 3), (4, 5))]
    choices.require(sum_of(*pairs), None, 1)
    choices.check()


def test_a_value_that_excludes_all_others_is_no_free_one() -> None:
    choices = Choices(2, 3)
    excluded: Cells = [pair for pair in product(range(3), repeat=2) if pair not in ((0, 0), (1, 1))]
    clauses = [
        [2 * int(choices.cell[0, one]) + 1, 2 * int(choices.cell[1, other]) + 1] for one, other in excluded
    ]
    choices.problem.require_any(Lists.of(clauses), Source("rule", np.arange(len(clauses))))
    choices.check()


def test_a_bound_one_wide_is_of_its_own_row() -> None:
    choices = Choices(4, 2)
    neither = Linears.literals(choices.problem.at_most(choices.count((0, 0), (1, 0)), 0))
    rows = [sum_of(neither, choices.count((2, 0), (2, 1))), choices.count((2, 0), (3, 0))]
    choices.require(stacked(rows), None, 1)
    choices.check()


def test_quotients_between_bounds_that_no_sum_reaches() -> None:
    choices = Choices(3, 2)
    amount = choices.count((0, 0), (1, 0), (2, 0), weight=2**31)
    choices.require(choices.problem.quotient(amount, integers([2**30])), 2, 2**34 - 1)
    choices.check()


def test_tags_of_hosts_that_every_placement_has() -> None:
    schema = """CREATE TABLE host (name TEXT PRIMARY KEY);
    CREATE TABLE host_tag (host TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (host, tag));
    CREATE TABLE pod (id INTEGER PRIMARY KEY, app TEXT NOT NULL,
      variable__node TEXT NOT NULL REFERENCES host (name));"""
    rows = {
        "host": [{"name": name} for name in ("h0", "h1", "h2")],
        "host_tag": [
            {"host": f"h{i}", "tag": tag} for i, tags in enumerate(("ac", "ab", "bc")) for tag in tags
        ],
        "pod": [{"id": 0, "app": "x"}, {"id": 1, "app": "x"}],
    }
    policy = (
        "CREATE CONSTRAINT tags AS SELECT app FROM pod JOIN host_tag ON host_tag.host = pod.variable__node "
        "GROUP BY app CHECK count(DISTINCT tag) >= 2"
    )
    assert Model.build(database(schema, rows), policy).solve(20).status is SolveStatus.OPTIMAL


def test_all_or_none_is_a_bound_on_the_very_sum_that_may_be_nothing() -> None:
    choices = Choices(2, 2)
    none = choices.problem.at_most(choices.count((0, 0), (1, 0)), 0)
    heavy = sum_of(choices.count((0, 0), weight=2), choices.count((1, 0), weight=3))
    enough = choices.problem.at_most(heavy, 1) ^ 1
    choices.problem.require_any(Lists.side_by_side(none, enough), Source("rule", np.arange(1)))
    choices.check()


def test_groups_that_exclude_each_other_are_groups_of_rows() -> None:
    choices = Choices(4, 2)
    some, others = choices.used((0, 0), (0, 1), (1, 0)), choices.used((2, 0), (3, 0), (2, 1), (3, 1))
    choices.require(sum_of(some, others), None, 1)
    choices.check()


HOSTS = """CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT NOT NULL);
CREATE TABLE pod (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL REFERENCES host (name));
CREATE TABLE tag (rack TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (rack, name));"""


def test_rows_of_a_view_that_look_alike_may_exist_together() -> None:
    rows = {
        "host": [{"name": f"h{i}", "rack": f"r{i % 2}"} for i in range(4)],
        "tag": [{"rack": rack, "name": name} for rack in ("r0", "r1") for name in "abc"],
        "pod": [{"id": number} for number in range(3)],
    }
    policy = """CREATE VIEW tagged AS SELECT pod.id AS id, host.rack AS rack
      FROM pod JOIN host ON pod.variable__host = host.name JOIN tag ON tag.rack = host.rack;
    CREATE CONSTRAINT least AS SELECT id FROM tagged GROUP BY id CHECK count(*) >= 3;"""
    assert Model.build(database(HOSTS, rows), policy).solve(20.0).status is SolveStatus.OPTIMAL


def test_a_flag_beside_two_choices_follows_one_of_them() -> None:
    schema = """CREATE TABLE place (name TEXT PRIMARY KEY);
    CREATE TABLE copy (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL REFERENCES place (name),
      variable__disk TEXT NOT NULL REFERENCES place (name), variable__leads BOOLEAN NOT NULL);"""
    rows = {"place": [{"name": name} for name in "abc"], "copy": [{"id": number} for number in range(4)]}
    rule = """CREATE CONSTRAINT {column} AS SELECT place.name FROM copy JOIN place ON {column} = place.name
    GROUP BY place.name CHECK count(*) FILTER (WHERE variable__leads) <= 1;"""
    policy = (
        "CREATE CONSTRAINT all_lead AS SELECT * FROM copy MAXIMIZE count(*) FILTER (WHERE variable__leads);"
    )
    rules = [rule.format(column=f"variable__{column}") for column in ("host", "disk")]
    solution = Model.build(database(schema, rows), "\n".join([policy, *rules])).solve(20.0)
    assert [(each.after, each.proven) for each in solution.objectives] == [(3, True)]


def test_rows_in_more_groups_than_are_laid_apart_are_left_out() -> None:
    schema = """CREATE TABLE host (name TEXT PRIMARY KEY);
    CREATE TABLE pod (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL REFERENCES host (name));
    CREATE TABLE tag (name TEXT NOT NULL, pod INTEGER NOT NULL, PRIMARY KEY (name, pod));"""
    rows = {
        "host": [{"name": f"h{number}"} for number in range(4)],
        "pod": [{"id": number} for number in range(46)],
        "tag": [{"name": f"t{k:02}", "pod": pod} for k in range(43) for pod in (0, k + 1, k + 2)],
    }
    policy = """CREATE CONSTRAINT one AS SELECT tag.name, host.name AS h FROM pod JOIN tag ON tag.pod = pod.id
    JOIN host ON pod.variable__host = host.name GROUP BY tag.name, host.name CHECK count(*) <= 1;"""
    model = Model.build(database(schema, rows), policy, backend=None)
    assert model.solve(20.0).status is SolveStatus.OPTIMAL


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_how_many_rows_keep_their_values_is_a_limit_on_moves(kept: int) -> None:
    """Of groups of rows, some of which have a row in common."""
    today = [0, 1, 2, 0, 1]
    choices = Choices(5, 3, today)
    unmoved = [
        choices.count(*((row, today[row]) for row in rows)) for rows in ((0, 1, 2), (2, 3, 4), (0, 1, 4))
    ]
    choices.require(stacked(unmoved), kept, None)
    choices.check()
    lifted = lift(choices.problem, choices.cells)
    assert not lifted.left_out
    if kept == 2:
        assert {type(condition) for condition in lifted.assignment.conditions} == {MoveLimit}


def test_a_limit_alone_comes_with_no_condition() -> None:
    """Beside a condition, though it were about nothing, there would be no network."""
    choices = Choices(4, 2)
    choices.require(
        stacked([choices.count(*((row, value) for row in range(4))) for value in range(2)]), None, 3
    )
    lifted = lift(choices.problem, choices.cells)
    assert len(lifted.assignment.limits) == 1
    assert lifted.assignment.conditions == ()
