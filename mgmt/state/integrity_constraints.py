"""Integrity constraints: the keys, references and checks of a schema, asked of all rows in one statement.

An index for each key would make loading ten times as slow; asking afterwards which rows break a key takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mgmt.errors import DataError
from mgmt.state.duckdb_access.engine import Catalog
from mgmt.state.schema import ForeignKey, Schema, Table, quote


@dataclass(frozen=True, slots=True)
class _Rule:
    """A query for the rows that break it, which names them by ``columns``."""

    table: Table
    reason: str
    columns: tuple[str, ...]
    sql: str
    refers_to: str = ""


def require_rules(catalog: Catalog, schema: Schema, touched: Collection[str], *, added: bool = False) -> None:
    """DataError when a change of these tables (in lower case) has left a key, a reference or a check broken.

    ``added``: they have only got more rows, so that what refers to them still does.
    """
    rules = [
        rule
        for table in schema.tables
        for rule in _rules_of(table, schema)
        if table.name.lower() in touched or (not added and rule.refers_to in touched)
    ]
    if not rules:
        return
    asked = " UNION ALL ".join(
        f"(SELECT {number} FROM ({rule.sql} LIMIT 1) AS broken)" for number, rule in enumerate(rules)
    )
    for (number,) in catalog.connection.execute(asked).fetchall():
        rule = rules[number]
        rows = catalog.connection.execute(f"{rule.sql} LIMIT 10").fetchall()
        first = ", ".join(f"{name} {value!r}" for name, value in zip(rule.columns, rows[0], strict=True))
        raise DataError(
            f"table {rule.table.name!r} refuses a row: {rule.reason}: {first}",
            rows=[dict(zip(rule.columns, row, strict=True)) for row in rows],
            hint="mend the row, or the rule of the schema that it breaks",
        )


def _rules_of(table: Table, schema: Schema) -> Iterator[_Rule]:
    variable = {column.name.lower() for column in table.variables}
    for unique in dict.fromkeys(table.uniques):
        if not variable & {name.lower() for name in unique}:
            yield _unique(table, unique)
    columns = tuple(column.name for column in table.columns)
    for check in table.checks:
        sql = f"SELECT {', '.join(map(quote, columns))} FROM {quote(table.name)} WHERE NOT ({check})"
        yield _Rule(table, f"CHECK ({check}) is broken", columns, sql)
    for key in table.foreign_keys:
        target = schema.find(key.table)
        if target is not None and not variable & {name.lower() for name in key.columns}:
            yield _reference(table, key, target)


def _unique(table: Table, unique: tuple[str, ...]) -> _Rule:
    names = ", ".join(map(quote, unique))
    # In the key by which plans name rows NULL is a value like others.
    is_key = unique == table.primary_key
    known = "true" if is_key else " AND ".join(f"{quote(name)} IS NOT NULL" for name in unique)
    sql = f"SELECT {names} FROM {quote(table.name)} WHERE {known} GROUP BY {names} HAVING count(*) > 1"
    kind = "PRIMARY KEY" if is_key else "UNIQUE"
    return _Rule(table, f"{kind} ({', '.join(unique)}) is broken", unique, sql)


def _reference(table: Table, key: ForeignKey, target: Table) -> _Rule:
    referenced = key.referenced or target.primary_key
    known = " AND ".join(f"own.{quote(name)} IS NOT NULL" for name in key.columns)
    same = " AND ".join(
        f"other.{quote(there)} = own.{quote(here)}"
        for here, there in zip(key.columns, referenced, strict=True)
    )
    columns = tuple(dict.fromkeys((*table.primary_key, *key.columns)))
    names = ", ".join(f"own.{quote(name)}" for name in columns)
    sql = (
        f"SELECT {names} FROM {quote(table.name)} AS own ANTI JOIN {quote(target.name)} AS other ON {same}"
        f" WHERE {known}"
    )
    reason = f"FOREIGN KEY ({', '.join(key.columns)}): {target.name} has no such row"
    return _Rule(table, reason, columns, sql, target.name.lower())
