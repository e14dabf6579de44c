"""``->`` and ``->>`` on texts that hold JSON, in terms of ``mgmt.state.json_texts``, which both databases have.

What it is not: functions on JSON, which are the database's own under their own names.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.tree_types import mark
from mgmt.state import json_texts
from mgmt.state.schema import SqlType

OPERATORS = (exp.JSONExtract, exp.JSONExtractScalar)
_MOST_DIGITS = 9
"""Of a place in an array; PostgreSQL takes 32 bits."""


def names_one_member(node: exp.Expr) -> bool:
    """Whether one of ``OPERATORS`` has the name of a member on its right, or a place, as both databases read it."""
    which = node.expression
    if isinstance(which, exp.Literal) and which.is_string:
        return not which.this.startswith("$")  # a path, for SQLite
    place = which.this if isinstance(which, exp.Neg) else which
    return isinstance(place, exp.Literal) and place.this.isdecimal() and len(place.this) <= _MOST_DIGITS


def write_out_json_operators(tree: exp.Expr) -> None:
    """Calls in place of the operators inside of the tree."""
    for node in reversed(list(tree.find_all(*OPERATORS))):
        as_text = isinstance(node, exp.JSONExtractScalar)
        if node.expression.is_string:
            name = json_texts.MEMBER_TEXT if as_text else json_texts.MEMBER
        else:
            name = json_texts.ELEMENT_TEXT if as_text else json_texts.ELEMENT
        call = exp.Anonymous(this=name, expressions=[node.this.copy(), node.expression.copy()])
        call.meta.update(node.meta)
        node.replace(mark(call, SqlType.TEXT))
