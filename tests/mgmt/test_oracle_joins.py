"""The oracle's statements without cross products say the same as its plain ones."""

from __future__ import annotations

from itertools import islice

import pytest

from mgmt.compiler.model import Model
from mgmt.compiler.verification.oracle import Oracle
from mgmt.errors import DataError, UnsupportedConstructError
from mgmt.state.database import Database
from tests.budget import budgeted
from tests.mgmt.assignments.assignment_grammar import AssignmentMaker
from tests.mgmt.policy_grammar import NULLABLE, SCHEMA, PolicyMaker
from tests.mgmt.support import assignments, database

_ASSIGNMENTS = 5  # of each state


def compare(schema: str, maker: PolicyMaker | AssignmentMaker) -> int:
    """Ask both of every assignment; how many were asked about."""
    state, text = database(schema, maker.data()), maker.policies()
    try:
        model = Model.build(state, text)
    except UnsupportedConstructError:
        return 0
    plain = Oracle(model.queries, model.catalog, joins=False)
    asked = 0
    with state.snapshot() as snapshot:
        for assignment in islice(assignments(model, state), _ASSIGNMENTS):
            expected = plain.examine(snapshot, assignment)
            found = model.oracle.examine(snapshot, assignment)
            assert (found.broken, found.objectives) == (expected.broken, expected.objectives), text
            asked += 1
    return asked


@pytest.mark.slow("eight random policies are compiled and solved")
@pytest.mark.parametrize("schema", [SCHEMA, NULLABLE], ids=["assigned", "nullable"])
def test_any_policies(schema: str) -> None:
    assert sum(compare(schema, PolicyMaker(seed)) for seed in range(8)) > 21


@pytest.mark.slow("eight random policies are compiled and solved")
def test_policies_of_assignment_shape() -> None:
    makers = [AssignmentMaker(seed) for seed in range(8)]
    assert sum(compare(maker.schema, maker) for maker in makers) > 26


LOADS = """
    CREATE VIEW load AS
    SELECT h.name, h.cap, sum(t.size) AS size, count(*) AS tasks
    FROM task t JOIN host h ON t.variable__host = h.name GROUP BY h.name, h.cap;
    CREATE VIEW excess AS SELECT name, size, greatest(size - cap, 0) AS above, tasks FROM load;
    CREATE CONSTRAINT above AS SELECT name FROM excess MINIMIZE sum(above) TIER 1;
    CREATE CONSTRAINT even AS SELECT name FROM excess MINIMIZE sum(tasks * tasks) TIER 2;
    CREATE CONSTRAINT cheap AS SELECT id FROM task WHERE variable__host = 'h0' MINIMIZE count(*) TIER 3;
    CREATE CONSTRAINT square AS SELECT name FROM excess MINIMIZE sum(size * size) TIER 4;
"""
HOSTS_AND_TASKS = """
    CREATE TABLE host (name TEXT PRIMARY KEY, cap INTEGER NOT NULL);
    CREATE TABLE task (
        id INTEGER PRIMARY KEY, size BIGINT NOT NULL, variable__host TEXT NOT NULL REFERENCES host (name)
    );
"""


def hosts_and_tasks(sizes: list[int]) -> Database:
    return database(
        HOSTS_AND_TASKS,
        {
            "host": [{"name": f"h{number}", "cap": 2 + number} for number in range(3)],
            "task": [{"id": number, "size": size} for number, size in enumerate(sizes)],
        },
    )


def test_objectives_over_one_view_are_asked_together(each_database: str) -> None:
    """The rows of the view are computed once, and each objective has its own value all the same."""
    del each_database
    sizes = [3, 1, 2]
    state = hosts_and_tasks(sizes)
    model = Model.build(state, LOADS)
    caps = {f"h{number}": 2 + number for number in range(3)}
    asked: list[str] = []
    with state.snapshot() as snapshot:
        rows = snapshot.rows
        snapshot.rows = lambda sql, parameters=(): (  # type: ignore[method-assign]
            asked.append(sql if isinstance(sql, str) else sql.query),  # type: ignore[func-returns-value]
            rows(sql, parameters),
        )[1]
        for assignment in assignments(model, state):
            asked.clear()
            places = [assignment["task", "variable__host"][number,] for number in range(len(sizes))]
            loads = {
                host: [size for size, place in zip(sizes, places, strict=True) if place == host]
                for host in caps
            }
            assert model.oracle.examine(snapshot, assignment).objectives == {
                "above": sum(max(0, sum(load) - caps[host]) for host, load in loads.items()),
                "even": sum(len(load) ** 2 for load in loads.values()),
                "cheap": places.count("h0"),
                "square": sum(sum(load) ** 2 for load in loads.values()),
            }
            assert sum("excess" in sql for sql in asked) == 1


def test_an_objective_that_cannot_be_asked_is_told_from_those_it_is_asked_with() -> None:
    state = hosts_and_tasks([3, 1, 2])
    odd = (
        "CREATE CONSTRAINT odd AS SELECT name FROM excess MINIMIZE sum(tasks * CAST(name AS BIGINT)) TIER 5;"
    )
    model = Model.build(state, LOADS + odd)
    (assignment,) = islice(assignments(model, state), 1)
    with state.snapshot() as snapshot, pytest.raises(DataError, match=r"solutions of odd: .* convert"):
        model.oracle.examine(snapshot, assignment)


def test_a_group_without_rows_is_asked_about_as_soon_as_its_table_has_one() -> None:
    quota = "CREATE TABLE quota (name TEXT PRIMARY KEY, least INTEGER NOT NULL);"
    state = database(HOSTS_AND_TASKS + quota, {})
    state.insert("host", [{"name": "h0", "cap": 9}, {"name": "h1", "cap": 9}])
    state.insert("task", [{"id": 0, "size": 1}])
    rule = """
        CREATE CONSTRAINT enough AS SELECT q.name FROM task t JOIN host h ON t.variable__host = h.name
        JOIN quota q ON q.name = h.name GROUP BY q.name, q.least CHECK count(*) >= q.least;
    """
    model = Model.build(state, rule)
    broken = []
    for least in ([], [1], []):
        state.replace_rows({"quota": [{"name": "h1", "least": number} for number in least]})
        with state.snapshot() as snapshot:
            snapshot.keep_views(())  # from now on it is known which tables have rows
            found = model.oracle.examine(snapshot, {("task", "variable__host"): {(0,): "h0"}})
            broken.append(found.broken)
    assert broken == [(), ("enough",), ()]


@pytest.mark.first
@pytest.mark.parametrize("chunk", budgeted(range(8), 1))
def test_many_more(chunk: int) -> None:
    for seed in range(1000 * chunk, 1000 * chunk + 10):
        maker = AssignmentMaker(seed)
        compare(maker.schema, maker)
        compare(SCHEMA, PolicyMaker(seed))


@pytest.mark.parametrize(
    "rule",
    [
        "SELECT name FROM host CHECK size > 1 OR EXISTS (SELECT 1 FROM task WHERE variable__host = host.name)",
        "SELECT name FROM host CHECK size > 1 OR (SELECT count(*) FROM task WHERE variable__host = 'a') > 0",
    ],
)
def test_a_subquery_is_asked_again_for_each_assignment(rule: str) -> None:
    """The variable is read in it alone, so an answer was kept and given for other values."""
    schema = (
        "CREATE TABLE host (name TEXT PRIMARY KEY, size INTEGER NOT NULL);"
        "CREATE TABLE task (id INTEGER PRIMARY KEY, variable__host TEXT NOT NULL REFERENCES host (name));"
    )
    rows = {"host": [{"name": "a", "size": 1}, {"name": "b", "size": 2}], "task": [{"id": 1}]}
    state = database(schema, rows)
    model = Model.build(state, f"CREATE CONSTRAINT c AS {rule}")
    with state.snapshot() as snapshot:
        broken = [
            model.oracle.examine(snapshot, {("task", "variable__host"): {(1,): host}}).broken
            for host in ("a", "b", "a", "b")
        ]
    assert broken == [(), ("c",), (), ("c",)]


def test_a_row_that_is_not_there_is_none_without_a_value() -> None:
    """Groups are joined with their rows from outside, and what a group without rows is joined with has no value."""
    schema = HOSTS_AND_TASKS.replace("variable__host TEXT NOT NULL", "variable__host TEXT")
    state = database(schema, {})
    state.insert("host", [{"name": "h0", "cap": 9}])
    state.insert("task", [{"id": 1, "size": 1}])
    rules = """
        CREATE VIEW waiting AS SELECT h.name, count(*) AS tasks FROM host h, task t
        WHERE t.variable__host IS NULL GROUP BY h.name HAVING h.name <> 'h9';
        CREATE CONSTRAINT few AS SELECT name FROM waiting MINIMIZE sum(tasks);
    """
    model = Model.build(state, rules)
    with state.snapshot() as snapshot:
        few = [
            model.oracle.examine(snapshot, {("task", "variable__host"): {(1,): host}}).objectives["few"]
            for host in ("h0", None)
        ]
    assert few == [0, 1]
