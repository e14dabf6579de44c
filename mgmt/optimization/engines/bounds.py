"""Closed-form lower bounds per tier; a choice that meets one is proven without a solver.

What rows pay is bounded by the cheapest cells they fit into, each kind for itself.  A peak is bounded by the place
that is highest already, by the row that is highest wherever it goes, and by the total: below a height there must be
room for all rows that can be nowhere else, in whole steps of the weights' common divisor.

What it is not: lower tiers are bounded for themselves, not among the choices that are best in the tiers before them.
"""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, LoadCost
from mgmt.optimization.engines.cells import Cells
from mgmt.optimization.engines.load_costs import (
    Affine,
    Tabled,
    UnsuitableError,
    reach_of,
    shape_of,
)

_MOST_STEPS = 2_000_000
_DEAR = np.int64(2**61)
_NOTHING = -(2**62)


def floors_of(cells: Cells) -> list[int | None]:
    """Per tier a bound that no choice among the cells goes below; None where there is none in closed form."""
    return [_floor(cells, number) for number in range(len(cells.kinds.assignment.tiers))]


def peak_floors(cells: Cells, peaks: list[LoadCost]) -> list[int]:
    """What each peak comes to at least; raises UnsuitableError when one of them can not be bounded."""
    return [_peak_floor(cells, peak, shape_of(cells, peak)) for peak in peaks]


def _floor(cells: Cells, number: int) -> int | None:
    tier = cells.kinds.assignment.tiers[number]
    total = tier.constant
    row_costs = cells.costs[number].copy()
    convex: list[tuple[LoadCost, Tabled]] = []
    for cost in tier.costs:
        if not isinstance(cost, LoadCost) or not cost.weight:
            continue
        try:
            shape = shape_of(cells, cost)
        except UnsuitableError:
            return None
        if cost.peak:
            total += cost.weight * (_peak_floor(cells, cost, shape) if cost.weight > 0 else _ceiling(shape))
        elif isinstance(shape, Affine):
            total += cost.weight * int(shape.constant.sum())
            for load, reach, slope in zip(cost.loads, shape.reaches, shape.slopes, strict=True):
                place, weight = cells.places(load)
                counted = place != NONE
                per_row = slope.reshape(-1)[place[counted]] * (weight[counted] // reach.step)
                row_costs[counted] += cost.weight * per_row
        elif cost.weight > 0 and shape.convex():
            convex.append((cost, shape))
        else:
            total += int((cost.weight * shape.values).min(axis=0).sum())
    separately = cheapest(cells, row_costs)
    separately += sum(int((cost.weight * shape.values).min(axis=0).sum()) for cost, shape in convex)
    if len(convex) != 1:
        return total + separately
    return total + max(separately, _by_steps(cells, row_costs, *convex[0]))


def _by_steps(cells: Cells, row_costs: Amounts, cost: LoadCost, shape: Tabled) -> int:
    """What rows and a convex cost come to at least, when each row takes one step of the load of one place.

    The steps that places have to offer cost what the step costs, and the cheapest row that could take it; as many as
    there are rows are taken.  A row that takes none pays the cheapest of these.  Very low if rows take several steps.
    """
    place, weight = cells.places(cost.loads[0])
    counted = place != NONE
    most = shape.reaches[0].most.reshape(-1)
    unit = bool((weight[counted] == shape.reaches[0].step).all())
    if not unit or int(most[np.unique(place[counted])].sum()) > _MOST_STEPS:
        return _NOTHING
    cheapest_row = np.full(len(most), _DEAR, np.int64)
    np.minimum.at(cheapest_row, place[counted], row_costs[counted])
    used = np.flatnonzero(cheapest_row < _DEAR)
    steps = cost.weight * np.diff(shape.values[:, used], axis=0)
    offered = np.arange(len(steps))[:, None] < most[used][None, :]
    prices = (steps + cheapest_row[used][None, :])[offered]
    rows = int(cells.kinds.count.sum())
    beside = row_costs[~counted]
    if len(beside):
        prices = np.append(np.minimum(prices, beside.min()), np.full(rows, beside.min()))
    if len(prices) < rows:
        return _NOTHING
    taken = np.partition(prices, rows - 1)[:rows] if rows < len(prices) else prices
    return int((cost.weight * shape.values[0]).sum()) + int(taken.sum())


def cheapest(cells: Cells, cost: Amounts) -> int:
    """What the rows pay at least when every kind fills its cheapest cells."""
    alone = _in_one_cell_each(cells, cost)
    if alone is not None:
        return alone
    order = np.lexsort((cost, cells.kind))
    kind, most = cells.kind[order], cells.most[order]
    before = np.cumsum(most) - most
    starts = np.searchsorted(kind, np.arange(cells.kinds.number))
    before -= before[starts][kind] if len(kind) else 0
    taken = np.clip(cells.kinds.count[kind] - before, 0, most)
    return int((taken * cost[order]).sum())


def _in_one_cell_each(cells: Cells, cost: Amounts) -> int | None:
    """The same if every kind has room in one of its cheapest cells; None if not, or if a kind has no cell."""
    count = cells.kinds.count
    starts = np.searchsorted(cells.kind, np.arange(cells.kinds.number + 1))
    if not len(count) or bool((starts[1:] == starts[:-1]).any()):
        return None
    least = np.minimum.reduceat(cost, starts[:-1])
    ample = np.minimum.reduceat(np.where(cells.most >= count[cells.kind], cost, _DEAR), starts[:-1])
    return int((least * count).sum()) if bool((least == ample).all()) else None


def _ceiling(shape: Affine | Tabled) -> int:
    """The most a place can come to."""
    if isinstance(shape, Tabled):
        return int(shape.values.max())
    highest = shape.constant.copy()
    for reach, slope in zip(shape.reaches, shape.slopes, strict=True):
        highest += np.maximum(slope, 0) * reach.most
    return int(highest.max())


def _peak_floor(cells: Cells, cost: LoadCost, shape: Affine | Tabled) -> int:
    """What the highest place comes to at least."""
    if isinstance(shape, Tabled):
        lowest = shape.values.min(axis=0)
    else:
        lowest = shape.constant.reshape(-1).copy()
        for reach, slope in zip(shape.reaches, shape.slopes, strict=True):
            lowest += np.minimum(slope * reach.most, 0).reshape(-1)
    floor = int(lowest.max())
    if len(cost.loads) > 1 or not _grows(shape):
        return floor
    ceiling = _ceiling(shape)
    (load,) = cost.loads
    place, weight = cells.places(load)
    step = shape.reaches[0].step
    most = reach_of(cells, load).most.reshape(-1)
    for kinds, needed in _captive(cells, place, weight):
        open_places = np.unique(place[kinds & (place != NONE)])
        largest = int(weight[kinds].max(initial=0))
        low, high = floor, ceiling
        while low < high:
            middle = (low + high) // 2
            room = np.minimum(_room_below(shape, middle, open_places), most[open_places])
            if int(room.sum()) * step >= needed and int(room.max(initial=0)) * step >= largest:
                high = middle
            else:
                low = middle + 1
        floor = low
    return floor


def _captive(cells: Cells, place: Amounts, weight: Amounts) -> list[tuple[np.ndarray, int]]:
    """Cells of rows that must be in a set of places, with what these weigh together; for several such sets."""
    kinds = cells.kinds
    open_to = np.zeros(kinds.number, np.bool_)  # kinds that need not add to the load at all
    open_to[cells.kind[(place == NONE) & (cells.most > 0)]] = True
    bound = ~open_to
    if not bool(bound.any()):
        return []
    weights = np.zeros(kinds.number, np.int64)
    weights[cells.kind] = weight
    classes = kinds.assignment.row_class[kinds.row]
    found = []
    allowed = kinds.assignment.allowed
    for one in np.unique(classes[bound]).tolist():
        # All kinds that are allowed nothing but what this class is.
        inside = ~(allowed & ~allowed[one]).any(axis=1)
        captive = bound & inside[classes]
        found.append((captive[cells.kind], int((weights * kinds.count)[captive].sum())))
    return found


def _grows(shape: Affine | Tabled) -> bool:
    return bool((shape.slopes[0] >= 0).all()) if isinstance(shape, Affine) else shape.growing()


def _room_below(shape: Affine | Tabled, height: int, places: Amounts) -> Amounts:
    """How many steps of load each place can have without coming above a height; 0 also where it is above already."""
    if isinstance(shape, Tabled):
        below: Amounts = (shape.values[:, places] <= height).sum(axis=0)
        return np.maximum(below - 1, 0)
    constant, slope = shape.constant.reshape(-1)[places], shape.slopes[0].reshape(-1)[places]
    room = np.where(slope > 0, (height - constant) // np.maximum(slope, 1), 2**40)
    return np.asarray(np.where(constant > height, 0, room))
