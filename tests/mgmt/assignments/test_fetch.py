"""What the assignment fetches is kept as long as it is the same, and no longer."""

from __future__ import annotations

import pytest
from mgmt.compiler.assignments.columns.fetch import Columns, Table

from mgmt.compiler.model import Model
from mgmt.compiler.relational.dependencies import may_change
from mgmt.errors import DataError
from mgmt.state.database import Database
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, room INTEGER NOT NULL, up BOOLEAN NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
POLICY = """
CREATE VIEW open_host AS SELECT name, room FROM host WHERE up;
CREATE CONSTRAINT only_up AS SELECT task.id FROM task JOIN host ON variable__host = host.name
  WHERE NOT host.up CHECK FALSE;
CREATE CONSTRAINT room AS SELECT open_host.name FROM task JOIN open_host ON variable__host = open_host.name
  GROUP BY open_host.name, open_host.room CHECK sum(size) <= room;
"""


def state_of(hosts: int = 50) -> Database:
    state = database(SCHEMA)
    state.insert("host", [{"name": f"h{n}", "room": 1, "up": n > 0} for n in range(hosts)])
    state.insert("task", [{"id": n, "size": 1, "host": None} for n in range(3)])
    return state


def fetched(model: Model) -> tuple[int, list[object]]:
    """Rows fetched by a solve, and the hosts chosen."""
    solution = model.solve(budget=20)
    assert solution.statistics["left_out"] == ()
    hosts = [solution.value("task", "variable__host", number) for number in range(3)]
    return int(solution.statistics["candidate_rows"]), list(hosts)


def test_a_solve_after_a_small_change_fetches_only_the_tables_it_touched() -> None:
    state = state_of()
    model = Model.build(state, POLICY)
    first, _ = fetched(model)
    assert fetched(model)[0] == 0
    state.execute("UPDATE task SET size = 0 WHERE id = 1")
    assert 0 < fetched(model)[0] <= first / 2


def test_a_model_of_other_demands_beside_it_fetches_nothing_again() -> None:
    state = state_of()
    model = Model.build(state, POLICY)
    without_room = model.revised(lambda query: None if query.name == "room" else query)
    assert fetched(model)[0] > 0
    assert fetched(without_room.beside(model))[0] == 0
    state.execute("UPDATE host SET up = name = 'h0'")
    assert set(fetched(without_room.beside(model))[1]) == {"h0"}


def test_every_kind_of_change_is_seen() -> None:
    state = state_of(5)
    model = Model.build(state, POLICY)
    assert set(fetched(model)[1]) <= {"h1", "h2", "h3", "h4"}
    state.execute("UPDATE host SET up = FALSE WHERE name IN ('h1', 'h2')")
    state.execute("UPDATE host SET up = TRUE WHERE name = 'h0'")
    assert set(fetched(model)[1]) == {"h0", "h3", "h4"}
    state.replace_rows({"host": [{"name": name, "room": 2, "up": True} for name in "xy"]})
    assert set(fetched(model)[1]) == {"x", "y"}
    state.insert("host", [{"name": "z", "room": 3, "up": True}])
    state.execute("DELETE FROM host WHERE name = 'y'")
    assert set(fetched(model)[1]) <= {"x", "z"}


def test_what_was_rolled_back_is_not_believed() -> None:
    state = state_of(5)
    model = Model.build(state, POLICY)
    before = fetched(model)[1]
    with pytest.raises(DataError):
        state.insert("host", [{"name": "x", "room": 9, "up": True}, {"name": "x", "room": 9, "up": True}])
    assert fetched(model)[1] == before


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("SELECT 1 FROM host WHERE until > now()", True),
        ("SELECT current_timestamp", True),
        ("SELECT 1 FROM host WHERE until > Today()", True),
        ("SELECT strftime(until) FROM host", False),
        ("SELECT abs(random() % 5)", True),
        ("SELECT date FROM task", False),
        ("SELECT changed_at FROM host", False),
    ],
)
def test_what_asks_for_the_time_or_a_draw_is_not_kept(sql: str, changes: bool) -> None:
    assert may_change(sql) is changes


def test_a_column_without_a_change_is_the_same_object() -> None:
    state = state_of()
    columns = Columns()

    def table() -> Table:
        with state.snapshot() as snapshot:
            return columns.table(snapshot, "SELECT name, room, up FROM host", ("host",))

    before = table()
    state.execute("UPDATE host SET room = 7 WHERE name = 'h3'")
    after = table()
    assert [one is other for one, other in zip(before.columns, after.columns, strict=True)] == [
        True,
        False,
        True,
    ]
    assert after.columns[1].values.tolist() == [7 if n == 3 else 1 for n in range(50)]
    state.execute("UPDATE host SET room = 7 WHERE name = 'h3'")  # counts as a change
    assert table() is after
    state.execute("DELETE FROM host WHERE name = 'h49'")
    assert table().rows == 49
    state.execute("UPDATE host SET name = 'x' WHERE name = 'h3'")
    assert table().columns[1] is not before.columns[1]
