"""Python data as a source: lists of dicts, columns by name, numpy arrays, Arrow tables, frames of pandas or polars.

None of these libraries is imported: a frame is known by what it can do.  The rows are copied once; what happens to the
data afterwards is not seen, and a plan changes only the state database.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import NoneType
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError
from mgmt.state.schema import Table
from mgmt.state.sources.source import Cell, Rows, Source, reading_errors, require_distinct

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

_LARGEST, _EXACT = 2**63 - 1, 2**53 - 1
"""Of whole numbers: in a column of them, and beside fractions, which are doubles."""
_NESTED = (dict, list, tuple)
_BYTES = [chr(n) if 32 <= n < 127 and n not in b"\\'\"" else f"\\x{n:02X}" for n in range(256)]


class PythonData(Source):
    """One table."""

    holds_rows = False

    def __init__(self, name: str, data: object) -> None:
        super().__init__(f"the data for {name!r}", (name,))
        self._rows = rows_of(data, self.place, self.loader)

    def transaction(self, *, writing: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def fingerprints(self, names: Collection[str]) -> Mapping[str, object]:
        return dict.fromkeys(names, "")

    def rows(self, name: str) -> Rows:
        return self._rows

    def columns(self, name: str) -> Sequence[str]:
        return list(self._rows.columns())

    def placed(self, name: str, columns: Sequence[str]) -> Rows:
        return self._rows

    def put(self, table: Table, column: str, cells: Sequence[Cell]) -> None:
        """Nothing: the state database has changed, and nobody else needs to know."""


def is_tabular(data: object) -> bool:
    """Whether it is a frame or columns by name, rather than rows one by one."""
    return _is_pandas(data) or hasattr(data, "__arrow_c_stream__") or isinstance(data, Mapping)


def rows_of(data: object, place: str, loader: duckdb.DuckDBPyConnection) -> Rows:
    """Its rows, copied into a table.  DataError for what holds none."""
    if not _is_pandas(data) and not hasattr(data, "__arrow_c_stream__"):
        data = _columns(data, place)
        if not data:
            return Rows(loader, "", place)
    with reading_errors(place):
        try:
            loader.register("given", data if _is_pandas(data) or isinstance(data, dict) else _Columns(data))
            loader.execute("CREATE OR REPLACE TABLE own AS FROM given")
        except Exception:
            if isinstance(data, dict):
                _refuse_half_characters(data, place)
            raise
        loader.unregister("given")
    return Rows(loader, "SELECT * FROM own", place)


class _Columns:
    """Anything that streams columns.  By its own name DuckDB would ask for a library that may not be there."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_stream__(requested_schema)


def _is_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"  # its own stream needs pyarrow


def _columns(data: object, place: str) -> dict[str, NDArray[Any]]:
    if isinstance(data, Mapping):
        found = {str(name): _array(values) for name, values in data.items()}
    elif isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        found = {str(name): _array([row.get(name) for row in data]) for name in names}
    else:
        raise DataError(
            f"{place} is no table: {type(data).__name__}",
            hint="give a list of dicts, a dict of lists or arrays, an Arrow table, or a frame of pandas or polars",
        )
    require_distinct(found, place)
    found = {name: values for name, values in found.items() if name.strip()}
    lengths = {name: len(values) for name, values in found.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{place} has columns of different lengths: {lengths}", hint="give one value per row")
    return found


def _array(values: Any) -> NDArray[Any]:
    """A column as DuckDB reads it, of one type that keeps all values as they are, or of texts."""
    import numpy as np

    if not isinstance(values, np.ndarray):
        values = list(values)
        kinds = set(map(type, values))
        if kinds in ({int}, {float}):
            with suppress(OverflowError):
                return np.array(values, dtype=np.int64 if kinds == {int} else np.float64)
        if any(kind.__module__.partition(".")[0] in {"numpy", "pandas"} for kind in kinds):
            values = list(map(_of_python, values))
            kinds = set(map(type, values))
        if not _is_one_type(kinds - {NoneType}, values):
            values = list(map(_text_of, values))
        return np.fromiter(values, dtype=object, count=len(values))
    if values.dtype.kind == "M":
        return values.astype("M8[us]")
    return values.astype(object) if values.dtype.kind == "U" else values


def _of_python(value: Any) -> object:
    """The same as one of Python's own; what says that there is none, as None."""
    value = value.item() if hasattr(value, "item") else value
    return None if type(value).__name__ in {"NAType", "NaTType"} or value != value else value


def _is_one_type(kinds: set[type], values: Sequence[Any]) -> bool:
    if kinds <= {int, float}:
        largest = _EXACT if float in kinds else _LARGEST
        return all(-largest - 1 <= value <= largest for value in values if type(value) is int)
    return len(kinds) <= 1 and not any(issubclass(kind, _NESTED) for kind in kinds)


def _text_of(value: object) -> str | None:
    """Any value as a text: what is nested as JSON, in which it stays what it is."""
    if isinstance(value, (bool, *_NESTED)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if isinstance(value, bytes):  # as DuckDB shows them
        return "".join(map(_BYTES.__getitem__, value))
    return None if value is None or value != value else str(value)


def _refuse_half_characters(columns: Mapping[str, NDArray[Any]], place: str) -> None:
    """DataError for a text that is none outside of Python, as JSON may have it: ``"\\ud800"``."""
    for name, values in columns.items():
        for number, value in enumerate((name, *values)):
            if isinstance(value, str) and value.encode(errors="ignore") != value.encode(
                errors="surrogatepass"
            ):
                where = (
                    f"row {number}: column {name!r}: {value!r}" if number else f"column {name!r}: its name"
                )
                raise DataError(
                    f"{place}, {where} is no text", hint="it has half of a character: mend it there"
                )
