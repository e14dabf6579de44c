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
_MADE = "rota: characters to be made:"
_CHARACTERS = re.compile(rf"{_MADE} (\d+)")
_NUMBERS = re.compile(rf"{_MARK} (\d+) (\d+)")
_LARGEST_WRITTEN_THRICE, _LARGEST_OF_SEVERAL_ROWS = 40, 400  # nodes
_OF_SEVERAL_ROWS = (exp.AggFunc, exp.Window, exp.Filter, exp.WithinGroup)


def template(operand: exp.Expr) -> str:
    """SQL for a call; RefusedStatementError where the text is too much to write again, and cannot be put aside."""
    nodes = list(operand.walk())
    together = any(
        isinstance(one, _OF_SEVERAL_ROWS) and one.find_ancestor(exp.Query) is None for one in nodes
    )
    queries = any(isinstance(node, exp.Query) for node in nodes)
    if together and len(nodes) > _LARGEST_OF_SEVERAL_ROWS:
        raise RefusedStatementError(
            "a text is searched that is computed at such length; compute it in a CREATE VIEW of its own"
        )
    if together or (len(nodes) <= _LARGEST_WRITTEN_THRICE and not queries):
        return _CHECKED.format(text="o0")
    return _ONCE


def no_longer_than_texts(length: exp.Expr) -> exp.Expr:
    """A number of characters to be made, unless it is more than texts have."""
    if len(list(length.walk())) > _LARGEST_WRITTEN_THRICE:
        return length
    most = exp.Literal.number(text_limits.LONGEST)
    fits = exp.LTE(this=length.copy(), expression=most)
    told = exp.DPipe(this=exp.Literal.string(f"{_MADE} "), expression=length.copy(), safe=True)
    failing = exp.Cast(this=exp.Paren(this=told), to=exp.DataType.build("int"))
    return exp.Case(ifs=[exp.If(this=fits, true=length.copy())], default=failing)


def error_of(message: str) -> DataError | None:
    """What a message of the server means, if it is of this check."""
    made = _CHARACTERS.search(message)
    if made is not None:
        return text_limits.too_many(made[1])
    found = _NUMBERS.search(message)
    return None if found is None else text_limits.too_long(*found.groups())
