"""What an encoding asks the database is kept as long as it is the same, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random

import pytest

from mgmt.compiler.encoding import answers as module
from mgmt.compiler.encoding import encoder
from mgmt.compiler.encoding.answers import KeptAnswers, Statements
from mgmt.compiler.encoding.encoder import Encoder
from mgmt.compiler.encoding.replay import Journal, Told
from mgmt.compiler.model import Model
from mgmt.compiler.relational.dependencies import may_change
from mgmt.errors import DataError, InfeasibleError
from mgmt.optimization.general.minizinc import minizinc
from mgmt.state.database import Database, Snapshot
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, room INTEGER NOT NULL, up BOOLEAN NOT NULL, until TIMESTAMP);
CREATE TABLE task (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name));
CREATE TABLE friend (task INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (task, other));
"""
POLICY = """
CREATE VIEW open_host AS SELECT name, room FROM host WHERE up;
CREATE CONSTRAINT only_up AS SELECT id FROM task CHECK variable__host IN (SELECT name FROM open_host);
CREATE VIEW used AS SELECT host.name AS host_name, host.room AS most, sum(task.size) AS load
  FROM task JOIN host ON variable__host = host.name WHERE task.size < host.room GROUP BY host.name, host.room;
CREATE VIEW small AS SELECT host_name AS small_name FROM used WHERE most < 3;
CREATE CONSTRAINT room AS SELECT host_name FROM used CHECK load <= most;
CREATE CONSTRAINT not_small AS SELECT id FROM task, small WHERE task.size > 1 CHECK variable__host <> small_name;
CREATE CONSTRAINT together AS SELECT id FROM task
  CHECK NOT EXISTS (SELECT 1 FROM friend JOIN task AS t ON t.id = friend.other
    WHERE friend.task = task.id AND t.variable__host <> task.variable__host);
CREATE CONSTRAINT stays AS SELECT id FROM task WHERE host IS NOT NULL MAXIMIZE sum(variable__host = host);
CREATE CONSTRAINT spare AS SELECT id FROM task JOIN host ON variable__host = host.name
  MAXIMIZE sum(host.room - task.size) TIER 2;
"""
CHANGES = (
    "UPDATE task SET size = 1 WHERE id = 1",
    "UPDATE task SET host = 'h2' WHERE id = 0",
    "UPDATE host SET room = 1 WHERE name = 'h1'",
    "UPDATE host SET up = name <> 'h2'",
    "INSERT INTO host (name, room, up) VALUES ('a', 4, TRUE)",
    "INSERT INTO task (id, size) VALUES (-1, 1)",
    "INSERT INTO friend VALUES (0, 1)",
    "DELETE FROM host WHERE name = 'h3'",
    "UPDATE task SET id = 10 - id",
)


def state_of(hosts: int = 6) -> Database:
    state = database(SCHEMA)
    state.insert(
        "host", [{"name": f"h{n}", "room": n % 4 + 2, "up": n > 0, "until": None} for n in range(hosts)]
    )
    state.insert("task", [{"id": n, "size": 1 + n % 2, "host": None} for n in range(3)])
    state.insert("friend", [{"task": 0, "other": 2}])
    return state


def encoded(model: Model, snapshot: Snapshot, kept: KeptAnswers | None = None) -> str:
    with snapshot.scratch():
        encoding = Encoder(snapshot, kept).encode(model.program, model.catalog)
        rows = {name: [dict(row) for row in rows] for name, rows in encoding.rows.items()}
        return f"{minizinc(encoding.problem)} {rows} {[list(column.current) for column in encoding.columns]}"


def asked(model: Model, kept: KeptAnswers) -> int:
    """Rows that an encoding asked for, which is what it is without anything kept."""
    before = kept.fetched_rows
    with model.database.snapshot() as snapshot:
        assert encoded(model, snapshot, kept) == encoded(model, snapshot)
    return kept.fetched_rows - before


def built(state: Database, policy: str = POLICY) -> tuple[Model, KeptAnswers]:
    model = Model.build(state, policy)
    return model, KeptAnswers(below=model.partition.below)


def test_after_a_small_change_only_what_it_touched_is_asked() -> None:
    model, kept = built(state_of(50))
    first = asked(model, kept)
    assert asked(model, kept) == 0
    model.database.execute("UPDATE task SET host = 'h1' WHERE id = 1")
    assert 0 < asked(model, kept) <= first / 5


def test_every_kind_of_change_is_seen() -> None:
    model, kept = built(state_of())
    asked(model, kept)
    for change in CHANGES:
        model.database.execute(change)
        assert asked(model, kept) > 0, change
        assert asked(model, kept) == 0, change
    model.database.replace_rows({"host": [{"name": name, "room": 4, "up": True} for name in "xy"]})
    assert asked(model, kept) > 0
    with pytest.raises(DataError):
        model.database.insert("host", [{"name": "x", "room": 9, "up": True}])
    assert asked(model, kept) == 0


def random_change(draw: Random) -> str:
    host, task, other, number = (
        f"h{draw.randrange(7)}",
        draw.randrange(-1, 5),
        draw.randrange(3),
        draw.randrange(1, 6),
    )
    return draw.choice(
        (
            f"UPDATE task SET host = '{host}' WHERE id = {task}",
            f"UPDATE task SET host = NULL WHERE id = {task}",
            f"UPDATE task SET size = {number} WHERE id = {task}",
            f"UPDATE host SET room = {number} WHERE name = '{host}'",
            f"UPDATE host SET up = NOT up WHERE name = '{host}'",
            f"INSERT INTO host (name, room, up) SELECT '{host}', {number}, TRUE"
            f" WHERE '{host}' NOT IN (SELECT name FROM host)",
            f"INSERT INTO task (id, size) SELECT {task}, {number} WHERE {task} NOT IN (SELECT id FROM task)",
            f"DELETE FROM host WHERE name = '{host}' AND name > 'h1'",
            f"DELETE FROM task WHERE id = {task} AND id > 0",
            f"INSERT INTO friend SELECT {task}, {other}"
            f" WHERE ({task}, {other}) NOT IN (SELECT task, other FROM friend)",
            f"DELETE FROM friend WHERE task = {task}",
        )
    )


def test_steps_that_are_taken_over_are_those_of_a_new_model(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    class Watched(Journal):
        def is_told_again(self, told: Sequence[Told]) -> bool:
            taken.append(super().is_told_again(told))
            return taken[-1]

    monkeypatch.setattr(encoder, "Journal", Watched)
    draw = Random(1)
    for _ in range(2):
        model, kept = built(state_of())
        asked(model, kept)
        for _ in range(12):
            model.database.execute(random_change(draw))
            asked(model, kept)
            if draw.random() < 0.3:
                assert outcome(model) == outcome(Model.build(model.database, POLICY))
    assert taken.count(True) > 50
    assert taken.count(False) > 5


def outcome(model: Model) -> object:
    try:
        return {each.name: each.after for each in model.solve(10, clashes=False).objectives}
    except InfeasibleError:
        return None


def test_snapshots_of_several_states_do_not_mix() -> None:
    model, kept = built(state_of())
    with model.database.snapshot() as before:
        first = encoded(model, before, kept)
        model.database.execute("UPDATE host SET up = name = 'h0'")
        with model.database.snapshot() as after:
            assert encoded(model, after, kept) == encoded(model, after) != first
        assert encoded(model, before, kept) == first


def test_what_asks_for_the_time_is_asked_each_time() -> None:
    policy = """
      CREATE VIEW leased AS SELECT name FROM host WHERE until > now();
      CREATE CONSTRAINT on_leased AS SELECT id FROM task CHECK variable__host IN (SELECT name FROM leased);
      CREATE CONSTRAINT soon AS SELECT id FROM task JOIN host ON variable__host = host.name
        MINIMIZE sum(CAST(until < now() + INTERVAL '5 days' AS INTEGER))
    """
    model, kept = built(state_of(), policy)
    model.database.execute("UPDATE host SET until = TIMESTAMP '2026-11-20' + room * INTERVAL '1 day'")
    found, fetched = [], [0]
    for day in (1, 22, 23):
        with model.database.snapshot(datetime(2026, 11, day)) as snapshot:
            found.append(encoded(model, snapshot, kept))
            assert found[-1] == encoded(model, snapshot)
        fetched.append(kept.fetched_rows - sum(fetched))
    assert len(set(found)) == 3
    assert 0 < fetched[2] < fetched[1], "what does not depend on the time is kept"


@pytest.mark.parametrize("bound", ["_MOST_CELLS", "_MOST_STATEMENTS"])
def test_no_more_is_kept_than_a_bound(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, kept = built(state_of())
    first = asked(model, kept)
    kept.trim()
    assert asked(model, kept) == 0
    monkeypatch.setattr(module, bound, 3)
    kept.trim()
    assert asked(model, kept) == first


def test_a_column_without_a_change_is_the_same_object() -> None:
    state, kept = state_of(), KeptAnswers()

    def same(before: module.Answer) -> list[bool]:
        with state.snapshot() as snapshot:
            after = Statements(snapshot, kept).ask("SELECT name, room, up, until FROM host")
        return [one is other for one, other in zip(before.columns, after.columns, strict=True)]

    with state.snapshot() as snapshot:
        before = Statements(snapshot, kept).ask("SELECT name, room, up, until FROM host")
    state.execute("UPDATE host SET room = 7 WHERE name = 'h3'")
    assert same(before) == [True, False, True, True]
    state.execute("UPDATE host SET until = TIMESTAMP '2026-11-20' WHERE name = 'h3'")
    assert same(before) == [True, False, True, False]


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("SELECT 1 FROM host WHERE until > now()", True),
        ("SELECT age(until) FROM host", True),
        ("SELECT localtime", True),
        ("SELECT abs(random() % 5)", True),
        ("SELECT max(room) FROM query_table('host')", True),
        ("SELECT strftime(until), query FROM host", False),
    ],
)
def test_what_does_not_depend_on_what_is_named_alone_is_not_kept(sql: str, changes: bool) -> None:
    assert may_change(sql) is changes
