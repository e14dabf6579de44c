"""How many places rows need at least: lower bounds of bin packing, for costs of using places at all.

Per limit on the same buckets, the places that are used must together have room for what is in them: the cheapest
such cover, by their cost for the room they have.  And where no two of the larger rows fit into the largest place
together, as many places as there are of these, and room for the others (Martello and Toth, Knapsack Problems, 1990,
section 8.3, bound L2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Limit, LoadCost, Mask
from mgmt.optimization.engines.model.cells import Cells
from mgmt.optimization.engines.model.cost_functions import Affine, Shape

_LOWEST = -(2**62)
_MOST_THRESHOLDS = 200


def opening_bound(cells: Cells, cost: LoadCost, shape: Shape, further: Sequence[Limit] = ()) -> int:
    """What a sum of costs comes to at least, of places that cost something as soon as they are used.

    ``further`` are limits besides those there are.  Very low where it says nothing: several loads or groups, or places
    that cost no more used than not.
    """
    load = cost.loads[0]
    known = shape.single and not isinstance(shape, Affine) and bool(shape.most.any())
    if not known or load.groups > 1 or cost.weight < 0:
        return _LOWEST
    opening = shape.opening()
    place, _ = cells.places(load)
    usable = np.zeros(load.buckets, np.bool_)
    usable[place[(place != NONE) & (cells.most > 0)]] = True
    classes = cells.classes
    inside = classes.group(load) != NONE
    inside[cells.class_[(place == NONE) & (cells.most > 0)]] = False  # classes that need not use any place
    if not bool((opening[usable] > 0).any()) or not bool(inside.any()):
        return _LOWEST
    free = int(np.minimum(opening[usable], 0).sum())
    prices = np.maximum(opening, 0)[usable]
    unit = max(1, int(np.gcd.reduce(prices)))
    most = 0
    for limit in (*classes.assignment.limits, *further):
        if not np.array_equal(limit.load.bucket, load.bucket) or limit.load.groups > 1:
            continue
        room = np.maximum(limit.bounds[1][0][usable], 0)
        weights = np.repeat(*_weights(cells, limit, inside))
        covered = -(-_cover(prices, room, int(weights.sum())) // unit) * unit
        fewest = _fewest(weights, int(room.max(initial=0)))
        most = max(most, int(covered), int(np.sort(prices)[:fewest].sum()))
    return cost.weight * (int(shape.nothing().sum()) + free + most)


def _weights(cells: Cells, limit: Limit, inside: Mask) -> tuple[Amounts, Amounts]:
    """What rows that must be in a place weigh under a limit, and how many there are of each weight."""
    classes = cells.classes
    counted = inside & (classes.group(limit.load) != NONE)
    return classes.weight(limit.load)[counted], classes.count[counted]


def _cover(prices: Amounts, room: Amounts, total: int) -> int:
    """The least price of places with so much room together, when a part of a place costs its part; rounded up."""
    room = np.minimum(room, total)
    useful = room > 0
    prices, room = prices[useful], room[useful]
    order = np.argsort(prices / room, kind="stable")
    before = np.cumsum(room[order]) - room[order]
    taken = np.clip(total - before, 0, room[order])
    whole = taken == room[order]
    last = np.flatnonzero((taken > 0) & ~whole)
    paid = int(prices[order][whole].sum())
    if len(last):
        price, part, own = (int(each[last[0]]) for each in (prices[order], taken, room[order]))
        paid += -(-price * part // own)
    return paid


def _fewest(weights: Amounts, room: int) -> int:
    """So many places of this room hold rows of these weights at best."""
    weights = weights[weights > 0]
    if not len(weights) or room <= 0 or int(weights.max()) > room:
        return 0
    best = -(-int(weights.sum()) // room)
    below_half = np.unique(weights[2 * weights <= room])
    thresholds = np.concatenate(([0], below_half[:: max(1, len(below_half) // _MOST_THRESHOLDS)]))
    for threshold in thresholds.tolist():
        large = weights[weights > room - threshold]
        middle = weights[(2 * weights > room) & (weights <= room - threshold)]
        small = weights[(2 * weights <= room) & (weights >= threshold)]
        left = int(small.sum()) - (len(middle) * room - int(middle.sum()))
        best = max(best, len(large) + len(middle) + max(0, -(-left // room)))
    return best
