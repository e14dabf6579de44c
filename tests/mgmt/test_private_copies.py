"""The private copy under a snapshot: used again, brought up to date with what changed, and met by nobody else."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime
from random import Random
from threading import Thread

import pytest

from mgmt.compiler.model import Model
from mgmt.state.database import Database
from mgmt.state.duckdb_access import engine
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, size INTEGER);
CREATE TABLE task (id INTEGER PRIMARY KEY, variable__host TEXT REFERENCES host (name));
"""


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are read for copies, in order."""
    found: list[str] = []
    run = engine.Catalog.run

    def noting(self: engine.Catalog, sql: str, parameters: tuple[object, ...] = ()) -> None:
        if sql.startswith("CREATE OR REPLACE TABLE"):
            found.append(sql.split('"')[1])
        run(self, sql, parameters)

    monkeypatch.setattr(engine.Catalog, "run", noting)
    return found


def contents(state: Database) -> dict[str, list[tuple[object, ...]]]:
    with state.snapshot() as snapshot:
        return {name: snapshot.rows(f"SELECT rowid, * FROM {name}") for name in ("host", "task")}


@pytest.mark.parametrize("seed", range(4))
def test_after_any_changes_it_is_what_a_new_copy_would_be(seed: int) -> None:
    random, state = Random(seed), database(SCHEMA)
    for _ in range(12):
        number = random.randrange(6)
        match random.randrange(3):
            case 0:
                state.execute("DELETE FROM host WHERE name = ?", (f"h{number}",))
                state.insert("host", [{"name": f"h{number}", "size": random.randrange(9)}])
            case 1:
                state.execute("UPDATE host SET size = size + 1 WHERE size > ?", (number,))
            case 2:
                state.replace_rows({"task": [{"id": one} for one in range(number)]})
        assert contents(state) == contents(state.clone())


def test_only_tables_that_changed_are_read(copied: list[str]) -> None:
    state = database(SCHEMA, {"host": [{"name": "a", "size": 1}], "task": [{"id": 1}]})
    contents(state)
    contents(state)
    state.execute("UPDATE host SET size = 2")
    contents(state)
    assert copied == ["host", "task", "host"]


def test_what_is_done_outside_of_a_scratch_is_not_met_again() -> None:
    state = database(SCHEMA, {"host": [{"name": "a", "size": 1}]})
    host = state.schema.table("host")
    with state.snapshot() as snapshot:
        snapshot.write(host, {"size": {("a",): 7}})
    with state.snapshot() as snapshot:
        with snapshot.scratch():
            snapshot.write(host, {"size": {("a",): 7}})
            snapshot.define_view("seen", "SELECT size FROM host")
            assert snapshot.rows("SELECT * FROM seen") == [(7,)]
        assert snapshot.rows("SELECT size FROM host") == [(1,)]


def test_several_at_a_time_are_private() -> None:
    state = database(SCHEMA, {"host": [{"name": "a", "size": 1}]})
    with state.snapshot() as first, state.snapshot() as second, first.scratch():
        first.write(state.schema.table("host"), {"size": {("a",): 7}})
        assert second.rows("SELECT size FROM host") == [(1,)]


def test_threads_take_them_in_turns() -> None:
    state = database(SCHEMA, {"host": [{"name": f"h{n}", "size": n} for n in range(5)], "task": [{"id": 1}]})
    model = Model.build(
        state,
        "CREATE CONSTRAINT c AS SELECT * FROM task JOIN host ON variable__host = name MAXIMIZE sum(size)",
    )
    found: list[object] = []

    def solve() -> None:
        found.extend(model.revised().solve(budget=20).assignments["task", "variable__host"].values())

    threads = [Thread(target=solve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ["h4"] * 4


def test_policies_with_other_views_of_the_same_names_do_not_see_these() -> None:
    state = database(
        SCHEMA, {"host": [{"name": "a", "size": 1}, {"name": "b", "size": 2}], "task": [{"id": 1}]}
    )
    text = (
        "CREATE VIEW good AS SELECT name FROM host WHERE size = {}; CREATE CONSTRAINT c AS SELECT * FROM task"
    )
    text += " CHECK variable__host IN (SELECT name FROM good) AND variable__host IS NOT NULL"
    models = [Model.build(state, text.format(size)) for size in (1, 2)]
    for model, expected in [*zip(models, "ab", strict=True)] * 2:
        assert model.solve(budget=20).assignments["task", "variable__host"] == {(1,): expected}


def test_private_copies_that_nobody_has_any_more_are_closed() -> None:
    """Each kept its memory for ever: an agent that was asked what would help a hundred times had a gigabyte more."""
    original = database(SCHEMA)
    copies = [original.clone(), original.clone().at(datetime(2026, 1, 1, tzinfo=UTC))]
    stores = [weakref.ref(copy._store) for copy in copies]
    assert copies[1].execute("SELECT 1") == [(1,)], "who has it at another time has it"
    del copies
    gc.collect()
    assert [store() for store in stores] == [None, None]
