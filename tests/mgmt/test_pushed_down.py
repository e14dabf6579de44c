"""What a view without variables leaves to the engine is bounded in time and in rows, and read again when it changes."""

from __future__ import annotations

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import (
    DataError,
    OverflowError,  # noqa: A004 - the published name
    PolicyError,
    PolicySyntaxError,
    SolveTimeout,
    StatementTimeoutError,
)
from mgmt.state.database import Database
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA, hosts, tasks

ROWS = {
    "host": hosts(("a", "r1", 5, True), ("b", "r1", 9, True), ("c", "r2", 7, False)),
    "task": tasks((1, 1, "a"), (2, 4, "a")),
}
DEMAND = "; CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK variable__host IS NOT NULL OR x IS NULL"


def build(view: str, state: Database | None = None) -> Model:
    text = mgmt.SourceText("p", f"CREATE VIEW v AS\n{view}{DEMAND}")
    return Model.build(state or database(SCHEMA, ROWS), text)


def rows(view: str, state: Database | None = None) -> list[object]:
    """What the column x of a view holds, which a solve has read and checked before."""
    model = build(view, state)
    model.solve(budget=20)
    with model.database.snapshot() as snapshot, model.available_views(snapshot):
        return [value for (value,) in snapshot.rows("SELECT x FROM v")]


# ---- what would never end ----------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE r AS (SELECT {} UNION ALL SELECT n + 1 FROM r) SELECT {} AS x FROM r"


@pytest.mark.slow("each ends when its time is over, a second")
@pytest.mark.parametrize(
    "view",
    [
        ENDLESS.format("1 AS n", "n"),
        ENDLESS.format("1 AS n", "count(*)"),
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT 1 - n FROM r UNION ALL SELECT 0) SELECT n AS x FROM r",
        "WITH RECURSIVE r AS (SELECT DATE '2026-01-01' AS d UNION ALL SELECT d + 0 FROM r) SELECT d AS x FROM r",
        "SELECT count(*) AS x FROM generate_series(1, 9999) a, generate_series(1, 9999) b, generate_series(1, 9999) c",
        "WITH RECURSIVE r AS (SELECT 'x' AS n UNION ALL SELECT n || n FROM r) SELECT n AS x FROM r",
    ],
)
def test_what_never_ends_is_stopped_when_it_is_solved(each_database: str, view: str) -> None:
    assert each_database
    with pytest.raises(PolicyError) as caught:
        build(view).solve(budget=0.1)
    assert isinstance(caught.value, (SolveTimeout, StatementTimeoutError, PolicySyntaxError, DataError))
    assert caught.value.position is not None
    assert caught.value.hint


def test_what_never_ends_over_rows_ends_with_the_budget(each_database: str) -> None:
    assert each_database
    model = build(ENDLESS.format("size AS n FROM host", "count(*)"))
    with pytest.raises(SolveTimeout) as caught:
        model.solve(budget=0.1)
    assert caught.value.position is not None


def test_the_rows_of_one_query_are_bounded(each_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert each_database
    monkeypatch.setattr("mgmt.state.duckdb_access.engine.MOST_ROWS", 20)
    rows = "(SELECT unnest(range(1, (SELECT CAST({} AS BIGINT) + 1 FROM host))) AS n)"
    rule = f"CREATE CONSTRAINT c AS SELECT * FROM task, {rows} AS n"
    rule += " CHECK variable__host = 'a' OR variable__host = 'b' AND n.n > 3 OR weight * n.n > 5"
    assert Model.build(database(SCHEMA, ROWS), rule.format("max(size)")).solve(budget=20).status
    with pytest.raises(DataError, match="more than 20 rows") as caught:
        Model.build(database(SCHEMA, ROWS), rule.format("sum(size)")).solve(budget=20)
    assert caught.value.position is not None
    assert "filter" in caught.value.hint


def test_whole_numbers_stay_exact_in_a_recursion(each_database: str) -> None:
    assert each_database
    with pytest.raises(OverflowError):
        rows("WITH RECURSIVE r AS (SELECT 3 AS n UNION ALL SELECT n * n FROM r) SELECT n AS x FROM r")


# ---- solving -----------------------------------------------------------------------------------------------

TREE = """
CREATE TABLE place (name TEXT PRIMARY KEY, within TEXT, spare INTEGER);
CREATE TABLE task (id INTEGER PRIMARY KEY, variable__place TEXT NOT NULL REFERENCES place (name));
"""
PLACES = [
    {"name": "site", "within": None, "spare": 0},
    {"name": "r1", "within": "site", "spare": 0},
    {"name": "r2", "within": "site", "spare": 0},
    {"name": "h1", "within": "r1", "spare": 4},
    {"name": "h2", "within": "r1", "spare": 6},
    {"name": "h3", "within": "r2", "spare": 5},
]
BELOW = """
CREATE VIEW below AS
WITH RECURSIVE b (top, name) AS (
  SELECT name, name FROM place UNION ALL SELECT b.top, p.name FROM b JOIN place p ON p.within = b.name)
SELECT top, name FROM b;
CREATE VIEW even AS
SELECT top, stddev_pop(spare) AS spread FROM below JOIN place ON place.name = below.name WHERE spare > 0 GROUP BY top;
CREATE CONSTRAINT in_the_rack AS
SELECT * FROM task WHERE id = 1 CHECK variable__place IN (SELECT name FROM below WHERE top = 'r1');
CREATE CONSTRAINT on_hosts AS SELECT * FROM task JOIN place ON variable__place = place.name CHECK spare > 0;
CREATE CONSTRAINT where_it_is_even AS
SELECT * FROM task JOIN below ON variable__place = below.name JOIN even ON even.top = below.top
WHERE below.top IN ('r1', 'r2') AND even.spread > 1 CHECK FALSE;
CREATE CONSTRAINT most AS SELECT * FROM task JOIN place ON variable__place = place.name MAXIMIZE sum(spare);
"""


def test_a_solve_reads_recursions_and_spreads_again_when_their_rows_change(each_database: str) -> None:
    """The oracle computes them once more, and a view that is kept is not older than its rows."""
    assert each_database
    state = database(TREE, {"place": PLACES, "task": [{"id": 1}, {"id": 2}]})
    model = Model.build(state, BELOW)
    assert model.solve(budget=20).assignments["task", "variable__place"] == {(1,): "h2", (2,): "h2"}
    state.execute("UPDATE place SET spare = 9 WHERE name = 'h1'")  # r1 is uneven now, and 1 must go there
    with pytest.raises(mgmt.InfeasibleError):
        model.solve(budget=20)
    state.execute("UPDATE place SET within = 'r1' WHERE name = 'h3'")
    state.execute("UPDATE place SET within = 'r2' WHERE name = 'h1'")
    again = model.solve(budget=20).assignments
    assert again["task", "variable__place"] == {(1,): "h2", (2,): "h1"}
    assert again == Model.build(state, BELOW).solve(budget=20).assignments
    assert again == Model.build(state.clone(), BELOW).solve(budget=20).assignments
