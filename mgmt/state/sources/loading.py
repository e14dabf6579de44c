"""Rows of a source into a table, in whole columns; each value is checked against its column's type by DuckDB.

Columns are matched by name.  A variable column that the source lacks begins with the value of today; a column that the
table lacks is left out, unless it looks like the misspelt name of one that nothing brings.  A value that is none of its
column's type is an error that names its row, never rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError, PolicyError, UnknownColumnError
from mgmt.source_text import Position
from mgmt.state.duckdb_access.engine import type_of
from mgmt.state.schema import (
    RESERVED_COLUMNS,
    VARIABLE_PREFIXES,
    Column,
    SqlType,
    Table,
    quote,
    storage,
)
from mgmt.state.sources.misspelling import misspelt
from mgmt.state.sources.source import Rows, require_distinct

if TYPE_CHECKING:
    import duckdb

_INCOMING = "rota incoming"
_WHOLE = r"\s*[+-]?[0-9]+(\.0*)?\s*"
_NANOSECONDS = r"\.[0-9]{6}[0-9]*[1-9]"
_NESTED = ("STRUCT", "MAP", "UNION")
_LONG = ("UBIGINT", "HUGEINT", "UHUGEINT")
_SHOWN = 10
_TOGETHER = 60
"""Conditions in one query, whose planning takes time that grows with the square of their number."""
_WRITTEN = {
    SqlType.BOOLEAN: "(?i)true|false",
    SqlType.INTEGER: r"\s*(0|-?[1-9][0-9]*)\s*",
    SqlType.REAL: r"\s*-?(0|[1-9][0-9]*)?(\.[0-9]+)?(e[+-]?[0-9]+)?\s*".replace("e", "[eE]"),
    SqlType.DATE: "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    SqlType.TIMESTAMP: "[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:[0-9]{2}.*",
}
"""How values of a type are written that are not only codes which look like it: a number begins with no 0, say."""


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
    with rows.errors():
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
def at_place(place: str) -> Iterator[None]:
    """Inside, what is said against rows says where they are."""
    try:
        yield
    except PolicyError as error:
        if place not in error.message:
            error.say_of(place)
        raise


def found_table(name: str, rows: Rows) -> Table:
    """The table for rows that no schema declares: with the types that all of their values have.

    A column of values that no type of ours keeps as they are is one of texts, nested values as JSON.  What could not
    be named, or would be decided, is left out.
    """
    position = Position(rows.place, 1, 1)
    with rows.errors():
        brought = {
            column: found
            for column, found in rows.columns().items()
            if column.lower() not in RESERVED_COLUMNS and not column.lower().startswith(VARIABLE_PREFIXES)
        }
        kinds = _kinds(rows, brought)
    columns = tuple(Column(column, kinds[column], nullable=True, position=position) for column in brought)
    return Table(name, columns, (), (), (), found=True)


def _kinds(rows: Rows, brought: Mapping[str, str]) -> dict[str, SqlType]:
    """The type of each column: the first of those that come into question which keeps all values."""
    kinds = {name: type_of(found) for name, found in brought.items()}
    asked = [
        (name, kind, condition)
        for name, found in brought.items()
        for kind, condition in _candidates(quote(name), found, are_texts=rows.are_texts)
    ]
    kept = [
        holds
        for first in range(0, len(asked), _TOGETHER)
        for holds in _keep(rows, asked[first : first + _TOGETHER])
    ]
    kinds.update({name: SqlType.TEXT for name, _, _ in asked})
    kinds.update(
        reversed([(name, kind) for (name, kind, _), holds in zip(asked, kept, strict=True) if holds])
    )
    return {name: SqlType.TEXT if kind is SqlType.UNKNOWN else kind for name, kind in kinds.items()}


def _keep(rows: Rows, asked: Sequence[tuple[str, SqlType, str]]) -> tuple[bool | None, ...]:
    """Which of these conditions all values meet that are there; None: there is no value."""
    all_of_them = ", ".join(
        f"bool_and({condition}) FILTER ({quote(name)} IS NOT NULL)" for name, _, condition in asked
    )
    (kept,) = rows.connection.execute(f"SELECT {all_of_them} FROM ({rows.sql}) AS given").fetchall()
    return tuple(kept)


def _candidates(own: str, found: str, *, are_texts: bool) -> Iterator[tuple[SqlType, str]]:
    """Types that a column may have, each with the condition for a value of it, where that depends on the values."""
    if are_texts:
        for kind, pattern in _WRITTEN.items():
            fits = conversion(own, found, kind)[1]
            exact = f" AND {_exact(own)}" if kind is SqlType.REAL else ""
            yield kind, f"regexp_full_match({own}, '{pattern}') AND {fits}{exact}"
    elif found.startswith("DECIMAL") and not found.endswith(",0)"):
        yield SqlType.REAL, f"CAST(CAST({own} AS DOUBLE) AS {found}) = {own}"
    elif found in _LONG or found.startswith("DECIMAL"):
        yield SqlType.INTEGER, f"TRY_CAST({own} AS BIGINT) IS NOT NULL"
    elif found == "TIMESTAMP_NS":
        yield SqlType.TIMESTAMP, conversion(own, found, SqlType.TIMESTAMP)[1]


def _exact(own: str) -> str:
    """Whether a number among fractions is one of these, or a whole number that a double keeps."""
    return f"(NOT regexp_full_match({own}, '[-0-9\\s]*') OR abs(TRY_CAST({own} AS HUGEINT)) <= {2**53})"


def _matched(table: Table, rows: Rows) -> list[_Brought]:
    given = rows.columns()
    require_distinct(given, rows.place)
    found = {name.lower(): (name, kind) for name, kind in given.items()}
    brought = []
    for column in table.columns if found else ():
        own = found.get(column.name.lower())
        if own is None and column.is_variable:
            own = found.get((column.current or "").lower())
        if own is not None:
            brought.append(_Brought(column, *own))
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
    if kind in {SqlType.INTEGER, SqlType.REAL} and given is SqlType.BOOLEAN:
        return value, "FALSE"  # to DuckDB true is 1
    if kind is SqlType.INTEGER and text:
        return value, f"regexp_full_match({own}, '{_WHOLE}') AND {fits}"
    if kind is SqlType.INTEGER and given is SqlType.REAL:
        return value, f"{fits} AND {own} = trunc({own})"
    if kind is SqlType.BOOLEAN and given in {SqlType.INTEGER, SqlType.REAL}:
        return value, f"{own} IN (0, 1)"
    if kind is SqlType.DATE:
        return value, f"{fits} AND TRY_CAST({own} AS TIMESTAMP) = {value}"
    if kind is SqlType.TIMESTAMP and text:
        # Without a zone it is in that of the connection, which is UTC; as a TIMESTAMP it would lose a zone's name.
        # In upper case, for DuckDB takes 'z' for no zone.
        value = f"CAST(TRY_CAST(upper({own}) AS TIMESTAMPTZ) AS TIMESTAMP)"
        return value, f"{value} IS NOT NULL AND NOT regexp_matches({own}, '{_NANOSECONDS}')"
    if kind is SqlType.TIMESTAMP and found == "TIMESTAMP_NS":
        return value, f"{fits} AND {value} = {own}"
    if kind is SqlType.REAL and text:  # 1e400 is more than any double
        return value, f"{fits} AND (isfinite({value}) OR NOT regexp_matches({own}, '[0-9]'))"
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
