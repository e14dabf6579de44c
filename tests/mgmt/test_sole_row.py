"""A subquery used as a value has one row at most, on both kinds of database; a second one is an error."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import DataError
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Database
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, size INTEGER NOT NULL);
CREATE TABLE wish (id INTEGER PRIMARY KEY, task INTEGER NOT NULL, host TEXT NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, home TEXT, variable__home TEXT NOT NULL REFERENCES host (name));
"""
HOSTS = [{"name": name, "size": size} for name, size in (("a", 1), ("b", 2), ("c", 2))]
TASKS = [{"id": 1}, {"id": 2}]
# A value for each task, from its wishes; {0} is the task's id.
VALUES = {
    "correlated": "(SELECT host FROM wish WHERE task = {0})",
    "in parentheses": "((SELECT w.host FROM wish AS w WHERE w.task = {0}))",
    "distinct": "(SELECT DISTINCT host || '' FROM wish WHERE task = {0})",
    "grouped": "(SELECT max(host) FROM wish WHERE task = {0} GROUP BY id)",
    "a union": "(SELECT host FROM wish WHERE task = {0} UNION SELECT host FROM wish WHERE task = {0})",
    "a star": "(SELECT x.* FROM (SELECT host FROM wish) AS x WHERE EXISTS"
    " (SELECT 1 FROM wish WHERE task = {0} AND host = x.host))",
    "of another": "(SELECT name FROM host WHERE name = (SELECT host FROM wish WHERE task = {0}))",
    "an order": "(SELECT host FROM wish WHERE task = {0} ORDER BY id)",
    "a long list": "(SELECT host FROM wish WHERE task = {0} LIMIT 5)",
}
FORMS = {
    "a filter": "CREATE CONSTRAINT c AS SELECT task.id, host.name FROM task, host"
    " WHERE host.name = {value} CHECK task.variable__home = host.name",
    "a check": "CREATE CONSTRAINT c AS SELECT task.id FROM task CHECK variable__home = coalesce({value}, 'c')",
    "a view": "CREATE VIEW v AS SELECT id, {value} AS wanted FROM task;"
    " CREATE CONSTRAINT c AS SELECT * FROM task JOIN v ON v.id = task.id CHECK variable__home = coalesce(wanted, 'c')",
}
LAST = "; CREATE CONSTRAINT last AS SELECT sum(size) FROM task JOIN host ON variable__home = name MAXIMIZE sum(size)"


Homes = Mapping[PrimaryKey, Value]


def homes(state: Database, value: str, form: str, wishes: list[tuple[int, str]]) -> Homes:
    """Where the tasks are put that want the hosts they wish for, else the largest."""
    state.replace_rows(
        {"wish": [{"id": number, "task": task, "host": host} for number, (task, host) in enumerate(wishes)]}
    )
    text = FORMS[form].format(value=value.format("task.id")) + LAST
    return Model.build(state, text).solve().assignments["task", "variable__home"]


@pytest.mark.parametrize("form", FORMS)
def test_a_second_row_is_an_error_and_one_or_none_is_a_value(each_database: str, form: str) -> None:
    assert each_database
    state = database(SCHEMA, {"host": HOSTS, "task": TASKS})
    for name, value in VALUES.items():
        found = homes(state, value, form, [(1, "a")])
        assert found[(1,)] == "a", name
        assert found[(2,)] in {"b", "c"}, name
        with pytest.raises(DataError, match="more than one row returned by a subquery"):
            homes(state, value, form, [(1, "a"), (2, "b"), (2, "c")])


@pytest.mark.parametrize(
    "value",
    [
        "(SELECT max(host) FROM wish WHERE task = {0})",
        "(SELECT host FROM wish WHERE task = {0} ORDER BY host DESC LIMIT 1)",
        "(SELECT host FROM wish WHERE task = {0} AND host = 'c')",
    ],
)
def test_what_names_one_of_several_is_a_value(each_database: str, value: str) -> None:
    assert each_database
    state = database(SCHEMA, {"host": HOSTS, "task": TASKS})
    for form in FORMS:
        assert homes(state, value, form, [(1, "b"), (1, "c"), (2, "c")]) == {(1,): "c", (2,): "c"}


def test_rows_compared_with_rows_and_lists_are_no_values(each_database: str) -> None:
    assert each_database
    text = (
        "CREATE VIEW few AS (SELECT task, host FROM wish UNION ALL SELECT id, 'a' FROM task WHERE id = 7);"
        "CREATE CONSTRAINT c AS SELECT task.id, host.name FROM task, host"
        " WHERE (task.id, host.name) IN (SELECT task, host FROM few)"
        " AND host.name IN (SELECT name FROM host) AND task.id = ANY (SELECT task FROM wish)"
        " AND EXISTS (SELECT 1 FROM wish) CHECK task.variable__home <> host.name"
    )
    rows = [{"id": number, "task": 1, "host": host} for number, host in enumerate("ac")]
    state = database(SCHEMA, {"host": HOSTS, "task": TASKS, "wish": rows})
    found = Model.build(state, text + LAST).solve().assignments["task", "variable__home"]
    assert found[(1,)] == "b"
