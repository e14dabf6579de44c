"""Names and types: each mistake has its own error, its place, and a hint."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import (
    AmbiguousColumnError,
    DuplicateNameError,
    NoConstraintsError,
    PolicyError,
    PolicySyntaxError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownFunctionError,
    UnknownTableError,
    UnsupportedConstructError,
)
from mgmt.source_text import SourceText
from tests.mgmt.support import database

SCHEMA = """
CREATE TABLE host (name TEXT PRIMARY KEY, rack TEXT, size INTEGER, speed DOUBLE PRECISION, up BOOLEAN NOT NULL);
CREATE TABLE task (id INTEGER PRIMARY KEY, weight INTEGER, host TEXT,
  variable__host TEXT NOT NULL REFERENCES host (name), variable__urgent BOOLEAN NOT NULL);
"""
JOIN = "CREATE CONSTRAINT c AS SELECT * FROM task JOIN host ON variable__host = name"


def build(text: str) -> Model:
    return Model.build(database(SCHEMA), SourceText("p.sql", text))


def test_what_a_group_determines_may_be_selected() -> None:
    """As PostgreSQL has it: what the key of a table settles, what is grouped by, and what is computed of these."""
    for select, keys in (("id, weight + 1 AS w", "id"), ("upper(lower(host)) AS h", "lower(host)")):
        text = f"CREATE CONSTRAINT c AS SELECT {select} FROM task GROUP BY {keys} CHECK count(variable__host) < 9"
        build(text)


@pytest.mark.parametrize(
    ("text", "error", "where"),
    [
        ("CREATE CONSTRAINT c AS SELECT * FROM tasks CHECK TRUE", UnknownTableError, (1, 38)),
        ("CREATE CONSTRAINT c AS SELECT *\nFROM task JOIN hosts ON TRUE "
         "CHECK TRUE", UnknownTableError, (2, 16)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK\n  wieght = 1", UnknownColumnError, (2, 3)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task t CHECK task.weight = 1", UnknownColumnError, (1, 51)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task a JOIN task b ON a.id < b.id CHECK "
         "weight = 1", AmbiguousColumnError, (1, 78)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK weigth(id) = 1", UnknownFunctionError, (1, 49)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK weight = 'heavy'", TypeMismatchError, (1, 49)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK host + 1 = 2", TypeMismatchError, (1, 49)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK weight", TypeMismatchError, (1, 49)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK sum(host) = 1", TypeMismatchError, (1, 53)),
        ("CREATE VIEW v AS SELECT 1 AS a; CREATE VIEW V AS SELECT 2 AS a", DuplicateNameError, (1, 33)),
        ("CREATE VIEW task AS SELECT 1 AS a", DuplicateNameError, (1, 1)),
        ("CREATE VIEW v AS SELECT name, rack AS name FROM host", DuplicateNameError, (1, 31)),
        ("CREATE CONSTRAINT c AS SELECT * FROM host, host CHECK TRUE", DuplicateNameError, (1, 44)),
        ("CREATE VIEW v AS SELECT name FROM host", NoConstraintsError, None),
        ("CREATE CONSTRAINT c AS SELECT * FROM task WHERE sum(weight) > 1 "
         "CHECK TRUE", PolicySyntaxError, (1, 49)),
        (JOIN + " GROUP BY name CHECK weight = 1", PolicySyntaxError, (1, 98)),
        ("CREATE CONSTRAINT c AS SELECT id FROM task GROUP BY 2 CHECK TRUE", PolicySyntaxError, (1, 53)),
        ("CREATE CONSTRAINT c AS SELECT host, weight FROM task GROUP BY host CHECK count(*) < 9", PolicySyntaxError,
         (1, 37)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task GROUP BY host CHECK count(*) < 9", PolicySyntaxError, (1, 31)),
        ("CREATE CONSTRAINT c AS SELECT host, count(*) FROM task CHECK count(*) < 9", PolicySyntaxError, (1, 31)),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK count(*) < 9 REASON '{host}'", UnknownColumnError, (1, 69)),
        ("CREATE CONSTRAINT c AS SELECT host FROM task GROUP BY host CHECK count(*) < 9 REASON '{id}'",
         UnknownColumnError, (1, 86)),
        ("CREATE VIEW v AS SELECT rack, count(*) AS n, size FROM host GROUP BY rack;"
         "CREATE CONSTRAINT c AS SELECT * FROM v CHECK n > 0", PolicySyntaxError, (1, 46)),
    ],
)  # fmt: skip
def test_each_mistake_has_its_class_and_place(
    text: str, error: type[PolicyError], where: tuple[int, int] | None
) -> None:
    with pytest.raises(PolicyError) as caught:
        build(text)
    assert caught.type is error, caught.value
    if where is not None:
        assert (caught.value.line, caught.value.column) == where, caught.value


def test_hints_name_what_was_probably_meant() -> None:
    with pytest.raises(UnknownColumnError, match=r"did you mean 'weight'\?"):
        build("CREATE CONSTRAINT c AS SELECT * FROM task CHECK wieght = 1")
    with pytest.raises(UnknownTableError, match=r"did you mean 'task'\?"):
        build("CREATE CONSTRAINT c AS SELECT * FROM tsak CHECK TRUE")
    with pytest.raises(AmbiguousColumnError, match=r"write a\.weight"):
        build("CREATE CONSTRAINT c AS SELECT * FROM task a JOIN task b ON TRUE CHECK weight = 1")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CREATE CONSTRAINT c AS SELECT DISTINCT ON (weight) id FROM task CHECK variable__urgent", "DISTINCT ON"),
        ("CREATE VIEW v AS SELECT id FROM task WHERE variable__urgent EXCEPT SELECT 1; CREATE "
         "CONSTRAINT c AS SELECT * FROM v CHECK id = 1", "EXCEPT"),
        ("CREATE CONSTRAINT c AS SELECT * FROM task ORDER BY id CHECK variable__urgent", "ORDER"),
        ("CREATE CONSTRAINT c AS SELECT * FROM task LIMIT 1 CHECK variable__urgent", "LIMIT"),
        ("CREATE CONSTRAINT c AS SELECT * FROM task MINIMIZE sqrt(length(variable__host))", "a fraction"),
        ("CREATE CONSTRAINT c AS SELECT * FROM host CHECK name IN (SELECT variable__host FROM task WHERE "
         "weight < host.size LIMIT 2)", "refers to the outer query"),
        ("CREATE CONSTRAINT c AS SELECT * FROM host CHECK (name, rack) < ANY (SELECT variable__host, host FROM "
         "task)", "< on text"),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK sum(count(*)) = 1", "aggregate of an aggregate"),
        ("CREATE CONSTRAINT c AS SELECT * FROM task CHECK speed * 2 > 1 OR variable__urgent", None),
        (JOIN + " CHECK sum(speed * weight + CASE WHEN variable__urgent THEN 1 ELSE 0 END) > 1", "fraction"),
        ("CREATE VIEW v AS SELECT id FROM task ORDER BY variable__urgent LIMIT 1; CREATE CONSTRAINT "
         "c AS SELECT * FROM v CHECK id = 1", "solver decides"),
        ("CREATE VIEW v AS SELECT id, rank() OVER (ORDER BY variable__urgent) AS r FROM task; "
         "CREATE CONSTRAINT c AS SELECT * FROM v CHECK id = 1", "solver decides"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_is_refused_by_name_never_dropped(text: str, what: str | None) -> None:
    expected = UnknownColumnError if what is None else UnsupportedConstructError
    with pytest.raises(expected) as caught:
        build(text)
    assert caught.value.position is not None
    if what is not None:
        assert what.lower() in str(caught.value).lower()
        assert caught.value.hint


def test_what_the_database_can_compute_is_left_to_it() -> None:
    build(
        """
        CREATE VIEW ranked AS
          SELECT name, rank() OVER (PARTITION BY rack ORDER BY size DESC) AS place FROM host ORDER BY 1 LIMIT 9;
        CREATE VIEW both_kinds AS SELECT name AS label FROM host UNION ALL SELECT upper(host) FROM task;
        CREATE CONSTRAINT c AS SELECT * FROM task JOIN ranked ON variable__host = ranked.name
          WHERE length(ranked.name) > 1 AND ranked.name LIKE 'h%'
            AND EXISTS (SELECT 1 FROM both_kinds b WHERE b.label = ranked.name)
          CHECK ranked.place <= round(abs(-2)) AND ranked.place < (SELECT count(*) FROM both_kinds);
        """
    )


def test_the_database_refuses_what_it_does_not_know_at_build() -> None:
    with pytest.raises(PolicyError) as caught:
        build(
            "CREATE VIEW v AS SELECT name, bit_size(name) AS n FROM host;CREATE CONSTRAINT c AS "
            "SELECT * FROM v CHECK n = 1"
        )
    assert caught.value.position is not None


def test_names_are_found_in_any_case() -> None:
    build("CREATE CONSTRAINT c AS SELECT * FROM TASK JOIN Host ON Variable__HOST = NAME CHECK SIZE > 1")


@pytest.mark.parametrize("operator", ["AND", "OR", "+"])
def test_very_long_chains_are_refused(operator: str) -> None:
    operand = "weight" if operator == "+" else "variable__urgent"
    chain = f" {operator} ".join([operand] * 20_000)
    tail = f"CHECK {chain}" if operand != "weight" else f"CHECK {chain} > 1"
    with pytest.raises(PolicySyntaxError) as caught:
        build(f"CREATE CONSTRAINT c AS SELECT * FROM task {tail}")
    assert caught.value.position is not None
    build(
        f"CREATE CONSTRAINT c AS SELECT * FROM task {tail}".replace(
            chain, f" {operator} ".join([operand] * 50)
        )
    )


def test_no_statement_of_a_policy_can_write() -> None:
    state = database(SCHEMA, {"host": [{"name": "a", "up": True}]})
    for text in (
        "DELETE FROM host",
        "CREATE VIEW v AS DELETE FROM host",
        "CREATE VIEW v AS PRAGMA user_version = 3",
    ):
        with pytest.raises(PolicyError):
            Model.build(state, text)
    with pytest.raises(PolicyError):
        Model.build(state, "CREATE VIEW v AS WITH x AS (DELETE FROM host RETURNING name) SELECT * FROM x")
    assert state.version == 1
