"""That a text is not too long to be searched, as PostgreSQL says it; see ``mgmt.state.text_limits``.

What it is not: it decides nothing, and walks no tree.
"""

from __future__ import annotations

import re

from sqlglot import exp

from mgmt.errors import DataError
from mgmt.state import text_limits
from mgmt.state.store import RefusedStatementError

_MARK = "rota: characters, and at most:"
# No boolean: an error that says both numbers.  NULL stays what it is.
_CHECKED = (
    "CASE WHEN LENGTH({text}) <= o1 THEN {text}"
    f" ELSE CAST(CAST('{_MARK} ' || LENGTH({{text}}) || ' ' || o1 AS boolean) AS text) END"
)
_ONCE = f"(SELECT {_CHECKED.format(text='v.t')} FROM (SELECT o0 AS t OFFSET 0) AS v)"
_NUMBERS = re.compile(rf"{_MARK} (\d+) (\d+)")
_LARGEST_WRITTEN_THRICE = 40  # nodes
_OF_SEVERAL_ROWS = (exp.AggFunc, exp.Window, exp.Filter, exp.WithinGroup)


def template(operand: exp.Expr) -> str:
    """SQL for a call; RefusedStatementError where the text is too much to write again, and cannot be put aside."""
    nodes = list(operand.walk())
    if len(nodes) <= _LARGEST_WRITTEN_THRICE and not any(isinstance(node, exp.Query) for node in nodes):
        return _CHECKED.format(text="o0")
    if any(isinstance(node, _OF_SEVERAL_ROWS) and node.find_ancestor(exp.Query) is None for node in nodes):
        raise RefusedStatementError(
            "a text is searched that is computed at such length; compute it in a CREATE VIEW of its own"
        )
    return _ONCE


def error_of(message: str) -> DataError | None:
    """What a message of the server means, if it is of this check."""
    found = _NUMBERS.search(message)
    return None if found is None else text_limits.too_long(*found.groups())
