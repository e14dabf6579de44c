"""What DuckDB says against a statement, as an error at its place in the policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mgmt.errors import (
    AmbiguousColumnError,
    DataError,
    OverflowError,  # noqa: A004 - the published name
    PolicyError,
    PolicySyntaxError,
    SolveTimeout,
    StatementTimeoutError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownFunctionError,
    UnknownTableError,
    UnsupportedConstructError,
)
from mgmt.source_text import Position
from mgmt.state.duckdb_access.engine import RefusedStatementError

_CLASSES: tuple[tuple[str, type[PolicyError]], ...] = (
    (r"Ambiguous reference", AmbiguousColumnError),
    (r"^Referenced (column|table)|does not have a column named|^Column .* not found", UnknownColumnError),
    (r"^Table with name|^Table .* does not exist|^Catalog .* does not exist", UnknownTableError),
    (r"Function with name", UnknownFunctionError),
    (r"^No function matches|^Cannot compare|^Cannot mix|Cannot combine types", TypeMismatchError),
)
_HINT = "what reads no variable is left to DuckDB: see its documentation"


def error_of(refusal: RefusedStatementError, what: str, position: Position) -> PolicyError:
    """The error for a statement that is written for ``what`` (the name of a policy, or what is done) at this place."""
    reason, _, more = refusal.reason.partition("\n")
    kind = next((kind for pattern, kind in _CLASSES if re.search(pattern, refusal.reason)), PolicySyntaxError)
    hint = " ".join(more.split()) or _HINT
    return kind(f"{what}: {reason}", position=position, hint=hint)


@contextmanager
def refusals_at(what: str, position: Position) -> Iterator[None]:
    """Statements inside are run for ``what``, which is written there."""
    try:
        yield
    except RefusedStatementError as error:
        raise error_of(error, what, position) from error
    except (
        StatementTimeoutError,
        SolveTimeout,
        OverflowError,
        DataError,
        UnsupportedConstructError,
    ) as error:
        if error.position is None:
            if isinstance(error, StatementTimeoutError):
                error.what = what
            error.message = f"{what}: {error.message}"
            error.move(position)
        raise
