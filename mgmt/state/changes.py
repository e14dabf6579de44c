"""Which rows have changed, so that what was made of all of them can be brought up to date with these alone.

What it is not: it knows no database; ``sqlite`` tells it what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST_REMEMBERED = 5_000


@dataclass(slots=True)
class Changes:
    """Row numbers by table since this began to listen.  What was rolled back is among them."""

    tables: dict[str, set[int] | None] = field(default_factory=dict)
    """By name in lower case; None: more rows than are remembered."""

    def note(self, table: str, *numbers: int) -> None:
        rows = self.tables.setdefault(table, set())
        if rows is not None:
            rows.update(numbers)
            if len(rows) > _MOST_REMEMBERED:
                self.tables[table] = None


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The rows of one table that changed, as they were and as they are."""

    columns: tuple[str, ...]
    """Their names in lower case."""
    rows: Sequence[tuple[Any, ...]]

    def values(self, column: str) -> set[Any]:
        """What these rows had and have in a column."""
        place = self.columns.index(column.lower())
        return {row[place] for row in self.rows}
