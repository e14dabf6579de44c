"""The value that so many percent of the values do not exceed, as all benchmarks take it."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(ascending: Sequence[float], percent: float) -> float:
    """Of one value or more, in ascending order."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * percent / 100))]
