"""Calls of functions that SQLite has from here, as PostgreSQL computes the same by itself.

What it is not: what each becomes stands in ``dates`` and ``json_texts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import sqlglot
from sqlglot import exp

from mgmt.state import dates as of_dates
from mgmt.state import json_texts as of_json
from mgmt.state import math_functions, patterns, present_time, reals
from mgmt.state.postgres import dates, json_texts, text_limits
from mgmt.state.postgres.typed import Typed, number, text
from mgmt.state.schema import TEMPORAL, SqlType
from mgmt.state.text_limits import LIMITED

PRESENT_SETTING = "rota.present"
"""The setting of a session that holds the moment of its snapshot."""
_TYPES: Mapping[str, SqlType] = {
    **{name: function.type for name, function in {**of_dates.FUNCTIONS, **of_json.FUNCTIONS}.items()},
    patterns.MATCHES: SqlType.BOOLEAN,
    reals.REAL_TEXT: SqlType.TEXT,
    reals.REAL_OF: SqlType.REAL,
    math_functions.XOR: SqlType.INTEGER,
    present_time.PRESENT: SqlType.TIMESTAMP,
}
_TEMPLATES: Mapping[str, str] = {
    **dates.TEMPLATES,
    **json_texts.TEMPLATES,
    patterns.MATCHES: '(o1 COLLATE "C" ~ o0)',
    reals.REAL_TEXT: "o0",  # a text by now
    reals.REAL_OF: "CAST(o0 AS double precision)",
    math_functions.XOR: "(o0 # o1)",
    # A subquery is computed once, and not for every row.
    present_time.PRESENT: f"(SELECT CURRENT_SETTING('{PRESENT_SETTING}'))",
}
_NUMBERS: Mapping[str, set[int]] = {
    **dates.NUMBERS,
    **json_texts.NUMBERS,
    LIMITED: {1},
    math_functions.XOR: {0, 1},
}


def is_own_function(node: exp.Anonymous) -> bool:
    return str(node.this).lower() in {*_TEMPLATES, LIMITED}


def own_function(node: exp.Anonymous, value: Callable[[exp.Expr], Typed]) -> Typed:
    """A call of one of them; ``value`` translates an operand."""
    name = str(node.this).lower()
    operands = [
        number(operand).tree if place in _NUMBERS.get(name, ()) else text(operand)
        for place, operand in enumerate(map(value, node.expressions))
    ]
    if name == LIMITED:
        return Typed(_filled(text_limits.template(operands[0]), operands), SqlType.TEXT)
    kind = _TYPES[name]
    return Typed(_filled(_TEMPLATES[name], operands), SqlType.TEXT if kind in TEMPORAL else kind)


def is_own_rows(item: exp.Expr) -> bool:
    """Whether a relation is json_each(...) of a call of ours."""
    call = item.this if isinstance(item, exp.Table) else None
    inner = call.expressions if isinstance(call, exp.Anonymous) else []
    return (
        isinstance(call, exp.Anonymous)
        and str(call.this).lower() == "json_each"
        and len(inner) == 1
        and isinstance(inner[0], exp.Anonymous)
        and str(inner[0].this).lower() in json_texts.ROWS
    )


def own_rows(item: exp.Expr, value: Callable[[exp.Expr], Typed]) -> exp.Expr:
    """The SELECT that it becomes."""
    node = item.this.expressions[0]
    operands = [text(value(operand)) for operand in node.expressions]
    return _filled(json_texts.ROWS[str(node.this).lower()], operands)


@lru_cache(maxsize=64)
def _template(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect="postgres")


def _filled(sql: str, operands: Sequence[exp.Expr]) -> exp.Expr:
    holder = exp.Paren(this=_template(sql).copy())
    for column in [column for column in holder.find_all(exp.Column) if not column.table]:
        operand = operands[int(column.name[1:])]
        column.replace(exp.Paren(this=operand.copy()))
    found: exp.Expr = holder.this
    return found
