"""Demands: what constraints ask of an assignment, cut so small that each can be dropped or changed by itself.

One is what one group may put into one bucket of a limit, or what one class of rows may not choose.

What it is not: it does not say whether demands can hold together (see ``assignment_clash``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import Amounts, Limit, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Ban:
    """What one constraint forbids rows of a class to choose; class -1 is not in it."""

    name: str
    row_class: NDArray[np.intp]
    """(R,)"""
    forbidden: Mask
    """(K, V + 1); the last value is to have none."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One bucket of one group of a limit, or one class of a ban."""

    constraint: str
    source: int
    """Place of the limit among the limits, or of the ban among the bans."""
    group: int
    """Group of the limit, or class of the ban."""
    bucket: int
    """Bucket of the limit; -1 for a ban."""

    @property
    def is_ban(self) -> bool:
        return self.bucket < 0


@dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """R rows choosing among V values under demands that may be dropped; ``nullable`` rows may have none."""

    rows: int
    values: int
    nullable: bool
    limits: tuple[Limit, ...]
    bans: tuple[Ban, ...]

    def all_bans(self) -> list[Demand]:
        """Every class of every ban that forbids anything."""
        return [
            Demand(ban.name, place, int(kind), -1)
            for place, ban in enumerate(self.bans)
            for kind in np.unique(ban.row_class[ban.row_class >= 0])
            if bool(ban.forbidden[kind].any())
        ]

    def bounds(self, limit: Limit) -> tuple[Amounts, Amounts]:
        """Both of the shape (groups, buckets)."""
        shape = (limit.load.groups, limit.load.buckets)
        return np.broadcast_to(limit.lower, shape), np.broadcast_to(limit.upper, shape)


@dataclass(frozen=True, slots=True)
class Give:
    """What one demand must give: above its upper bound, below its lower one, or all of it.

    Of a ban only ``rows`` are let go.
    """

    demand: Demand
    above: int = 0
    below: int = 0
    waived: bool = False
    rows: tuple[int, ...] = ()
