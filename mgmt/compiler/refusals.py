"""The database's complaints about a statement, as errors at the place of the policy that it was made of.

What it is not: it does not decide what is refused (see ``mgmt.state``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mgmt.errors import (
    DataError,
    OverflowError,  # noqa: A004 - the published name
    PolicySyntaxError,
    StatementTimeoutError,
    UnknownFunctionError,
)
from mgmt.source import Position
from mgmt.state.store import RefusedStatementError


@contextmanager
def refusals_at(what: str, position: Position) -> Iterator[None]:
    """Statements inside are run for ``what`` (the name of a policy, or what is done), which is written there."""
    try:
        yield
    except RefusedStatementError as error:
        kind = UnknownFunctionError if error.unknown_function else PolicySyntaxError
        raise kind(
            f"{what}: the database refuses it: {error.reason}",
            position=position,
            hint="what reads no variable is left to the database: write it with what that has",
        ) from error
    except (StatementTimeoutError, OverflowError, DataError) as error:
        if error.position is None:
            if isinstance(error, StatementTimeoutError):
                error.what = what
            error.message = f"{what}: {error.message}"
            error.move(position)
        raise
