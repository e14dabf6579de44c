"""A connection to PostgreSQL: opened with what a state database needs, its errors as ours.

What it is not: it knows no table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mgmt.errors import (
    StateDatabaseError,
    StatementTimeoutError,
)
from mgmt.state.exact_integers import leaves_64_bits
from mgmt.state.postgres import text_limits
from mgmt.state.store import RefusedStatementError, refused_values

try:
    import psycopg
    from psycopg.adapt import Loader
    from psycopg.types.string import TextLoader
except ImportError:  # an extra of the package
    _MISSING = True
else:
    _MISSING = False

if TYPE_CHECKING:
    from psycopg.abc import Buffer

_OLDEST = 130000
_PATIENCE = "5s"  # that another program may keep a row or a table locked
_DEFAULTS = {"connect_timeout": "10", "application_name": "rota"}
_SETTINGS = (
    "SET jit = off; SET synchronize_seqscans = off; SET cursor_tuple_fraction = 1;"
    " SET datestyle = 'ISO, YMD'; SET timezone = 'UTC';"
    " SET max_parallel_workers_per_gather = 0;"  # rows come in the same order each time
    f" SELECT set_config('lock_timeout', '{_PATIENCE}', false) WHERE current_setting('lock_timeout') = '0'"
)
# Which have the state of what is too large, and are values that do not exist.
_NO_VALUE = ("input is out of range", "null character not", "requested character")
# SQLSTATEs after which the same call may succeed.
_RETRYABLE = {"40001", "40P01", "55P03", "53300", "57014"}
_AWAY = ("08", "57P")
_HINTS_OF_CONNECTING = (
    ("password", "check the user and the password: in the address, ~/.pgpass or PGPASSWORD"),
    ("no pg_hba.conf entry", "let this user in from here in the server's pg_hba.conf"),
    ("peer authentication", "run as the user of that name, or give user and password in the address"),
    ("role", "create the role on the server (CREATE ROLE ... LOGIN), or give another user in the address"),
    (
        "database",
        "create the database on the server (CREATE DATABASE ...), or give another one in the address",
    ),
)


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in autocommit mode.  StateDatabaseError says what to do when there is none to be had."""
    if _MISSING:
        raise StateDatabaseError(
            "a state database on PostgreSQL needs psycopg, which is not installed",
            hint="pip install 'rota[postgres]'",
        )
    try:
        known = psycopg.conninfo.conninfo_to_dict(url)
        added = {name: value for name, value in _DEFAULTS.items() if name not in known}
        address = psycopg.conninfo.make_conninfo(url, **added)
    except psycopg.ProgrammingError as error:
        raise StateDatabaseError(
            f"this is no address of a PostgreSQL database: {_first_line(error)}",
            hint="write postgresql://user@host:port/database, special characters as %XX",
        ) from error
    try:
        connection = psycopg.connect(
            address, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor
        )
    except psycopg.Error as error:
        raise _unreachable(describe(url), error) from error
    if connection.info.server_version < _OLDEST:
        version = connection.info.server_version // 10000
        connection.close()
        raise StateDatabaseError(
            f"{describe(url)} is PostgreSQL {version}", hint="a state database needs 13 or newer"
        )
    connection.adapters.register_loader("bool", _TruthLoader)
    connection.adapters.register_loader("numeric", _NumericLoader)
    for kind in ("date", "timestamp"):  # as SQLite has them
        connection.adapters.register_loader(kind, TextLoader)
    connection.execute("SET client_encoding = 'UTF8'; " + _SETTINGS)
    return connection


def describe(url: str) -> str:
    """The address without its password."""
    known = psycopg.conninfo.conninfo_to_dict(url)
    known.pop("password", None)
    host = known.get("host") or "the default host"
    return f"the state database {known.get('dbname') or '(default)'} at {host}"


@contextmanager
def postgres_errors(
    what: str, *, policy: bool = False, stopped: Callable[[], StatementTimeoutError | None] | None = None
) -> Iterator[None]:
    """What PostgreSQL raises as our errors.

    ``policy``: the statement is one of a policy, not a change of rows; ``stopped`` says that it took too long, if the
    server has stopped it for that.
    """
    try:
        yield
    except UnicodeEncodeError as error:  # half of a character
        raise refused_values(error) from error
    except psycopg.Error as error:
        late = stopped() if stopped is not None and error.sqlstate == "57014" else None
        if late is not None:
            raise late from error
        raise _translated(error, what, policy) from error


def _translated(error: psycopg.Error, what: str, policy: bool) -> Exception:
    state = error.sqlstate or ""
    message = _first_line(error)
    if not state and isinstance(error, psycopg.DataError | psycopg.ProgrammingError):
        return refused_values(message)  # a value that has no place in SQL
    if not state or state.startswith(_AWAY):
        return StateDatabaseError(
            f"the connection to {what} is lost: {message}",
            hint="try again; a change that was under way may have been made: look at the version first",
            retryable=True,
        )
    if state in _RETRYABLE:
        return StateDatabaseError(
            f"{what} is busy: {message}",
            hint="nothing was changed; try again, and look for a program that keeps a transaction open",
            retryable=True,
        )
    if state == "42501":
        return StateDatabaseError(
            f"no permission in {what}: {message}",
            hint="docs/state-database.md lists the rights: who loads a schema first must own its tables and"
            " create in their namespace, who solves needs SELECT and TEMPORARY, who applies UPDATE",
        )
    if state == "25006":
        if policy:
            return RefusedStatementError(f"a query must not write: {message}")
        return StateDatabaseError(
            f"{what} takes no changes: {message}", hint="is it a standby? give the primary's address"
        )
    if message.startswith(_NO_VALUE):
        return refused_values(message)
    if state == "22003" and policy:
        return leaves_64_bits()
    if state == "22000" and policy:  # of the range by which mgmt.state.postgres.dates holds them
        return refused_values("a date outside of the years 1 to 9999")
    if state == "22P02" and (too_long := text_limits.error_of(message)) is not None:
        return too_long
    if state.startswith(("22", "23", "21")):
        return refused_values(message)
    if state.startswith(("42", "0A", "54", "2F")):
        unknown = state == "42883" and message.startswith("function")
        return RefusedStatementError(message, unknown_function=unknown)
    return StateDatabaseError(f"{what} fails: {message}", hint="look into the server's log")


def _unreachable(what: str, error: psycopg.Error) -> StateDatabaseError:
    message = _first_line(error)
    permanent = "FATAL" in str(error) and not any(
        word in str(error) for word in ("starting up", "shutting down", "too many", "recovery")
    )
    hint = "is the server running, and is the address right? (postgresql://user@host:port/database)"
    if permanent:
        hint = next((advice for word, advice in _HINTS_OF_CONNECTING if word in str(error)), hint)
    return StateDatabaseError(f"cannot connect to {what}: {message}", hint=hint, retryable=not permanent)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if not _MISSING:

    class _TruthLoader(Loader):
        """Conditions are 1 and 0, as in SQLite."""

        def load(self, data: Buffer) -> int:
            return int(bytes(data) == b"t")

    class _NumericLoader(Loader):
        """Numerics without a fraction are integers, others floats."""

        def load(self, data: Buffer) -> int | float:
            text = bytes(data).decode()
            return int(text) if text.lstrip("-").isdigit() else float(text)
