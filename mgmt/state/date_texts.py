"""Dates and times outside of DuckDB: texts in UTC, which sort as what they say.

A date is ``2026-11-23``, a timestamp ``2026-11-23 07:40:00`` with as many digits of a second, up to six, as it needs.
What computes with them is DuckDB; here they are only read and written.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

from mgmt.errors import DataError

_WRITTEN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ Tt]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?[Zz]?)?"
)
HINT = "write dates as 2026-11-23 and times, in UTC, as 2026-11-23 07:40:00"
REHEARSED = datetime(2000, 1, 1, tzinfo=UTC)
"""The present over empty tables, so that what is found wrong when a model is built does not depend on the time."""


def text_of(moment: date) -> str:
    """The one way to write a date or a time."""
    if not isinstance(moment, datetime):
        return moment.isoformat()
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    text = moment.isoformat(" ")
    return text.rstrip("0") if moment.microsecond else text


def read(value: Any) -> datetime:
    """What a text says; a date is its midnight.  DataError for anything else."""
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        try:
            return datetime.fromisoformat(value.rstrip("Zz"))
        except ValueError:
            pass
    raise DataError(f"{value!r} is no date", hint=HINT)


def moment_of(now: float | datetime | None) -> datetime | None:
    """What callers give for a time: Unix seconds, or a datetime, in UTC where it has no zone."""
    if isinstance(now, datetime):
        return (now if now.tzinfo else now.replace(tzinfo=UTC)).astimezone(UTC)
    try:
        return None if now is None else datetime.fromtimestamp(now, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise DataError(
            f"{now!r} is no time: {error}", hint="give seconds since 1970, or a datetime"
        ) from None
