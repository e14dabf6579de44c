"""What a view without variables leaves to the database: the same rows in both, bounded in time and in rows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

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
    TypeMismatchError,
    UnsupportedConstructError,
)
from mgmt.state.database import Database
from tests.mgmt.support import BACKEND, database
from tests.mgmt.test_meaning import SCHEMA, hosts, tasks
from tests.postgres_server import PostgresServer

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


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n * 2 FROM r WHERE n < 9) SELECT n AS x FROM r",
         [1, 2, 4, 8, 16]),
        ("WITH RECURSIVE r (a, b) AS (SELECT 1, 1 UNION ALL SELECT b, a + b FROM r WHERE b < 9) SELECT"
         " max(b) AS x FROM r", [13]),
        ("WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT (n + 1) % 3 FROM r) SELECT n AS x FROM r ORDER BY n",
         [0, 1, 2]),
        ("WITH RECURSIVE up (n, size) AS (SELECT name, size FROM host WHERE name = 'a' UNION ALL SELECT h.name, h.size"
         " FROM up JOIN host h ON h.size = up.size + 2) SELECT n AS x FROM up ORDER BY x", ["a", "b", "c"]),
        ("WITH RECURSIVE big AS (SELECT name FROM host WHERE size > 6), r (l) AS (SELECT min(name) FROM"
         " big UNION ALL SELECT"
         " l || 'x' FROM r WHERE length(l) < 3) SELECT l AS x FROM r", ["b", "bx", "bxx"]),
        ("SELECT s AS x FROM (WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n <"
         " 4) SELECT sum(n) AS s"
         " FROM r) AS t", [10]),
        ("WITH w (a, b) AS (SELECT name, size FROM host) SELECT a AS x FROM w WHERE b > 6 ORDER BY a", ["b", "c"]),
        ("SELECT t.a AS x FROM (SELECT size, name FROM host) AS t (n, a) WHERE n < 6", ["a"]),
        ("SELECT h.x FROM host AS h (x) WHERE x > 'b'", ["c"]),
        ("SELECT n AS x FROM generate_series(1, 4) AS n", [1, 2, 3, 4]),
        ("SELECT g.n AS x FROM generate_series(7, 1, -3) AS g (n)", [7, 4, 1]),
        ("SELECT generate_series AS x FROM generate_series(2, 1)", []),
        ("SELECT n AS x FROM host, generate_series(1, (SELECT max(size) FROM host)) AS n WHERE name ="
         " 'a' AND n > size ORDER BY n",
         [6, 7, 8, 9]),
        ("SELECT n AS x FROM generate_series(9223372036854775806, 9223372036854775807) AS n",
         [9223372036854775806, 9223372036854775807]),
        ("SELECT to_char(d, 'DD.') AS x FROM generate_series(DATE '2026-01-30', DATE '2026-02-03',"
         " INTERVAL '2 days') AS g (d)",
         ["30.", "01.", "03."]),
        ("SELECT stddev(size) AS x FROM host", [2.0]),
        ("SELECT variance(size) + var_pop(size) * 3 AS x FROM host", [12.0]),
        ("SELECT stddev_samp(size) + stddev_pop(size) AS x FROM host WHERE name = 'a'", [None]),
        ("SELECT stddev_pop(size) AS x FROM host WHERE name = 'a'", [0.0]),
        ("SELECT covar_pop(size, size + 1) + covar_samp(size, 1) AS x FROM host", [8 / 3]),
        ("SELECT corr(size, 2 * size) - corr(size, -size) AS x FROM host", [2.0]),
        ("SELECT corr(size, 1) AS x FROM host", [None]),
        ("SELECT regr_slope(size, 2 * size) + regr_intercept(size, 2 * size) + regr_r2(size, size) +"
         " regr_count(size, size)"
         " AS x FROM host", [4.5]),
        ("SELECT bit_and(size) * 100 + bit_or(size) AS x FROM host", [115]),
        ("SELECT stddev(size) FILTER (WHERE size <> 7) AS x FROM host", [8**0.5]),
        ("SELECT round(variance(size) OVER (ORDER BY name ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)) AS x FROM host",
         [None, 8.0, 2.0]),
        ("SELECT rack AS x FROM host GROUP BY rack HAVING stddev(size) IS NULL", ["r2"]),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY size) AS x FROM host", [7.0]),
        ("SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY size) FILTER (WHERE up) AS x FROM host", [6.0]),
        ("SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY name) AS x FROM host WHERE size > 5", ["b"]),
        ("SELECT percentile_disc(1) WITHIN GROUP (ORDER BY size) + 1 AS x FROM host", [10]),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY size) AS x FROM host WHERE FALSE", [None]),
        ("SELECT mode() WITHIN GROUP (ORDER BY rack) || mode() WITHIN GROUP (ORDER BY name) AS x FROM host", ["r1a"]),
        ("SELECT sum(DISTINCT size % 4) AS x FROM host", [4]),
        ("SELECT sum(size) FILTER (WHERE up) OVER (PARTITION BY rack) AS x FROM host", [14, 14, None]),
        ("SELECT nth_value(name, 2) OVER (ORDER BY size ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED"
         " FOLLOWING) AS x FROM host",
         ["c", "c", "c"]),
        ("SELECT name COLLATE \"C\" AS x FROM host ORDER BY name COLLATE \"C\" DESC", ["c", "b", "a"]),
        ("SELECT name AS x FROM host ORDER BY name OFFSET 2", ["c"]),
        ("SELECT coalesce(rack, '*') || sum(size) AS x FROM host GROUP BY ROLLUP (rack)", ["r114", "r27", "*21"]),
        ("SELECT coalesce(rack, '-') || grouping(rack, up) || sum(size) AS x FROM host GROUP BY CUBE (rack, up)",
         ["r1014", "r207", "r1114", "r217", "-27", "-214", "-321"]),
        ("SELECT rack AS x FROM host GROUP BY GROUPING SETS ((rack), (), (rack, up)) HAVING count(*) > 1",
         ["r1", None, "r1"]),
        ("SELECT count(*) AS x FROM host WHERE FALSE GROUP BY ROLLUP (rack)", [0]),
        ("SELECT left('abc', 2) || left('abc', -1) || left('abc', -9) || left('a', 9) AS x", ["ababa"]),
        ("SELECT right('abc', 2) || right('abc', -1) || right('abc', 0) || right('abc', -9) AS x", ["bcbc"]),
        ("SELECT lpad('7', 3, '0') || lpad('abcd', 2, 'x') || lpad('a', 4, 'xy') || lpad('a', 2) ||"
         " lpad('a', -1, 'x') AS x",
         ["007abxyxa a"]),
        ("SELECT rpad('7', 3, '0') || rpad('abcd', 2, 'x') || rpad('a', 4, 'xy') || rpad('a', 2, '') AS x",
         ["700abaxyxa"]),
        ("SELECT repeat('ab', 2) || repeat('x', -1) || reverse('añb') AS x", ["ababbña"]),
        ("SELECT split_part('a,b,c', ',', 2) || split_part('a', ',', 3) || split_part('a', '', 1) AS x", ["ba"]),
        ("SELECT translate('hello', 'elo', 'ip') || translate('aa', 'aa', 'bc') AS x", ["hippbb"]),
        ("SELECT ascii('é') + ascii('') + ascii('ab') + length(chr(233)) AS x", [233 + 97 + 1]),
        ("SELECT md5('é') AS x", ["66ddcd97cfdeabb2f6fb8a999b4bc76f"]),
        ("SELECT left(NULL, 2) AS x", [None]),
        ("SELECT rack AS x FROM host GROUP BY GROUPING SETS ((rack))", ["r1", "r2"]),
        ("SELECT count(*) AS x FROM task GROUP BY ROLLUP (weight)", [1, 1, 2]),
        ("SELECT rack AS x, up AS u, max(rack) AS m FROM host GROUP BY ROLLUP (1), u", ["r1", "r2", None, None]),
        ("SELECT sum(size) AS x FROM host GROUP BY ROLLUP (size / 6)", [5, 16, 21]),
    ],
)  # fmt: skip
def test_the_database_computes_it(each_database: str, view: str, expected: list[object]) -> None:
    assert each_database
    found = rows(view)
    if "ORDER BY" not in view.upper().replace("OVER (ORDER BY", "") and "RECURSIVE" not in view:
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert found == expected


@pytest.mark.parametrize(
    ("view", "kind", "hint"),
    [
        ("WITH RECURSIVE r AS (SELECT n FROM r UNION ALL SELECT 1 AS n) SELECT n AS x FROM r",
         UnsupportedConstructError, "UNION ALL SELECT"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n EXCEPT SELECT n FROM r) SELECT n AS x FROM r",
         UnsupportedConstructError, "UNION ALL SELECT"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT a.n FROM r a, r b) SELECT n AS x FROM r",
         UnsupportedConstructError, "once"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT (SELECT max(n) FROM r)) SELECT n AS x FROM r",
         UnsupportedConstructError, "once"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r LIMIT 5) SELECT n AS x FROM r",
         UnsupportedConstructError, "read"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n, 2 FROM r) SELECT n AS x FROM r",
         PolicySyntaxError, "as many"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n || 'x' FROM r) SELECT n AS x FROM r", PolicyError, ""),
        ("WITH RECURSIVE r AS (SELECT 'a' AS n UNION ALL SELECT 1 FROM r) SELECT n AS x FROM r",
         TypeMismatchError, "CAST"),
        ("WITH RECURSIVE r AS (SELECT variable__host AS n FROM task UNION ALL SELECT n FROM r) SELECT n AS x FROM r",
         UnsupportedConstructError, "SELECT"),
        ("WITH r (a, b) AS (SELECT 1 AS n) SELECT a AS x FROM r", PolicySyntaxError, "at most one name"),
        ("SELECT value AS x FROM json_tree('[1,2]')", UnsupportedConstructError, "table"),
        ("SELECT lower((SELECT max(value) FROM json_each('[1]'))) AS x", UnsupportedConstructError, "by itself"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY size DESC) AS x FROM host",
         UnsupportedConstructError, "upwards"),
        ("SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY size) OVER () AS x FROM host",
         UnsupportedConstructError, "database computes"),
        ("SELECT percentile_disc(1.5) WITHIN GROUP (ORDER BY size) AS x FROM host",
         UnsupportedConstructError, "up to 1"),
        ("SELECT stddev(size, 1) AS x FROM host", PolicyError, ""),
        ("SELECT to_hex(size) AS x FROM host", UnsupportedConstructError, "numbers"),
        ("SELECT substr(name, -1) AS x FROM host", UnsupportedConstructError, "right"),
        ("SELECT substring(name FROM 'a+') AS x FROM host", UnsupportedConstructError, "right"),
        ("SELECT split_part(name, 'a', 0) AS x FROM host", DataError, ""),
        ("SELECT length(repeat(name, 1000000000)) AS x FROM host", PolicyError, ""),
        ("SELECT name COLLATE nocase AS x FROM host", UnsupportedConstructError, "lower"),
        ("SELECT rack AS x FROM host GROUP BY ROLLUP (rack) ORDER BY rack",
         UnsupportedConstructError, "make it a view"),
        ("SELECT 1 AS x FROM host GROUP BY CUBE (name, rack, size, up, name || 'a', name || 'b', name || 'c')",
         PolicySyntaxError, "needed"),
        ("SELECT variable__host AS x FROM task GROUP BY ROLLUP (variable__host)",
         UnsupportedConstructError, "UNION ALL"),
        ("SELECT stddev(weight) AS x FROM task WHERE variable__host = 'a'",
         UnsupportedConstructError, "database computes"),
        ("SELECT id AS x FROM task WHERE stddev(weight) > 1", PolicySyntaxError, "HAVING"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_with_place_and_advice(
    each_database: str, view: str, kind: type[PolicyError], hint: str
) -> None:
    assert each_database
    with pytest.raises(kind) as caught:
        rows(view)
    assert caught.value.line in {1, 2}, caught.value
    assert hint in caught.value.hint


# ---- what would never end ----------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE r AS (SELECT {} UNION ALL SELECT n + 1 FROM r) SELECT {} AS x FROM r"


@pytest.mark.parametrize(
    "view",
    [
        ENDLESS.format("1 AS n", "n"),
        ENDLESS.format("1 AS n", "count(*)"),
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT 1 - n FROM r UNION ALL SELECT 0) SELECT n AS x FROM r",
        "SELECT count(*) AS x FROM generate_series(1, 1000000000000) AS n",
        "WITH RECURSIVE r AS (SELECT DATE '2026-01-01' AS d UNION ALL SELECT d + 0 FROM r) SELECT d AS x FROM r",
        "SELECT count(*) AS x FROM generate_series(1, 9999) a, generate_series(1, 9999) b, generate_series(1, 9999) c",
        "WITH RECURSIVE r AS (SELECT 'x' AS n UNION ALL SELECT n || n FROM r) SELECT n AS x FROM r",
    ],
)
def test_what_never_ends_is_refused_when_it_is_built(each_database: str, view: str) -> None:
    """Over empty tables, within a second."""
    assert each_database
    with pytest.raises(PolicyError) as caught:
        build(view)
    assert isinstance(
        caught.value, (StatementTimeoutError, PolicySyntaxError, DataError, UnsupportedConstructError)
    )
    assert caught.value.position is not None
    assert caught.value.hint


def multiplied() -> Iterator[tuple[str, str]]:
    """Texts that grow when they are written out, each into a million or more if nobody counted."""
    aliases = ", ".join(f"coalesce(a{n}, a{n}) AS a{n + 1}" for n in range(60))
    yield "aliases that double", f"SELECT size AS a0, {aliases}, DATE '2026-01-01' AS x FROM host"
    keys = ", ".join(f"size + {n}" for n in range(40))
    yield "a cube of many", f"SELECT 1 AS x FROM host GROUP BY CUBE ({keys})"
    many = ", ".join(["ROLLUP (rack, up)"] * 12)
    yield "a product of many", f"SELECT 1 AS x FROM host GROUP BY {many}"
    series = "1"
    for _ in range(15):
        series = f"(SELECT max(n) FROM generate_series(1, {series}) AS n)"
    yield "series of series", f"SELECT {series} AS x"
    moved = "DATE '2026-01-01'"
    for _ in range(15):
        moved = (
            f"(DATE '2026-01-01' + ({moved} - DATE '2026-01-01') * INTERVAL '1 year 1 day 1 second')::date"
        )
    yield "intervals of intervals", f"SELECT {moved} AS x"


@pytest.mark.parametrize(("name", "view"), [pytest.param(*entry, id=entry[0]) for entry in multiplied()])
def test_what_multiplies_when_it_is_written_out_is_refused(each_database: str, name: str, view: str) -> None:
    assert each_database
    with pytest.raises(PolicyError) as caught:
        build(view)
    assert caught.value.position is not None, name


def test_casts_of_casts_stay_short(each_database: str) -> None:
    assert each_database
    text = "'2026-11-23'"
    for _ in range(15):
        text = f"CAST(lower({text}) AS DATE)"
    assert rows(f"SELECT {text} AS x") == ["2026-11-23"]


def test_what_never_ends_over_rows_ends_with_the_budget(each_database: str) -> None:
    assert each_database
    model = build(ENDLESS.format("size AS n FROM host", "count(*)"))
    with pytest.raises(SolveTimeout) as caught:
        model.solve(budget=0.1)
    assert caught.value.position is not None


def test_the_rows_of_one_query_are_bounded(each_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert each_database
    monkeypatch.setattr("mgmt.state.store.MOST_ROWS", 20)
    rule = "CREATE CONSTRAINT c AS SELECT * FROM task, generate_series(1, (SELECT {} FROM host)) AS n"
    rule += " CHECK variable__host = 'a' OR variable__host = 'b' AND n > 3 OR weight * n > 5"
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


# ---- against PostgreSQL's own arithmetic ---------------------------------------------------------------------


@pytest.mark.postgres
def test_statistics_are_what_postgresql_makes_of_random_rows(postgres_server: PostgresServer) -> None:
    random = Random(5)
    schema = """CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, a BIGINT, b INTEGER, r DOUBLE PRECISION,
      variable__up BOOLEAN)"""
    contents = [
        {
            "id": number,
            "k": number % 7,
            "a": random.choice([None, 10**14 + random.randint(-9, 9)]),
            "b": random.choice([None, 3, random.randint(-1000, 1000)]),
            "r": random.choice([None, random.uniform(-1, 1)]),
        }
        for number in range(200)
    ]
    one = ["stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"]
    two = ["corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count"]
    calls = [f"{name}({column})" for name in one for column in "abr"]
    calls += [f"{name}({left}, {right})" for name in two for left, right in ("ab", "br", "rb")]
    calls += [f"{name}({column})" for name in ("bit_and", "bit_or") for column in "ab"]
    outputs = ", ".join(f"{call} AS x{number}" for number, call in enumerate(calls))
    view = f"CREATE VIEW v AS SELECT k, {outputs} FROM t GROUP BY k;"
    view += " CREATE CONSTRAINT c AS SELECT * FROM t, v CHECK variable__up"
    found = []
    for state in (BACKEND.open(), BACKEND.open(postgres_server.url(postgres_server.new_namespace()))):
        state.load_schema(schema)
        state.insert("t", contents)
        model = Model.build(state, view)
        with state.snapshot() as snapshot, model.available_views(snapshot):
            found.append(snapshot.rows("SELECT * FROM v ORDER BY k"))
    BACKEND.close()
    for ours, theirs in zip(*found, strict=True):
        for call, one_value, other in zip(["k", *calls], ours, theirs, strict=True):
            assert one_value == pytest.approx(other, rel=1e-6, abs=1e-9), call
