"""Files as sources: one table per CSV, Parquet or JSON file.

A plan is written to a new file beside it that takes its place, so that whoever reads finds the old one or the new one;
other columns, and the order of columns and rows, stay.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mgmt.errors import DataError
from mgmt.state.schema import literal, quote
from mgmt.state.sources.source import Change, ChangedError, Rows, Source, single_file, update


class File(Source):
    """One table in one file; its fingerprint is a digest, taken when the file's time or size are others."""

    def __init__(self, name: str, path: Path, piped: IO[bytes] | None = None) -> None:
        """``piped``: what came through a pipe of this path, which can be read but once."""
        super().__init__(str(path), (name,))
        self.path = path.resolve() if piped is None else Path(piped.name)
        self._piped = piped
        self._plain: IO[bytes] | None = None
        self._beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self._known: tuple[tuple[int, ...], bytes] = (), b""

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[None]:
        self._beside.unlink(missing_ok=True)
        if writing:
            self._known = (), b""
        try:
            yield
            if self._beside.exists():
                if _digest(self.path) not in self.seen.values():
                    raise ChangedError
                os.replace(self._beside, self.path)
                _sync(self.path.parent)
        finally:
            self._beside.unlink(missing_ok=True)

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        if self._beside.exists():
            return dict.fromkeys(names, _digest(self._beside))
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

    def write(self, changes: Sequence[Change]) -> None:
        if self._piped is not None:
            raise DataError(f"{self.place} is a pipe, to which no plan can be written", hint="give a file")
        self.write_to(self._beside, changes)
        shutil.copymode(self.path, self._beside)
        _sync(self._beside)

    @abstractmethod
    def write_to(self, path: Path, changes: Sequence[Change]) -> None:
        """Write the file, changed, to another path."""

    def rewrite(self, reader: str, changes: Sequence[Change], path: Path, form: str) -> None:
        """Let DuckDB read it whole, change it, and write it.  What has no column yet gets one."""
        self.loader.execute(f"CREATE OR REPLACE TEMP TABLE own AS {reader}")
        for change in changes:
            there = self.loader.table("own").columns
            if not {name.lower() for name in there} & {name.lower() for name in change.columns}:
                there = [*there, change.columns[-1]]
                self.loader.execute(f"ALTER TABLE own ADD COLUMN {quote(there[-1])} VARCHAR")
            update(self.loader, "own", change, change.targets(there, self.place))
        self.loader.execute(
            f"COPY (FROM own ORDER BY rowid) TO {literal(str(path))} ({form}); DROP TABLE own"
        )


class ParquetFile(File):
    """A Parquet file."""

    def rows(self, name: str) -> Rows:
        return Rows(
            self.loader,
            f"SELECT * FROM read_parquet({single_file(str(self.path))})",
            self.place,
            fault=lambda: "it is damaged, or no Parquet file",
        )

    def write_to(self, path: Path, changes: Sequence[Change]) -> None:
        self.rewrite(self.rows("").sql, changes, path, "FORMAT parquet")


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
