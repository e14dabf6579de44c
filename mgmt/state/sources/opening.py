"""Which source it is that a person has named: a file, ``NAME=FILE``, or the address of a database."""

from __future__ import annotations

import re
import shutil
import tempfile
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgmt.errors import DataError, StateDatabaseError
from mgmt.source_text import read_bytes
from mgmt.state.sources.csv_file import CsvFile
from mgmt.state.sources.duckdb_file import DuckDbFile
from mgmt.state.sources.files import File, ParquetFile
from mgmt.state.sources.json_file import JsonFile
from mgmt.state.sources.python_data import PythonData
from mgmt.state.sources.source import Source, reading_errors
from mgmt.state.sources.sqlite_file import SqliteFile

_FILES: Mapping[str, type[File]] = {
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".parquet": ParquetFile,
    ".json": JsonFile,
    ".jsonl": JsonFile,
    ".ndjson": JsonFile,
}
_PACKED = {".gz", ".bz2", ".xz", ".zst"}
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
    if not path.exists() or path.is_dir():
        raise StateDatabaseError(f"there is no file {path}", hint="look at its path")
    stem, suffix = parts_of(path)
    if not path.is_file() or (not suffix and path.parts[:2] == ("/", "dev")):
        return _piped(name or stem, path)
    magic = _magic(path)
    if magic.startswith(b"SQLite format 3"):
        return SqliteFile(path)
    if magic[8:12] == b"DUCK":
        return DuckDbFile(path)
    kind = _FILES.get(suffix)
    if kind is None:
        raise DataError(
            f"{path} is no kind of file that holds rows",
            hint=f"give one of {', '.join(_FILES)}, SQLite or DuckDB",
        )
    return kind(name or stem, path)


def parts_of(path: Path) -> tuple[str, str]:
    """The name of a file without what it ends with, and the ending that says what it holds, in lower case."""
    whole = Path(path.stem) if path.suffix.lower() in _PACKED else path
    return whole.stem, whole.suffix.lower()


def _piped(name: str, path: Path) -> Source:
    """What comes through a pipe, or from standard input: kept, and known by how it begins."""
    kept = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the source
    with reading_errors(str(path)):
        with path.open("rb") as pipe:
            shutil.copyfileobj(pipe, kept)
        kept.flush()
        begin = read_bytes(Path(kept.name), 16).removeprefix(BOM_UTF8).lstrip()
    if begin.startswith(b"PAR1"):
        return ParquetFile(name, path, kept)
    return (JsonFile if begin.startswith((b"[", b"{")) else CsvFile)(name, path, kept)


def _magic(path: Path) -> bytes:
    with reading_errors(str(path)), path.open("rb") as file:
        return file.read(16)
