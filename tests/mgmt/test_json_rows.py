"""Rows made of texts that hold JSON: the same in both databases, of constants or of a table to the left."""

from __future__ import annotations

import json
from random import Random

import pytest

import mgmt
from mgmt.compiler.model import Model
from mgmt.errors import (
    DataError,
    PolicyError,
    PolicySyntaxError,
    TypeMismatchError,
    UnknownColumnError,
    UnsupportedConstructError,
)
from tests.mgmt.support import database
from tests.mgmt.test_json_texts import SCHEMA, state

LABELS = {
    "a": '{"disk": "ssd", "n": [1, 2.50], "no": null}',
    "b": '["p", "q", null, {"k": "v"}]',
    "c": None,
    "d": "{}",
}


def rows(view: str, labels: dict[str, str | None] = LABELS) -> list[object]:
    """What the column x of a view holds, in any order."""
    rule = "CREATE CONSTRAINT c AS SELECT * FROM task, v CHECK variable__host IS NOT NULL OR x IS NULL"
    model = Model.build(state(labels), mgmt.SourceText("p", f"CREATE VIEW v AS\n{view};\n{rule}"))
    model.solve(budget=20)
    with model.database.snapshot() as snapshot, model.available_views(snapshot):
        return sorted((value for (value,) in snapshot.rows("SELECT x FROM v")), key=repr)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize(
    ("view", "expected"),
    [
        # Of constants.
        ("SELECT value AS x FROM json_each('[1, \"a\", null]')", ["1", "a", None]),
        ("SELECT key AS x FROM json_each('[true, [2]]')", ["0", "1"]),
        ("SELECT key || value AS x FROM json_each('{\"a\": 1, \"b\": {\"c\": [2,3]}, \"a\": 4}')",
         ["a4", 'b{"c": [2, 3]}']),
        ("SELECT v AS x FROM jsonb_array_elements_text('[1, true]') AS v", ["1", "true"]),
        ("SELECT v.value AS x FROM json_array_elements_text('[1]') AS v", ["1"]),
        ("SELECT v.n AS x FROM jsonb_array_elements_text('[1e3]') AS v (n)", ["1000"]),
        ("SELECT e.k || e.v AS x FROM jsonb_each_text('{\"a\": 1}') AS e (k, v)", ["a1"]),
        ("SELECT e.k || e.value AS x FROM json_each_text('{\"a\": 1}') AS e (k)", ["a1"]),
        ("SELECT CAST(value AS BIGINT) + 1 AS x FROM json_each((SELECT max(labels -> 'n' -> 0) FROM host"
         " WHERE name = 'z')) AS t", []),
        ("SELECT x FROM unnest(ARRAY['a', 'b']) AS u (x) WHERE x > 'a'", ["b"]),
        ("SELECT u + 1 AS x FROM unnest(ARRAY[1, 2]) AS u", [2, 3]),
        # Of a table to the left.
        ("SELECT host.name || key || coalesce(value, '-') AS x FROM host, json_each(labels)",
         ["a" + 'n[1, 2.50]', "adiskssd", "ano-", "b0p", "b1q", "b2-", 'b3{"k": "v"}']),
        ("SELECT t.value AS x FROM host CROSS JOIN json_each(host.labels) AS t WHERE host.name = 'b'",
         ["p", "q", '{"k": "v"}', None]),
        ("SELECT t.value AS x FROM host JOIN json_each(host.labels) AS t ON t.key = 'disk'", ["ssd"]),
        ("SELECT name || coalesce(t.value, '?') AS x FROM host LEFT JOIN json_each(host.labels) AS t"
         " ON t.key = 'disk'", ["assd", "b?", "c?", "d?"]),
        ("SELECT e.v AS x FROM host, LATERAL jsonb_array_elements_text(labels -> 'n') AS e (v)", ["1", "2.50"]),
        ("SELECT t.value AS x FROM host, json_each(labels) AS l, json_each(coalesce(l.value, '[]')) AS t"
         " WHERE l.key = 'n'", ["1", "2.50"]),
        ("SELECT t.value AS x FROM host AS h JOIN host AS g ON h.name < g.name"
         ", json_each(h.labels) AS t WHERE g.name = 'd' AND t.key = 'disk'", ["ssd"]),
        ("SELECT t.value || g.name AS x FROM host AS h, host AS g, json_each(coalesce(h.labels, g.labels)) AS t"
         " WHERE h.name = 'c' AND t.key = 'disk'", ["ssda"]),
        ("SELECT count(*) AS x FROM host LEFT JOIN host AS g ON g.labels = 'none', json_each(g.labels) AS t", [0]),
        ("SELECT count(*) AS x FROM (SELECT * FROM host, json_each(labels) AS t) AS s WHERE s.key = '0'", [1]),
        ("SELECT name AS x FROM host WHERE EXISTS (SELECT 1 FROM json_each(host.labels) AS t WHERE t.value = 'ssd')",
         ["a"]),
        ("SELECT name AS x FROM host WHERE 'q' IN (SELECT value FROM json_each(host.labels))", ["b"]),
        ("SELECT (SELECT count(*) FROM json_each(host.labels)) AS x FROM host", [0, 0, 3, 4]),
    ],
)  # fmt: skip
def test_each_member_is_a_row(view: str, expected: list[object]) -> None:
    assert rows(view) == sorted(expected, key=repr)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize(
    ("view", "kind", "hint"),
    [
        ("SELECT 1 AS x FROM json_each('[1]', '$.a')", UnsupportedConstructError, "labels -> 'name'"),
        ("SELECT 1 AS x FROM jsonb_array_elements_text('[1]') WITH ORDINALITY AS v (a, b)",
         UnsupportedConstructError, "leave it out"),
        ("SELECT 1 AS x FROM jsonb_array_elements('[1]') AS v", UnsupportedConstructError, "VALUES"),
        ("SELECT 1 AS x FROM json_each('[1]') AS t (a, b, c)", PolicySyntaxError, "key and value"),
        ("SELECT t.type AS x FROM json_each('[1]') AS t", UnknownColumnError, ""),
        ("SELECT 1 AS x FROM json_each(labels), host", UnknownColumnError, ""),
        ("SELECT 1 AS x FROM host, json_each(7) AS t", TypeMismatchError, "a text"),
        ("SELECT 1 AS x FROM task, json_each(variable__host) AS t", UnsupportedConstructError, "constant columns"),
        ("SELECT 1 AS x FROM host RIGHT JOIN json_each(labels) AS t ON TRUE", UnsupportedConstructError, "LEFT JOIN"),
        ("SELECT 1 AS x FROM host NATURAL JOIN json_each(labels) AS t", UnsupportedConstructError, "ON"),
        ("SELECT 1 AS x FROM host LEFT JOIN task ON id = 9, json_each(coalesce(task.host, '[1]')) AS t",
         UnsupportedConstructError, "view"),
        ("SELECT 1 AS x FROM unnest(ARRAY[]) AS u", PolicyError, "VALUES"),
    ],
)  # fmt: skip
def test_what_makes_no_rows_is_refused_with_place_and_advice(
    view: str, kind: type[PolicyError], hint: str
) -> None:
    with pytest.raises(kind) as caught:
        rows(view)
    assert caught.value.line in {1, 2}, caught.value
    assert hint in caught.value.hint


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize(
    ("function", "text"),
    [
        *(("json_each", text) for text in ("", "{", "nan", "[1,]", "7", '"a"', "null")),
        *(("jsonb_each_text", text) for text in ("[1]", "7")),
        *(("jsonb_array_elements_text", text) for text in ('{"a": 1}', "7", "x")),
    ],
)
def test_what_is_no_object_and_no_array_is_an_error(function: str, text: str) -> None:
    with pytest.raises(DataError) as caught:
        rows(f"SELECT t.value AS x FROM host, {function}(host.labels) AS t", {"a": text})
    assert caught.value.hint


@pytest.mark.usefixtures("each_database")
def test_rows_that_are_left_out_are_not_read() -> None:
    view = "SELECT t.value AS x FROM host, json_each(host.labels) AS t WHERE host.name = 'a'"
    assert rows(view, {"a": "[1]", "b": "nonsense"}) == ["1"]


@pytest.mark.usefixtures("each_database")
def test_names_of_any_letters_come_back() -> None:
    names = ["", " ", "é", '"', "\\", "\n\t\x01", "𝄞", "a.b", "$[0]", "0", "'"]
    found = rows(
        "SELECT key || '|' || value AS x FROM host, json_each(labels)",
        {"a": json.dumps({name: name for name in names})},
    )
    assert found == sorted((f"{name}|{name}" for name in names), key=repr)


@pytest.mark.usefixtures("each_database")
def test_what_labels_hold_beside_variables() -> None:
    """Tasks stand on hosts that have their tag, and on hosts without tags only one."""
    labels = {"a": '{"tags": ["x", "y"]}', "b": '{"tags": ["y"]}', "c": None}
    rows_of = {
        "host": [{"name": name, "labels": text} for name, text in labels.items()],
        "task": [{"id": 1, "host": "x"}, {"id": 2, "host": "y"}, {"id": 3, "host": "none"}],
    }
    policy = """
    CREATE CONSTRAINT tagged AS SELECT * FROM task WHERE id < 3
    CHECK EXISTS (SELECT 1 FROM host, json_array_elements_text(host.labels -> 'tags') AS tag
      WHERE host.name = task.variable__host AND tag.value = task.host);
    CREATE CONSTRAINT away AS
    SELECT * FROM task JOIN host ON task.variable__host = host.name,
      jsonb_array_elements_text(host.labels -> 'tags') AS t
    WHERE t.value = 'x' AND task.id > 1 CHECK FALSE;
    CREATE CONSTRAINT without AS
    SELECT task.id, count(t.value) AS tags FROM task JOIN host ON task.variable__host = host.name
    LEFT JOIN json_array_elements_text(host.labels -> 'tags') AS t ON TRUE WHERE task.id = 3 GROUP BY task.id
    CHECK count(t.value) = 0;
    """
    plan = Model.build(database(SCHEMA, rows_of), policy).solve(budget=20)
    assert plan.assignments["task", "variable__host"] == {(1,): "a", (2,): "b", (3,): "c"}


@pytest.mark.usefixtures("each_database")
def test_random_labels_as_python_reads_them() -> None:
    random = Random(20261123)
    for _ in range(8):
        labels: dict[str, str | None] = {
            name: random.choice([None, json.dumps(random.choices("pqrs", k=random.randrange(5)))])
            for name in "abcdefg"
        }
        expected = sorted(
            name + letter
            for name, text in labels.items()
            for letter in (json.loads(text) if text else [])
            if letter > "p"
        )
        view = "SELECT name || value AS x FROM host, json_each(labels) AS t WHERE t.value > 'p'"
        assert rows(view, labels) == expected


@pytest.mark.usefixtures("each_database")
def test_the_rows_of_json_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgmt.state.store.MOST_ROWS", 20)
    rule = "CREATE CONSTRAINT c AS SELECT * FROM task, host, json_each(host.labels) AS t"
    rule += " CHECK variable__host = 'a' OR task.id = 1 AND t.value = '1' OR variable__host = host.name"
    assert Model.build(state({"a": json.dumps([1] * 5)}), rule).solve(budget=20).status
    with pytest.raises(DataError, match="more than 20 rows") as caught:
        Model.build(state({"a": json.dumps(list(range(15)))}), rule).solve(budget=20)
    assert caught.value.position is not None
