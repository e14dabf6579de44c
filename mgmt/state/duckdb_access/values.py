"""Values on their way into DuckDB: each checked against the type of its column, a column of them as an array."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from mgmt.errors import DataError
from mgmt.state.date_texts import HINT, read, text_of
from mgmt.state.schema import SqlType

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST, _GREATEST = -(2**63), 2**63 - 1


def stored(value: Any, kind: SqlType) -> Any:
    """A value as a column of this type keeps it.  DataError where it is none of its values."""
    if value is None:
        return None
    if type(value).__module__ == "numpy":
        value = value.item()
    if kind is SqlType.INTEGER:
        return _whole(value)
    if kind is SqlType.BOOLEAN:
        return _truth(value)
    if kind is SqlType.REAL:
        return _real(value)
    if kind is SqlType.TEXT:
        return _text(value)
    if kind in {SqlType.DATE, SqlType.TIMESTAMP}:
        return _moment(value, kind)
    return value


def array(values: Sequence[Any], kind: SqlType) -> NDArray[Any]:
    """Stored values of one column, as DuckDB reads them fastest."""
    import numpy as np

    dtype = {SqlType.INTEGER: np.int64, SqlType.REAL: np.float64, SqlType.BOOLEAN: np.bool_}.get(kind)
    if dtype is None:
        return np.array(values, dtype=object)
    absent = [value is None for value in values]
    if not any(absent):
        return np.array(values, dtype=dtype)
    filled: NDArray[Any] = np.array([0 if value is None else value for value in values], dtype=dtype)
    masked: NDArray[Any] = np.ma.masked_array(filled, mask=absent)
    return masked


def _refused(value: Any, what: str) -> DataError:
    return DataError(f"{value!r} is {what}", hint="compare the values with the types of their columns")


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(value, "no whole number")
    if not _LEAST <= value <= _GREATEST:
        raise _refused(value, "no number of 64 bits")
    return value


def _truth(value: Any) -> bool:
    if isinstance(value, int) and value in {0, 1}:
        return bool(value)
    if isinstance(value, str) and value in {"0", "1"}:
        return value == "1"
    raise _refused(value, "neither true nor false")


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise _refused(value, "no number")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _refused(value, "no number") from None


def _text(value: Any) -> str:
    if isinstance(value, (int, float)):
        value = str(value)
    if not isinstance(value, str):
        raise _refused(value, "no text")
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character
        raise _refused(value, "no text") from None
    return value


def _moment(value: Any, kind: SqlType) -> str:
    text = text_of(value) if isinstance(value, date) else value
    moment = read(text)
    if kind is SqlType.TIMESTAMP:
        return text_of(moment)
    if len(text) > len("2026-11-23"):
        raise DataError(f"{text!r} is a time, and no date", hint=HINT)
    return text_of(moment.date())
