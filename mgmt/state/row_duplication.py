"""Copies of a row: under fresh keys, with the rows that belong to it, placed nowhere yet.

Asked for by "how many more of these fit" and "would another host help".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mgmt.errors import DataError
from mgmt.solution import Value
from mgmt.state.database import Database
from mgmt.state.schema import Column, ForeignKey, SqlType, Table, literal, quote

_DEEPEST = 5  # tables that belong to tables that belong to ...


@dataclass(frozen=True, slots=True)
class NewRow:
    """One row to insert."""

    table: str
    values: Mapping[str, Value]


def by_table(rows: Iterable[NewRow]) -> dict[str, list[Mapping[str, Value]]]:
    """New rows by their tables, parents before children, each once."""
    found: dict[str, dict[tuple[tuple[str, Value], ...], Mapping[str, Value]]] = {}
    for row in rows:
        found.setdefault(row.table, {})[tuple(row.values.items())] = row.values
    return {table: list(different.values()) for table, different in found.items()}


def insertion(table: str, rows: Sequence[Mapping[str, Value]]) -> str:
    """Rows with the same columns as one SQL statement."""
    values = ", ".join(f"({', '.join(map(literal, row.values()))})" for row in rows)
    return f"INSERT INTO {quote(table)} ({', '.join(map(quote, rows[0]))}) VALUES {values}"


class RowCopier:
    """Makes copies of rows of one database, as it was when first asked; the numbers of copies go on counting."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answers: dict[tuple[str, tuple[Value, ...]], list[tuple[Any, ...]]] = {}
        self._made: dict[tuple[str, str], int] = {}

    def copy(self, table_name: str, key: tuple[Value, ...], *, fresh: tuple[str, ...] = ()) -> list[NewRow]:
        """The rows to insert for one more row like the one with this primary key, parents before children.

        Columns named in ``fresh`` get values of their own as well (with a row of the table they refer to).  DataError
        when there is no such row, or when its key cannot be varied.
        """
        table = self._database.schema.table(table_name)
        wanted = " AND ".join(f"{quote(name)} IS NOT DISTINCT FROM ?" for name in table.primary_key)
        if not table.primary_key or len(key) != len(table.primary_key):
            raise DataError(
                f"table {table.name!r} has the key ({', '.join(table.primary_key)})",
                rows=[key],
                hint="write a value for each column of the key, in this order",
            )
        rows = self._rows(table, wanted, key)
        if not rows:
            raise DataError(
                f"no row {key!r} in table {table.name!r}",
                rows=[key],
                hint=f"its key is ({', '.join(table.primary_key)}): look which rows there are",
            )
        return self._copy(table, rows[0], {}, fresh, 0)

    def _rows(self, table: Table, where: str, parameters: tuple[Value, ...]) -> list[dict[str, Value]]:
        names = [column.name for column in table.columns]
        sql = f"SELECT {', '.join(map(quote, names))} FROM {quote(table.name)} WHERE {where}"
        return [dict(zip(names, row, strict=True)) for row in self._asked(sql, parameters)]

    def _asked(self, sql: str, parameters: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        if (sql, parameters) not in self._answers:
            self._answers[sql, parameters] = self._database.execute(sql, parameters)
        return self._answers[sql, parameters]

    def _copy(
        self,
        table: Table,
        row: Mapping[str, Value],
        given: Mapping[str, Value],
        fresh: tuple[str, ...],
        depth: int,
    ) -> list[NewRow]:
        values = {**row, **given}
        for column in table.variables:
            values[column.name] = None
            paired = None if column.current is None else table.column(column.current)
            if paired is not None and paired.nullable:
                values[paired.name] = None
        parents: list[NewRow] = []
        for name in fresh:
            parents.extend(self._make_fresh(table, table.column(name), values))
        variable = {column.name.lower() for column in table.variables}
        for unique in table.uniques:
            if variable & {name.lower() for name in unique}:
                continue
            if all(values[table.column(name).name] == row[table.column(name).name] for name in unique):
                self._make_fresh(table, _own_column(table, unique), values)
        rows = [*parents, NewRow(table.name, values)]
        if depth < _DEEPEST:
            for child in self._database.schema.tables:
                for foreign_key in child.foreign_keys:
                    rows.extend(self._copy_children(table, row, values, child, foreign_key, depth))
        return rows

    def _copy_children(
        self,
        table: Table,
        old: Mapping[str, Value],
        new: Mapping[str, Value],
        child: Table,
        foreign_key: ForeignKey,
        depth: int,
    ) -> list[NewRow]:
        variable = {column.name.lower() for column in child.variables}
        if foreign_key.table.lower() != table.name.lower() or variable & {
            n.lower() for n in foreign_key.columns
        }:
            return []
        # What merely points here belongs here only if its key says so: a replica to its segment, but no host
        # to its rack.
        if not {n.lower() for n in foreign_key.columns} <= {n.lower() for n in child.primary_key}:
            return []
        referenced = [table.column(name).name for name in foreign_key.referenced or table.primary_key]
        if all(old[name] == new[name] for name in referenced):
            return []
        where = " AND ".join(f"{quote(name)} IS NOT DISTINCT FROM ?" for name in foreign_key.columns)
        given = {
            child.column(name).name: new[other]
            for name, other in zip(foreign_key.columns, referenced, strict=True)
        }
        found = self._rows(child, where, tuple(old[name] for name in referenced))
        return [made for row in found for made in self._copy(child, row, given, (), depth + 1)]

    def _make_fresh(self, table: Table, column: Column, values: dict[str, Value]) -> list[NewRow]:
        """Give a column a value that no row has; returns the row it refers to, if it refers to one."""
        if column.type not in {SqlType.TEXT, SqlType.INTEGER}:
            raise DataError(
                f"{table.name}.{column.name} has no further values", hint="use a row of another table"
            )
        number = self._made[table.name, column.name] = self._made.get((table.name, column.name), 0) + 1
        old = values[column.name]
        parents: list[NewRow] = []
        if column.type is SqlType.INTEGER:
            ((most,),) = self._asked(
                f"SELECT coalesce(max({quote(column.name)}), 0) FROM {quote(table.name)}"
            )
            values[column.name] = int(most) + number
        else:
            values[column.name] = f"{column.name}-new-{number}" if old is None else f"{old}-new-{number}"
        if column.references is not None and old is not None:
            parent = self._database.schema.table(column.references[0])
            target = parent.column(column.references[1] or parent.primary_key[0]).name
            found = self._rows(parent, f"{quote(target)} IS NOT DISTINCT FROM ?", (old,))[:1]
            parents = [NewRow(parent.name, {**row, target: values[column.name]}) for row in found]
        return parents


def _own_column(table: Table, unique: tuple[str, ...]) -> Column:
    """The column of a key to vary: the last that refers to nothing."""
    borrowed = {name.lower() for key in table.foreign_keys for name in key.columns}
    own = [name for name in unique if name.lower() not in borrowed]
    if not own:
        raise DataError(
            f"a row of {table.name!r} cannot be copied alone: its key ({', '.join(unique)}) belongs to other tables",
            hint=f"ask for a row of {table.foreign_keys[0].table!r}",
        )
    return table.column(own[-1])


def row_condition(values: Mapping[str, Value]) -> str:
    """That a row has these values."""
    return " AND ".join(f"{quote(name)} = {literal(value)}" for name, value in values.items())
