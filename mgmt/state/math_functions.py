"""Functions of numbers of which SQLite makes NULL or infinity where PostgreSQL says that there is no such number.

What it is not: sums and products are the databases' own (see ``exact_integers`` for whole ones).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from operator import xor
from typing import Any

import apsw

from mgmt.errors import DataError, OverflowError  # noqa: A004 - the published name
from mgmt.state.exact_integers import PREFIX, as_decimal
from mgmt.state.own_functions import strict

XOR = f"{PREFIX}xor"
"""The bits that are set in one of two whole numbers alone; SQLite has no operator for it."""
_EXACT = Context(prec=1000)


def _logarithm(base: float, value: float) -> float:
    if base == 1:
        raise ValueError("base 1")
    if base in {2, 10}:
        return math.log2(value) if base == 2 else math.log10(value)
    found = math.log(value) / math.log(base)
    return float(round(found)) if math.isclose(base ** round(found), value, rel_tol=1e-15) else found


def _rounded(value: float, places: int = 0) -> float:
    """Halves away from zero, of what the number is written as; never below a zero."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    unit = Decimal(1).scaleb(-max(-400, min(400, places)))
    return float(as_decimal(value).quantize(unit, ROUND_HALF_UP, _EXACT)) + 0.0


_FUNCTIONS: Mapping[str, tuple[int, Callable[..., float]]] = {
    "sqrt": (1, math.sqrt),
    "exp": (1, math.exp),
    "ln": (1, math.log),
    "log": (2, _logarithm),
    "power": (2, math.pow),
    "asin": (1, math.asin),
    "acos": (1, math.acos),
    "acosh": (1, math.acosh),
    "atanh": (1, math.atanh),
    "round": (2, _rounded),
}
"""By name: with how many operands, and what of them.  Logarithms by the base come with it: log(10, x)."""


def install(connection: apsw.Connection) -> None:
    """Let the connection call them."""
    for name, (operands, compute) in _FUNCTIONS.items():
        connection.create_scalar_function(name, strict(_told(name, compute)), operands, deterministic=True)
    connection.create_scalar_function(XOR, strict(_told("#", xor)), 2, deterministic=True)
    for name, compute in (("log", math.log10), ("round", _rounded)):
        connection.create_scalar_function(name, strict(_told(name, compute)), 1, deterministic=True)


def _told(name: str, compute: Callable[..., float]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        shown = f"{name}({', '.join(map(repr, operands))})"
        try:
            return compute(*operands)
        except ArithmeticError as error:
            raise OverflowError(f"{shown} leaves 64 bits", hint="use smaller units") from error
        except (ValueError, TypeError) as error:
            raise DataError(f"{shown} is no number", hint="leave such rows out, or write a CASE") from error

    return call
