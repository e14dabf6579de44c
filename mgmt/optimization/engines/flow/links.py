"""Arcs that stand for a bounded link whose cost is convex in what it carries."""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Amounts, Mask


def links(
    lower: Amounts, upper: Amounts, marginal: Amounts | None
) -> tuple[Amounts, Amounts, Amounts, Amounts | None, Mask]:
    """Arcs that together cost what ``marginal`` (tiers, n, links) says of each link.

    Returns the link of each arc, its bounds and costs, and whether it is beyond what ``marginal`` tells.
    """
    number = len(lower)
    if marginal is None:
        return np.arange(number), lower, upper, None, np.zeros(number, np.bool_)
    known = marginal.shape[1]
    changes = np.ones((number, known), np.bool_)
    changes[:, 1:] = (np.diff(marginal, axis=1) != 0).any(axis=0).T
    link, start = np.nonzero(changes)
    end = np.append(start[1:], 0)
    end[np.append(link[1:] != link[:-1], True)] = known
    costs = marginal[:, start, link]
    more = np.flatnonzero(upper > known)
    link, start = np.append(link, more), np.append(start, np.full(len(more), known))
    end = np.append(end, upper[more])
    costs = np.concatenate([costs, marginal[:, known - 1, more]], axis=1)
    beyond = np.arange(len(link)) >= len(link) - len(more)
    room = np.minimum(end, upper[link]) - start
    used = room > 0
    forced = np.clip(lower[link] - start, 0, room)
    return link[used], forced[used], room[used], costs[:, used], beyond[used]
