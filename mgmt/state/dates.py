"""Dates and times as the compiler and both databases see them: texts in UTC that are in the order of what they say.

A date is ``2026-11-23``, a timestamp ``2026-11-23 07:40:00`` with as many digits of a second, up to six, as it needs;
both lie in the years 1 to 9999.  What computes with them means what it means in PostgreSQL.  SQLite, which has none of
it, calls the functions that stand here; what PostgreSQL does instead is ``mgmt.state.postgres.dates``.

What it is not: it reads no tree (see ``mgmt.language.dates``), and never asks for the time.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import apsw

from mgmt.errors import DataError
from mgmt.state import own_functions
from mgmt.state.exact_integers import PREFIX
from mgmt.state.own_functions import OwnFunction
from mgmt.state.schema import SqlType

WRITTEN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?Z?)?"
"""How a text must look that a date or a timestamp is made of; in Python and in PostgreSQL alike."""
HINT = "write dates as 2026-11-23 and times, in UTC, as 2026-11-23 07:40:00"
_WRITTEN = re.compile(WRITTEN)
_EPOCH = datetime(1970, 1, 1)
_JULIAN_DAY_OF_EPOCH = 2440587.5
_MICROSECOND = timedelta(microseconds=1)
_MIDNIGHT = len("2026-11-23")


def timestamp_text(moment: datetime) -> str:
    """The one way to write it."""
    text = moment.isoformat(" ")
    return text.rstrip("0") if moment.microsecond else text


def read(value: Any) -> datetime:
    """What a text says; a date is its midnight.  DataError for anything else."""
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        try:
            return datetime.fromisoformat(value.removesuffix("Z"))
        except ValueError:
            pass
    raise DataError(f"{value!r} is no date", hint=HINT)


def date_of(value: Any) -> str:
    """CAST (value AS DATE)."""
    return read(value).date().isoformat()


def timestamp_of(value: Any) -> str:
    """CAST (value AS TIMESTAMP)."""
    return timestamp_text(read(value))


def cast_to(value: Any, kind: SqlType) -> str:
    """CAST (value AS kind)."""
    return date_of(value) if kind is SqlType.DATE else timestamp_of(value)


def stored(value: Any, kind: SqlType) -> Any:
    """A value as a column of dates or of timestamps keeps it; DataError where it is none."""
    if value is None or kind not in {SqlType.DATE, SqlType.TIMESTAMP}:
        return value
    if isinstance(value, datetime):
        value = timestamp_text(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
    elif isinstance(value, date):
        value = value.isoformat()
    if kind is SqlType.TIMESTAMP:
        return timestamp_of(value)
    moment = read(value)
    if len(value) > _MIDNIGHT:
        raise DataError(f"{value!r} is a time, and no date", hint=HINT)
    return moment.date().isoformat()


# ---- what is computed -----------------------------------------------------------------------------------


def _days_later(day: str, days: int) -> str:
    return (read(day).date() + timedelta(days=_whole(days))).isoformat()


def _later(moment: str, months: int, days: int, microseconds: int) -> str:
    """Months first, on the last day of a month that is too short; then days, then time."""
    found = read(moment)
    if months:
        year, month = divmod(12 * found.year + found.month - 1 + _whole(months), 12)
        found = found.replace(year=year, month=month + 1, day=min(found.day, monthrange(year, month + 1)[1]))
    return timestamp_text(found + timedelta(days=_whole(days), microseconds=_whole(microseconds)))


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise DataError(f"{value!r} is no whole number", hint="dates are moved by whole numbers")


def _days_between(later: str, earlier: str) -> int:
    return (read(later).date() - read(earlier).date()).days


def _seconds_between(later: str, earlier: str) -> float:
    return _seconds(read(later) - read(earlier))


def _seconds(span: timedelta) -> float:
    return span // _MICROSECOND / 10**6


OF_SQLITE = frozenset({"julianday", "strftime", "unixepoch"})
"""What it calls functions of dates that have no other name here."""
UNITS: Mapping[str, Callable[[datetime, datetime], datetime]] = {
    "year": lambda _, day: day.replace(month=1, day=1),
    "quarter": lambda _, day: day.replace(month=day.month - (day.month - 1) % 3, day=1),
    "month": lambda _, day: day.replace(day=1),
    "week": lambda _, day: day - timedelta(days=day.weekday()),
    "day": lambda _, day: day,
    "hour": lambda moment, _: moment.replace(minute=0, second=0, microsecond=0),
    "minute": lambda moment, _: moment.replace(second=0, microsecond=0),
    "second": lambda moment, _: moment.replace(microsecond=0),
}
"""Of date_trunc: the beginning of one, from a moment and its midnight."""


def _julian_day(moment: str) -> float:
    return _seconds(read(moment) - _EPOCH) / 86400 + _JULIAN_DAY_OF_EPOCH


def _of_epoch(seconds: float) -> str:
    if not isinstance(seconds, (int, float)):
        raise DataError(f"{seconds!r} is no number of seconds", hint="to_timestamp takes seconds since 1970")
    return timestamp_text(_EPOCH + round(seconds * 10**6) * _MICROSECOND)


def _made_date(year: int, month: int, day: int) -> str:
    return date(_whole(year), _whole(month), _whole(day)).isoformat()


PARTS: Mapping[str, Callable[[datetime], int | float]] = {
    "year": lambda moment: moment.year,
    "quarter": lambda moment: (moment.month + 2) // 3,
    "month": lambda moment: moment.month,
    "week": lambda moment: moment.isocalendar().week,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: (moment.second * 10**6 + moment.microsecond) / 10**6,
    "dow": lambda moment: moment.isoweekday() % 7,
    "isodow": lambda moment: moment.isoweekday(),
    "doy": lambda moment: moment.timetuple().tm_yday,
    "isoyear": lambda moment: moment.isocalendar().year,
    "epoch": lambda moment: _seconds(moment - _EPOCH),
}
"""What EXTRACT takes out of a moment."""
REAL_PARTS = {"second", "epoch"}

PATTERNS: Mapping[str, Callable[[datetime], str]] = {
    "YYYY": lambda moment: f"{moment.year:04}",
    "IYYY": lambda moment: f"{moment.isocalendar().year:04}",
    "DDD": lambda moment: f"{moment.timetuple().tm_yday:03}",
    "HH24": lambda moment: f"{moment.hour:02}",
    "MM": lambda moment: f"{moment.month:02}",
    "DD": lambda moment: f"{moment.day:02}",
    "MI": lambda moment: f"{moment.minute:02}",
    "SS": lambda moment: f"{moment.second:02}",
    "MS": lambda moment: f"{moment.microsecond // 1000:03}",
    "US": lambda moment: f"{moment.microsecond:06}",
    "IW": lambda moment: f"{moment.isocalendar().week:02}",
    "ID": lambda moment: str(moment.isoweekday()),
    "Q": lambda moment: str((moment.month + 2) // 3),
}
"""What to_char understands; whatever else has letters is refused before it comes here."""
OF_STRFTIME: Mapping[str, str] = {
    "%Y": "YYYY",
    "%m": "MM",
    "%d": "DD",
    "%H": "HH24",
    "%M": "MI",
    "%S": "SS",
    "%j": "DDD",
    "%u": "ID",
    "%G": "IYYY",
    "%V": "IW",
    "%F": "YYYY-MM-DD",
    "%T": "HH24:MI:SS",
    "%R": "HH24:MI",
}
"""What the letters of SQLite's strftime are among these."""
_SIGNS = re.compile(r"[-:/., _]*")
_PATTERN = re.compile("|".join(sorted(PATTERNS, key=len, reverse=True)))


def is_format(text: str) -> bool:
    """Whether all letters and signs of a format are known to mean the same in both databases."""
    return _SIGNS.fullmatch(_PATTERN.sub("", text)) is not None


def strftime_format(text: str) -> str | None:
    """The format of to_char that says the same; None where there is none."""
    letters = re.findall("%.", text)
    if any(letter not in OF_STRFTIME for letter in letters) or not _SIGNS.fullmatch(re.sub("%.", "", text)):
        return None
    return re.sub("%.", lambda match: OF_STRFTIME[match[0]], text)


def _formatted(moment: str, text: str) -> str:
    found = read(moment)
    return _PATTERN.sub(lambda match: PATTERNS[match[0]](found), text)


DATE, TIMESTAMP = f"{PREFIX}date", f"{PREFIX}timestamp"
DAYS_LATER, LATER = f"{PREFIX}days_later", f"{PREFIX}later"
DAYS_BETWEEN, SECONDS_BETWEEN = f"{PREFIX}days_between", f"{PREFIX}seconds_between"
FORMATTED = f"{PREFIX}formatted"
OF_EPOCH, MADE_DATE = f"{PREFIX}of_epoch", f"{PREFIX}made_date"
JULIAN_DAY = f"{PREFIX}julian_day"


def part(field: str) -> str:
    """The function for one of ``PARTS``."""
    return f"{PREFIX}part_{field}"


def truncated(unit: str) -> str:
    """The function for one of ``UNITS``."""
    return f"{PREFIX}beginning_of_{unit}"


def _part(field: str) -> OwnFunction:
    taken = PARTS[field]
    kind = SqlType.REAL if field in REAL_PARTS else SqlType.INTEGER
    return OwnFunction(kind, 1, lambda moment: taken(read(moment)))


def _truncated(unit: str) -> OwnFunction:
    def compute(moment: str) -> str:
        found = read(moment)
        return timestamp_text(UNITS[unit](found, datetime(found.year, found.month, found.day)))

    return OwnFunction(SqlType.TIMESTAMP, 1, compute)


FUNCTIONS: Mapping[str, OwnFunction] = {
    DATE: OwnFunction(SqlType.DATE, 1, date_of),
    TIMESTAMP: OwnFunction(SqlType.TIMESTAMP, 1, timestamp_of),
    DAYS_LATER: OwnFunction(SqlType.DATE, 2, _days_later),
    LATER: OwnFunction(SqlType.TIMESTAMP, 4, _later),
    DAYS_BETWEEN: OwnFunction(SqlType.INTEGER, 2, _days_between),
    SECONDS_BETWEEN: OwnFunction(SqlType.REAL, 2, _seconds_between),
    FORMATTED: OwnFunction(SqlType.TEXT, 2, _formatted),
    OF_EPOCH: OwnFunction(SqlType.TIMESTAMP, 1, _of_epoch),
    JULIAN_DAY: OwnFunction(SqlType.REAL, 1, _julian_day),
    MADE_DATE: OwnFunction(SqlType.DATE, 3, _made_date),
    **{part(field): _part(field) for field in PARTS},
    **{truncated(unit): _truncated(unit) for unit in UNITS},
}


def install(connection: apsw.Connection) -> None:
    """Let the connection call them."""
    for_rows = {name: replace(each, compute=_told(each.compute)) for name, each in FUNCTIONS.items()}
    own_functions.install(connection, for_rows)


def _told(compute: Callable[..., Any]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        try:
            return compute(*operands)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"no date of the years 1 to 9999 is {', '.join(map(repr, operands))}: {error}", hint=HINT
            ) from error

    return call
