"""What a statement of a policy may do in SQLite: read, and nothing else.

An authorizer is asked by SQLite for every table, function and action of a statement while it is compiled, so nothing
depends on what a text looks like.  The snapshot's own statements may write into the private copy, and no statement may
attach a file, set a pragma or call a function with effects outside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from mgmt.errors import StatementTimeoutError
from mgmt.state.store import RefusedStatementError, TimeLimit
from mgmt.state.text_limits import LONGEST

_READING = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
_NEVER = {apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH, apsw.SQLITE_PRAGMA}
_OF_THE_CATALOG = {apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE}
# With effects outside, or different every time.
_FORBIDDEN_FUNCTIONS = {
    "edit", "fts3_tokenizer", "load_extension", "random", "randomblob", "readfile", "sqlite_log", "writefile",
}  # fmt: skip
_LONGEST_OVER_NOTHING = 200_000
"""Bytes of a value made of constants, of which one row may make many, and SQLite is only stopped between rows."""
_STEPS_PER_CALL = 200


class Guard:
    """Watches one connection."""

    def __init__(self, connection: apsw.Connection, seconds: float, steps: int | None) -> None:
        """``seconds`` of a policy's statement; ``steps`` of all of them together, None is no limit."""
        self._connection = connection
        self._allowed: set[int] | None = None  # None: this program's own statements
        self._filled = ""
        self._refused = ""
        self._seconds = seconds
        self._deadline = 0.0
        self._together: TimeLimit | None = None
        self._calls_left = None if steps is None else max(1, steps // _STEPS_PER_CALL)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST if steps is None else _LONGEST_OVER_NOTHING)
        connection.authorizer = self._authorize
        connection.set_progress_handler(self._count, _STEPS_PER_CALL)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All statements of policies inside may take so long together."""
        before, self._together = self._together, TimeLimit(time.monotonic() + seconds, seconds)
        try:
            yield
        finally:
            self._together = before

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A policy's statement is run."""
        with self._allowing(_READING):
            yield

    @contextmanager
    def defining_a_view(self) -> Iterator[None]:
        """A policy's SELECT becomes a view."""
        with self._allowing(_READING | {apsw.SQLITE_CREATE_VIEW}):
            yield

    @contextmanager
    def lowered(self) -> Iterator[None]:
        """This program's own business, no statement of anybody's."""
        self._connection.authorizer = None
        try:
            yield
        finally:
            self._connection.authorizer = self._authorize

    @contextmanager
    def keeping_a_view(self) -> Iterator[None]:
        """A policy's SELECT becomes a table of the private copy, with its rows."""
        with self._allowing(_READING | {apsw.SQLITE_CREATE_TABLE}):
            yield

    @contextmanager
    def filling(self, table: str) -> Iterator[None]:
        """The rows of a policy's SELECT go into a table of the private copy that is kept for it."""
        self._filled = table
        try:
            with self._allowing(_READING):
                yield
        finally:
            self._filled = ""

    @contextmanager
    def _allowing(self, actions: set[int]) -> Iterator[None]:
        before, self._allowed = self._allowed, actions
        self._refused = ""
        together, seconds = None, self._seconds
        self._deadline = time.monotonic() + seconds
        if self._together is not None and self._together.deadline < self._deadline:
            together, seconds = self._together, self._together.seconds
            self._deadline = together.deadline
        try:
            yield
        except (apsw.AuthError, apsw.SQLError) as error:
            if not self._refused:
                raise
            raise RefusedStatementError(f"a policy may only read: {self._refused}") from error
        except apsw.InterruptError as error:
            over_rows = self._calls_left is None
            raise StatementTimeoutError(
                seconds, over_rows=over_rows, together=together is not None
            ) from error
        except (apsw.TooBigError, apsw.NoMemError) as error:
            raise RefusedStatementError("it makes a value that is too long") from error
        finally:
            self._allowed = before

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        del database, trigger
        refused = action in _NEVER or (
            action == apsw.SQLITE_FUNCTION and str(second).lower() in _FORBIDDEN_FUNCTIONS
        )
        if not refused and self._allowed is not None and action not in self._allowed:
            # SQLite itself writes the view or table into its catalog.
            own = action in _OF_THE_CATALOG and str(first).lower() in {"sqlite_master", "sqlite_schema"}
            refused = not (own and self._allowed & {apsw.SQLITE_CREATE_VIEW, apsw.SQLITE_CREATE_TABLE})
            if action == apsw.SQLITE_INSERT and self._filled and first == self._filled:
                refused = False
        if refused:
            name = apsw.mapping_authorizer_function[action]
            self._refused = " ".join(str(part) for part in (name, first, second) if part)
            return apsw.SQLITE_DENY
        return apsw.SQLITE_OK

    def _count(self) -> bool:
        """Whether SQLite is to stop."""
        if self._allowed is None:
            return False
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left < 0:
                return True
        return time.monotonic() > self._deadline

    def look(self) -> None:
        """Stop a policy's statement that has had its time, from a function that it calls."""
        if self._allowed is not None and time.monotonic() > self._deadline:
            raise apsw.InterruptError("it has had its time")
