"""Files as sources: one table per CSV, Parquet or JSON file.

A plan is written to a new file beside it that takes its place, so that whoever reads finds the old one or the new one;
what the plan does not change stays as it is.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

from mgmt.errors import DataError
from mgmt.source_text import encoding_of, read_bytes
from mgmt.state.schema import Table, literal, quote, storage
from mgmt.state.sources.source import PLACE, Cell, ChangedError, Rows, Source, put_by_row, single_file


class File(Source):
    """One table in one file; its fingerprint is a digest, taken when the file's time or size are others."""

    adds_columns = True
    may_fail_at_end = False
    advice = (
        "if it is not two tables of this file that want other values there, please report this, with the file"
    )

    def __init__(self, name: str, path: Path, piped: IO[bytes] | None = None) -> None:
        """``piped``: what came through a pipe of this path, which can be read but once."""
        super().__init__(str(path), (name,))
        self._home = path.resolve() if piped is None else Path(piped.name)
        self.file = self._home
        self._beside: Path | None = None
        self.path = self._home
        """What is read: once something has been put, the new file beside it."""
        self._rows: Rows | None = None
        """What was read of it last, while it is being written."""
        self._piped = piped
        self._plain: IO[bytes] | None = None
        self._known: tuple[tuple[int, ...], bytes] = (), b""

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        if writing:
            self._known = (), b""
        try:
            yield
            if self.path != self._home:
                self.require_unchanged()
                os.replace(self.path, self._home)
                _sync(self._home.parent)
        finally:
            self.path, self._rows = self._home, None
            if self._beside is not None:
                self._beside.unlink(missing_ok=True)
                self._beside = None

    def require_unchanged(self) -> None:
        if _digest(self._home) not in self.seen.values():
            raise ChangedError

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        found = self.path.stat()
        stamp = found.st_ino, found.st_size, found.st_mtime_ns
        if stamp != self._known[0]:
            self._known = stamp, _digest(self.path)  # a change between the two is found by the next stamp
        return dict.fromkeys(names, self._known[1])

    def plain(self, content: bytes) -> str:
        """A path from which DuckDB reads this, which the file holds: its own, unless it is packed, say."""
        if content == self.path.read_bytes():
            return str(self.path)
        if self._plain is not None:
            self._plain.close()
        self._plain = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the source
        self._plain.write(content)
        self._plain.flush()
        return self._plain.name

    def close(self) -> None:
        super().close()
        for each in (self._piped, self._plain):
            if each is not None:
                each.close()

    def columns(self, name: str) -> Sequence[str]:
        if self._rows is None:
            self._rows = self.rows(name)
        return list(self._rows.columns())

    def placed(self, name: str, columns: Sequence[str]) -> Rows:
        rows = self._rows or self.rows(name)
        if not rows.sql:
            return rows
        chosen = ", ".join((f"row_number() OVER () - 1 AS {quote(PLACE)}", *map(quote, columns)))
        return replace(rows, sql=f"SELECT {chosen} FROM ({rows.sql}) AS own")

    def put(self, table: Table, column: str, cells: Sequence[Cell]) -> None:
        if self._piped is not None:
            raise DataError(f"{self.place} is a pipe, to which no plan can be written", hint="give a file")
        if not os.access(self._home, os.W_OK):  # another file in its place would need no leave of its own
            raise PermissionError(errno.EACCES, "it may not be written to")
        if self._home.stat().st_nlink > 1:
            raise DataError(
                f"{self.place} is the same file as another one (a hard link), which would keep the rows of before",
                hint=f"make it a file of its own: cp {self.place} new && mv new {self.place}",
            )
        if self._beside is None:
            number, beside = tempfile.mkstemp(prefix=".rota.", dir=self._home.parent)
            os.close(number)
            self._beside = Path(beside)
        self.edit(table, column, cells, self._beside)
        _keep_attributes(self._home, self._beside)
        _sync(self._beside)
        self.path, self._rows = self._beside, None

    @abstractmethod
    def edit(self, table: Table, column: str, cells: Sequence[Cell], to: Path) -> None:
        """Write what is in the file, with these values, to another one, which may be the one that is read."""


Splice = tuple[int, int, str]
"""Where a part of a text begins and ends, and what takes its place."""


class TextFile(File):
    """A file whose text is changed in some places and stays in all others, mark and line ends included."""

    def edit(self, table: Table, column: str, cells: Sequence[Cell], to: Path) -> None:
        content = self.path.read_bytes()
        if content != read_bytes(self.path):
            raise DataError(f"{self.place} is packed, so no plan can be written to it", hint="unpack it")
        encoding = encoding_of(content)
        to.write_bytes(self.edited(content.decode(encoding), column, cells).encode(encoding))

    @abstractmethod
    def edited(self, text: str, column: str, cells: Sequence[Cell]) -> str:
        """The text with these values; a column that is not there is added."""


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """A text with some parts replaced, none of which overlap."""
    pieces, done = list[str](), 0
    for start, end, new in sorted(splices):
        pieces += text[done:start], new
        done = end
    return "".join((*pieces, text[done:]))


class ParquetFile(File):
    """A Parquet file.  DuckDB writes it anew: with the types, compression, row groups and metadata that it had."""

    def rows(self, name: str) -> Rows:
        return Rows(
            self.loader,
            f"SELECT * FROM read_parquet({single_file(str(self.path))}, hive_partitioning=false)",
            self.place,
            fault=lambda: "it is damaged, or no Parquet file",
        )

    def edit(self, table: Table, column: str, cells: Sequence[Cell], to: Path) -> None:
        names = self.loader.sql(self.rows("").sql).columns
        schema, form = self._schema(self.path), self._form()
        columns = list(_topmost(schema))
        for own, name in zip(columns, names, strict=True):
            if own.name != name:
                raise DataError(
                    f"{self.place} cannot be written: its column {own.name!r} is read as {name!r}, and would be so",
                    hint="give it another name where the file is made",
                )
        self.loader.execute(f"CREATE OR REPLACE TEMP TABLE own AS {self.placed('', names).sql}")
        if column not in names:
            kind = storage(table.column(column).type)
            self.loader.execute(f"ALTER TABLE own ADD COLUMN {quote(column)} {kind}")
            names, form = [*names, column], self._form(grown=True)
        put_by_row(self.loader, "own", column, cells, f"own.{quote(PLACE)}")
        chosen = ", ".join(map(_as_before, names, [*columns, None]))
        self.loader.execute(
            f"COPY (SELECT {chosen} FROM own ORDER BY {quote(PLACE)}) TO {literal(str(to))} ({form},"
            " USE_TMP_FILE false); DROP TABLE own"
        )
        for before, after in zip(schema, self._schema(to), strict=False):
            if before.type != after.type and not (before.is_decimal and after.is_decimal):
                raise DataError(
                    f"{self.place} cannot be written: its column {before.name!r} is {before.type}, and would be"
                    f" {after.type}",
                    hint="convert it where the file is made, or give the rows in a database",
                )

    def _schema(self, path: Path) -> list[_Element]:
        found = self.loader.execute(
            "SELECT name, coalesce(type, ''), repetition_type = 'REQUIRED', coalesce(num_children, 0),"
            " concat(converted_type, logical_type) ILIKE 'DECIMAL%',"
            " logical_type LIKE '%isAdjustedToUTC=0%MILLIS=Milli%'"
            f" FROM parquet_schema({single_file(str(path))})"
        )
        return [_Element(*each) for each in found.fetchall()[1:]]

    def _form(self, *, grown: bool = False) -> str:
        """How to write it.  What Arrow says of the columns is left out where there is one more."""
        path = single_file(str(self.path))
        ((codec, size, old),) = self.loader.execute(
            "SELECT mode(compression), max(row_group_num_rows), bool_or(type = 'INT96')"
            f" FROM parquet_metadata({path})"
        ).fetchall()
        said = self.loader.execute(f"SELECT key, value FROM parquet_kv_metadata({path})").fetchall()
        kept = {key.decode(): value for key, value in said if key and not (grown and key == b"ARROW:schema")}
        options = [f"COMPRESSION {literal(codec.lower())}", f"ROW_GROUP_SIZE {size}"] if codec else []
        if old:
            options.append("WRITE_TIMESTAMP_AS_INT96 true")
        if kept:
            pairs = (f"{literal(key)}: {_bytes(value)}" for key, value in kept.items())
            options.append(f"KV_METADATA {{{', '.join(pairs)}}}")
        return ", ".join(("FORMAT parquet", *options))


class _Element(NamedTuple):
    """A column of a Parquet file, or a part of a nested one."""

    name: str
    type: str
    is_required: bool
    parts: int
    is_decimal: bool
    in_milliseconds: bool


def _topmost(schema: Iterable[_Element]) -> Iterator[_Element]:
    """The columns without their parts."""
    elements = iter(schema)

    def skip(parts: int) -> None:
        for _ in range(parts):
            skip(next(elements).parts)

    for element in elements:
        yield element
        skip(element.parts)


def _as_before(name: str, element: _Element | None) -> str:
    """A column for the writer, which calls REQUIRED what it knows to hold no NULL, and else writes microseconds."""
    own = quote(name)
    if element is not None and element.in_milliseconds:
        own = f"CAST({own} AS TIMESTAMP_MS)"
    if element is None or not element.is_required:
        own = f"CASE WHEN {quote(PLACE)} >= 0 THEN {own} END"
    return f"{own} AS {quote(name)}"


def _bytes(value: bytes) -> str:
    return "'" + "".join(f"\\x{each:02x}" for each in value) + "'::BLOB"


def _keep_attributes(path: Path, new: Path) -> None:
    """Give a new file owner, rights and other attributes of one that it is to replace, as far as that is allowed."""
    found = path.stat()
    for owner in ((found.st_uid, -1), (-1, found.st_gid)):
        with suppress(PermissionError):
            os.chown(new, *owner)
    shutil.copystat(path, new)
    os.utime(new)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
