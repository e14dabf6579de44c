"""Members of texts that hold JSON: the same in both databases, as PostgreSQL has them of a jsonb."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import DataError, OverflowError, PolicyError, UnsupportedConstructError  # noqa: A004 - the published name
from mgmt.state.json_texts import FUNCTIONS, MEMBER, MEMBER_TEXT, written
from tests.mgmt.support import database
from tests.postgres_server import PostgresServer

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, labels TEXT);
CREATE TABLE task (id INTEGER PRIMARY KEY, host TEXT, variable__host TEXT NOT NULL REFERENCES host (name));
"""
LABELS = {
    "a": '{"disk": {"kind": "ssd", "sizes": [1.50e1, -0.0, 1e3]}, "n": 3, "on": true, "bb": 1, "no": null}',
    "b": ' ["x", {"n": "3"}, [null]] ',
    "c": None,
    "d": "7",
}


def state(labels: dict[str, str | None] = LABELS) -> mgmt.Database:
    rows = {
        "host": [{"name": name, "labels": text} for name, text in labels.items()],
        "task": [{"id": number, "host": "a"} for number in (1, 2)],
    }
    return database(SCHEMA, rows)


def values(expression: str, labels: dict[str, str | None] = LABELS) -> list[object]:
    """What a view of one column holds."""
    view = f"CREATE VIEW v AS SELECT name, {expression} AS x FROM host;"
    rule = "CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK variable__host IS NOT NULL OR x IS NULL"
    model = Model.build(state(labels), mgmt.SourceText("p", f"{view}\n{rule}"))
    model.solve(budget=20)
    with model.database.snapshot() as snapshot, model.available_views(snapshot):
        return [value for (value,) in snapshot.rows("SELECT x FROM v ORDER BY name")]


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("labels ->> 'n'", ["3", None, None, None]),
        ("labels -> 'n'", ["3", None, None, None]),
        ("labels ->> 'on'", ["true", None, None, None]),
        ("labels ->> 'no'", [None, None, None, None]),
        ("labels -> 'no'", ["null", None, None, None]),
        ("labels -> 'disk'", ['{"kind": "ssd", "sizes": [15.0, 0.0, 1000]}', None, None, None]),
        ("labels -> 'disk' ->> 'kind'", ["ssd", None, None, None]),
        ("labels -> 'disk' -> 'kind'", ['"ssd"', None, None, None]),
        ("labels -> 'disk' -> 'sizes' ->> -1", ["1000", None, None, None]),
        ("labels ->> 0", [None, "x", None, "7"]),
        ("labels -> 1 ->> 'n'", [None, "3", None, None]),
        ("labels -> -1 -> 0", [None, "null", None, "7"]),
        ("labels ->> 3", [None, None, None, None]),
        ("CAST(labels ->> 'n' AS BIGINT) + 1", [4, None, None, None]),
        ("(labels ->> 'n') || '!'", ["3!", None, None, None]),
        ("coalesce(labels -> 'n', '{}')", ["3", "{}", "{}", "{}"]),
        ("coalesce(labels ->> 'n', 'none')", ["3", "none", "none", "none"]),
    ],
)
def test_what_a_text_of_json_holds(expression: str, expected: list[object]) -> None:
    assert values(expression) == expected


@pytest.mark.usefixtures("each_database")
def test_a_constraint_over_variables_asks_for_labels() -> None:
    policy = """CREATE CONSTRAINT fast AS
    SELECT * FROM task JOIN host ON task.variable__host = host.name
    CHECK host.labels -> 'disk' ->> 'kind' = 'ssd'"""
    plan = Model.build(state(), policy).solve(budget=20)
    assert set(plan.assignments["task", "variable__host"].values()) == {"a"}


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("text", ["", "{", "nan", "01", '"\\ud800"', '"\\u0000"', "[1,]", "\x0b1"])
def test_what_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        values("labels ->> 'n'", {"a": text})
    assert isinstance(caught.value, DataError)
    assert caught.value.hint


@pytest.mark.usefixtures("each_database")
def test_a_number_that_no_database_has_is_an_error() -> None:
    with pytest.raises((DataError, OverflowError)):
        values("labels ->> 'n'", {"a": "1e400000"})


@pytest.mark.parametrize("which", ["'$.n'", "name", "name || 'x'", "12345678901", "1.5"])
def test_a_path_is_refused_where_it_stands(which: str) -> None:
    with pytest.raises(UnsupportedConstructError, match="a member of JSON") as caught:
        values(f"labels ->> {which}")
    assert caught.value.position is not None
    assert "one after the other" in caught.value.hint


def test_a_variable_is_no_json() -> None:
    policy = "CREATE CONSTRAINT c AS SELECT * FROM task CHECK variable__host ->> 'n' = '3'"
    with pytest.raises(UnsupportedConstructError):
        Model.build(state(), policy)


def test_sqlite_has_its_own_functions_on_json() -> None:
    assert values("json_extract(labels, '$.n')") == [3, None, None, None]


_LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXTS = st.text(_LETTERS, max_size=6)
_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.postgres
@settings(max_examples=60, deadline=None)
@given(value=_VALUES, ascii_only=st.booleans())
def test_it_is_written_as_postgresql_writes_it(
    postgres_server: PostgresServer, value: Any, ascii_only: bool
) -> None:
    document = json.dumps({"m": value}, ensure_ascii=ascii_only)
    quoted = document.replace("'", "''")
    [expected] = postgres_server.run(
        f"SELECT CAST(CAST('{quoted}' AS jsonb) -> 'm' AS text), CAST('{quoted}' AS jsonb) ->> 'm'"
    )
    assert (
        FUNCTIONS[MEMBER].compute(document, "m"),
        FUNCTIONS[MEMBER_TEXT].compute(document, "m"),
    ) == expected
    assert written(True) == "true"
