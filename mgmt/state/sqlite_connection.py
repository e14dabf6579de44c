"""One connection to SQLite as this program wants it, and what SQLite raises as errors of ours.

What it is not: it knows neither stores nor snapshots (see ``sqlite`` and ``sqlite_snapshot``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import apsw

from mgmt.errors import StateDatabaseError
from mgmt.solution import PrimaryKey, Value
from mgmt.state import (
    dates,
    exact_integers,
    json_texts,
    math_functions,
    patterns,
    reals,
    sole_row,
    statistics,
    text_functions,
)
from mgmt.state.schema import Table, quote
from mgmt.state.store import RefusedStatementError, refused_values

# What SQLite raises for values it cannot take: broken constraints, wrong types, integers beyond 64 bits.
REFUSED_VALUES = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    ArithmeticError,
    TypeError,
    UnicodeEncodeError,  # half of a character
)

_STATEMENTS = 500  # prepared ones that are kept: a solve asks a hundred or two, the next one the same


def connect(path: str, *, create: bool = True) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(path, flags, statementcachesize=_STATEMENTS)
    sole_row.install(connection)
    exact_integers.install(connection)
    dates.install(connection)
    statistics.install(connection)
    text_functions.install(connection)
    reals.install(connection)
    math_functions.install(connection)
    json_texts.install(connection)
    patterns.install(connection)
    connection.execute("PRAGMA case_sensitive_like = ON")  # as in the policies' dialect; ILIKE ignores case
    return connection


def update_rows(
    connection: apsw.Connection, table: Table, columns: Sequence[str], values: Mapping[PrimaryKey, Value]
) -> None:
    assignments = ", ".join(f"{quote(column)} = ?1" for column in columns)
    key = " AND ".join(f"{quote(name)} IS ?{number}" for number, name in enumerate(table.primary_key, 2))
    connection.executemany(
        f"UPDATE {quote(table.name)} SET {assignments} WHERE {key}",
        [(value, *primary_key) for primary_key, value in values.items()],
    )


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """What SQLite raises as our errors."""
    try:
        yield
    except REFUSED_VALUES as error:
        raise refused_values(error) from error
    except apsw.SQLError as error:
        reason = str(error)
        if "integer overflow" in reason:
            raise exact_integers.leaves_64_bits() from error
        raise RefusedStatementError(
            reason.removeprefix("SQLError: "), unknown_function="no such function" in reason
        ) from error
    except apsw.BindingsError as error:
        raise RefusedStatementError("a parameter, and there is no value for it") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StateDatabaseError(
            f"the state database {what} is in use by another program: {error}",
            hint="try again; if it stays so, look for a program that keeps a transaction open",
            retryable=True,
        ) from error
    except (apsw.CantOpenError, apsw.NotADBError, apsw.PermissionsError, apsw.AuthError) as error:
        raise StateDatabaseError(
            f"the state database {what} cannot be opened: {error}",
            hint="give the path of an SQLite file, or of a file to be made, in a directory that may be written",
        ) from error
    except (apsw.ReadOnlyError, apsw.FullError, apsw.IOError, apsw.CorruptError) as error:
        raise StateDatabaseError(
            f"the state database {what} cannot be used: {error}",
            hint="look at the file's rights, the disk's free space and its health",
        ) from error
