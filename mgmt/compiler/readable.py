"""SQL for people to read: without what is written around an expression so that SQLite looks at what comes out.

What it is not: SQL to run (see ``split``).
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from mgmt.state import (
    dates,
    exact_integers,
    json_texts,
    math_functions,
    present_time,
    reals,
    sole_row,
    text_limits,
)

_NAMES = {
    **{name: name.removeprefix(exact_integers.PREFIX) for name in (*dates.FUNCTIONS, *json_texts.FUNCTIONS)},
    present_time.PRESENT: "now",
    math_functions.XOR: "xor",
}


def readable(sql: str) -> str:
    """A statement for the database, as one would write it."""
    if exact_integers.PREFIX not in sql.lower():
        return sql
    try:
        holder = exp.Paren(this=sqlglot.parse_one(sql, dialect="sqlite"))
    except (SqlglotError, RecursionError):
        return sql
    for node in reversed(list(holder.find_all(exp.Case, exp.Anonymous, exp.Select))):
        plain = _unguarded(node)
        if plain is not None:
            plain = plain.unnest() if isinstance(plain, exp.Paren) and _needs_no_parentheses(node) else plain
            node.replace(plain)
    for call in holder.find_all(exp.Anonymous):
        name = _NAMES.get(str(call.this).lower())
        if name is not None:
            call.set("this", name)
    text: str = holder.this.sql(dialect="sqlite")
    return text


def _unguarded(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Select):
        return sole_row.unguarded(node)
    return exact_integers.unguarded(node) or text_limits.unguarded(node) or reals.unwritten(node)


def _needs_no_parentheses(node: exp.Expr) -> bool:
    """Because there are some around it, or nothing that binds tighter is."""
    return isinstance(node.parent, (exp.Paren, exp.Alias, exp.Select, exp.Func))
