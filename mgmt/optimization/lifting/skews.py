"""Bounds on how far two sums of the same rows are apart: families of them are skews.

``load[i] - load[j] <= most[i, j]`` for all pairs of buckets is one condition if each bound is a number of the one
bucket less a number of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import NONE, UNLIMITED, Load, Skew
from mgmt.optimization.columns import Integers, Linears, Lists, filled
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.factors import Factors, joined_factors
from mgmt.optimization.lifting.sums.families import PlacedRows
from mgmt.optimization.lifting.sums.normal_form import Demanded, Ranges
from mgmt.optimization.problem import NO_BOUND

_FREE = int(UNLIMITED)


@dataclass(frozen=True, slots=True, eq=False)
class _Differences:
    """Differences of sums over the same rows: the kind of rows, and the kinds of values of both sums."""

    factors: Factors
    rows: Integers
    greater: Integers
    less: Integers
    most: Integers
    demanded: Demanded


def skews_of(name: str, ranges: Ranges, sums: CellSums) -> dict[Skew, PlacedRows]:
    """With the rows that demand them, by the bucket that has more.  NotLiftedError where bounds are about else."""
    found = _differences(ranges, sums)
    skews = {}
    for kind in np.unique(found.rows).tolist():
        mine = np.flatnonzero(found.rows == kind)
        used, places = np.unique(np.concatenate((found.greater[mine], found.less[mine])), return_inverse=True)
        greater, less = places[: len(mine)], places[len(mine) :]
        most = np.full((len(used), len(used)), _FREE, np.int64)
        np.minimum.at(most, (greater, less), found.most[mine])
        load = _load(found.factors, kind, found.factors.values.take(used), sums.cells)
        told = PlacedRows.of(len(used), filled(len(mine), 0), greater, found.demanded.take(mine))
        skews[_skew(name, load, most)] = told
    return skews


def _differences(ranges: Ranges, sums: CellSums) -> _Differences:
    sides = []
    for sign in (1, -1):
        factors = sign * ranges.linears.coefficients
        terms = ranges.linears.terms.keep(factors > 0)
        if not terms.lengths.all():
            raise NotLiftedError("amounts that depend on the row and on the value at once")
        sides.append(sums.factors(Linears(filled(len(terms), 0), terms, factors[factors > 0])))
    count = len(ranges)
    both = joined_factors(sides).with_equal_kinds()
    rows, values = both.row_kind, both.value_kind
    if not (both.whole.all() and np.array_equal(rows[:count], rows[count:])):
        raise NotLiftedError("amounts that depend on the row and on the value at once")
    # What is at least a number is the other way round at most its negation.
    upper, lower = np.flatnonzero(ranges.upper < NO_BOUND), np.flatnonzero(ranges.lower > -NO_BOUND)
    one, other = values[:count], values[count:]
    where = np.concatenate((upper, lower))
    told = ranges.demanded.take(where)
    factors = told.factors * np.where(np.arange(len(where)) < len(upper), 1, -1)
    return _Differences(
        both,
        rows[:count][where],
        np.concatenate((one[upper], other[lower])),
        np.concatenate((other[upper], one[lower])),
        np.concatenate((ranges.upper[upper], -ranges.lower[lower])),
        replace(told, factors=factors),
    )


def _load(factors: Factors, kind: int, values: Lists, cells: ChoiceCells) -> Load:
    if len(np.unique(values.items)) < len(values.items):
        raise NotLiftedError("differences of sums over values in common")
    group, weight, bucket = filled(cells.rows, NONE), filled(cells.rows, 0), filled(cells.values, NONE)
    rows = factors.rows.row(kind)
    group[rows] = 0
    weight[rows] = factors.weights[factors.rows.starts[kind] : factors.rows.starts[kind + 1]]
    bucket[values.items] = values.owners
    return Load(group.astype(np.int32), 1, bucket.astype(np.int32), len(values), weight)


def _skew(name: str, load: Load, most: Integers) -> Skew:
    """``load[i] + above[i] <= load[j] + base[j]``, so that ``base[j] - above[i]`` is the bound of i and j."""
    number = len(most)
    bounded = most < _FREE
    rows, columns = np.asarray(bounded.any(1)), np.asarray(bounded.any(0))
    base, above = np.full(number, _FREE, np.int64), np.full(number, -_FREE, np.int64)
    first = int(bounded.sum(1).argmax())
    above[first] = 0
    base[bounded[first]] = most[first, bounded[first]]
    for row in np.flatnonzero(rows & (np.arange(number) != first)).tolist():
        known = np.flatnonzero(bounded[row] & (base < _FREE))
        if len(known):
            above[row] = base[known[0]] - most[row, known[0]]
            new = bounded[row] & (base == _FREE)
            base[new] = most[row, new] + above[row]
    told = np.where(rows[:, None] & columns[None, :], base[None, :] - above[:, None], _FREE)
    apart = ~np.eye(number, dtype=np.bool_)
    same = np.diagonal(told)
    if bool((told != most)[apart].any()) or bool((same < 0).any()):
        raise NotLiftedError("differences of sums that are no skew")
    return Skew(name, load, base, above, filled(number, -1))
