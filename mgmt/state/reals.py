"""Real numbers and their texts, as PostgreSQL makes one of the other.

The text is the shortest that is read as the same number; a text that is none is an error, and not 0 as in SQLite.

What it is not: it changes no number, and whole ones are ``exact_integers``'s.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import apsw
from sqlglot import exp

from mgmt.errors import DataError
from mgmt.state.exact_integers import PREFIX

REAL_TEXT, REAL_OF = f"{PREFIX}text", f"{PREFIX}real"
"""The text of a value, and the real that a value is."""
_REAL = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_SMALLEST_PLAIN, _LARGEST_PLAIN = -4, 15
"""Powers of ten; others are written with an exponent."""


def unwritten(node: exp.Expr) -> exp.Expr | None:
    """What a call is made of; None where it is none."""
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    if name not in {REAL_TEXT, REAL_OF}:
        return None
    found: exp.Expr = node.expressions[0]
    return exp.Cast(this=found.copy(), to=exp.DataType.build("double")) if name == REAL_OF else found


def install(connection: apsw.Connection) -> None:
    """Let the connection call it."""
    connection.create_scalar_function(REAL_TEXT, _told, 1, deterministic=True)
    connection.create_scalar_function(REAL_OF, _real, 1, deterministic=True)


def _told(*operands: Any) -> Any:
    (value,) = operands
    return real_text(value) if isinstance(value, float) else value


def _real(*operands: Any) -> float | None:
    (value,) = operands
    if isinstance(value, str) and not _REAL.fullmatch(value):
        raise DataError(
            f"{value!r} is no number", hint="cast only what is one; leave the others out with CASE"
        )
    return None if value is None else float(value)


def real_text(value: float) -> str:
    """The text of a real."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    shortest = Decimal(repr(value)).normalize()
    exponent = shortest.adjusted()
    if _SMALLEST_PLAIN <= exponent < _LARGEST_PLAIN:
        return f"{shortest:f}"
    first, *others = map(str, shortest.as_tuple().digits)
    digits = f"{first}.{''.join(others)}" if others else first
    return f"{'-' if value < 0 else ''}{digits}e{exponent:+03d}"
