"""What came of reading back, in the end, everything that was acknowledged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Numbers of writes."""

    acknowledged: int
    lost: int
    """Something else is there, or nothing."""
    unreadable: int
    """No answer came in time."""
