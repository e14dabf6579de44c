"""Rows inserted and updated in whole columns: one by one is slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mgmt.solution import PrimaryKey, Value
from mgmt.state.duckdb_access.engine import Catalog, errors
from mgmt.state.duckdb_access.values import array, stored
from mgmt.state.schema import SqlType, Table, quote, storage

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
        with incoming(catalog, list(zip(names, types, strict=True)), zip(*rows, strict=True)) as source:
            catalog.connection.execute(
                f"INSERT INTO {quote(table.name)} ({targets}) SELECT {targets} FROM {source}"
            )


def update_rows(
    catalog: Catalog, table: Table, keys: Sequence[PrimaryKey], columns: Mapping[str, Sequence[Value]]
) -> int:
    """Put values into columns of the rows with these primary keys; how many rows are others by it."""
    if not keys:
        return 0
    kinds = [(f"k{place}", table.column(name).type) for place, name in enumerate(table.primary_key)]
    cells: list[Sequence[Any]] = list(zip(*keys, strict=True))
    targets, differ = [], []
    for place, (name, values) in enumerate(columns.items()):
        kind = table.column(name).type
        known = {value: stored(value, kind) for value in set(values)}
        kinds.append((f"v{place}", kind))
        cells.append([known[value] for value in values])
        value = f"CAST(new.v{place} AS {storage(kind)})"
        targets.append(f"{quote(name)} = {value}")
        differ.append(f"own.{quote(name)} IS DISTINCT FROM {value}")
    same = " AND ".join(
        f"own.{quote(name)} IS NOT DISTINCT FROM new.k{place}" for place, name in enumerate(table.primary_key)
    )
    with errors("the state"), incoming(catalog, kinds, cells) as source:
        ((number,),) = catalog.connection.execute(
            f"UPDATE {quote(table.name)} AS own SET {', '.join(targets)} FROM {source} AS new"
            f" WHERE {same} AND ({' OR '.join(differ)})"
        ).fetchall()
    return int(number)


@contextmanager
def incoming(
    catalog: Catalog, columns: Sequence[tuple[str, SqlType]], cells: Iterable[Sequence[Any]]
) -> Iterator[str]:
    """Inside, these columns can be read from a relation of this name."""
    arrays = {name: array(values, kind) for (name, kind), values in zip(columns, cells, strict=True)}
    catalog.connection.register(_INCOMING, arrays)
    try:
        yield quote(_INCOMING)
    finally:
        catalog.connection.unregister(_INCOMING)
