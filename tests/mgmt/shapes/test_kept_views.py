"""Views that several statements ask are computed once per snapshot, and nobody notices."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import InfeasibleError
from mgmt.state.store import KeptView, RefusedStatementError
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, room INTEGER NOT NULL);
CREATE TABLE running (id INTEGER PRIMARY KEY, host TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
"""
POLICY = """
CREATE VIEW used AS SELECT host, sum(size) AS size FROM running GROUP BY host;
CREATE VIEW spare AS SELECT name, room - coalesce(used.size, 0) AS room FROM host LEFT JOIN used ON used.host = name;
CREATE CONSTRAINT capacity AS SELECT spare.name FROM task JOIN spare ON variable__host = spare.name
  GROUP BY spare.name, spare.room CHECK sum(task.size) <= spare.room;
CREATE CONSTRAINT least_used AS SELECT task.id FROM task JOIN spare ON variable__host = spare.name
  MAXIMIZE sum(spare.room);
"""


def model_of(room: int) -> Model:
    state = database(SCHEMA)
    state.insert("host", [{"name": name, "room": room} for name in "ab"])
    state.insert("running", [{"id": 1, "host": "a", "size": 2}])
    state.insert("task", [{"id": 1, "size": 3, "host": None}])
    return Model.build(state, POLICY)


def test_a_view_that_takes_time_and_is_asked_twice_is_kept() -> None:
    model = model_of(9)
    assert {view.name for view in model._compilation.kept_views if view.computed} == {"spare"}
    solution = model.solve()
    assert solution.value("task", "variable__host", 1) == "b"
    assert solution.statistics["roads"] == {"columns": 1}


def test_what_would_help_is_found_on_the_same_snapshot() -> None:
    with pytest.raises(InfeasibleError) as caught:
        model_of(2).solve()
    assert caught.value.constraints == ("capacity",)
    assert caught.value.relaxations


def test_a_dump_holds_the_tables_alone() -> None:
    model = model_of(9)
    with model.database.snapshot() as snapshot:
        snapshot.keep_views(model._compilation.kept_views)
        snapshot.define_view("spare", "SELECT 1")  # it stays as it is
        assert len(snapshot.rows("SELECT room FROM spare")) == 2
        copy = model.database.clone(snapshot.dump())
    names = {name for (name,) in copy.execute("SELECT name FROM sqlite_master")}
    assert {"host", "task"} <= names
    assert not {"spare", "used"} & names


def test_keeping_a_view_only_reads() -> None:
    with model_of(9).database.snapshot() as snapshot, pytest.raises(RefusedStatementError):
        snapshot.keep_views([KeptView("taken", "SELECT load_extension('x')", True, frozenset())])
