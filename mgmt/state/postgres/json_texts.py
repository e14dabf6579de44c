"""What PostgreSQL computes where SQLite calls a function of ``mgmt.state.json_texts``, with the same texts.

What it is not: it walks no tree (see ``expressions``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import sqlglot
from sqlglot import exp

from mgmt.state import json_texts
from mgmt.state.postgres.typed import Typed, text
from mgmt.state.schema import SqlType

_OPERATORS = {
    json_texts.MEMBER: "CAST(CAST(o0 AS jsonb) -> CAST(o1 AS text) AS text)",
    json_texts.MEMBER_TEXT: "CAST(o0 AS jsonb) ->> CAST(o1 AS text)",
    json_texts.ELEMENT: "CAST(CAST(o0 AS jsonb) -> CAST(o1 AS int) AS text)",
    json_texts.ELEMENT_TEXT: "CAST(o0 AS jsonb) ->> CAST(o1 AS int)",
}


def is_json_function(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in _OPERATORS


def json_function(node: exp.Anonymous, value: Callable[[exp.Expr], Typed]) -> Typed:
    """A call of one of the functions; ``value`` translates an operand."""
    document, which = map(value, node.expressions)
    call = _template(_OPERATORS[str(node.this).lower()]).copy()
    operands = {"o0": text(document), "o1": which.tree}
    for column in list(call.find_all(exp.Column)):
        column.replace(exp.Paren(this=operands[column.name].copy()))
    return Typed(exp.Paren(this=call), SqlType.TEXT)


@lru_cache(maxsize=8)
def _template(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect="postgres")
