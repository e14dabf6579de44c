"""Where the values of variable columns come from, and what their tables demand of them."""

from __future__ import annotations

from typing import Any

import pytest

import mgmt
from mgmt.errors import (
    InfeasibleError,
    OverflowError,  # noqa: A004 - the published name
    PolicyError,
    PolicySyntaxError,
    TypeMismatchError,
    UnboundedDomainError,
    UnknownColumnError,
)
from mgmt.solution import Solution
from mgmt.state.schema_parsing.column_bounds import range_sql
from tests.mgmt.support import database, solve

pytestmark = pytest.mark.usefixtures("each_database")

DISKS = """
CREATE TABLE disk (host TEXT NOT NULL, slot INTEGER NOT NULL, size INTEGER, PRIMARY KEY (host, slot));
CREATE TABLE file (id INTEGER PRIMARY KEY, zone TEXT, bytes INTEGER,
  variable__host TEXT{null}, variable__slot INTEGER{null},
  FOREIGN KEY (variable__host, variable__slot) REFERENCES disk (host, slot));
"""
DISK_ROWS: dict[str, list[dict[str, Any]]] = {
    "disk": [{"host": h, "slot": s, "size": n} for h, s, n in (("a", 1, 5), ("a", 2, 9), ("b", 3, 7))],
    "file": [{"id": 1, "bytes": 1}, {"id": 2, "bytes": 1}],
}


def tuples(solution: Solution) -> dict[Any, tuple[Any, ...]]:
    columns = [solution.assignments["file", name] for name in ("variable__host", "variable__slot")]
    return {key[0]: tuple(column[key] for column in columns) for key in columns[0]}


def test_a_composite_foreign_key_is_the_tuple() -> None:
    """Known error of DCM: each column of it ranged over its values alone."""
    schema = DISKS.format(null=" NOT NULL")
    pairs = {("a", 1), ("a", 2), ("b", 3)}
    text = "CREATE CONSTRAINT c AS SELECT * FROM file MAXIMIZE sum(variable__slot)"
    assert set(tuples(solve(schema, DISK_ROWS, text)).values()) == {("b", 3)}
    text = "CREATE CONSTRAINT c AS SELECT * FROM file CHECK variable__slot < 3 AND variable__slot <> id"
    assert tuples(solve(schema, DISK_ROWS, text)) == {1: ("a", 2), 2: ("a", 1)}
    text = "CREATE CONSTRAINT c AS SELECT * FROM file CHECK variable__host = 'b' AND variable__slot < 3"
    with pytest.raises(InfeasibleError) as caught:
        solve(schema, DISK_ROWS, text)
    assert set(caught.value.constraints) == {"FOREIGN KEY (variable__host, variable__slot) of file", "c"}
    text = """CREATE CONSTRAINT room AS SELECT disk.host, disk.slot FROM file JOIN disk
        ON variable__host = disk.host AND variable__slot = disk.slot GROUP BY disk.host, disk.slot CHECK count(*) <= 1;
        CREATE CONSTRAINT big AS SELECT * FROM file JOIN disk ON variable__host = disk.host AND variable__slot = slot
        MAXIMIZE sum(size)"""
    assert set(tuples(solve(schema, DISK_ROWS, text)).values()) == pairs - {("a", 1)}


def test_a_tuple_with_a_null_refers_to_nothing() -> None:
    check = "variable__host IS NULL AND variable__slot IS NOT DISTINCT FROM 3"
    text = f"CREATE CONSTRAINT c AS SELECT * FROM file CHECK {check}"
    assert set(tuples(solve(DISKS.format(null=""), DISK_ROWS, text)).values()) == {(None, 3)}


@pytest.mark.parametrize(
    ("check", "values"),
    [
        ("variable__n BETWEEN -2 AND 1", [-2, -1, 0, 1]),
        ("variable__n >= 3 AND (variable__n < 5)", [3, 4]),
        ("7 >= variable__n AND 5 < variable__n", [6, 7]),
        ("variable__n IN (2, 9, 4)", [2, 4, 9]),
        ("variable__n = 4", [4]),
        ("variable__n > 0 AND variable__n < 20 AND variable__n % 5 = 0", [5, 10, 15]),
        ("variable__n BETWEEN 0 AND 9 AND variable__n >= low", [7, 8, 9]),
    ],
)
def test_checks_bound_integers_and_are_upheld(check: str, values: list[int]) -> None:
    schema = (
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, low INTEGER, variable__n INTEGER NOT NULL CHECK ({check}));"
    )
    rows: dict[str, list[dict[str, Any]]] = {"t": [{"id": 1, "low": 7}]}
    found = []
    for sense, bound in (("MINIMIZE", values[0]), ("MAXIMIZE", values[-1])):
        text = f"CREATE CONSTRAINT c AS SELECT * FROM t {sense} sum(variable__n)"
        assert solve(schema, rows, text).value("t", "variable__n", 1) == bound
    for value in range(values[0], values[-1] + 1):
        text = f"CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n = {value}"
        if mgmt.Model.build(database(schema, rows), text).satisfiable():
            found.append(value)
    assert found == values


def test_a_check_of_the_table_over_several_columns() -> None:
    schema = """CREATE TABLE t (id INTEGER PRIMARY KEY, variable__a INTEGER NOT NULL, variable__b INTEGER NOT NULL,
        CHECK (variable__a BETWEEN 0 AND 3), CHECK (variable__b BETWEEN 0 AND 3 AND variable__a + variable__b = 5));"""
    solution = solve(
        schema, {"t": [{"id": 1}]}, "CREATE CONSTRAINT c AS SELECT * FROM t MAXIMIZE sum(variable__a)"
    )
    assert (solution.value("t", "variable__a", 1), solution.value("t", "variable__b", 1)) == (3, 2)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-3, 12), (7, 7), (95, 1205)])
def test_the_numbers_of_a_range_as_sql(low: int, high: int) -> None:
    found = database("CREATE TABLE t (a INTEGER)").execute(range_sql(low, high))
    assert sorted(value for (value,) in found) == list(range(low, high + 1))


def test_group_by_a_bounded_integer_has_a_group_for_each_value() -> None:
    column = "variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 1 AND 3)"
    schema = f"CREATE TABLE t (id INTEGER PRIMARY KEY, {column});"
    rows: dict[str, list[dict[str, Any]]] = {"t": [{"id": number} for number in range(3)]}
    text = "CREATE CONSTRAINT c AS SELECT variable__n FROM t GROUP BY variable__n CHECK count(*) = 1"
    assert sorted(solve(schema, rows, text).assignments["t", "variable__n"].values()) == [1, 2, 3]


@pytest.mark.parametrize("null", ["", " NOT NULL"])
@pytest.mark.parametrize("operator", ["=", "<>"])
def test_variables_of_different_domains_are_compared_value_by_value(operator: str, null: str) -> None:
    """What is FALSE is excluded, and nothing else: NULL is equal to nothing, and different from nothing."""
    schema = f"""CREATE TABLE t (id INTEGER PRIMARY KEY, variable__a INTEGER{null}, variable__b INTEGER{null},
        CHECK (variable__a BETWEEN 1 AND 3), CHECK (variable__b BETWEEN 2 AND 4));"""
    text = f"CREATE CONSTRAINT c AS SELECT id FROM t CHECK variable__a {operator} variable__b;"
    state = database(schema, {"t": [{"id": 1}]})
    unknown = [None] if not null else []
    for one in [1, 2, 3, *unknown]:
        for other in [2, 3, 4, *unknown]:
            pins = [
                f"CREATE CONSTRAINT {name} AS SELECT id FROM t CHECK variable__{name} IS NOT DISTINCT FROM {value};"
                for name, value in (("a", one), ("b", other))
            ]
            model = mgmt.Model.build(state, text + "".join(pins).replace("None", "NULL"))
            allowed = None in {one, other} or (one == other) is (operator == "=")
            assert model.satisfiable() is allowed, (one, other)


def test_a_primary_key_over_variables_is_upheld() -> None:
    """Known error of DCM: composite primary keys were not enforced."""
    schema = """CREATE TABLE host (name TEXT PRIMARY KEY);
        CREATE TABLE t (id INTEGER UNIQUE, part INTEGER, variable__host TEXT REFERENCES host (name),
          PRIMARY KEY (part, variable__host));"""
    rows: dict[str, list[dict[str, Any]]] = {
        "host": [{"name": "a"}, {"name": "b"}],
        "t": [{"id": 1, "part": 1}, {"id": 2, "part": 1}, {"id": 3, "part": 2}],
    }
    text = "CREATE CONSTRAINT c AS SELECT * FROM t WHERE variable__host = 'a' MAXIMIZE count(*)"
    solution = solve(schema, rows, text)
    found = {key[0]: value for key, value in solution.assignments["t", "variable__host"].items()}
    assert found[3] == "a"
    assert {found[1], found[2]} == {"a", "b"}


def test_a_domain_does_not_undo_a_foreign_key() -> None:
    schema = """CREATE TABLE host (name TEXT PRIMARY KEY);
        CREATE TABLE t (id INTEGER PRIMARY KEY,
          variable__host TEXT NOT NULL REFERENCES host (name) DOMAIN (SELECT other FROM name));
        CREATE TABLE name (other TEXT);"""
    rows: dict[str, list[dict[str, Any]]] = {"host": [{"name": "a"}, {"name": "b"}], "t": [{"id": 1}]}
    rows["name"] = [{"other": "b"}, {"other": "x"}]
    assert (
        solve(schema, rows, "CREATE CONSTRAINT c AS SELECT * FROM t CHECK TRUE").value(
            "t", "variable__host", 1
        )
        == "b"
    )


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ("variable__n INTEGER NOT NULL", UnboundedDomainError),
        ("variable__n INTEGER NOT NULL CHECK (variable__n >= 0)", UnboundedDomainError),
        ("variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 0 AND 9 OR variable__n = 3)", UnboundedDomainError),
        (f"variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 0 AND {2**62 + 1})", OverflowError),
        ("variable__s TEXT NOT NULL CHECK (variable__s <> '')", UnboundedDomainError),
        ("variable__n INTEGER, FOREIGN KEY (id, variable__n) REFERENCES u", PolicySyntaxError),
    ],
)  # fmt: skip
def test_no_finite_set_of_values_is_an_error_of_the_schema(column: str, error: type[PolicyError]) -> None:
    schema = "CREATE TABLE u (a INTEGER, b INTEGER, PRIMARY KEY (a, b));\n"
    schema += f"CREATE TABLE t (id INTEGER PRIMARY KEY, {column});"
    with pytest.raises(error) as caught:
        mgmt.Model.build(database(schema), "CREATE CONSTRAINT c AS SELECT * FROM t CHECK TRUE")
    assert (caught.value.position.source, caught.value.line) == ("schema.sql", 2)
    assert caught.value.hint


LEAST = "CREATE CONSTRAINT least AS SELECT * FROM t MINIMIZE sum(variable__n);"


@pytest.mark.parametrize(
    ("column", "policy", "least"),
    [
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n > 2 AND variable__n < 5", 3),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT t.id FROM t CHECK id < 9 AND t.variable__n IN (7, 4)", 4),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT * FROM t AS x CHECK x.variable__n >= 6;"
         "CREATE CONSTRAINT d AS SELECT * FROM t CHECK variable__n <= 8", 6),
        ("INTEGER CHECK (variable__n >= 5)", "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n <= 8", 5),
        ("INTEGER", "CREATE VIEW constraint_1 AS SELECT * FROM t WHERE variable__n BETWEEN 2 AND 3", 2),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT * FROM t WHERE id > 1 CHECK variable__n BETWEEN 2 AND 3", None),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n BETWEEN 2 AND 3 SOFT", None),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n BETWEEN 2 AND 3 OR id = 1", None),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT count(*) AS variable__n FROM t CHECK variable__n IN (2, 3)", None),
        ("INTEGER", "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n BETWEEN 7 AND 1000000", 7),
        ("INTEGER CHECK (variable__n >= 5)", "CREATE CONSTRAINT c AS SELECT * FROM t CHECK variable__n < 800000", 5),
    ],
)  # fmt: skip
def test_a_check_of_every_row_bounds_where_the_schema_does_not(
    column: str, policy: str, least: int | None
) -> None:
    """A CHECK of some rows, a soft one, and one of something else of that name do not."""
    schema = f"CREATE TABLE t (id INTEGER PRIMARY KEY,\n variable__n {column.replace('INTEGER', 'INTEGER NOT NULL')});"
    rows: dict[str, list[dict[str, Any]]] = {"t": [{"id": 1}, {"id": 2}]}
    if least is None:
        with pytest.raises(UnboundedDomainError) as caught:
            solve(schema, rows, f"{policy}; {LEAST}")
        assert caught.value.line == 2
    else:
        assert set(solve(schema, rows, f"{policy}; {LEAST}").assignments["t", "variable__n"].values()) == {
            least
        }


def test_mistakes_in_a_tables_check_stand_in_the_schema() -> None:
    for check, error in (
        ("variable__n < sise", UnknownColumnError),
        ("variable__n LIKE 'x'", TypeMismatchError),
    ):
        schema = (
            "CREATE TABLE t (id INTEGER PRIMARY KEY,\n"
            f"  variable__n INTEGER NOT NULL CHECK (variable__n BETWEEN 0 AND 9), CHECK ({check}));"
        )
        with pytest.raises(error) as caught:
            mgmt.Model.build(database(schema), "CREATE CONSTRAINT c AS SELECT * FROM t CHECK TRUE")
        assert (caught.value.position.source, caught.value.line) == ("schema.sql", 2)


def test_osdi_declares_variable_columns_by_a_comment() -> None:
    schema = """CREATE TABLE host (name TEXT PRIMARY KEY);
        -- @variable_columns (node)
        CREATE TABLE pod (id INTEGER PRIMARY KEY, node TEXT NOT NULL REFERENCES host (name), old TEXT);"""
    rows: dict[str, list[dict[str, Any]]] = {"host": [{"name": "a"}, {"name": "b"}], "pod": [{"id": 1}]}
    policy = "-- @variable_columns (pod.node)\n-- @hard_constraint\n"
    policy += "create view c as select * from pod check (node = 'b')"
    assert solve(schema, rows, policy).value("pod", "node", 1) == "b"
    with pytest.raises(UnknownColumnError) as caught:
        solve(schema, rows, policy.replace("pod.node", "pod.old"))
    assert caught.value.line == 3
    with pytest.raises(UnknownColumnError):
        database(schema.replace("(node)", "(noed)"))
