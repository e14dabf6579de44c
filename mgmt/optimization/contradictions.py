"""Where solvers contradict themselves, each other, or a solution that is known: an error of theirs, and told.

    with contradictions() as errors:
        ...                          # whatever asks a solver, however deep inside

What was contradicted is not proven, whoever is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_found: ContextVar[list[str] | None] = ContextVar("contradictions", default=None)


@contextmanager
def contradictions() -> Iterator[list[str]]:
    """What is contradicted inside, in order."""
    found: list[str] = []
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def contradicted(what: str) -> None:
    """To be told of a claim and what contradicts it."""
    found = _found.get()
    if found is not None:
        found.append(what)
