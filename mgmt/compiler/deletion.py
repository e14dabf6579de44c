"""Which constraints clash where there are too many cells to look at rows: each is left out once, and the rest solved.

What it is not: it names no rows, and it makes no model itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mgmt.errors import PolicyError
from mgmt.language.bound_queries.queries import BoundQuery


class Revisable(Protocol):
    """What a compiled model can do, as far as it is needed here."""

    def revised(self, revise: Callable[[BoundQuery], BoundQuery | None] = ...) -> Revisable: ...

    def satisfiable(self, budget: float = ..., seed: int = ...) -> bool | None: ...


def clashing_constraints(
    model: Revisable, names: Sequence[str], *, seconds: float, seed: int
) -> tuple[list[str], bool]:
    """Those of some constraints that clash, and whether each was shown to be needed.

    All of them when nothing could be told in time.
    """
    deadline = time.monotonic() + seconds
    kept, minimal = list(names), True
    for name in names:
        left = deadline - time.monotonic()
        dropped = {*names} - {*kept} | {name}
        satisfiable = _satisfiable_without(model, dropped, left, seed) if left > 0 else None
        if satisfiable is False:
            kept.remove(name)
        minimal = minimal and satisfiable is not None
    return kept, minimal


def _satisfiable_without(model: Revisable, dropped: set[str], seconds: float, seed: int) -> bool | None:
    try:
        rest = model.revised(lambda query: None if query.name in dropped else query)
        return rest.satisfiable(seconds, seed)
    except PolicyError:
        return None  # others read it, or without it the rest is not solved in whole columns
