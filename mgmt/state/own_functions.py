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


def install(connection: apsw.Connection, functions: Mapping[str, OwnFunction]) -> None:
    """Let the connection call them."""
    for name, function in functions.items():
        connection.create_scalar_function(
            name, strict(function.compute), function.operands, deterministic=True
        )


def strict(compute: Callable[..., Any]) -> Callable[..., Any]:
    """NULL where an operand is."""
    return lambda *operands: None if None in operands else compute(*operands)
