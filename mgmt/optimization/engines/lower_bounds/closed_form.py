"""Closed-form lower bounds per tier; a choice that meets one is proven without a solver.

What rows pay is bounded by the cheapest cells they fit into, each class for itself.  A superadditive cost of loads is
at least what each row costs alone, and a convex one what the total costs when it is split into steps that go where
they cost least.  A cost
of using places at all is at least that of enough places for all rows (see ``bin_packing``), and any cost at least what
each step costs where its share is least.  A peak is bounded by the
place that is highest already, by the row that is highest wherever it goes, and by the total: below a height there must
be room for all rows that can be nowhere else, in whole steps of the weights' common divisor; and where some load means
less height than none, enough of it to bring all places down.  The highest and the lowest of one load are bounded
together: what one allows the places to have is all that the other finds there.

What it is not: lower tiers are bounded for themselves, not among the choices that are best in the tiers before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Amounts, Indices, Limit, Load, LoadCost, Mask
from mgmt.optimization.deadline import NEVER, Deadline
from mgmt.optimization.engines.lower_bounds.bin_packing import opening_bound
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.cost_functions import (
    Affine,
    Shape,
    UnsuitableError,
    shape_of,
    widest_shape,
)
from mgmt.optimization.engines.model.equivalence import EquivalenceClasses
from mgmt.optimization.load_functions import parts_of

_MOST_STEPS = 2_000_000
_MOST_SETS = 100
"""Of places that rows must be in, for a peak to be bounded by what these weigh."""
_MOST_HEIGHTS = 300
"""Of a peak, that another one over the same load is bounded for."""
_ROUNDOFF = 1e-9
_DEAR = np.int64(2**61)
_NOTHING = -(2**62)


def bounds_of(cells: Cells, deadline: Deadline = NEVER) -> list[int | None]:
    """Per tier a bound that no choice among the cells goes below; None where none is known in closed form in time."""
    tiers = range(len(cells.classes.assignment.tiers))
    return [None if deadline.passed else _floor(cells, number, deadline) for number in tiers]


def peak_bounds(cells: Cells, peaks: list[LoadCost]) -> list[int]:
    """What each peak comes to at least; raises UnsuitableError when one of them can not be bounded."""
    return [_highest_floor(cells, peak) for peak in peaks]


def _highest_floor(cells: Cells, peak: LoadCost) -> int:
    return max(_peak_floor(cells, part, shape_of(cells, part)) for part in parts_of(peak))


def limits_below(cells: Cells, peak: LoadCost, height: int) -> list[Limit]:
    """Limits that keep a peak from being higher, where a load alone says that."""
    limits = []
    for part in parts_of(peak):
        shape = shape_of(cells, part)
        if len(part.loads) == 1 and shape.growing():
            load, (reach,) = part.loads[0], shape.reaches
            room = np.minimum(shape.room_below(height), reach.most.reshape(-1)) * reach.step
            limits.append(Limit(peak.name, load, np.zeros((1, 1), np.int64), room.reshape(reach.most.shape)))
    return limits


def wide_bound(classes: EquivalenceClasses, number: int) -> int | None:
    """A bound of a tier without any cells: each row, and each place of a load, for itself; None where unknown."""
    tier = classes.assignment.tiers[number]
    total = tier.constant
    for cost in tier.costs:
        if cost.weight < 0:
            return None
        if not isinstance(cost, LoadCost):
            if bool((cost.moved < 0).any()):
                return None
            least = np.minimum(cost.cost.min(axis=1), cost.unplaced)
            total += cost.weight * int(least[cost.row_class].sum())
        elif cost.peak:
            total += cost.weight * wide_peak_bounds(classes, [cost])[0]
        else:
            try:
                total += cost.weight * int(widest_shape(classes, cost).lowest().sum())
            except UnsuitableError:
                return None
    return total


def wide_peak_bounds(classes: EquivalenceClasses, peaks: list[LoadCost]) -> list[int]:
    """What each peak comes to at least, whatever the rows are but for what their classes may choose."""
    return [max(_wide_peak_floor(classes, part) for part in parts_of(peak)) for peak in peaks]


def _wide_peak_floor(classes: EquivalenceClasses, cost: LoadCost) -> int:
    try:
        shape = widest_shape(classes, cost)
    except UnsuitableError:
        return _NOTHING
    floor, load = int(shape.lowest().max()), cost.loads[0]
    if len(cost.loads) > 1 or load.groups > 1:
        return floor
    captives = []
    assignment = classes.assignment
    allowed = assignment.allowed
    outside: Mask = np.asarray(~allowed.any(axis=1) | allowed[:, load.bucket < 0].any(axis=1))
    bound = assignment.required & (load.group >= 0) & ~outside[assignment.row_class]
    for one in _widest_first(allowed, assignment.row_class[bound]):
        inside = ~(allowed & ~allowed[one]).any(axis=1)
        weight = load.weight[bound & inside[assignment.row_class]]
        places = np.unique(load.bucket[allowed[one]])
        captives.append((places, int(weight.sum()), int(weight.max(initial=0))))
    adds = load.weight[load.group >= 0]
    return _height_needed(shape, captives, np.array([adds.sum()]), np.array([(adds > 0).sum()]), floor)


def _floor(cells: Cells, number: int, deadline: Deadline) -> int | None:
    tier = cells.classes.assignment.tiers[number]
    total = tier.constant
    row_costs = cells.costs[number].copy()
    alone_costs = np.zeros(len(cells), np.int64)
    adding: list[tuple[LoadCost, Shape]] = []
    opening: list[tuple[LoadCost, Shape, int]] = []
    peaks = [cost for cost in tier.costs if isinstance(cost, LoadCost) and cost.peak and cost.weight > 0]
    for cost in tier.costs:
        if not isinstance(cost, LoadCost) or not cost.weight:
            continue
        try:
            if cost.peak and cost.weight > 0:
                continue
            shape = shape_of(cells, cost)
        except UnsuitableError:
            return None
        if cost.peak:
            total += cost.weight * int(shape.highest().max())
        elif isinstance(shape, Affine):
            total += cost.weight * int(shape.constant.sum())
            for load, reach, slope in zip(cost.loads, shape.reaches, shape.slopes, strict=True):
                place, weight = cells.places(load)
                counted = place != NONE
                per_row = slope.reshape(-1)[place[counted]] * (weight[counted] // reach.step)
                row_costs[counted] += cost.weight * per_row
        elif cost.weight > 0 and shape.superadditive():
            adding.append((cost, shape))
            alone_costs += cost.weight * _alone(cells, cost, shape)
        else:
            least = cost.weight * int((shape.lowest() if cost.weight > 0 else shape.highest()).sum())
            if shape.single:
                least = max(least, _by_share(cells, cost, shape))
            opening.append((cost, shape, max(least, opening_bound(cells, cost, shape))))
    total += _peaks_floor(cells, peaks, opening, deadline)
    separately = cheapest(cells, row_costs) + sum(
        cost.weight * _level(cells, cost, shape)
        if shape.convex()
        else max(cost.weight * int(shape.lowest().sum()), _by_share(cells, cost, shape))
        for cost, shape in adding
    )
    if not adding:
        return total + separately
    nothing = sum(cost.weight * int(shape.nothing().sum()) for cost, shape in adding)
    known_bounds = [separately, cheapest(cells, row_costs + alone_costs) + nothing]
    if len(adding) == 1 and adding[0][1].convex():
        known_bounds.append(_by_steps(cells, row_costs, *adding[0]))
    return total + max(known_bounds)


def _peaks_floor(
    cells: Cells,
    peaks: Sequence[LoadCost],
    opening: Sequence[tuple[LoadCost, Shape, int]],
    deadline: Deadline,
) -> int:
    """What peaks, and costs of using places with bounds of their own, come to at least together."""
    beside = sum(bound for _, _, bound in opening)
    apart = _peaks_alone(cells, peaks) + beside
    if len(peaks) != 1 or not opening or deadline.passed:
        return apart
    # The lower the peak, the less room each place has, and the more of them are used.
    (peak,) = peaks
    low = _highest_floor(cells, peak)
    high = max(low, *(int(shape_of(cells, part).highest().max()) for part in parts_of(peak)))
    best = peak.weight * high + beside
    for least, beyond in pairwise(
        np.unique(np.linspace(low, high + 1, _MOST_HEIGHTS).astype(np.int64)).tolist()
    ):
        if deadline.passed:
            return apart
        if peak.weight * least + beside >= best:
            break
        limits = limits_below(cells, peak, beyond - 1)
        opened = sum(max(own, opening_bound(cells, cost, shape, limits)) for cost, shape, own in opening)
        best = min(best, peak.weight * least + opened)
    return max(apart, best)


def _peaks_alone(cells: Cells, peaks: Sequence[LoadCost]) -> int:
    """What peaks come to at least together: each for itself, or two of one load of which one falls with it.

    Each height of the one that grows says what places may have at most, and so how low the other can be at best.
    """
    known_bounds = [cost.weight * _highest_floor(cells, cost) for cost in peaks]
    shapes = [shape_of(cells, part) for cost in peaks for part in parts_of(cost)]
    loads = {id(load): load for cost in peaks for load in cost.loads}
    load = next(iter(loads.values()), None)
    several = len(loads) > 1 or any(len(cost.loads) > 1 for cost in peaks)
    if load is None or len(peaks) != 2 or len(shapes) != 2 or several or load.groups > 1:
        return sum(known_bounds)
    pairs = list(zip(peaks, shapes, known_bounds, strict=True))
    (high, rising, least), (low, falling, deepest) = pairs if shapes[1].falling() else pairs[::-1]
    if not rising.growing() or not falling.falling():
        return sum(known_bounds)
    place, step = cells.places(load)[0], rising.reaches[0].step
    needed, offered = (int(_bringing(cells, load, place, must=must)[0]) // step for must in (True, False))
    most = np.minimum(rising.reaches[0].most, falling.reaches[0].most).reshape(-1)
    best, height = -_NOTHING, least // high.weight
    for _ in range(_MOST_HEIGHTS):
        if high.weight * height + deepest >= best:
            return best
        room = np.minimum(rising.room_below(height), most)
        if int(room.sum()) >= needed:
            down = _deepest(falling, room, offered, deepest // low.weight)
            best = min(best, high.weight * height + low.weight * down)
        more = np.flatnonzero(room < most)
        if not len(more):
            return best
        height = int(rising.at(more, [(room[more] + 1) * step]).min())
    return min(best, high.weight * height + deepest)


def _deepest(shape: Shape, room: Amounts, offered: int, low: int) -> int:
    """How low all places can be that have no more than this room, with so many steps for all of them."""
    high = max(low, int(shape.highest().max()))
    while low < high:
        middle = (low + high) // 2
        wanted = shape.steps_below(middle)
        if bool((wanted <= room).all()) and int(wanted.sum()) <= offered:
            high = middle
        else:
            low = middle + 1
    return low


def _alone(cells: Cells, cost: LoadCost, shape: Shape) -> Amounts:
    """(n,) what a row of each cell adds to a superadditive cost beside nothing: never more than on top of others."""
    place, weight = cells.places(cost.loads[0])
    counted = (place != NONE) & (cells.most > 0)
    added = np.zeros(len(cells), np.int64)
    at = place[counted]
    added[counted] = shape.at(at, [weight[counted]]) - shape.at(at, [np.zeros_like(at)])
    return added


def _level(cells: Cells, cost: LoadCost, shape: Shape) -> int:
    """What a convex cost comes to at least when what must be in some place is spread as evenly as it pays."""
    load = cost.loads[0]
    place, _ = cells.places(load)
    return shape.level(_bringing(cells, load, place, must=True) // shape.reaches[0].step)


def _by_share(cells: Cells, cost: LoadCost, shape: Shape) -> int:
    """What a sum of costs comes to at least when each step of a load costs its share where that is cheapest.

    So of what is the cheaper the more there is in one place, which no more than all that there is can be.
    """
    load, (reach,) = cost.loads[0], shape.reaches
    cheapest = shape.share(cost.weight).reshape(load.groups, load.buckets).min(axis=1, initial=np.inf)
    place, _ = cells.places(load)
    offered, needed = (_bringing(cells, load, place, must=must) // reach.step for must in (False, True))
    number = np.where(cheapest < 0, offered, needed)
    paid = float(np.where(number > 0, np.where(np.isfinite(cheapest), cheapest, 0) * number, 0).sum())
    return cost.weight * int(shape.nothing().sum()) + ceil(paid - _ROUNDOFF * (1 + abs(paid)))


def _bringing(cells: Cells, load: Load, place: Amounts, *, must: bool) -> Amounts:
    """(groups,) the weight of all rows that can (or that must) add to some place of a load."""
    classes = cells.classes
    adds = np.zeros(classes.number, np.bool_)
    adds[cells.class_[(place != NONE) & (cells.most > 0)]] = True
    if must:
        adds[cells.class_[(place == NONE) & (cells.most > 0)]] = False
    group = classes.group(load)
    adds &= group != NONE
    total = np.zeros(load.groups, np.int64)
    np.add.at(total, group[adds], (classes.weight(load) * classes.count)[adds])
    return total


def _by_steps(cells: Cells, row_costs: Amounts, cost: LoadCost, shape: Shape) -> int:
    """What rows and a convex cost come to at least, when each row takes one step of the load of one place.

    The steps that places have to offer cost what the step costs, and the cheapest row that could take it; as many as
    there are rows are taken.  A row that takes none pays the cheapest of these.  Very low if rows take several steps.
    """
    place, weight = cells.places(cost.loads[0])
    counted = place != NONE
    most = shape.most
    unit = bool((weight[counted] == shape.reaches[0].step).all())
    if not unit or int(most[np.unique(place[counted])].sum()) > _MOST_STEPS:
        return _NOTHING
    cheapest_row = np.full(len(most), _DEAR, np.int64)
    np.minimum.at(cheapest_row, place[counted], row_costs[counted])
    used = np.flatnonzero(cheapest_row < _DEAR)
    steps = cost.weight * np.diff(shape.table(used), axis=0)
    offered = np.arange(len(steps))[:, None] < most[used][None, :]
    prices = (steps + cheapest_row[used][None, :])[offered]
    rows = int(cells.classes.count.sum())
    beside = row_costs[~counted]
    if len(beside):
        prices = np.append(np.minimum(prices, beside.min()), np.full(rows, beside.min()))
    if len(prices) < rows:
        return _NOTHING
    taken = np.partition(prices, rows - 1)[:rows] if rows < len(prices) else prices
    return cost.weight * int(shape.nothing().sum()) + int(taken.sum())


def cheapest(cells: Cells, cost: Amounts) -> int:
    """What the rows pay at least when every class fills its cheapest cells."""
    alone = _in_one_cell_each(cells, cost)
    if alone is not None:
        return alone
    order = np.lexsort((cost, cells.class_))
    class_, most = cells.class_[order], cells.most[order]
    before = np.cumsum(most) - most
    starts = np.searchsorted(class_, np.arange(cells.classes.number))
    before -= before[starts][class_] if len(class_) else 0
    taken = np.clip(cells.classes.count[class_] - before, 0, most)
    return int((taken * cost[order]).sum())


def _in_one_cell_each(cells: Cells, cost: Amounts) -> int | None:
    """The same if every class has room in one of its cheapest cells; None if not, or if a class has no cell."""
    count = cells.classes.count
    starts = np.searchsorted(cells.class_, np.arange(cells.classes.number + 1))
    if not len(count) or bool((starts[1:] == starts[:-1]).any()):
        return None
    least = np.minimum.reduceat(cost, starts[:-1])
    ample = np.minimum.reduceat(np.where(cells.most >= count[cells.class_], cost, _DEAR), starts[:-1])
    return int((least * count).sum()) if bool((least == ample).all()) else None


def _peak_floor(cells: Cells, cost: LoadCost, shape: Shape) -> int:
    """What the highest place comes to at least."""
    floor = int(shape.lowest().max())
    if len(cost.loads) > 1:
        return floor
    (load,) = cost.loads
    place, weight = cells.places(load)
    captives = []
    for some, needed in [] if shape.falling() else _captive(cells, place, weight, load):
        open_places = np.unique(place[some & (place != NONE)])
        captives.append((open_places, needed, int(weight[some].max(initial=0))))
    classes = cells.classes
    group = classes.group(load)
    rows = np.bincount(group[group != NONE], classes.count[group != NONE], load.groups).astype(np.int64)
    return _height_needed(shape, captives, _bringing(cells, load, place, must=False), rows, floor)


def _height_needed(
    shape: Shape,
    captives: list[tuple[NDArray[np.intp], int, int]],
    offered: Amounts,
    rows: Amounts,
    low: int,
) -> int:
    """The least height at which all places can be.

    Below it there must be room for rows that must be in some of the places: for their weight, and for the largest.  And
    what places need to come down to it must be there: for each group, the weight ``offered``, and the ``rows``.
    """
    (reach,) = shape.reaches
    most = reach.most.reshape(-1)

    def possible(height: int) -> bool:
        if not shape.growing():
            wanted = shape.steps_below(height).reshape(reach.most.shape)
            enough = (wanted.sum(axis=1) * reach.step <= offered) & ((wanted > 0).sum(axis=1) <= rows)
            if not bool(enough.all()):
                return False
        room = np.minimum(shape.room_below(height), most) * reach.step if captives else most
        return all(
            int(room[places].sum()) >= needed and int(room[places].max(initial=0)) >= largest
            for places, needed, largest in captives
        )

    high = max(low, int(shape.highest().max()))
    while low < high:
        middle = (low + high) // 2
        if possible(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _captive(cells: Cells, place: Amounts, weight: Amounts, load: Load) -> list[tuple[np.ndarray, int]]:
    """Cells of rows of a group that must be in a set of places, with what these weigh together; several such sets."""
    classes = cells.classes
    open_to = np.zeros(classes.number, np.bool_)  # classes that need not add to the load at all
    open_to[cells.class_[(place == NONE) & (cells.most > 0)]] = True
    group = classes.group(load)
    bound = ~open_to & (group != NONE)
    if not bool(bound.any()):
        return []
    weights = np.zeros(classes.number, np.int64)
    weights[cells.class_] = weight
    domains = classes.assignment.row_class[classes.representative]
    found = []
    allowed = classes.assignment.allowed
    for own in np.unique(group[bound])[:_MOST_SETS].tolist():
        rest = bound & (group == own)
        for one in _widest_first(allowed, domains[rest])[: max(1, _MOST_SETS // load.groups)]:
            # All classes that are allowed nothing but what this class is.
            captive = rest & ~(allowed & ~allowed[one]).any(axis=1)[domains]
            found.append((captive[cells.class_], int((weights * classes.count)[captive].sum())))
    return found


def _widest_first(allowed: Mask, domains: Indices) -> list[int]:
    """Some of the classes, those that may choose most first."""
    own = np.unique(domains)
    order = np.argsort(-allowed[own].sum(axis=1), kind="stable")
    return [int(one) for one in own[order][:_MOST_SETS]]
