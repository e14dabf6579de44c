"""Rows of a source into a table, in whole columns; each value is checked against its column's type by DuckDB.

Columns are matched by name.  A variable column that the source lacks begins with the value of today; a column that the
table lacks is left out, unless it looks like the misspelt name of one that nothing brings.  A value that is none of its
column's type is an error that names its row, never rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError, DuplicateNameError, UnknownColumnError
from mgmt.source_text import Position
from mgmt.state.duckdb_access.engine import type_of
from mgmt.state.schema import Column, SqlType, Table, quote, storage
from mgmt.state.sources.misspelling import misspelt
from mgmt.state.sources.source import Rows, reading_errors

if TYPE_CHECKING:
    import duckdb

_INCOMING = "rota incoming"
_WHOLE = r"\s*[+-]?[0-9]+(\.0*)?\s*"
_ZONE = r".*[0-9]\s*(Z|[+-][0-9]{2}(:?[0-9]{2})?)\s*"
_NESTED = ("STRUCT", "MAP", "UNION")
_SHOWN = 10


class _Stream:
    """A relation of one DuckDB, so that another takes it: as a stream of columns."""

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._relation.__arrow_c_stream__(requested_schema)


class _Brought:
    """A column of the table, and the column of the source that it is filled from."""

    def __init__(self, column: Column, name: str, found: str) -> None:
        own = quote(name)
        self.column, self.source = column, own
        value, fits = conversion(own, found, column.type)
        empty = "NULL" if column.nullable or column.is_variable else "error('empty')"
        self.sql = f"CASE WHEN {own} IS NULL THEN {empty} WHEN {fits} THEN {value} ELSE error('no value') END"
        self.wrong = f"({own} IS NOT NULL AND ({fits}) IS NOT TRUE)"
        if empty != "NULL":
            self.wrong += f" OR {own} IS NULL"


def load(target: duckdb.DuckDBPyConnection, table: Table, rows: Rows) -> None:
    """Insert all rows; the table is one of ``target``."""
    with reading_errors(rows.place):
        brought = _matched(table, rows)
        if not brought:
            return
        chosen = ", ".join(f"{each.sql} AS {quote(each.column.name)}" for each in brought)
        names = ", ".join(quote(each.column.name) for each in brought)
        stream = _Stream(rows.connection.sql(f"SELECT {chosen} FROM ({rows.sql}) AS given"))
        try:
            target.register(_INCOMING, stream)
            target.execute(
                f"INSERT INTO {quote(table.name)} ({names}) SELECT {names} FROM {quote(_INCOMING)}"
            )
            target.unregister(_INCOMING)
        except Exception:
            _blame(table, rows, brought)
            raise


@contextmanager
def at_place(rows: Rows) -> Iterator[None]:
    """Inside, what is said against rows says where they are."""
    try:
        yield
    except DataError as error:
        if rows.place in error.message:
            raise
        raise DataError(f"{rows.place}: {error.message}", rows=error.rows, hint=error.hint) from error


def found_table(name: str, rows: Rows) -> Table:
    """The table for rows that no schema declares: with the types DuckDB finds, nested values as JSON texts."""
    position = Position(rows.place, 1, 1)
    with reading_errors(rows.place):
        columns = tuple(
            Column(column, _kept(type_of(found)), nullable=True, position=position)
            for column, found in rows.columns(found=True).items()
        )
    return Table(name, columns, (), (), (), found=True)


def _kept(kind: SqlType) -> SqlType:
    return SqlType.TEXT if kind is SqlType.UNKNOWN else kind


def _matched(table: Table, rows: Rows) -> list[_Brought]:
    found: dict[str, tuple[str, str]] = {}
    for name, kind in rows.columns().items():
        if name.lower() in found:
            raise DuplicateNameError(
                f"{rows.place} has two columns {name!r}", hint="case does not tell columns apart: rename one"
            )
        found[name.lower()] = (name, kind)
    brought = []
    for column in table.columns if found else ():
        given = found.get(column.name.lower())
        if given is None and column.is_variable:
            given = found.get((column.current or "").lower())
        if given is not None:
            brought.append(_Brought(column, *given))
        elif not column.nullable and not column.is_variable and "DEFAULT" not in column.definition.upper():
            raise UnknownColumnError(
                f"{rows.place} has no column {column.name!r}, which table {table.name!r} needs",
                hint=f"it has {', '.join(name for name, _ in found.values())}",
            )
        elif not column.is_variable and (near := _misspelt(column, table, found)):
            raise UnknownColumnError(
                f"{rows.place} has no column {column.name!r}, which table {table.name!r} declares, but {near!r}",
                hint="rename it there; or if it is another one, declare it, too",
            )
    if found and not brought:
        raise UnknownColumnError(
            f"{rows.place} has no column of table {table.name!r}",
            hint=f"it has {', '.join(name for name, _ in found.values())}",
        )
    return brought


def _misspelt(column: Column, table: Table, found: Mapping[str, tuple[str, str]]) -> str | None:
    """What is as good as certainly meant by a column that nothing brings: without it all its values would be NULL."""
    others = set(found) - {name.lower() for each in table.columns for name in (each.name, each.current or "")}
    near = misspelt(column.name, others)
    return found[near][0] if near is not None else None


def conversion(own: str, found: str, kind: SqlType) -> tuple[str, str]:
    """How a value of a type of DuckDB's becomes one of the column's, and the condition that it is one."""
    if kind is SqlType.TEXT:
        nested = found.endswith("]") or found.startswith(_NESTED)
        return f"CAST({f'to_json({own})' if nested else own} AS VARCHAR)", "TRUE"
    value = f"TRY_CAST({own} AS {storage(kind)})"
    given, text = type_of(found), found == "VARCHAR"
    fits = f"{value} IS NOT NULL"
    if kind is SqlType.INTEGER and text:
        return value, f"regexp_full_match({own}, '{_WHOLE}') AND {fits}"
    if kind is SqlType.INTEGER and given is SqlType.REAL:
        return value, f"{fits} AND {own} = trunc({own})"
    if kind is SqlType.BOOLEAN and given in {SqlType.INTEGER, SqlType.REAL}:
        return value, f"{own} IN (0, 1)"
    if kind is SqlType.DATE:
        return value, f"{fits} AND TRY_CAST({own} AS TIMESTAMP) = {value}"
    if kind is SqlType.TIMESTAMP and text:
        zoned = f"regexp_full_match({own}, '{_ZONE}') AND {own} LIKE '%:%'"
        return (
            f"CASE WHEN {zoned} THEN CAST(TRY_CAST({own} AS TIMESTAMPTZ) AS TIMESTAMP) ELSE {value} END",
            fits,
        )
    return value, fits


def _blame(table: Table, rows: Rows, brought: list[_Brought]) -> None:
    """DataError that names the first rows with a value that has no place in the table, if there are any."""
    for each in brought:
        wrong = rows.connection.execute(
            f"SELECT n, CAST(v AS VARCHAR) FROM (SELECT row_number() OVER () AS n, {each.source} AS v,"
            f" {each.wrong} AS wrong FROM ({rows.sql}) AS given) WHERE wrong LIMIT {_SHOWN}"
        ).fetchall()
        if wrong:
            raise _refused(table, each.column, rows.place, wrong)


def _refused(table: Table, column: Column, place: str, wrong: list[tuple[Any, ...]]) -> DataError:
    number, value = wrong[0]
    what = f"{value!r} is no {column.type}" if value is not None else "it is empty, and must not be"
    return DataError(
        f"{place}, row {number}: column {column.name!r} of table {table.name!r}: {what}",
        rows=[{"row": number, column.name: value} for number, value in wrong],
        hint="compare the values with the types of their columns; rows are counted from 1, without the header",
    )
