"""The sources of one state database together.

A table has one source: the first one attached that brings it.  Writing to several is one transaction each: all are
compared before any is written, and then all are written before the first is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from mgmt.errors import DataError, DuplicateNameError
from mgmt.state.schema import Schema, Table
from mgmt.state.sources.loading import found_table
from mgmt.state.sources.source import Change, Rows, Source
from mgmt.state.sources.writing import write


class Attached:
    """See the module.  Used by one thread at a time."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._homes: dict[str, Source] = {}
        """By table, in lower case: where its rows are."""

    def __bool__(self) -> bool:
        return bool(self._sources)

    @property
    def tables(self) -> Collection[str]:
        """Those that have a source, in lower case."""
        return self._homes.keys()

    def add(self, source: Source, schema: Schema) -> list[Table]:
        """Attach one more; returns the tables it brings that no schema declares."""
        names = source.names or ()
        for name in names:
            if name.lower() in self._homes:
                raise DuplicateNameError(
                    f"table {name!r} comes from {self._homes[name.lower()].place} and from {source.place}",
                    hint="give one of them another name: NAME=FILE",
                )
        self._sources.append(source)
        self._homes.update({name.lower(): source for name in names})
        with source.errors():
            found = [found_table(name, source.rows(name)) for name in names if schema.find(name) is None]
        return [table for table in found if table.columns]

    def refresh(self, schema: Schema, take: Callable[[Table, Rows], None]) -> None:
        """Hand over the rows of those tables that have changed in their sources."""
        homeless = {table.name.lower() for table in schema.tables} - set(self._homes)
        for source in self._sources:
            own = {name for name, home in self._homes.items() if home is source}
            wanted = own | (homeless if source.names is None else set())
            there = source.read(
                {name for name in wanted if schema.find(name)},
                lambda name, rows: take(schema.table(name), rows),
            )
            self._homes.update(dict.fromkeys(there, source))
            homeless -= set(there)

    def refuse_changes(self, tables: set[str]) -> None:
        """DataError when the rows of one of these tables (in lower case) are changed elsewhere."""
        for name in tables & set(self._homes):
            if self._homes[name].holds_rows:
                raise DataError(
                    f"the rows of table {name!r} are those of {self._homes[name].place}",
                    hint="change them there",
                )

    @contextmanager
    def changing(self, changes: Sequence[Change]) -> Iterator[None]:
        """Write to the sources, around what is done with the state database.  ChangedError when one has changed."""
        with ExitStack() as transactions:
            for source in self._sources:
                transactions.enter_context(source.changing())
            for source in self._sources:
                if own := [each for each in changes if self._homes.get(each.table.name.lower()) is source]:
                    with source.errors():
                        write(source, own)
            yield

    def forget(self, names: Iterable[str]) -> None:
        """Read these tables the next time."""
        for name in names:
            if name.lower() in self._homes:
                self._homes[name.lower()].forget(name.lower())

    def close(self) -> None:
        """Free what the sources hold."""
        for source in self._sources:
            source.close()
