"""Functions that PostgreSQL computes by itself and SQLite calls from here, as they are described and installed.

What it is not: any of them; see ``dates``, ``json_texts`` and ``text_functions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import apsw

from mgmt.state.schema import SqlType


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """One that policies do not call by its name: what they write is written out to it.  NULL where an operand is."""

    type: SqlType
    operands: int
    compute: Callable[..., Any]


def install(
    connection: apsw.Connection, functions: Mapping[str, OwnFunction], look: Callable[[], None] | None = None
) -> None:
    """Let the connection call them; before each call it looks whether there is time."""
    for name, function in functions.items():
        compute = strict(function.compute)
        connection.create_scalar_function(
            name, compute if look is None else _looking(compute, look), function.operands, deterministic=True
        )


def _looking(compute: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        look()
        return compute(*operands)

    return call


def strict(compute: Callable[..., Any]) -> Callable[..., Any]:
    """NULL where an operand is."""
    return lambda *operands: None if None in operands else compute(*operands)
