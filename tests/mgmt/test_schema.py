"""CREATE TABLE: types, keys, variable columns and what is refused."""

from __future__ import annotations

import pytest

from mgmt.errors import (
    DataError,
    DuplicateNameError,
    PolicyError,
    PolicySyntaxError,
    TypeMismatchError,
    UnboundedDomainError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedConstructError,
)
from mgmt.source_text import SourceText
from mgmt.state.schema import Schema, SqlType
from mgmt.state.schema_parsing.parser import parse_schema
from tests.mgmt.support import database

HOST = "CREATE TABLE host (name TEXT PRIMARY KEY, size INTEGER, variable__on BOOLEAN NOT NULL);\n"


def parse(text: str) -> Schema:
    return parse_schema(SourceText("s.sql", text))


def test_columns_types_and_keys() -> None:
    schema = parse(
        HOST + "CREATE TABLE Pod (id BIGINT, name VARCHAR(30) NOT NULL UNIQUE, ratio DOUBLE PRECISION, "
        "host TEXT, CONTROLLABLE__host TEXT REFERENCES host, PRIMARY KEY (id), UNIQUE (name, host))"
    )
    pod = schema.table("POD")
    assert [(c.name, c.type, c.nullable) for c in pod.columns] == [
        ("id", SqlType.INTEGER, True),
        ("name", SqlType.TEXT, False),
        ("ratio", SqlType.REAL, True),
        ("host", SqlType.TEXT, True),
        ("CONTROLLABLE__host", SqlType.TEXT, True),
    ]
    assert pod.primary_key == ("id",)
    assert pod.uniques == (("id",), ("name",), ("name", "host"))
    (variable,) = pod.variables
    assert variable.current == "host", "paired by the name without the prefix"
    assert variable.references == ("host", "")


KEYED = (
    "CREATE TABLE t (id INTEGER, n INTEGER, variable__host TEXT REFERENCES host (name), PRIMARY KEY ({}){});"
)


@pytest.mark.parametrize(
    ("key", "more", "index"),
    [
        ("id, variable__host", ", UNIQUE (id)", ""),
        ("variable__host", ", UNIQUE (id)", ""),
        ("id, variable__host", "", "CREATE UNIQUE INDEX u ON t (id);"),
    ],
)
def test_rows_are_named_by_a_unique_over_constants_where_the_primary_key_is_decided(
    key: str, more: str, index: str
) -> None:
    table = parse(HOST + KEYED.format(key, more) + index).table("t")
    assert table.primary_key == ("id",)
    assert tuple(key.split(", ")) in table.uniques
    assert {column.name for column in table.columns if not column.nullable} == {"id", "variable__host"}


def test_without_one_it_says_what_to_write() -> None:
    for key, known in (
        ("id, variable__host", "PRIMARY KEY (id), if that tells rows apart, else "),
        ("variable__host", ""),
    ):
        with pytest.raises(UnsupportedConstructError) as caught:
            parse(HOST + KEYED.format(key, ""))
        assert caught.value.hint == (
            f"a plan names rows by what it does not decide: write {known}"
            f"CREATE TABLE t (row INTEGER PRIMARY KEY, ..., UNIQUE ({key}))"
        )


def test_current_and_domain_are_ours() -> None:
    schema = parse(
        HOST + "CREATE TABLE pod (id INTEGER PRIMARY KEY, today INTEGER, "
        "variable__size INTEGER NOT NULL DOMAIN (SELECT size FROM host WHERE (size > 0)) CURRENT today);"
    )
    (variable,) = schema.table("pod").variables
    assert variable.current == "today"
    assert variable.domain == 'SELECT DISTINCT "size" AS "value" FROM "host" WHERE ("size" > 0)'
    assert not variable.nullable


@pytest.mark.parametrize(
    ("text", "error", "where"),
    [
        ("CREATE TABLE host (name TEXT)", DuplicateNameError, (2, 1)),
        ("CREATE TABLE t (a TEXT, A INTEGER)", DuplicateNameError, (2, 25)),
        ("CREATE TABLE t (a TEXT, PRIMARY KEY (b))", UnknownColumnError, (2, 14)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b DATE)", UnboundedDomainError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b TEXT REFERENCES "
         "nowhere (x))", UnknownTableError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b TEXT REFERENCES "
         "host (x))", UnknownColumnError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b INTEGER REFERENCES host "
         "(name))", TypeMismatchError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b BOOLEAN REFERENCES host "
         "(variable__on))", UnsupportedConstructError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER, variable__b TEXT REFERENCES "
         "host)", TypeMismatchError, (2, 51)),
        ("CREATE TABLE t (variable__b TEXT REFERENCES host)", PolicySyntaxError, (2, 14)),
        ("CREATE TABLE t (variable__b TEXT PRIMARY KEY REFERENCES host)", UnsupportedConstructError, (2, 14)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT CURRENT a)", PolicySyntaxError, (2, 47)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b BOOLEAN "
         "CURRENT z)", UnknownColumnError, (2, 40)),
        ("CREATE TABLE t (a JSON)", UnsupportedConstructError, (2, 17)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, variable__b TEXT REFERENCES host REFERENCES t (b), b TEXT UNIQUE)",
         UnsupportedConstructError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, UNIQUE NULLS NOT DISTINCT (b))",
         UnsupportedConstructError, None),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE NULLS NOT DISTINCT)",
         UnsupportedConstructError, (2, 40)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY) INHERITS (host)", UnsupportedConstructError, (2, 14)),
        ("CREATE UNIQUE INDEX u ON host (variable__on)", UnsupportedConstructError, (2, 1)),
        ("CREATE VIEW v AS SELECT 1", UnsupportedConstructError, (2, 1)),
        ("DROP TABLE host", UnsupportedConstructError, (2, 1)),
        ("CREATE TABLE t (a INTEGER", PolicySyntaxError, (2, 19)),
    ],
)  # fmt: skip
def test_mistakes_are_refused_where_they_stand(
    text: str, error: type[PolicyError], where: tuple[int, int] | None
) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(HOST + text)
    assert caught.type is error
    if where is not None and caught.value.position is not None:
        assert (caught.value.line, caught.value.column) == where


def test_of_an_index_only_that_it_is_unique_counts() -> None:
    state = database(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, m INTEGER);"
        "CREATE INDEX by_n ON t (n, id DESC); CREATE UNIQUE INDEX by_m ON t (m)"
    )
    state.insert("t", [{"id": 1, "n": 1, "m": 1}, {"id": 2, "n": 1, "m": 2}])
    with pytest.raises(DataError):
        state.insert("t", [{"id": 3, "n": 2, "m": 1}])
