"""The present time, which is part of a snapshot: one moment in UTC, the same wherever it is asked for.

Policies that ask for it (see ``mgmt.language.present_time``) call ``PRESENT``; a snapshot answers with its own moment,
so that neither the clock of a database nor the order of its statements matters.

What it is not: a clock; what computes with dates is ``dates``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import apsw

from mgmt.errors import DataError
from mgmt.state.dates import timestamp_text
from mgmt.state.exact_integers import PREFIX

PRESENT = f"{PREFIX}present"
REHEARSED = datetime(2000, 1, 1, tzinfo=UTC)
"""Over empty tables, so that what is found wrong when a model is built does not depend on the time."""


class Present:
    """The moment that statements of one connection to SQLite are told."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._text = ""
        connection.create_scalar_function(PRESENT, self._tell, 0, deterministic=True)

    def set(self, moment: datetime) -> None:
        """From now on it is this one."""
        self._text = text_of(moment)

    def _tell(self, *_: object) -> str:
        return self._text


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


def text_of(moment: datetime) -> str:
    """As a TIMESTAMP of policies."""
    return timestamp_text(moment.astimezone(UTC).replace(tzinfo=None))
