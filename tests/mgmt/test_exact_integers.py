"""Whole numbers that the database computes are exact in 64 bits, on both kinds of database; beyond is an error."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from mgmt.compiler.model import Model
from mgmt.errors import DataError, OverflowError  # noqa: A004 - the published name
from mgmt.explaining.stages import explain
from mgmt.state.database import Database
from mgmt.state.exact_integers import guard, install
from tests.mgmt.support import database

MOST = 2**63 - 1
SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, size BIGINT NOT NULL, spare BIGINT, share DOUBLE PRECISION NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, home TEXT, variable__home TEXT NOT NULL REFERENCES host (name));
"""


def state(size: int, spare: int | None = 1, share: float = 0.5) -> Database:
    """One task, and two hosts that are alike."""
    hosts: list[dict[str, Any]] = [
        {"name": name, "size": size, "spare": spare, "share": share} for name in ("a", "b")
    ]
    return database(SCHEMA, {"host": hosts, "task": [{"id": 1, "home": "a"}]})


COMPUTED = {
    "a sum": ("size + spare", MOST, 1),
    "a difference": ("size - spare", -MOST, 5),
    "a product": ("size * spare", 2**62, 3),
    "a negation": ("-size", -MOST - 1, 1),
    "a quotient": ("size / spare", -MOST - 1, -1),
    "inside of what is in range": ("(size + spare) / 4", MOST, 1),
    "inside of what is NULL": ("size + spare + nullif(spare, 1)", MOST, 1),
    "beside a real": ("size * spare + share", 2**62, 3),
    "inside of a function": ("coalesce(size + spare, 0) + 1", MOST, 1),
    "of a subquery": ("size + (SELECT max(h.spare) FROM host AS h)", MOST, 1),
    "of an aggregate": ("(SELECT max(h.size) + 1 FROM host AS h)", MOST, 1),
    "of a sum": ("(SELECT sum(h.size) FROM host AS h)", MOST, 1),
    "of a cast": ("CAST(share * 8 AS BIGINT)", 1, 1),
    "of a long sum": (" + ".join(["size"] * 60), 2**58, 1),
    "of more than a call takes": (" + ".join(["size"] * 130), 2**57, 1),
}
PLACES = {
    "a view": "CREATE VIEW v AS SELECT name, {0} AS n FROM host;"
    " CREATE CONSTRAINT c AS SELECT * FROM task JOIN v ON name = home CHECK variable__home = 'b' OR n > 0",
    "a filter": "CREATE CONSTRAINT c AS SELECT * FROM task JOIN host ON name = home WHERE {0} <> 7"
    " CHECK variable__home = 'b'",
    "a check": "CREATE CONSTRAINT c AS SELECT * FROM task JOIN host ON name = home CHECK variable__home = 'b'"
    " OR {0} > 0",
    "an objective": "CREATE CONSTRAINT c AS SELECT * FROM host JOIN task ON name = variable__home"
    " MAXIMIZE sum(CASE WHEN {0} > 0 THEN 1 ELSE 2 END)",
}


@pytest.mark.parametrize("text", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("computed", COMPUTED.values(), ids=COMPUTED)
def test_what_leaves_64_bits_is_an_error_wherever_the_database_computes(
    each_database: str, computed: tuple[str, int, int], text: str
) -> None:
    """Known error of ours: SQLite went on with reals."""
    assert each_database
    expression, size, spare = computed
    share = 2.0**62 if "share" in expression else 0.5
    with pytest.raises(OverflowError, match="64 bits"):
        Model.build(state(size, spare, share), text.format(expression)).solve()


@pytest.mark.parametrize(
    ("place", "name", "column", "row"),
    [
        ("a view", "v", 31, {"name": "a"}),
        ("a filter", "c", 74, {"id": 1, "name": "a"}),
        ("a check", "c", 98, {"id": 1, "name": "a"}),
        ("an objective", "c", 101, {"name": "a", "id": 1}),
    ],
)
def test_an_overflow_names_its_statement_its_row_and_its_place(
    each_database: str, place: str, name: str, column: int, row: dict[str, Any]
) -> None:
    assert each_database
    with pytest.raises(OverflowError) as caught:
        Model.build(state(MOST), PLACES[place].format("size + spare")).solve()
    assert (caught.value.line, caught.value.column, caught.value.row) == (1, column, row)
    assert caught.value.message.startswith(f"{name}: {MOST} + 1 leaves 64 bits in the row")


def test_an_overflow_is_named_where_it_is_computed_and_not_where_it_is_read(each_database: str) -> None:
    assert each_database
    text = (
        "CREATE VIEW one AS SELECT spare,\n sum(size) AS total FROM host GROUP BY spare;\n"
        "CREATE VIEW two AS SELECT total - 1 AS less FROM one;\n"
        "CREATE CONSTRAINT c AS SELECT * FROM task, two CHECK variable__home = 'b' OR less > 5"
    )
    with pytest.raises(
        OverflowError, match=rf"^policy:2:2: one: the sum {2 * MOST} leaves 64 bits"
    ) as caught:
        Model.build(state(MOST), text).solve()
    assert caught.value.row == {"spare": 1}


def test_an_overflow_of_what_needs_no_rows_comes_when_the_model_is_built(each_database: str) -> None:
    assert each_database
    text = (
        f"CREATE VIEW v AS\nSELECT {MOST} + 1 AS n; CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK n > 0"
    )
    with pytest.raises(OverflowError, match=r"^policy:2:\d+: v: "):
        Model.build(state(1), text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__home =\n (SELECT name FROM host)",
        "CREATE VIEW c AS SELECT id,\n (SELECT name FROM host WHERE size >= task.id) AS n FROM task;"
        "CREATE CONSTRAINT d AS SELECT * FROM task JOIN c ON c.id = task.id CHECK variable__home = n",
    ],
)
def test_several_rows_of_a_subquery_name_statement_row_and_place(each_database: str, text: str) -> None:
    assert each_database
    with pytest.raises(DataError, match=r"c: more than one row .* in the row id = 1") as caught:
        Model.build(state(1), text).solve()
    assert (caught.value.line, caught.value.column, caught.value.rows) == (2, 10, ({"id": 1},))
    assert "aggregate it" in caught.value.hint


def test_what_is_explained_is_written_as_one_would_write_it() -> None:
    text = (
        PLACES["a view"]
        .format("size + 2 * (SELECT spare FROM host WHERE name = 'a')")
        .replace("n > 0", "n > id + 1")
    )
    shown = "\n".join(stage.database_sql for stage in explain(Model.build(state(1), text)).queries)
    assert "rota" not in shown.lower()
    assert "sole row" not in shown
    assert '"host"."size" + 2 * (SELECT' in shown


@pytest.mark.parametrize(
    ("expression", "size", "value"),
    [
        ("size + 1", MOST - 1, MOST),
        ("size - spare", -MOST, -MOST - 1),
        ("-size", -MOST, MOST),
        ("size / -1", -MOST, MOST),
        ("size / 0", MOST, None),
        ("size % -1", -MOST - 1, 0),
        ("(size - 7) / 2 * 2 + size % 2", 7 - MOST, 1 - MOST),
        ("CAST(share * 5 AS BIGINT)", 1, 2),
        ("CAST(CAST(size AS TEXT) AS BIGINT)", MOST, MOST),
        ("size + nullif(spare, 1)", MOST, None),
    ],
)
def test_what_stays_in_64_bits_is_exact(
    each_database: str, expression: str, size: int, value: int | None
) -> None:
    assert each_database
    wanted = "n IS NULL" if value is None else f"n = {value}" if value > -MOST else f"n = {value + 1} - 1"
    text = PLACES["a view"].format(expression).replace("n > 0", f"NOT ({wanted})")
    if value is not None and value < -MOST:
        text = text.replace(f"n = {value + 1} - 1", f"n + {MOST} = {value + MOST}")
    assert Model.build(state(size), text).solve().deltas, "the check holds on b alone, for n is that"


def test_a_domain_that_leaves_64_bits_is_an_error(each_database: str) -> None:
    assert each_database
    schema = """
        CREATE TABLE step (n BIGINT PRIMARY KEY);
        CREATE TABLE t (id INTEGER PRIMARY KEY, variable__n BIGINT NOT NULL DOMAIN (SELECT n * 4 FROM step));
    """
    made = database(schema, {"step": [{"n": 2**62}], "t": [{"id": 1}]})
    with pytest.raises(OverflowError, match="64 bits"):
        Model.build(made, "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n > 0").solve()


def test_a_text_that_is_no_number_is_none(each_database: str) -> None:
    assert each_database
    with pytest.raises(DataError):
        Model.build(state(1), PLACES["a view"].format("CAST(name AS BIGINT)")).solve()


# ---- the rewriting itself ---------------------------------------------------------------------------------

EDGES = [0, 1, -1, 2, 3, 2**31, 2**32, 2**62, MOST, -MOST, -MOST - 1]
Cells = st.one_of(st.none(), st.integers(-9, 9), st.sampled_from(EDGES))
Trees = st.recursive(
    st.sampled_from(["a", "b", "c", "2", "0"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"(- {part})"),
        inner.map(lambda part: f"coalesce({part}, 1)"),
        inner.map(lambda part: f"(SELECT {part})"),
    ),
    max_leaves=8,
)


class BeyondError(Exception):
    """The twin's word for an overflow."""


def twin(node: exp.Expr, row: dict[str, int | None]) -> int | None:
    """What a tree is worth, by Python's own integers."""
    if isinstance(node, exp.Column):
        return row[node.name]
    if isinstance(node, exp.Literal):
        return int(node.this)
    if isinstance(node, exp.Coalesce):
        first = twin(node.this, row)
        return twin(node.expressions[0], row) if first is None else first
    if isinstance(node, exp.Select):
        return twin(node.expressions[0], row)
    if isinstance(node, exp.Neg):
        value = twin(node.this, row)
        return None if value is None else _kept(-value)
    if not isinstance(node, exp.Binary):
        return twin(node.this, row)
    left, right = twin(node.this, row), twin(node.expression, row)
    if left is None or right is None:
        return None
    if isinstance(node, (exp.Div, exp.Mod)):
        if right == 0:
            return None
        size = abs(left) // abs(right)
        quotient = size if (left < 0) == (right < 0) else -size
        return _kept(quotient if isinstance(node, exp.Div) else left - quotient * right)
    return _kept({exp.Add: left + right, exp.Sub: left - right, exp.Mul: left * right}[type(node)])


def _kept(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise BeyondError
    return value


@given(Trees, st.tuples(Cells, Cells, Cells))
def test_guarded_arithmetic_is_that_of_whole_numbers(text: str, cells: tuple[int | None, ...]) -> None:
    connection = apsw.Connection(":memory:")
    install(connection)
    connection.execute("CREATE TABLE t (a, b, c)")
    connection.execute("INSERT INTO t VALUES (?, ?, ?)", cells)
    tree = sqlglot.parse_one(f"SELECT {text} FROM t", dialect="postgres")
    try:
        wanted: int | str | None = twin(tree.expressions[0], dict(zip("abc", cells, strict=True)))
    except BeyondError:
        wanted = "beyond"
    guard(tree)
    found: Any
    try:
        ((found,),) = connection.execute(tree.sql(dialect="sqlite")).fetchall()
    except OverflowError:
        found = "beyond"
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("check", "low", "high"),
    [
        ("a * b < 10", -(2**62), 4),
        ("a + b <= 2", -(2**63), -1),
        ("-a < 10", -(2**63), 0),
        ("(a - b) * 2 < 9", -(2**62), 2),
    ],
)
def test_a_check_of_a_table_is_exact_or_refuses_the_row(
    each_database: str, check: str, low: int, high: int
) -> None:
    """Known error of ours: SQLite went on with reals, which the check then let pass."""
    assert each_database
    schema = (
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, a BIGINT, b BIGINT, r DOUBLE PRECISION, CHECK ({check}))"
    )
    state = database(
        schema, {"t": [{"id": 1, "a": 1, "b": 1, "r": 0.5}, {"id": 2, "a": None, "b": 1, "r": 0.5}]}
    )
    with pytest.raises((DataError, OverflowError)):
        state.insert("t", [{"id": 3, "a": low, "b": high, "r": 0.5}])
    assert state.execute("SELECT count(*) FROM t") == [(2,)]


@pytest.mark.parametrize(
    "check", ["r * 2 > a", "a * 1.5 < 9", "CASE WHEN a < 9 THEN a * b < 9 ELSE TRUE END", "a / 2 < 9"]
)
def test_a_check_of_reals_or_of_what_is_not_computed_stays_as_it_is(check: str) -> None:
    schema = (
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, a BIGINT, b BIGINT, r DOUBLE PRECISION, CHECK ({check}))"
    )
    state = database(schema, {"t": [{"id": 1, "a": 1, "b": 1, "r": 7.5}]})
    assert state.schema.table("t").exact == ()
