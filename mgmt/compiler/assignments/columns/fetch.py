"""Columns of the snapshot for assignments: one statement for each side of a demand, kept while its tables stay.

A statement's answer is the same as long as nothing that it reads has changed
(``mgmt.compiler.relational.dependencies``); a snapshot counts changes of each column (``Snapshot.versions``), so that a
solve after a small change fetches what it touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeVar, cast

from numpy.typing import NDArray

from mgmt.compiler.assignments.columns.vectors import Interner, Vector, whole_numbers
from mgmt.compiler.relational.dependencies import read_by_text
from mgmt.state.database import Snapshot
from mgmt.state.snapshot import Cells

_Made = TypeVar("_Made")
_KEPT_STATEMENTS = 1000
_MOST_TEXTS = 2_000_000


def _still(known: Mapping[Cells, int], versions: Mapping[Cells, int]) -> bool:
    return known == versions and -1 not in versions.values()


@dataclass(frozen=True, slots=True)
class Table:
    """An answer in columns."""

    rows: int
    columns: tuple[Vector, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer with the versions of the tables it was read at."""

    versions: Mapping[Cells, int]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Kept:
    versions: Mapping[Cells, int]
    table: Table
    texts: tuple[Sequence[Any], ...]
    """The cells of each column of texts; of the others none."""


@dataclass(slots=True)
class Columns:
    """Answers by statement, with the versions of the tables they were read at."""

    below: Mapping[str, frozenset[Cells]] = field(default_factory=dict)
    """What is below each view, by names in lower case."""
    interner: Interner = field(default_factory=Interner)
    fetched_rows: int = 0
    """Rows asked of the database so far."""
    fetch_seconds: float = 0.0
    """The wall time that took."""
    _kept_rows: dict[str, _Answer] = field(default_factory=dict)
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _derived: dict[Hashable, tuple[tuple[object, ...], object]] = field(default_factory=dict)

    def shared(self) -> Columns:
        """The same answers, for a model of other demands over the same views and rows."""
        return Columns(interner=self.interner, _kept_rows=self._kept_rows, _kept=self._kept)

    def rows(self, snapshot: Snapshot, sql: str, reads: Iterable[str]) -> Sequence[tuple[Any, ...]]:
        """The answer to a statement over these tables and views; the same object while they stay as they are."""
        versions = self._versions(snapshot, sql, reads)
        known = self._kept_rows.get(sql)
        if known is not None and _still(known.versions, versions):
            return known.rows
        started = time.perf_counter()
        rows = snapshot.rows(sql)
        self._count(started, len(rows))
        self._kept_rows[sql] = _Answer(versions, rows)
        return rows

    def table(self, snapshot: Snapshot, sql: str, reads: Iterable[str]) -> Table:
        """The same in columns.  NotAnAssignment when it is no integers and texts.

        Columns that are as they were are the same objects, and so is the table if all of them are.
        """
        versions = self._versions(snapshot, sql, reads)
        known = self._kept.get(sql)
        if known is not None and _still(known.versions, versions):
            return known.table
        started = time.perf_counter()
        number, cells = snapshot.arrays(sql)
        self._count(started, number)
        olds: Sequence[tuple[Vector | None, Sequence[Any]]] = [(None, ())] * len(cells)
        if known is not None and len(known.texts) == len(cells):
            olds = list(zip(known.table.columns, known.texts, strict=True))
        made = [self._column(each, *old) for each, old in zip(cells, olds, strict=True)]
        table = Table(number, tuple(column for column, _ in made))
        if (
            known is not None
            and known.table.rows == number
            and len(known.table.columns) == len(cells)
            and all(map(is_, table.columns, known.table.columns))
        ):
            table = known.table
        self._kept[sql] = _Kept(versions, table, tuple(texts for _, texts in made))
        return table

    def _versions(self, snapshot: Snapshot, sql: str, reads: Iterable[str]) -> dict[Cells, int]:
        """The contents of what a statement reads; -1 for what may be different every time."""
        if len(self._kept_rows) + len(self._kept) >= _KEPT_STATEMENTS:
            self._clear()
        below, schema = self.below, snapshot.schema
        cells = self.derived(("read", sql), (below, schema), lambda: read_by_text(sql, reads, below, schema))
        return {each: snapshot.versions.get(each, -1) for each in cells}

    def _count(self, started: float, rows: int) -> None:
        self.fetch_seconds += time.perf_counter() - started
        self.fetched_rows += rows

    def _column(
        self, cells: NDArray[Any], old: Vector | None, texts: Sequence[Any]
    ) -> tuple[Vector, Sequence[Any]]:
        """A column, the old one if it is the same, and its texts if it is one of texts."""
        listed = cells.tolist() if cells.dtype.kind == "O" else ()
        if old is not None and old.codes and listed == texts:
            return old, texts
        found = self.interner.vector(listed) if cells.dtype.kind == "O" else whole_numbers(cells)
        found = old if old is not None and found.same(old) else found
        return found, listed if found.codes else ()

    def derived(self, key: Hashable, parts: Sequence[object], make: Callable[[], _Made]) -> _Made:
        """What ``make`` makes of these objects, kept as long as they are the same ones."""
        known = self._derived.get(key)
        if known is None or list(map(id, known[0])) != list(map(id, parts)):
            known = self._derived[key] = (tuple(parts), make())
        return cast(_Made, known[1])

    def trim(self) -> None:
        """Forget everything when more texts are known than a state of that size has."""
        if len(self.interner) > _MOST_TEXTS:
            self.interner = Interner()
            self._clear()

    def _clear(self) -> None:
        self._kept_rows, self._kept, self._derived = {}, {}, {}  # others may share them
