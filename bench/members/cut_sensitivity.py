"""How often almost-everywhere agreement fails: the table of Figure 11 of the paper, computed again.

Of 1000 processes F fail, and each healthy process hears the 10 x F alerts about them one by one in a random order of
its own. It proposes as soon as a subject is stable (H alerts or more) and none is unstable (from L to H - 1). The
process conflicts when that first proposal lacks one of the F. The rate is over processes, each with its own failures
and order; F = 2 also has a closed form. The cut detector itself needs a second for what numpy does here in a
millisecond. A test feeds both the same random orders and compares them. They differ on purpose in one thing: to the
detector one accuser alone is noise, so it knows no L = 1 and does there what it does at L = 2. The rows of L = 1 are
the paper's rule.
Source: *Stable and Consistent Membership at Scale with Rapid* (USENIX ATC 2018), section 7, Figure 11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.result import Result, Table

RINGS: Final = 10
FAILURES: Final = (2, 4, 8, 16)
HIGH: Final = (6, 7, 8, 9)
LOW: Final = (1, 2, 3, 4)

DRAWS: Final = 400_000
"""Processes per cell, default; the paper's 20 repetitions of 1000 are 20,000."""
PUBLISHED_DRAWS: Final = 20_000
_AT_A_TIME: Final = 20_000

MOST_DEVIATIONS: Final = 3.5
"""Standard errors that no cell may be away from the published value: among 64 cells, chance alone goes beyond this
in one table of thirty."""

PUBLISHED: Final[Mapping[tuple[int, int], tuple[float, ...]]] = {
    (6, 1): (1.05, 0.15, 0.03, 0), (6, 2): (5.78, 1.74, 0.33, 0.09),
    (6, 3): (16.47, 10.87, 3.81, 1.52), (6, 4): (36.74, 36.94, 23.78, 12.59),
    (7, 1): (0.30, 0.01, 0, 0), (7, 2): (2.06, 0.22, 0.04, 0.007),
    (7, 3): (6.82, 2.52, 0.54, 0.17), (7, 4): (18.30, 11.76, 4.28, 1.57),
    (8, 1): (0.04, 0, 0, 0), (8, 2): (0.59, 0.05, 0, 0),
    (8, 3): (2.23, 0.34, 0.03, 0.005), (8, 4): (6.82, 2.35, 0.48, 0.08),
    (9, 1): (0.015, 0, 0, 0), (9, 2): (0.12, 0.005, 0, 0),
    (9, 3): (0.53, 0.03, 0, 0), (9, 4): (1.99, 0.24, 0.04, 0),
}  # fmt: skip
"""(H, L): conflict rate in % for each of FAILURES."""


def conflicts(arrivals: NDArray[np.float64], high: int, low: int) -> NDArray[np.bool_]:
    """Which draws conflict. `arrivals`: [draw, subject, n] is when the n-th alert about that subject came.

    There is a conflict if at some moment some subjects are at H or more and all others, at least one, below L. Only
    the moments at which a subject comes to H need to be looked at.
    """
    stable_at = arrivals[:, :, high - 1]
    order = np.argsort(stable_at, axis=1)
    stable_at = np.take_along_axis(stable_at, order, axis=1)
    noticed_at = np.take_along_axis(arrivals[:, :, low - 1], order, axis=1)
    # For each subject in the order of becoming stable: when the first of those after it comes to L.
    next_noticed = np.minimum.accumulate(noticed_at[:, ::-1], axis=1)[:, ::-1]
    found: NDArray[np.bool_] = np.any(next_noticed[:, 1:] > stable_at[:, :-1], axis=1)
    return found


def closed_form(high: int, low: int) -> float:
    """The conflict rate for two failures, exactly: after H + L - 1 alerts one subject has fewer than L of them."""
    together = high + low - 1
    ways = sum(math.comb(RINGS, b) * math.comb(RINGS, together - b) for b in range(low))
    return 2 * ways / math.comb(2 * RINGS, together)


def estimate(failures: int, draws: int, seed: int) -> dict[tuple[int, int], float]:
    """The conflict rate for each (H, L), by drawing."""
    # Independent uniform arrival times are a uniformly random order.
    rng = np.random.default_rng([seed, failures])
    found = {(high, low): 0 for high in HIGH for low in LOW}
    left = draws
    while left:
        count = min(left, _AT_A_TIME)
        arrivals = np.sort(rng.random((count, failures, RINGS)), axis=2)
        for high, low in found:
            found[high, low] += int(np.count_nonzero(conflicts(arrivals, high, low)))
        left -= count
    return {setting: count / draws for setting, count in found.items()}


def cut_sensitivity(draws: int = DRAWS, seed: int = 0) -> Result:
    """The whole table."""
    estimates = {failures: estimate(failures, draws, seed) for failures in FAILURES}
    cells = [
        _cell(failures, setting, estimates[failures][setting], published, draws)
        for setting, all_published in PUBLISHED.items()
        for failures, published in zip(FAILURES, all_published, strict=True)
    ]
    beyond = [cell for cell in cells if abs(cell["deviation"]) > MOST_DEVIATIONS]
    exact = [cell for cell in cells if cell["failures"] == 2]
    furthest = max(abs(cell["exact_deviation"]) for cell in exact)
    ok = not beyond and furthest <= MOST_DEVIATIONS
    figures = {
        "draws": draws,
        "published_draws": PUBLISHED_DRAWS,
        "cells": cells,
        "largest_deviation": max(abs(cell["deviation"]) for cell in cells),
        "largest_exact_deviation": furthest,
        "within_sampling_error": ok,
    }
    rows = [
        ("processes drawn per cell", f"{draws}", f"{PUBLISHED_DRAWS}"),
        ("cells further off than 3.5 standard errors", f"{len(beyond)} of {len(cells)}", ""),
        ("largest difference from published, in standard errors", f"{figures['largest_deviation']:.1f}", ""),
        ("largest difference from the closed form (F = 2), in standard errors", f"{furthest:.1f}", ""),
        ("verdict", "within sampling error" if ok else "NOT within sampling error", ""),
    ]
    source = "Rapid, USENIX ATC 2018, Figure 11"
    return Result(figures, rows, source, (_table(cells),), ok)


def _cell(
    failures: int, setting: tuple[int, int], rate: float, published: float, draws: int
) -> dict[str, Any]:
    high, low = setting
    exact = closed_form(high, low) if failures == 2 else None
    # A rate of zero is an estimate too: its error is that of one conflict.
    error = 100 * math.sqrt(max(rate * (1 - rate), 1 / draws) / draws)
    both = 100 * math.sqrt(max(rate * (1 - rate), 1 / PUBLISHED_DRAWS) * (1 / draws + 1 / PUBLISHED_DRAWS))
    cell: dict[str, Any] = {
        "high": high,
        "low": low,
        "failures": failures,
        "percent": round(100 * rate, 4),
        "standard_error": round(error, 4),
        "published": published,
        "deviation": round((100 * rate - published) / both, 2),
    }
    if exact is not None:
        exact_error = 100 * math.sqrt(exact * (1 - exact) / draws)
        cell["exact"] = round(100 * exact, 4)
        cell["exact_deviation"] = round((100 * rate - 100 * exact) / exact_error, 2)
    return cell


def _table(cells: list[dict[str, Any]]) -> Table:
    """Everything, a line for each H and L."""
    by_setting: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for cell in cells:
        by_setting.setdefault((cell["high"], cell["low"]), []).append(cell)
    columns = ("H", "L", "F=2 exactly", *(f"F={failures} ours ± s.e. (published)" for failures in FAILURES))
    rows = [
        (
            str(high),
            str(low),
            f"{found[0]['exact']:.3f}",
            *(
                f"{cell['percent']:.3f} ± {cell['standard_error']:.3f} ({cell['published']:g})"
                for cell in found
            ),
        )
        for (high, low), found in by_setting.items()
    ]
    return Table(columns, rows)
