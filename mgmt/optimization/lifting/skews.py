"""Bounds on how far two sums of the same rows are apart: families of them are skews.

``load[i] - load[j] <= most[i, j]`` for all pairs of buckets is one condition if each bound is a number of the one
bucket less a number of the other, as far as it says anything; beside it may stand what excuses the one that has more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mgmt.optimization.assignment import NONE, UNLIMITED, Load, Skew
from mgmt.optimization.columns import Integers, Linears, Lists, filled, group_numbers, stacked
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums
from mgmt.optimization.lifting.sums.factors import Factors, joined_factors
from mgmt.optimization.lifting.sums.families import PlacedRows
from mgmt.optimization.lifting.sums.normal_form import Demanded, Ranges, normalized
from mgmt.optimization.problem import NO_BOUND

_FREE = int(UNLIMITED)
_MOST_ROUNDS = 100
"""Until numbers of buckets are found; mostly there are three."""


@dataclass(frozen=True, slots=True, eq=False)
class _Differences:
    """Differences of sums over the same rows: the kind of rows, and the kinds of values of both sums."""

    factors: Factors
    rows: Integers
    greater: Integers
    less: Integers
    most: Integers
    excused: Integers
    """What the sum that is greater may come to in any case, or -1."""
    demanded: Demanded


def skews_of(
    name: str, ranges: Ranges, sums: CellSums, excuses: Ranges | None = None
) -> dict[Skew, PlacedRows]:
    """With the rows that demand them, by the bucket that has more.  NotLiftedError where bounds are about else.

    ``excuses``: a bound for each, one of both holds.
    """
    found = _differences(ranges, sums, excuses)
    skews = {}
    first, number = group_numbers(found.rows, found.greater)
    least, highest = filled(len(first), _FREE), filled(len(first), -1)
    np.minimum.at(least, number, found.excused)
    np.maximum.at(highest, number, found.excused)
    if not np.array_equal(least, highest):
        raise NotLiftedError("differences of sums that are excused in several ways")
    for kind in np.unique(found.rows).tolist():
        mine = np.flatnonzero(found.rows == kind)
        used, places = np.unique(np.concatenate((found.greater[mine], found.less[mine])), return_inverse=True)
        greater, less = places[: len(mine)], places[len(mine) :]
        most = np.full((len(used), len(used)), _FREE, np.int64)
        np.minimum.at(most, (greater, less), found.most[mine])
        load = _load(found.factors, kind, found.factors.values.take(used), sums.cells)
        told = PlacedRows.of(len(used), filled(len(mine), 0), greater, found.demanded.take(mine))
        excused = filled(len(used), -1)
        excused[greater] = found.excused[mine]
        skews[_skew(name, load, most, excused)] = told
    return skews


def _differences(ranges: Ranges, sums: CellSums, excuses: Ranges | None) -> _Differences:
    sides = []
    for sign in (1, -1):
        factors = sign * ranges.linears.coefficients
        terms = ranges.linears.terms.keep(factors > 0)
        if not terms.lengths.all():
            raise NotLiftedError("amounts that depend on the row and on the value at once")
        sides.append(sums.factors(Linears(filled(len(terms), 0), terms, factors[factors > 0])))
    count = len(ranges)
    if excuses is not None:
        sides.append(sums.factors(excuses.linears))
    both = joined_factors(sides).with_equal_kinds()
    rows, values = both.row_kind, both.value_kind
    if not both.whole.all() or bool((rows != np.resize(rows[:count], len(rows))).any()):
        raise NotLiftedError("amounts that depend on the row and on the value at once")
    # What is at least a number is the other way round at most its negation.
    upper, lower = np.flatnonzero(ranges.upper < NO_BOUND), np.flatnonzero(ranges.lower > -NO_BOUND)
    one, other = values[:count], values[count : 2 * count]
    greater = np.concatenate((one[upper], other[lower]))
    where = np.concatenate((upper, lower))
    told = ranges.demanded.take(where)
    factors = told.factors * np.where(np.arange(len(where)) < len(upper), 1, -1)
    excused = filled(len(where), -1)
    if excuses is not None:
        excused = excuses.upper[where]
        if not np.array_equal(values[2 * count :][where], greater):
            raise NotLiftedError("differences of sums that other sums excuse")
    return _Differences(
        both,
        rows[:count][where],
        greater,
        np.concatenate((other[upper], one[lower])),
        np.concatenate((ranges.upper[upper], -ranges.lower[lower])),
        excused,
        replace(told, factors=factors),
    )


def skews_above_least(name: str, ranges: Ranges, sums: CellSums, excuses: Ranges) -> dict[Skew, PlacedRows]:
    """Of bounds on a sum with the greatest of negated ones, which it is one of: a skew for each of these.

    ``excuses``: a bound for each, one of both holds; or none at all.
    """
    linears, owners = ranges.linears, ranges.linears.terms.owners
    atom = sums.is_atom(linears.terms.items)
    if bool((np.bincount(owners[atom], minlength=len(ranges)) != 1).any()) or bool(
        (linears.coefficients <= 0).any()
    ):
        raise NotLiftedError("a bound on what is no sum over cells")
    if bool((linears.coefficients[atom] != 1).any()) or bool((ranges.lower > -NO_BOUND).any()):
        raise NotLiftedError("a bound on the greatest of several from below")
    rest = Linears(filled(len(ranges), 0), linears.terms.keep(~atom), linears.coefficients[~atom])
    excuses, _, _ = normalized(replace(excuses, linears=sums.written_out(excuses.linears)), sums)
    excuses = excuses.multiplied()
    if len(excuses) and not (bool((excuses.lower <= 0).all()) and bool((excuses.upper < NO_BOUND).all())):
        raise NotLiftedError("differences of sums that other sums excuse")
    excused = excuses.upper if len(excuses) else filled(len(ranges), -1)
    atoms, skews = linears.terms.items[atom], {}
    for each in np.unique(atoms).tolist():
        mine = np.flatnonzero(atoms == each)
        operands, _ = sums.operands(np.array([each]))
        least = sums.written_out(operands.scaled(-1))
        asked = [least, rest.take(mine)] + ([excuses.linears.take(mine)] if len(excuses) else [])
        bucket = _same_sums(stacked(asked))[len(least) :]
        if bool((bucket != np.resize(bucket[: len(mine)], len(bucket))).any()) or bool(
            (bucket >= len(least)).any()
        ):
            raise NotLiftedError("sums beside the least of others")
        bucket = bucket[: len(mine)]
        above, free = filled(len(least), -_FREE), filled(len(least), -1)
        above[bucket], free[bucket] = -ranges.upper[mine], excused[mine]
        if bool((above[bucket] != -ranges.upper[mine]).any()) or bool((free[bucket] != excused[mine]).any()):
            raise NotLiftedError("sums at most several numbers above the least")
        used = np.flatnonzero(least.terms.lengths)
        factors = sums.factors(least.take(used).plus(-least.constants[used]))
        if (
            len(np.unique(factors.row_kind)) != 1
            or not factors.whole.all()
            or bool((factors.weights < 0).any())
        ):
            raise NotLiftedError("amounts that depend on the row and on the value at once")
        of_used = factors.values.take(factors.value_kind)
        values = Lists.grouped(used[of_used.owners], of_used.items, len(least))
        load = _load(factors, int(factors.row_kind[0]), values, sums.cells)
        skew = Skew(name, load, least.constants, above, free)
        skews[skew] = PlacedRows.of(len(least), 0 * bucket, bucket, ranges.demanded.take(mine))
    return skews


def _same_sums(linears: Linears) -> Integers:
    """Of each expression the first one that is equal but for constants."""
    pairs = np.stack((linears.terms.items, linears.coefficients), 1).ravel()
    first, number = Lists(2 * linears.terms.starts, pairs).alike()
    least = filled(len(first), len(linears))
    np.minimum.at(least, number, np.arange(len(linears)))
    return least[number]


def _load(factors: Factors, kind: int, values: Lists, cells: ChoiceCells) -> Load:
    if len(np.unique(values.items)) < len(values.items):
        raise NotLiftedError("differences of sums over values in common")
    group, weight, bucket = filled(cells.rows, NONE), filled(cells.rows, 0), filled(cells.values, NONE)
    rows = factors.rows.row(kind)
    group[rows] = 0
    weight[rows] = factors.weights[factors.rows.starts[kind] : factors.rows.starts[kind + 1]]
    bucket[values.items] = values.owners
    return Load(group.astype(np.int32), 1, bucket.astype(np.int32), len(values), weight)


def _skew(name: str, load: Load, most: Integers, excused: Integers) -> Skew:
    """``load[i] + above[i] <= load[j] + base[j]``, so that ``base[j] - above[i]`` is the bound of i and j.

    Of other pairs it is so much that it says nothing.
    """
    number = len(most)
    bounded = most < _FREE
    rows, columns = np.asarray(bounded.any(1)), np.asarray(bounded.any(0))
    needless = np.where(np.eye(number, dtype=np.bool_), 0, int(load.weight.sum()))
    least = np.where(bounded, most, needless)
    base, above = filled(number, 0), filled(number, 0)
    for _ in range(_MOST_ROUNDS):
        base = np.minimum(base, (above[:, None] + most).min(0, initial=_FREE, where=bounded))
        lower = (base[None, :] - least).min(1, initial=_FREE, where=columns[None, :])
        if bool((lower >= above)[rows].all()):
            break
        above = np.minimum(above, lower)
    told = base[None, :] - above[:, None]
    asked = rows[:, None] & columns[None, :]
    if bool((told != most)[bounded].any()) or bool((told < least)[asked].any()):
        raise NotLiftedError("differences of sums that are no skew")
    lowest = int(base[columns].min(initial=_FREE))
    base, above = np.where(columns, base - lowest, _FREE), np.where(rows, above - lowest, -_FREE)
    return Skew(name, load, base, above, excused)
