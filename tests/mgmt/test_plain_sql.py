"""Views of random SELECTs hold exactly the rows that DuckDB gives for the same text, once the values are put in.

A third opinion beside the encoder and the oracle, which both start from the same rewritten trees: outer joins, UNION,
DISTINCT and subqueries are rewritten there, and here they are not.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import duckdb
import pytest

from mgmt.compiler.model import Model
from mgmt.compiler.verification.oracle_sql import EXISTS
from mgmt.errors import UnsupportedConstructError
from mgmt.solution import Value
from mgmt.state.database import Database
from mgmt.state.schema import create_table, quote
from tests.budget import budgeted
from tests.mgmt.policy_grammar import NULLABLE, SHAPES, PolicyMaker, with_views
from tests.mgmt.support import assignments, database

# Where we differ on purpose: a sum over nothing is 0, empty groups are groups, and whether a row with a NULL is among
# others is unknown, as in standard SQL; DuckDB says that it is not.
_NOT_PLAIN = re.compile(r"\b(ANY|ALL) \(|sum\(s\.|\bloads\b|\bbusy\b|\) IN \(\(", re.IGNORECASE)
_DEMAND = "; CREATE CONSTRAINT anything AS SELECT * FROM task CHECK TRUE;"


def view_text(maker: PolicyMaker) -> str:
    """A SELECT of a few columns from a random source."""
    pick = maker.random.choice
    shape = pick([shape for shape in SHAPES if not _NOT_PLAIN.search(shape.source)])
    columns = [pick(shape.integers), maker.integer(shape, 1), pick(shape.texts), pick(shape.booleans)]
    outputs = ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
    where = f" WHERE {maker.boolean(shape, 1)}" if pick([True, True, False]) else ""
    return f"SELECT {outputs} FROM {shape.source}{where}"


def plain_rows(
    text: str, values: list[tuple[str, str, tuple[Value, ...], Value]], state: Database
) -> Counter[object]:
    """What DuckDB says, with the values in the tables."""
    connection = duckdb.connect(config={"integer_division": True, "error_on_division_by_zero": False})
    for name in ("greatest", "least"):
        macro = f"CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN system.main.{name}(a, b) END"
        connection.execute(f"CREATE MACRO {name}(a, b) AS {macro}")
    for table in state.schema.tables:
        connection.execute(create_table(table))
        names = ", ".join(quote(column.name) for column in table.columns)
        for row in state.execute(f"SELECT {names} FROM {quote(table.name)}"):
            connection.execute(f"INSERT INTO {quote(table.name)} VALUES ({', '.join('?' for _ in row)})", row)
    for table_name, column, (key,), value in values:
        primary = state.schema.table(table_name).primary_key[0]
        connection.execute(f"UPDATE {table_name} SET {column} = ? WHERE {primary} = ?", (value, key))
    views = with_views(text)[: -len(text)]
    for view in filter(str.strip, views.split(";\n")):
        connection.execute(view)
    return Counter(connection.execute(text).fetchall())


def check(seed: int) -> bool:
    maker = PolicyMaker(seed)
    state = database(NULLABLE, maker.data())
    text = view_text(maker)
    if _NOT_PLAIN.search(text):
        return False
    policy = with_views(f"CREATE VIEW made AS {text}")
    try:
        model = Model.build(state, policy + _DEMAND)
    except UnsupportedConstructError:
        return False
    relation = model.catalog.find("made")
    assert relation is not None
    possible = list(assignments(model, state))
    chosen = Random(seed).choice(possible)
    values = [
        (table, column, key, value)
        for (table, column), cells in chosen.items()
        for key, value in cells.items()
    ]
    names = ", ".join(f"c{number}" for number in range(4))
    where = f" WHERE {quote(EXISTS)}" if relation.gated else ""
    with state.snapshot() as snapshot, model.oracle.filled(snapshot, chosen):
        found = Counter(snapshot.rows(f"SELECT {names} FROM made{where}"))
    assert found == plain_rows(text, values, state), f"{text}\n{values}"
    return True


@pytest.mark.parametrize("chunk", budgeted(range(4), 0, in_test=1))
def test_a_view_holds_what_plain_sql_says(chunk: int) -> None:
    assert sum(check(7_000_000 + 1000 * chunk + number) for number in range(10)) >= 3


@pytest.mark.parametrize("chunk", budgeted(range(20), 1))
def test_many_more_views(chunk: int) -> None:
    for number in range(100):
        check(8_000_000 + 1000 * chunk + number)
