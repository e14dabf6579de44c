"""The time that the state database gets for each phase of a solve: to be read, and to check the answer.

What it is not: the solver's own time (see ``mgmt.optimization``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mgmt.errors import SolveTimeout, StatementTimeoutError
from mgmt.state.database import Snapshot

_LEAST = 1.0
"""Seconds: a short budget is for the search, and the first statements may find a busy host."""


def a_second_at_least(left: float) -> float:
    """What a phase gets of the seconds that are left, or a second."""
    return max(_LEAST, left)


@contextmanager
def phase(snapshot: Snapshot, budget: float, left: float | None = None) -> Iterator[None]:
    """The statements inside may together take what is ``left`` of the budget, a second at least; else SolveTimeout."""
    seconds = a_second_at_least(budget if left is None else left)
    try:
        with snapshot.within(seconds):
            yield
    except StatementTimeoutError as error:
        if not error.together:
            raise
        what = f"{error.what}: " if error.what else ""
        raise SolveTimeout(
            f"{what}the state database still computes this after {seconds:g} s, the budget of the solve",
            position=error.position,
            hint="join by keys, filter earlier, split the statement into views, or raise the budget",
        ) from error
