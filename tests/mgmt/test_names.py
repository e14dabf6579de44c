"""Names that begin statements elsewhere: a table, view, alias or column may be called so, in every place."""

from __future__ import annotations

import pytest
from sqlglot import exp

from mgmt.compiler.model import Model
from mgmt.errors import PolicySyntaxError
from mgmt.language.parsing.statements import parse_statements
from mgmt.source_text import SourceText
from tests.mgmt.support import database

# What PostgreSQL does not reserve, as `pg_get_keywords()` has it, and a few words of other databases.
WORDS = [
    "alter", "begin", "cache", "call", "comment", "commit", "copy", "current", "declare", "delete", "describe",
    "domain", "drop", "execute", "explain", "function", "insert", "kill", "load", "lock", "merge", "optimize",
    "pivot", "pragma", "prepare", "refresh", "reindex", "rename", "reset", "revoke", "rollback", "set", "show",
    "truncate", "uncache", "unpivot", "update", "use", "vacuum",
]  # fmt: skip

PLACES = [
    "CREATE CONSTRAINT {w} AS SELECT * FROM t CHECK x <= 3",
    "CREATE CONSTRAINT c AS SELECT * FROM {w} CHECK {w}.x <= 3",
    "CREATE CONSTRAINT c AS SELECT * FROM {w} CHECK ({w}.x <= 3) SOFT WEIGHT 2",
    "CREATE CONSTRAINT c AS SELECT * FROM {w} CHECK NOT {w}.x <= {w} REASON 'no'",
    "CREATE CONSTRAINT c AS SELECT * FROM {w} MINIMIZE {w}.x TIER 2",
    "CREATE CONSTRAINT c AS SELECT * FROM {w} MAXIMIZE {w}",
    "CREATE CONSTRAINT c AS SELECT * FROM t, {w} WHERE {w}.x = 1 GROUP BY {w} HAVING {w} > 1 CHECK sum({w}.x) <= {w}",
    "CREATE CONSTRAINT c AS SELECT * FROM t JOIN {w} ON {w}.x = t.{w} JOIN u USING ({w}) CHECK {w} IN ({w}, 3)",
    "CREATE CONSTRAINT c AS SELECT * FROM t {w} CHECK {w}.x <= 3",
    "CREATE CONSTRAINT c AS SELECT * FROM t AS {w} PINNED WHERE {w}",
    "CREATE CONSTRAINT c AS SELECT * FROM (SELECT {w} FROM {w}) AS {w} CHECK {w}.{w} BETWEEN {w} AND 3",
    "CREATE CONSTRAINT c AS SELECT * FROM t CHECK EXISTS (SELECT 1 FROM {w} WHERE {w}.x = t.x)",
    "CREATE CONSTRAINT c AS SELECT * FROM t CHECK CASE WHEN {w} > 1 THEN {w} END <= (SELECT {w} FROM t ORDER BY {w})",
    "CREATE VIEW {w} AS SELECT {w}.x AS {w}, x {w} FROM t",
    "CREATE VIEW v AS WITH {w} AS (SELECT * FROM t) SELECT {w}, {w}.x FROM {w}",
]  # fmt: skip


def shape(text: str, word: str) -> list[object]:
    """What a text is read as, with this name called ``zzz`` and no quotes."""
    found: list[object] = []
    for statement in parse_statements(SourceText("p.sql", text)):
        trees = [statement.select, *([statement.tail.expression] if statement.tail else [])]
        for tree in trees:
            for name in tree.find_all(exp.Identifier):
                name.replace(exp.Identifier(this="zzz" if name.name == word else name.name, quoted=False))
        tail = statement.tail
        options = (tail.kind, tail.soft, tail.weight, tail.tier) if tail is not None else None
        found.append((statement.name.replace(word, "zzz"), options, trees))
    return found


@pytest.mark.parametrize("word", WORDS)
def test_a_name_is_read_as_any_other(word: str) -> None:
    for place in PLACES:
        assert shape(place.format(w=word), word) == shape(place.format(w="zzz"), "zzz"), place


@pytest.mark.parametrize("word", ["load", "current", "domain", "drop", "set", "revoke"])
def test_the_names_of_a_whole_state(word: str, each_database: str) -> None:
    """Through the schema, the compiler, the database's SQL and back, on either kind of database."""
    schema = f"""
        CREATE TABLE {word} (id INTEGER PRIMARY KEY, {word} INTEGER NOT NULL CHECK ({word} > 0));
        CREATE TABLE task (
          id INTEGER PRIMARY KEY, {word} INTEGER NOT NULL REFERENCES {word} (id),
          variable__{word} INTEGER NOT NULL REFERENCES {word} (id) ON DELETE SET NULL CURRENT {word}
        );
        CREATE INDEX task_by_it ON task ({word});
    """
    policies = f"""
        CREATE CONSTRAINT large AS
        SELECT * FROM task AS {word} JOIN {word} AS other ON other.id = {word}.variable__{word}
        WHERE {word}.id = 1 CHECK other.{word} > 5;
        CREATE VIEW total AS SELECT {word}.id, count(*) AS {word}
        FROM task JOIN {word} ON {word}.id = task.variable__{word}
        GROUP BY {word}.id;
        CREATE CONSTRAINT spread AS SELECT * FROM total CHECK {word} <= 2;
        CREATE CONSTRAINT same AS SELECT {word} FROM task CHECK {word} = variable__{word} SOFT;
    """
    rows = {
        word: [{"id": 1, word: 5}, {"id": 2, word: 9}],
        "task": [{"id": number, word: 1} for number in (1, 2, 3)],
    }
    solution = Model.build(database(schema, rows), policies).solve(budget=20)
    assert solution.assignments["task", f"variable__{word}"] == {(1,): 2, (2,): 1, (3,): 1}


def test_a_reserved_word_is_told_how_to_be_a_name() -> None:
    with pytest.raises(PolicySyntaxError, match='if join is a name here, write "join"') as caught:
        parse_statements(SourceText("p.sql", "CREATE CONSTRAINT c AS SELECT *\nFROM join CHECK x <= 3"))
    assert (caught.value.line, caught.value.column) == (2, 6)
    (statement,) = parse_statements(SourceText("p.sql", 'CREATE VIEW c AS SELECT * FROM "join"'))
    assert statement.select.find(exp.Table).name == "join"


def test_texts_count_for_no_depth() -> None:
    many = ", ".join(["'case'"] * 200)
    assert (
        len(parse_statements(SourceText("p.sql", f"CREATE VIEW c AS SELECT * FROM t WHERE x IN ({many})")))
        == 1
    )
