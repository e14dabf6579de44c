"""SQL for PostgreSQL as text: parameters, names and refusals, which need no server."""

from __future__ import annotations

import pytest

from mgmt.source import SourceText
from mgmt.state.postgres.statements import translate
from mgmt.state.postgres.tables import add_foreign_keys, create_table
from mgmt.state.postgres.typed import postgres_name
from mgmt.state.schema import SqlType
from mgmt.state.schema_parser import parse_schema
from mgmt.state.store import RefusedStatementError

RELATIONS = {"host": {"name": SqlType.TEXT, "up": SqlType.BOOLEAN, "size": SqlType.INTEGER}}


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT size + ? FROM host WHERE name = ?", (0, 1)),
        ("SELECT size + ?2 FROM host WHERE name = ?1 AND size <> ?2", (1, 0)),
        ("UPDATE host SET up = :up WHERE name = :name OR name = '? :x' OR up = :up", ("up", "name")),
        ('SELECT name AS "a ?1" FROM host', ()),
    ],
)
def test_parameters_are_counted_and_quoted_text_is_left_alone(
    sql: str, parameters: tuple[int | str, ...]
) -> None:
    translation = translate(sql, RELATIONS)
    assert translation.parameters == parameters
    for number in range(1, len(parameters) + 1):
        assert f"${number}" in translation.sql
    assert f"${len(parameters) + 1}" not in translation.sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM hosts",
        "SELECT * FROM pg_catalog.host",
        "SELECT (SELECT count(*) FROM pg_class) FROM host",
        "DELETE FROM pg_class",
        "DROP TABLE host",
        "SELECT 1; SELECT 2",
        "SELECT FROM WHERE",
        "SELECT * FROM host FOR UPDATE",
        "UPDATE host SET up = TRUE FROM host h",
        "(" * 3000 + "SELECT 1" + ")" * 3000,
        "",
    ],
)
def test_what_is_no_statement_over_the_relations_is_refused(sql: str) -> None:
    with pytest.raises(RefusedStatementError):
        translate(sql, RELATIONS)


def test_the_columns_of_an_answer_have_names_and_types() -> None:
    translation = translate(
        "SELECT *, size > 1, NULL AS nothing, sum(size) OVER () AS s FROM Host", RELATIONS
    )
    assert translation.columns == (
        ("name", SqlType.TEXT),
        ("up", SqlType.BOOLEAN),
        ("size", SqlType.INTEGER),
        ("column_4", SqlType.BOOLEAN),
        ("nothing", None),
        ("s", SqlType.INTEGER),
    )


def test_names_are_cut_to_what_fits_and_stay_different() -> None:
    names = [f"{'é' * 40}{number}" for number in range(20)]
    made = {postgres_name(name) for name in names}
    assert len(made) == 20
    assert all(len(name.encode()) <= 63 for name in made)
    assert postgres_name("Host") == "host"


def test_tables_declare_what_holds_before_the_first_plan() -> None:
    text = """
    CREATE TABLE a (id INTEGER PRIMARY KEY, variable__b TEXT NOT NULL REFERENCES b (name), up BOOLEAN NOT NULL,
      UNIQUE (id, up), UNIQUE (id, variable__b));
    CREATE TABLE b (name TEXT PRIMARY KEY, a INTEGER REFERENCES a);
    """
    schema = parse_schema(SourceText("schema.sql", text))
    first, second = map(create_table, schema.tables)
    assert 'PRIMARY KEY ("id"), UNIQUE ("id", "up"))' in first, "keys over variable columns are the solver's"
    assert '"variable__b" text COLLATE "C",' in first
    assert '"up" boolean NOT NULL' in first
    assert "REFERENCES" not in first + second, "tables may be made in any order"
    assert [len(add_foreign_keys(table)) for table in schema.tables] == [0, 1]
    assert add_foreign_keys(schema.tables[1])[0].endswith('REFERENCES "a" DEFERRABLE INITIALLY DEFERRED')
