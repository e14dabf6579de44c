"""A statement that keeps the database busy for too long is stopped, on both kinds of database, where it is written."""

from __future__ import annotations

from threading import Event

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import SolveTimeout, StatementTimeoutError
from mgmt.state.database import Database, Snapshot
from mgmt.state.duckdb_access.watchdog import Watchdog
from tests.mgmt.support import BACKEND, database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY);
CREATE TABLE task (id INTEGER PRIMARY KEY, home TEXT,
    variable__home TEXT NOT NULL REFERENCES host (name));
"""
CROSSED = ", ".join(f"task AS t{number}" for number in range(12))
ENDLESS = {
    "a view": f"CREATE VIEW v AS SELECT count(*) AS n FROM {CROSSED};\n"
    "CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK variable__home <> 'a' OR n > 5",
    "a constraint": "\nCREATE CONSTRAINT c AS SELECT * FROM task WHERE"
    f" (SELECT sum(t1.id) FROM {CROSSED}) > id CHECK variable__home = 'a'",
}
ROWS = {"host": [{"name": "a"}, {"name": "b"}], "task": [{"id": number, "home": "a"} for number in range(20)]}
PLAIN = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__home = 'b'"


@pytest.fixture
def state(each_database: str) -> Database:
    """20 tasks, of whose products there is no end, and little patience."""
    assert each_database
    made = Database(BACKEND.address(), statement_seconds=0.05)
    BACKEND.opened.append(made)
    made.load_schema(SCHEMA)
    made.replace_rows(ROWS)
    return made


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_query_is_stopped_when_it_is_solved(state: Database, text: str) -> None:
    model = Model.build(state, text)  # over empty tables it ends at once
    with pytest.raises(StatementTimeoutError, match=r"^policy:\d+:\d+: (c|v): .* more than 0.05 s") as caught:
        model.solve()
    assert caught.value.seconds == 0.05
    assert Model.build(state, PLAIN).solve().deltas, "the state can still be solved"


def test_a_query_that_is_endless_without_rows_is_stopped_when_it_is_built(state: Database) -> None:
    ten = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(10))
    crossed = ", ".join(f"({ten}) AS t{number}" for number in range(12))
    view = f"\nCREATE VIEW v AS SELECT count(*) AS n FROM {crossed};"
    with pytest.raises(StatementTimeoutError, match=r"^policy:2:\d+: .* although all tables are empty"):
        Model.build(state, f"{view} CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK id < n")


def test_over_empty_tables_a_statement_has_its_time_on_a_busy_machine_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = iter((5.0, 5.0, 5.0, 5.002))  # of the processor, while time goes on
    monkeypatch.setattr("time.clock_gettime", lambda _: next(told))
    stopped = Event()
    with Watchdog().over(0.001, stopped.set, of_processor=True):
        assert stopped.wait(60)
    assert not list(told)


def test_a_private_copy_has_the_same_limit(state: Database) -> None:
    with pytest.raises(StatementTimeoutError), state.clone().snapshot() as snapshot:
        snapshot.rows(f"SELECT count(*) FROM {CROSSED}")
    assert state.execute("SELECT count(*) FROM task") == [(20,)]


@pytest.mark.slow("each ends when its time is over, a second")
@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_the_budget_of_a_solve_bounds_what_the_database_computes(each_database: str, text: str) -> None:
    """The statement alone could take half a minute."""
    assert each_database
    state = database(SCHEMA, ROWS)
    model = Model.build(state, text)
    with pytest.raises(
        SolveTimeout, match=r"^policy:\d+:\d+: (c|v): the state database .* after 1 s"
    ) as caught:
        model.solve(budget=0.01)
    assert "raise the budget" in caught.value.hint
    assert model.satisfiable(0.01) is None
    assert Model.build(state, PLAIN).solve().deltas, "the state can still be solved"


def test_statements_have_their_time_together(each_database: str) -> None:
    assert each_database
    state = database(SCHEMA, ROWS)
    with state.snapshot() as snapshot:
        with pytest.raises(StatementTimeoutError) as caught, snapshot.within(0.05):
            _ask_for_ever(snapshot)
        assert caught.value.together
        assert snapshot.rows("SELECT count(*) FROM task AS a, task AS b, task AS c, task AS d") == [
            (160_000,)
        ]


def _ask_for_ever(snapshot: Snapshot) -> None:
    while True:
        snapshot.rows("SELECT count(*) FROM task AS a, task AS b, task AS c")
