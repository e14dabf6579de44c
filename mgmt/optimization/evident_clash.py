"""Clashes that are seen without a solver: a row that fits nowhere, and more rows than all buckets take together.

What it is not: complete; what it does not see may clash all the same (see ``assignment_clash``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgmt.optimization.assignment import UNLIMITED, Amounts
from mgmt.optimization.demand_model import MOST_CELLS, distinct
from mgmt.optimization.demands import Demand, Demands

_MOST_WEIGHTS = 200
"""So many of a group's weights are looked at as "of this weight or more"."""


def fits_nowhere(demands: Demands) -> list[Demand]:
    """What keeps one row from every value, bans and too little room, without a solver; empty if nothing does."""
    columns = [np.zeros(demands.rows, np.int64)]
    for limit in demands.limits:
        columns.extend((limit.load.group.astype(np.int64), limit.load.weight))
    columns.extend(ban.row_class.astype(np.int64) for ban in demands.bans)
    examples, _, _ = distinct(columns)
    if not demands.rows or len(examples) * (demands.values + 1) > MOST_CELLS:
        return []
    for row in examples.tolist():
        blocked = np.zeros(demands.values + 1, np.bool_)
        blocked[-1] = not demands.nullable
        core: list[Demand] = []
        for place, ban in enumerate(demands.bans):
            if ban.row_class[row] >= 0:
                forbidden = ban.forbidden[ban.row_class[row]]
                if bool((forbidden & ~blocked).any()):
                    core.append(Demand(ban.name, place, int(ban.row_class[row]), -1))
                    blocked |= forbidden
        for place, limit in enumerate(demands.limits):
            group, weight = int(limit.load.group[row]), int(limit.load.weight[row])
            if group < 0 or not weight:
                continue
            full = np.flatnonzero(demands.bounds(limit)[1][group] < weight)
            inside = np.isin(limit.load.bucket, full) & ~blocked[:-1]
            core.extend(
                Demand(limit.name, place, group, int(bucket))
                for bucket in np.unique(limit.load.bucket[inside])
            )
            blocked[:-1] |= inside
        if bool(blocked.all()):
            return core
    return []


def too_much_in_all(demands: Demands) -> list[Demand]:
    """The bounds of all buckets of one group that together take less than its rows bring; empty if there are none.

    Less in amount, or fewer rows: of those of some weight or more, each bucket takes only as many as fit.
    """
    if demands.nullable:
        return []
    for place, limit in enumerate(demands.limits):
        buckets = np.unique(limit.load.bucket)
        if not len(buckets) or buckets[0] < 0:
            continue  # some value is in no bucket and takes everything
        upper = demands.bounds(limit)[1][:, buckets]
        counted = limit.load.group >= 0
        brought = np.zeros(limit.load.groups, np.float64)
        np.add.at(brought, limit.load.group[counted], limit.load.weight[counted])
        # In floating point only to see where it is worth an exact sum.
        short = brought * (1 + 1e-9) > upper.sum(axis=1, dtype=np.float64)
        crowded = np.bincount(limit.load.group[counted], minlength=limit.load.groups) > len(buckets)
        for group in np.flatnonzero(short | crowded).tolist():
            weights = limit.load.weight[limit.load.group == group]
            total = sum(weights.tolist())
            if total > sum(upper[group].tolist()) or _too_many(weights, upper[group]):
                return [Demand(limit.name, place, group, int(bucket)) for bucket in buckets.tolist()]
    return []


def _too_many(weights: Amounts, upper: Amounts) -> bool:
    """Whether there are more rows of some weight or more than buckets can take of these, each the lightest of them."""
    ordered = np.sort(weights[weights > 0])
    if float(ordered.sum(dtype=np.float64)) >= float(UNLIMITED):
        return False
    for start in np.unique(ordered, return_index=True)[1][:_MOST_WEIGHTS].tolist():
        filled = np.cumsum(ordered[start:])
        if int(np.searchsorted(filled, upper, side="right").sum()) < len(filled):
            return True
    return False


def shortfall(demands: Demands, some: Sequence[Demand], wanted: Sequence[Demand]) -> tuple[int, int] | None:
    """What rows must put into the buckets of ``wanted`` at least, given ``some``, and what those allow.

    None when it is not too much, or cannot be added up.
    """
    if not wanted or any(demand.is_ban for demand in wanted):
        return None
    places = {demand.source for demand in wanted}
    if len(places) != 1:
        return None
    limit = demands.limits[places.pop()]
    _, upper = demands.bounds(limit)
    allowed = sum(int(upper[demand.group, demand.bucket]) for demand in wanted)
    if allowed >= UNLIMITED:
        return None
    choice = np.ones((demands.rows, demands.values + 1), np.bool_)
    choice[:, -1] = demands.nullable
    for demand in some:
        if demand.is_ban:
            ban = demands.bans[demand.source]
            choice[ban.row_class == demand.group] &= ~ban.forbidden[demand.group]
    inside = np.zeros((limit.load.groups, demands.values + 1), np.bool_)
    for demand in wanted:
        inside[demand.group, :-1] |= limit.load.bucket == demand.bucket
    counted = np.flatnonzero(limit.load.group >= 0)
    must = ~(choice[counted] & ~inside[limit.load.group[counted]]).any(axis=1)
    needed = int(limit.load.weight[counted[must]].sum())
    return (needed, allowed) if needed > allowed else None
