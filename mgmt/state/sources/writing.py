"""A plan on its way into a source: cells that are not yet as it wants them.

Rows are found by their keys as they were read: what the source has is converted as reading converts it, and compared
with the plan.  What differs is written, and read back in the same transaction; where anything still differs nothing is
kept, and the rows are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from mgmt.errors import DataError
from mgmt.state.duckdb_access.values import array, stored
from mgmt.state.schema import SqlType, Table, quote, storage
from mgmt.state.sources.loading import conversion
from mgmt.state.sources.source import PLACE, Cell, Change, Rows, Source, incoming, text_of

_SHOWN = 10
_BROKEN = "mend it there, or give the policies the rule that is broken"


def write(source: Source, changes: Sequence[Change]) -> None:
    """In a transaction: make these changes.  DataError where a row is not as the plan wants it afterwards."""
    now = list(changes)
    for number, change in enumerate(changes):
        for column in _targets(source, change):
            if cells := _differing(source, now[number], column):
                _refuse([cell for cell in cells if cell.place is None], source, change.table, column)
                with _refusals(source):
                    source.put(change.table, column, cells)
            now = [_with_new_keys(each, now[number], column) for each in now]
    with _refusals(source):
        source.settle()
    for change in now:
        for column in _targets(source, change):
            _refuse(_differing(source, change, column), source, change.table, column)


def _with_new_keys(change: Change, written: Change, column: str) -> Change:
    """A change by the keys that its rows have once a column is written, which may be a part of them."""
    names = [name.lower() for name in change.table.primary_key]
    if change.table.name != written.table.name or column.lower() not in names:
        return change
    at = names.index(column.lower())
    values = {
        (*key[:at], written.values.get(key, key[at]), *key[at + 1 :]): value
        for key, value in change.values.items()
    }
    return replace(change, values=values)


def _targets(source: Source, change: Change) -> list[str]:
    """The columns to write, as the source spells them."""
    spelt = {name.lower(): name for name in source.columns(change.table.name)}
    found = [spelt[name.lower()] for name in change.columns if name.lower() in spelt]
    if found or source.adds_columns:
        return found or [change.columns[-1]]
    wanted = " or ".join(map(repr, change.columns))
    raise DataError(f"{source.place} has no column {wanted} to write a plan to", hint="add one of them there")


def _differing(source: Source, change: Change, column: str) -> list[Cell]:
    """The cells of a column that are not as the plan wants them, and those whose row is not there."""
    import numpy as np

    table = change.table
    spelt = {name.lower(): name for name in source.columns(table.name)}
    names = [spelt.get(name.lower(), name) for name in (*table.primary_key, column)]
    kinds = [table.column(name).type for name in names]
    others = [name for name in names[:-1] if name != column]
    rows = source.placed(table.name, [*others, *([column] if column in spelt.values() else [])])
    keys, values = list(change.values), list(change.values.values())
    cells = {
        f"c{number}": array([stored(value, kind) for value in each], kind)
        for number, (each, kind) in enumerate(zip((*zip(*keys, strict=True), values), kinds, strict=True))
    }
    with incoming(rows.connection, {**cells, "number": np.arange(len(keys))}) as new:
        found = rows.connection.execute(_comparison(rows, names, kinds, new)).fetchall()
    return [
        Cell(
            place,
            keys[number],
            value := values[number],
            there,
            like,
            text_of(value) if like is None else text,
        )
        for number, place, there, like, text in found
    ]


def _comparison(rows: Rows, names: Sequence[str], kinds: Sequence[SqlType], new: str) -> str:
    """SQL that finds the rows of a plan in a source, and where the last column differs a cell that has the value."""
    types, last = rows.columns(), f"c{len(names) - 1}"
    parts = []
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        value, fits = conversion(quote(name), types[name], kind) if name in types else ("NULL", "FALSE")
        exactly = ' COLLATE "binary"' if kind is SqlType.TEXT else ""
        parts.append(f"CAST(CASE WHEN {fits} THEN {value} END AS {storage(kind)}){exactly} AS c{number}")
    raw = f"CAST({quote(names[-1])} AS VARCHAR)" if names[-1] in types else "CAST(NULL AS VARCHAR)"
    wanted = [f"CAST(new.c{number} AS {storage(kind)})" for number, kind in enumerate(kinds)]
    same = [f"own.c{number} IS NOT DISTINCT FROM {each}" for number, each in enumerate(wanted[:-1])]
    return (
        f"WITH own AS (SELECT {quote(PLACE)} AS place, {raw} AS raw, {', '.join(parts)} FROM ({rows.sql}) AS given),"
        f" known AS (SELECT {last} AS value, min(place) AS place, arg_min(raw, place) AS raw FROM own"
        f" WHERE {last} IS NOT NULL GROUP BY {last})"
        f" SELECT new.number, own.place, own.raw, known.place, known.raw FROM {new} AS new"
        f" LEFT JOIN own ON {' AND '.join(same)} LEFT JOIN known ON known.value = {wanted[-1]}"
        f" WHERE own.place IS NULL OR own.{last} IS DISTINCT FROM {wanted[-1]}"
        f" OR (own.raw IS NULL) <> (new.{last} IS NULL) ORDER BY new.number"
    )


@contextmanager
def _refusals(source: Source) -> Iterator[None]:
    """Inside, what the source says against what is written is a DataError."""
    try:
        yield
    except Exception as error:
        if (reason := source.refusal(error)) is None:
            raise
        raise DataError(_not_taken(source, reason), hint=_BROKEN) from error


def _not_taken(source: Source, reason: str) -> str:
    return f"{source.place} did not take the plan, and nothing was written: {reason}"


def _refuse(cells: Sequence[Cell], source: Source, table: Table, column: str) -> None:
    """DataError that names these cells, if there are any."""
    if not cells:
        return
    told = [{**dict(zip(table.primary_key, cell.key, strict=True)), column: cell.there} for cell in cells]
    named = [
        ", ".join(f"{name} {part!r}" for name, part in zip(table.primary_key, cell.key, strict=True))
        + (" is not there" if cell.place is None else f" has {cell.there!r}, not {cell.value!r}")
        for cell in cells[:_SHOWN]
    ]
    more = [f"and {len(cells) - _SHOWN} more"] if len(cells) > _SHOWN else []
    reason = f"in column {column!r} of table {table.name!r} {'; '.join(named + more)}"
    raise DataError(_not_taken(source, reason), rows=told, hint=source.advice)
