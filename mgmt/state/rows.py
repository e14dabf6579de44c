"""Rows into the engine and into rows that are there: in whole columns, for row by row it is slow.

What it is not: it checks no value (see ``values``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mgmt.solution import PrimaryKey, Value
from mgmt.state.engine import Catalog, errors
from mgmt.state.schema import SqlType, Table, quote, storage
from mgmt.state.values import array, stored

_INCOMING = "rota incoming"
_FEW = 8


def insert_rows(
    catalog: Catalog, table: Table, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Stored values of these columns, as new rows."""
    targets = ", ".join(map(quote, names))
    with errors("the state"):
        if len(rows) <= _FEW:
            marks = ", ".join("?" for _ in names)
            values = ", ".join(f"({marks})" for _ in rows)
            catalog.connection.execute(
                f"INSERT INTO {quote(table.name)} ({targets}) VALUES {values}",
                [value for row in rows for value in row],
            )
            return
        types = [table.column(name).type for name in names]
        with incoming(catalog, list(zip(names, types, strict=True)), rows) as source:
            catalog.connection.execute(
                f"INSERT INTO {quote(table.name)} ({targets}) SELECT {targets} FROM {source}"
            )


def update_rows(
    catalog: Catalog, table: Table, columns: Sequence[str], values: Mapping[PrimaryKey, Value]
) -> int:
    """Put a value into columns of the rows with these primary keys; how many rows are others by it."""
    kind = table.column(columns[0]).type
    keys = [(f"k{place}", table.column(name).type) for place, name in enumerate(table.primary_key)]
    rows = [(*key, stored(value, kind)) for key, value in values.items()]
    if not rows:
        return 0
    same = " AND ".join(f"own.{quote(name)} = new.k{place}" for place, name in enumerate(table.primary_key))
    value = f"CAST(new.value AS {storage(kind)})"
    targets = ", ".join(f"{quote(name)} = {value}" for name in columns)
    differs = " OR ".join(f"own.{quote(name)} IS DISTINCT FROM {value}" for name in columns)
    with errors("the state"), incoming(catalog, [*keys, ("value", kind)], rows) as source:
        ((number,),) = catalog.connection.execute(
            f"UPDATE {quote(table.name)} AS own SET {targets} FROM {source} AS new WHERE {same} AND ({differs})"
        ).fetchall()
    return int(number)


@contextmanager
def incoming(
    catalog: Catalog, columns: Sequence[tuple[str, SqlType]], rows: Sequence[tuple[Any, ...]]
) -> Iterator[str]:
    """Inside, the rows can be read from a relation of this name."""
    arrays = {
        name: array(cells, kind) for (name, kind), cells in zip(columns, zip(*rows, strict=True), strict=True)
    }
    catalog.connection.register(_INCOMING, arrays)
    try:
        yield quote(_INCOMING)
    finally:
        catalog.connection.unregister(_INCOMING)
