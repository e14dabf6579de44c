"""What PostgreSQL computes where SQLite calls a function of ``mgmt.state.dates``, with the same texts.

What it is not: it walks no tree (see ``expressions``).
"""

from __future__ import annotations

from collections.abc import Mapping

from mgmt.state import dates
from mgmt.state.schema import TEMPORAL, SqlType

# An error for what lies outside the years 1 to 9999, as infinity does: no range ends before it begins.
_WITHIN = "LOWER(TSRANGE(UPPER(TSRANGE('0001-01-01', {}, '[]')), '9999-12-31 23:59:59.999999', '[]'))"
# An error for what PostgreSQL could read, and SQLite not ("today", "Nov 23 2026"): something is put before it.  The
# operand is written once, so that casts of casts stay short.
_WRITTEN = f"REGEXP_REPLACE(o0, '^(?!({dates.WRITTEN})$)', 'no date: ')"


def _moment(operand: str) -> str:
    return f"CAST({operand} AS timestamp)"


def _date(moment: str) -> str:
    return f"CAST(CAST({_WITHIN.format(moment)} AS date) AS text)"


def _timestamp(moment: str) -> str:
    return f"CAST({_WITHIN.format(moment)} AS text)"


def _part(field: str) -> str:
    kind = "double precision" if field in dates.REAL_PARTS else "bigint"
    return f"CAST(EXTRACT({field} FROM {_moment('o0')}) AS {kind})"


TEMPLATES: Mapping[str, str] = {
    dates.DATE: _date(_moment(_WRITTEN)),
    dates.TIMESTAMP: _timestamp(_moment(_WRITTEN)),
    dates.DAYS_LATER: _date("CAST(CAST(o0 AS date) + CAST(o1 AS int) AS timestamp)"),
    dates.LATER: _timestamp(
        f"{_moment('o0')} + MAKE_INTERVAL(0, CAST(o1 AS int), 0, CAST(o2 AS int))"
        " + o3 * CAST('1 microsecond' AS interval)"
    ),
    dates.DAYS_BETWEEN: "CAST(CAST(o0 AS date) - CAST(o1 AS date) AS bigint)",
    dates.SECONDS_BETWEEN: f"CAST(EXTRACT(epoch FROM {_moment('o0')} - {_moment('o1')}) AS double precision)",
    dates.FORMATTED: f"TO_CHAR({_moment('o0')}, o1)",
    dates.JULIAN_DAY: f"({_part('epoch')} / CAST(86400 AS double precision) + CAST(2440587.5 AS double precision))",
    dates.OF_EPOCH: _timestamp("CAST('1970-01-01' AS timestamp) + o0 * CAST('1 second' AS interval)"),
    dates.MADE_DATE: _date("CAST(MAKE_DATE(CAST(o0 AS int), CAST(o1 AS int), CAST(o2 AS int)) AS timestamp)"),
    **{dates.part(field): _part(field) for field in dates.PARTS},
    **{dates.truncated(unit): _timestamp(f"DATE_TRUNC('{unit}', {_moment('o0')})") for unit in dates.UNITS},
}
"""The operands are o0, o1, ..."""
NUMBERS: Mapping[str, set[int]] = {
    dates.DAYS_LATER: {1},
    dates.LATER: {1, 2, 3},
    dates.OF_EPOCH: {0},
    dates.MADE_DATE: {0, 1, 2},
}
"""Which of them are no texts."""


def as_text(column: str, kind: SqlType) -> str:
    """A native column, whose quoted name this is, as a snapshot has it."""
    return f"CAST({column} AS text)" if kind in TEMPORAL else column


def column_check(column: str, kind: SqlType) -> str:
    """That a native column holds nothing that is no text of ours."""
    last = "9999-12-31" if kind is SqlType.DATE else "9999-12-31 23:59:59.999999"
    return f"{column} BETWEEN '0001-01-01' AND '{last}'"
