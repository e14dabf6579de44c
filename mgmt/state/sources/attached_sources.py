"""The sources of one state database together.

A table has one source: the first one attached that brings it; a file is one source, of however many tables.  Writing
to several is one transaction each: all are compared before any is written, and again when all are, before the first is
committed.  Where one fails then it is said to which the plan was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from mgmt.errors import DataError, DuplicateNameError, PolicyError, StateDatabaseError
from mgmt.state.schema import Schema, Table
from mgmt.state.sources.loading import found_table
from mgmt.state.sources.source import Change, ChangedError, Rows, Source
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
        source = self._known(source)
        self._homes.update({name.lower(): source for name in names})
        with source.errors():
            found = [found_table(name, source.rows(name)) for name in names if schema.find(name) is None]
        return [table for table in found if table.columns]

    def _known(self, source: Source) -> Source:
        """The same, or the one before it that is the same file, which brings its tables, too."""
        for other in self._sources:
            if other.file is not None and other.file == source.file:
                if other.names is not None:
                    other.names = (*other.names, *(source.names or ()))
                source.close()
                return other
        self._sources.append(source)
        return source

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
        """Write to the sources, around what is done with the state database.  ChangedError when one has changed.

        StateDatabaseError where one has changed, or fails, when another is committed already.
        """
        own = dict[Source, list[Change]]()
        for change in changes:
            home = self._homes.get(change.table.name.lower())
            if home is not None and home.holds_rows:
                own.setdefault(home, []).append(change)
        committed = list[Source]()
        with ExitStack() as transactions:
            # What is entered last is committed first.
            for source in sorted(self._sources, key=lambda each: each.may_fail_at_end):
                transactions.enter_context(_changing(source, own, committed))
            for source, found in own.items():
                with source.errors():
                    write(source, found)
            for source in own:
                with source.errors():
                    source.require_unchanged()
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


@contextmanager
def _changing(
    source: Source, own: Mapping[Source, Sequence[Change]], committed: list[Source]
) -> Iterator[None]:
    """A transaction of one of several sources, each with its changes; notes that it is committed.

    What fails when another one is committed already is told as what it is.
    """
    changes = own.get(source, ())
    try:
        with source.changing({change.table.name.lower() for change in changes}):
            yield
    except (ChangedError, PolicyError) as error:
        if not committed or isinstance(error, _PartlyWrittenError):
            raise
        reason = f"{source.place} has changed meanwhile" if isinstance(error, ChangedError) else str(error)
        raise _PartlyWrittenError(own, committed, reason) from error
    if changes:
        committed.append(source)


class _PartlyWrittenError(StateDatabaseError):
    """A plan was written to some of its sources."""

    def __init__(self, sources: Iterable[Source], committed: Sequence[Source], reason: str) -> None:
        others = ", ".join(source.place for source in sources if source not in committed)
        super().__init__(
            f"the plan was written to {', '.join(source.place for source in committed)}, and not to {others}: {reason}",
            hint="solve again: what was written is what stands there now",
        )
