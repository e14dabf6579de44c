"""Views that read no variable are DuckDB's, with all that it has, and so are the mistakes in them."""

from __future__ import annotations

import pytest

import mgmt
from mgmt.errors import PolicyError, UnsupportedConstructError
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA, hosts, tasks

ROWS = {
    "host": hosts(("a", "r1", 4, True), ("b", "r1", 9, True), ("c", "r2", 2, False)),
    "task": tasks((1, 1, "a"), (2, 4, "a")),
}


def build(view: str, check: str) -> mgmt.Solution:
    """Solve with a view ``v`` and a check of the pairs of tasks and its rows."""
    state = database(SCHEMA, ROWS)
    text = f"CREATE VIEW v AS\n{view};\nCREATE CONSTRAINT c AS SELECT * FROM task, v CHECK {check}"
    return mgmt.Model.build(state, mgmt.SourceText("p", text)).solve(budget=20)


@pytest.mark.parametrize(
    ("view", "check"),
    [
        ("SELECT avg(size) AS n FROM host", "n = 5"),
        ("SELECT rack, avg(size) AS n FROM host GROUP BY rack", "rack = 'r2' AND n = 2 OR n = 6.5"),
        ("SELECT avg(weight) AS n FROM task", "n = 2.5"),
        ("SELECT rack FROM host GROUP BY rack HAVING avg(size) > 5", "rack = 'r1'"),
        ("SELECT avg(size) FILTER (WHERE up) AS n FROM host", "n = 6.5"),
        ("SELECT max(name) AS n FROM host", "n = 'c'"),
        ("SELECT round(sum(size)) + length(min(name)) AS n FROM host", "n = 16"),
        ("SELECT CASE WHEN avg(size) > 4 THEN 'large' ELSE 'small' END AS kind FROM host", "kind = 'large'"),
        ("SELECT string_agg(name, '-' ORDER BY size DESC) AS names FROM host", "names = 'b-a-c'"),
        ("SELECT rack, list(name ORDER BY name) AS l FROM host GROUP BY ALL", "l = ['a', 'b'] OR l = ['c']"),
        ("FROM host SELECT count(*) AS n WHERE name ILIKE 'A%'", "n = 1"),
        ("SELECT unnest([1, 2]) AS n", "n BETWEEN 1 AND 2"),
        ("SELECT group_concat(size, '+' ORDER BY name) AS sizes FROM host", "sizes = '4+9+2'"),
        ("SELECT rack, string_agg(name || '!', '' ORDER BY name) AS l FROM host GROUP BY rack", "l IN ('a!b!', 'c!')"),
        ("VALUES (1, 'x'), (2, 'y')", "col0 = 1 AND col1 = 'x' OR col0 + 1 = 3"),
        ("SELECT k, l + 1 AS l FROM (VALUES ('a', 1), ('b', NULL)) AS w (k, l)", "k = 'b' OR l = 2"),
        ("SELECT name, k.n FROM host NATURAL JOIN (VALUES ('a', 7), ('z', 8)) AS k (name, n)", "name = 'a' AND n = 7"),
        ("SELECT * FROM host NATURAL JOIN (SELECT name, size AS s FROM host) AS h", "size = s"),
        ("SELECT * FROM host JOIN (SELECT name, rack AS r FROM host) AS h USING (name)", "rack = r"),
    ],
)  # fmt: skip
def test_what_duckdb_has_is_computed_there(each_database: str, view: str, check: str) -> None:
    assert each_database
    assert build(view, check).deltas == ()
    with pytest.raises(mgmt.InfeasibleError):
        build(view, f"NOT ({check})")


@pytest.mark.parametrize(
    ("view", "column", "hint"),
    [
        ("SELECT avg(variable__host = 'a') AS n FROM task", 12, "variables take"),
        ("SELECT 'current_time' AS t, current_time AS d FROM host", 29, "now()"),
        ("SELECT random() AS r FROM host", 8, "same state"),
        ("SELECT size + random() AS r FROM host", 15, "same state"),
    ],
)
def test_what_the_solver_does_not_know_and_what_is_another_value_each_time_is_refused(
    view: str, column: int, hint: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        build(view, "TRUE")
    assert (type(caught.value), caught.value.line) == (UnsupportedConstructError, 2), caught.value
    assert caught.value.column == column, caught.value
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("view", "column"),
    [
        ("SELECT name FROM host UNION ALL SELECT name, size FROM host", 1),
        ("SELECT name FROM host WHERE name IN (SELECT name, size FROM host)", 37),
        ("SELECT rack, avg(size) AS n FROM host", 8),
        ("SELECT rack FROM host WHERE avg(size) > 1", 29),
        ("SELECT * FROM (VALUES (1), (2, 3)) AS v (x)", 29),
    ],
)
def test_a_view_that_nobody_reads_is_looked_at_all_the_same(
    each_database: str, view: str, column: int
) -> None:
    assert each_database
    state = database(SCHEMA, ROWS)
    text = f"CREATE VIEW v AS\n{view}; CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE"
    with pytest.raises(PolicyError) as caught:
        mgmt.Model.build(state, mgmt.SourceText("p", text))
    assert (caught.value.line, caught.value.column) == (2, column), caught.value
    assert caught.value.hint
    assert "in FROM" not in caught.value.message


def test_what_the_database_complains_of_is_shown_where_it_stands() -> None:
    state = database(SCHEMA, ROWS)
    text = "CREATE VIEW v AS\nSELECT name,\n  likelihood(name) AS p FROM host;"
    with pytest.raises(PolicyError, match=r"(?i)likelihood") as caught:
        mgmt.Model.build(
            state, mgmt.SourceText("p", f"{text} CREATE CONSTRAINT c AS SELECT * FROM task CHECK TRUE")
        )
    assert (caught.value.line, caught.value.column) == (3, 3), caught.value
