"""Which source it is that a person has named: a file, ``NAME=FILE``, or the address of a database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgmt.errors import DataError, StateDatabaseError
from mgmt.state.sources.csv_file import CsvFile
from mgmt.state.sources.duckdb_file import DuckDbFile
from mgmt.state.sources.files import File, ParquetFile
from mgmt.state.sources.json_file import JsonFile
from mgmt.state.sources.python_data import PythonData
from mgmt.state.sources.source import Source
from mgmt.state.sources.sqlite_file import SqliteFile

_FILES: Mapping[str, type[File]] = {
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".parquet": ParquetFile,
    ".json": JsonFile,
    ".jsonl": JsonFile,
    ".ndjson": JsonFile,
}
Data = str | Path | Sequence[str | Path] | Mapping[str, object]
"""What is taken from outside: a path or an address, several of them, or paths and Python data by names of tables."""
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)


def is_source(url: str) -> bool:
    """Whether rows live there that are not a state database of ours."""
    return "://" in url or (Path(url).is_file() and _magic(Path(url)).startswith(b"SQLite format 3"))


def open_sources(data: Data) -> list[Source]:
    """The sources for what ``Database(data=...)`` takes: one place, several, or tables by name."""
    if isinstance(data, Mapping):
        return [
            _opened(str(each), name) if isinstance(each, str | Path) else PythonData(name, each)
            for name, each in data.items()
        ]
    if isinstance(data, str | Path):
        return [_opened(str(data))]
    if isinstance(data, Sequence) and all(isinstance(each, str | Path) for each in data):
        return [_opened(str(each)) for each in data]
    raise DataError(
        f"{type(data).__name__} is no data with a name",
        hint='give paths and addresses, or tables by name: {"nodes": frame}',
    )


def _opened(given: str, name: str = "") -> Source:
    if "://" in given:
        if not given.startswith(("postgresql://", "postgres://")):
            raise StateDatabaseError(
                f"{given.partition('://')[0]!r} is no kind of database",
                hint="give postgresql://user@host/database",
            )
        from mgmt.state.sources.postgres import PostgresServer

        return PostgresServer(given)
    path, named = Path(given), _NAMED.fullmatch(given)
    if named is not None and not path.exists():
        name, path = named[1], Path(named[2])
    if not path.is_file():
        raise StateDatabaseError(f"there is no file {path}", hint="look at its path")
    magic = _magic(path)
    if magic.startswith(b"SQLite format 3"):
        return SqliteFile(path)
    if magic[8:12] == b"DUCK":
        return DuckDbFile(path)
    kind = _FILES.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"{path} is no kind of file that holds rows",
            hint=f"give one of {', '.join(_FILES)}, SQLite or DuckDB",
        )
    return kind(name or path.stem, path)


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise StateDatabaseError(
            f"cannot read {path}: {error.strerror or error}", hint="look whose it is"
        ) from error
