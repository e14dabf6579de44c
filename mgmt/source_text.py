"""Source texts and positions in them: files, lines and columns.

Every token keeps the offset of its first character, so that each error can point at its cause.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

# A text longer than this is refused anyway, so no table of its lines is made.
_LONG = 1_000_000


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a policy text.  Line and column count from 1, as editors do."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class SourceText:
    """One named text (a file of a policy pack, or a string given by a caller)."""

    name: str
    text: str
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        if len(self.text) <= _LONG:
            starts.extend(match.end() for match in re.finditer("\n", self.text))
        object.__setattr__(self, "_line_starts", tuple(starts))

    def offset(self, position: Position) -> int:
        """The character offset of a line and a column."""
        if len(self.text) > _LONG:
            return 0
        return self._line_starts[position.line - 1] + position.column - 1

    def position(self, offset: int) -> Position:
        """The line and column of a character offset."""
        offset = max(0, min(offset, len(self.text)))
        if len(self.text) > _LONG:
            before = self.text[:offset]
            return Position(self.name, before.count("\n") + 1, offset - before.rfind("\n"))
        line = bisect_right(self._line_starts, offset)
        return Position(self.name, line, offset - self._line_starts[line - 1] + 1)
