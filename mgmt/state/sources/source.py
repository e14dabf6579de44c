"""What a source is: tables that are read when they have changed, and written by compare-and-set on what was read."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError, DuplicateNameError, StateDatabaseError
from mgmt.solution import PrimaryKey, Value
from mgmt.source_text import UnreadableTextError
from mgmt.state.duckdb_access.engine import details
from mgmt.state.schema import Table, literal, quote

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

PLACE = "rota place"
"""What the column with the places of rows is called."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table: a query, and the connection that answers it, which is not the state's."""

    connection: duckdb.DuckDBPyConnection
    sql: str
    """Empty where there are no rows to tell the columns."""
    place: str
    are_texts: bool = False
    """Whether the source knows no types, so that what is a number is seen by its text only."""
    fault: Callable[[], str | None] = lambda: None
    """Where the source is malformed, and how; None where it is not, or nobody knows better than DuckDB."""

    def columns(self) -> Mapping[str, str]:
        """DuckDB's types by name; a column without a name is none."""
        if not self.sql:
            return {}
        relation = self.connection.sql(self.sql)
        found = dict(zip(relation.columns, map(str, relation.types), strict=True))
        return {name: kind for name, kind in found.items() if name.strip()}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Inside, what DuckDB says against the rows is raised as an error of ours."""
        import duckdb

        with reading_errors(self.place):
            try:
                yield
            except duckdb.OutOfMemoryException:
                raise
            except (duckdb.Error, RuntimeError) as error:
                if (fault := self.fault()) is not None:
                    raise DataError(f"{self.place}: {fault}", hint="mend it there") from error
                raise


@dataclass(frozen=True, slots=True)
class Change:
    """What a plan says of some columns of a table: values by primary key, also those that stay as they are."""

    table: Table
    columns: Sequence[str]
    """The variable, and the column with its value of today; a source may have one of them only."""
    values: Mapping[PrimaryKey, Value]


@dataclass(frozen=True, slots=True)
class Cell:
    """A value that is to be written, and where."""

    place: Any
    """Of the row, in the terms of its source; None if there is no such row."""
    key: PrimaryKey
    value: Value
    there: str | None
    """What stands there, as a text."""
    like: Any
    """The place of a row whose cell in this column has the value already; None if there is none."""
    text: str | None
    """The value as a text: as that cell has it, 007 for 7, say."""

    def spelt(self, other: str = "0") -> str | None:
        """The value as a text; a truth as a number, which every database takes for one, where another one is that."""
        is_new = isinstance(self.value, bool) and self.like is None
        return str(int(self.value or 0)) if is_new and other in {"0", "1"} else self.text


class ChangedError(Exception):
    """A source is not what was read."""


class Source(ABC):
    """Tables outside of the state database.  Used by one thread at a time; names are in lower case."""

    holds_rows = True
    """Whether rows are changed there, and not in the state database."""
    adds_columns = False
    """Whether a column that a plan is to be written to is added where it is missing."""
    may_fail_at_end = True
    """Whether there, what was taken can still be refused when the transaction ends."""
    file: Path | None = None
    """The file that it is, if it is one, by which it is known again."""
    advice = "look what there keeps these rows as they are"
    """What to do where it does not take what is written."""

    def __init__(self, place: str, names: Sequence[str] | None = None) -> None:
        self.place = place
        """Where it is, for people, without a password."""
        self.names = names
        """The tables it brings; None: those of the schema that it turns out to have."""
        self.seen: Mapping[str, object] = {}
        """The fingerprints of what was read."""
        self.loader = new_loader()

    @abstractmethod
    def transaction(self, *, writing: bool) -> AbstractContextManager[None]:
        """A transaction there."""

    @abstractmethod
    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        """In a transaction: what changes when a table's rows do, of those that are there."""

    @abstractmethod
    def rows(self, name: str) -> Rows:
        """In a transaction: the rows of a table that is there; to be used before the next one's."""

    @abstractmethod
    def columns(self, name: str) -> Sequence[str]:
        """In a transaction: the columns of a table that is there, in its own spelling."""

    @abstractmethod
    def placed(self, name: str, columns: Sequence[str]) -> Rows:
        """In a transaction: the place of each row, as ``PLACE``, and these columns; what was put is seen."""

    @abstractmethod
    def put(self, table: Table, column: str, cells: Sequence[Cell]) -> None:
        """In a transaction: write values, each in the row at its place."""

    def refusal(self, error: Exception) -> str | None:
        """What an error in ``put`` or ``settle`` says against what is written; None where it is about anything else."""
        return None

    def settle(self) -> None:  # noqa: B027 - for most there is nothing to do
        """In a transaction: do now what would be done when it ends, and could change rows once more."""

    def require_unchanged(self) -> None:  # noqa: B027 - for most the transaction sees to it
        """In a transaction: ChangedError where others have changed what was put into the meanwhile."""

    def errors(self) -> AbstractContextManager[None]:
        """Inside, what is raised for what is there is raised as an error of ours."""
        return reading_errors(self.place)

    def read(self, wanted: Collection[str], take: Callable[[str, Rows], None]) -> Collection[str]:
        """Hand over those tables that have changed, in one transaction; returns which of the wanted ones it has."""
        with self.errors(), self.transaction(writing=False):
            now = self.fingerprints(wanted)
            for name, fingerprint in now.items():
                if self.seen.get(name) != fingerprint:
                    take(name, self.rows(name))
        self.seen = now
        return now.keys()

    @contextmanager
    def changing(self, written: Collection[str] = ()) -> Iterator[None]:
        """A transaction to write in; when it begins, ChangedError unless everything is as it was read.

        ``written``: the tables that are changed as the state is.  Others that change with them, views say, are read
        again, and all tables of one file.
        """
        with self.errors(), self.transaction(writing=True):
            if self.fingerprints(self.seen) != self.seen:
                raise ChangedError
            yield
            now = self.fingerprints(self.seen)
        known = {name for name in written if self.names is None or len(self.names) == 1}
        self.seen = {name: each for name, each in now.items() if name in known or self.seen.get(name) == each}

    def forget(self, name: str) -> None:
        """Read this table the next time."""
        self.seen = {each: fingerprint for each, fingerprint in self.seen.items() if each != name}

    def close(self) -> None:
        """Free what it holds."""
        self.loader.close()


def new_loader() -> duckdb.DuckDBPyConnection:
    """A DuckDB that may read files: apart from the state's, so that no policy ever can."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        **dict.fromkeys(("autoload_known_extensions", "autoinstall_known_extensions"), False),
        "threads": 1,
        "memory_limit": "2GB",
        "max_temp_directory_size": "0B",
    }
    loader = duckdb.connect(":memory:", config=config)
    # A column's type is that of all its values, not of the first thousand.
    loader.execute("SET TimeZone = 'UTC'; SET pandas_analyze_sample = 1000000000000")
    return loader


@contextmanager
def incoming(connection: duckdb.DuckDBPyConnection, columns: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Inside, these columns can be read from a relation of this name."""
    connection.register("incoming", dict(columns))
    import duckdb

    try:
        yield "incoming"
    finally:
        with suppress(duckdb.TransactionException):  # one that failed takes the name with it
            connection.unregister("incoming")


def put_by_row(
    connection: duckdb.DuckDBPyConnection, target: str, column: str, cells: Sequence[Cell], place: str
) -> None:
    """Write values into a table of DuckDB, whose rows have this place, in SQL."""
    import numpy as np

    places = np.array([cell.place for cell in cells], dtype=object)
    texts = np.array([cell.spelt() for cell in cells], dtype=object)
    with incoming(connection, {"place": places, "text": texts}) as new:
        connection.execute(
            f"UPDATE {target} AS own SET {quote(column)} = CAST(new.text AS VARCHAR) FROM {new} AS new"
            f" WHERE {place} = new.place"
        )


def text_of(value: Value) -> str | None:
    """A value of a plan as a text that every source reads as this value."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def single_file(path: str) -> str:
    """A path for SQL: to DuckDB some characters stand for others."""
    return literal("".join(f"[{letter}]" if letter in "*?[" else letter for letter in path))


def require_distinct(names: Iterable[str], place: str) -> None:
    """DuplicateNameError where two names are one to SQL; those that are empty are none."""
    seen: set[str] = set()
    for name in names:
        if name and name.lower() in seen:
            raise DuplicateNameError(
                f"{place} has two columns {name!r}", hint="case does not tell columns apart: rename one"
            )
        seen.add(name.lower())


@contextmanager
def reading_errors(place: str) -> Iterator[None]:
    """What libraries and the system say against a source or a value, as our errors.

    Whatever is read comes through here, so that nobody is shown an exception of a library's own.
    """
    import duckdb

    try:
        yield
    except (duckdb.IOException, OSError) as error:
        raise StateDatabaseError(
            f"cannot use {place}: {first_line(error)}",
            hint="is it there, whole and yours, and does no other program hold it?",
        ) from error
    except UnreadableTextError as error:
        raise DataError(f"{place}: {error.message}", hint=error.hint) from error
    except (duckdb.Error, UnicodeError, RuntimeError, MemoryError) as error:
        raise DataError(f"{place}: it cannot be read: {first_line(error)}", hint="mend it there") from error


def first_line(error: BaseException) -> str:
    """What an error of a library or of the system says first, without its class."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    reason = str(details(error)["exception_message"]).strip()
    first = next(iter(reason.splitlines()), "") or type(error).__name__
    return re.sub(r"^(?:[A-Z]\w+ )+Error: ", "", first)
