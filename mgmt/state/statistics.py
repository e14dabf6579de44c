"""Aggregates of statistics that PostgreSQL has and SQLite has from here: spread, regression, percentiles, bits.

Of whole numbers the sums are exact, so that only the last division rounds; NULLs count for nothing, as in every
aggregate.  All of them can be asked over windows.

What it is not: it reads no tree; under which names they are written to SQLite is sqlglot's matter.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_, xor
from typing import Any

import apsw

from mgmt.errors import DataError

Number = int | float


@dataclass(frozen=True, slots=True)
class _Sums:
    """Of pairs of numbers, each times their count: squares of the deviations from the mean, and products of both."""

    count: int
    y: Number
    x: Number
    yy: Number
    xx: Number
    yx: Number


def _sums(rows: list[tuple[Number, ...]]) -> _Sums:
    count = len(rows)
    ys, xs = [row[0] for row in rows], [row[-1] for row in rows]
    if all(isinstance(value, int) for row in rows for value in row):
        y, x = sum(ys), sum(xs)
        return _Sums(
            count,
            y,
            x,
            count * sum(value * value for value in ys) - y * y,
            count * sum(value * value for value in xs) - x * x,
            count * sum(map(lambda one, other: one * other, ys, xs)) - y * x,
        )
    y, x = math.fsum(ys), math.fsum(xs)
    from_y, from_x = [value - y / count for value in ys], [value - x / count for value in xs]

    def products(left: list[float], right: list[float]) -> float:
        return count * math.fsum(map(lambda one, other: one * other, left, right))

    return _Sums(count, y, x, products(from_y, from_y), products(from_x, from_x), products(from_y, from_x))


def _variance(sums: _Sums, freedom: int) -> float | None:
    return sums.yy / (sums.count * (sums.count - freedom)) if sums.count > freedom else None


def _deviation(sums: _Sums, freedom: int) -> float | None:
    variance = _variance(sums, freedom)
    return None if variance is None else math.sqrt(variance)


def _covariance(sums: _Sums, freedom: int) -> float | None:
    return sums.yx / (sums.count * (sums.count - freedom)) if sums.count > freedom else None


def _correlation(sums: _Sums) -> float | None:
    if not sums.yy or not sums.xx:
        return None
    return max(-1.0, min(1.0, sums.yx / (math.sqrt(sums.yy) * math.sqrt(sums.xx))))


def _slope(sums: _Sums) -> float | None:
    return sums.yx / sums.xx if sums.xx else None


def _intercept(sums: _Sums) -> float | None:
    return (sums.y * sums.xx - sums.x * sums.yx) / (sums.count * sums.xx) if sums.xx else None


def _determination(sums: _Sums) -> float | None:
    if not sums.xx:
        return None
    return 1.0 if not sums.yy else sums.yx * sums.yx / (sums.xx * sums.yy)


def _of_sums(compute: Callable[[_Sums], float | None]) -> Callable[[list[tuple[Number, ...]]], Any]:
    return lambda rows: compute(_sums(rows)) if rows else None


def _of_bits(operator: Callable[[int, int], int]) -> Callable[[list[tuple[Any, ...]]], Any]:
    return lambda rows: reduce(operator, (row[0] for row in rows)) if rows else None


def _fraction(rows: list[tuple[Any, ...]]) -> float:
    fraction = rows[0][1]
    if isinstance(fraction, (int, float)) and 0 <= fraction <= 1:
        return fraction
    raise DataError(f"a percentile of {fraction!r}", hint="fractions lie between 0 and 1")


def _between(rows: list[tuple[Any, ...]]) -> float | None:
    if not rows:
        return None
    values = sorted(float(row[0]) for row in rows)
    place = _fraction(rows) * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    return low + (place - math.floor(place)) * (high - low)


def _at(rows: list[tuple[Any, ...]]) -> Any:
    if not rows:
        return None
    values = sorted(row[0] for row in rows)
    return values[max(1, math.ceil(_fraction(rows) * len(values))) - 1]


def _most_frequent(rows: list[tuple[Any, ...]]) -> Any:
    """Of several that are so, the first in order."""
    counts = Counter(row[0] for row in rows)
    most = max(counts.values(), default=0)
    return min((value for value, count in counts.items() if count == most), default=None)


_COMPUTE: Mapping[str, tuple[int, Callable[[list[tuple[Any, ...]]], Any]]] = {
    **dict.fromkeys(("stddev", "stddev_samp"), (1, _of_sums(lambda sums: _deviation(sums, 1)))),
    "stddev_pop": (1, _of_sums(lambda sums: _deviation(sums, 0))),
    "variance": (1, _of_sums(lambda sums: _variance(sums, 1))),
    "variance_pop": (1, _of_sums(lambda sums: _variance(sums, 0))),
    "covar_samp": (2, _of_sums(lambda sums: _covariance(sums, 1))),
    "covar_pop": (2, _of_sums(lambda sums: _covariance(sums, 0))),
    "corr": (2, _of_sums(_correlation)),
    "regr_slope": (2, _of_sums(_slope)),
    "regr_intercept": (2, _of_sums(_intercept)),
    "regr_r2": (2, _of_sums(_determination)),
    "regr_count": (2, len),
    "percentile_cont": (2, _between),
    "percentile_disc": (2, _at),
    "mode": (1, _most_frequent),
    "bitwise_and_agg": (1, _of_bits(and_)),
    "bitwise_or_agg": (1, _of_bits(or_)),
    "bitwise_xor_agg": (1, _of_bits(xor)),
}


@dataclass(slots=True)
class _Rows:
    """The rows of a group or of a window's frame, those without NULL alone."""

    compute: Callable[[list[tuple[Any, ...]]], Any]
    rows: deque[tuple[Any, ...]] = field(default_factory=deque)

    def step(self, *values: Any) -> None:
        if None not in values:
            self.rows.append(values)

    def inverse(self, *values: Any) -> None:
        if None not in values:
            self.rows.popleft()

    def value(self) -> Any:
        return self.compute(list(self.rows))

    final = value


def install(connection: apsw.Connection) -> None:
    """Let the connection run them."""
    for name, (operands, compute) in _COMPUTE.items():
        connection.create_window_function(name, lambda compute=compute: _Rows(compute), operands)  # type: ignore[misc]
