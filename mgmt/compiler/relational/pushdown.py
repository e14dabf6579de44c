"""What is left to the engine: the text of its views, and where an error stands that does not say so.

What it is not: how a tree becomes text is ``mgmt.language.pushdown.sql_text``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from mgmt.errors import PolicyError
from mgmt.language.bound_queries.queries import PushedView
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import Position


@lru_cache(maxsize=1024)
def pushed_sql(view: PushedView) -> str:
    """The SELECT of a view that the engine computes alone; it is made once."""
    if view.sql:
        return view.sql
    with standing_at(view.position):
        return to_sql(view.tree)


@contextmanager
def standing_at(position: Position) -> Iterator[None]:
    """An error that does not say where it stands, stands there."""
    try:
        yield
    except PolicyError as error:
        if error.position is None:
            error.move(position)
        raise
