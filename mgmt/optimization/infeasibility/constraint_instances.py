"""Instances of the constraints on an assignment: cut so small that each can be dropped or changed by itself.

One is what one group may put into one bucket of a limit, what one class of rows may not choose, or how far one bucket
of a skew may be above the least of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Amounts, Limit, Load, Mask, Skew


@dataclass(frozen=True, slots=True, eq=False)
class Ban:
    """What one constraint forbids rows of a class to choose; class -1 is not in it."""

    name: str
    row_class: NDArray[np.intp]
    """(R,)"""
    forbidden: Mask
    """(K, V + 1); the last value is to have none."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One bucket of one group of a limit, one class of a ban, or one bucket of a skew."""

    constraint: str
    source: int
    """Place of the limit among the limits, of the ban among the bans, or of the skew among the skews."""
    group: int
    """Group of the limit, or class of the ban; -1 for a skew."""
    bucket: int
    """Bucket of the limit or skew; -1 for a ban."""

    @property
    def is_ban(self) -> bool:
        return self.bucket < 0

    @property
    def is_skew(self) -> bool:
        return self.group < 0

    @property
    def is_limit(self) -> bool:
        return not self.is_ban and not self.is_skew


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintSet:
    """R rows choosing among V values under constraints of which instances may be dropped."""

    row_class: NDArray[np.intp]
    """(R,) rows of a class may choose alike."""
    allowed: Mask
    """(C, V + 1) per class: what may be chosen whatever is dropped; the last value is to have none."""
    limits: tuple[Limit, ...]
    bans: tuple[Ban, ...]
    skews: tuple[Skew, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.row_class)

    @property
    def values(self) -> int:
        return int(self.allowed.shape[1]) - 1

    def load(self, instance: Instance) -> Load:
        """What an instance that is no ban is about."""
        return (self.skews if instance.is_skew else self.limits)[instance.source].load

    def all_bans(self) -> list[Instance]:
        """Every class of every ban that forbids anything."""
        return [
            Instance(ban.name, place, int(kind), -1)
            for place, ban in enumerate(self.bans)
            for kind in np.unique(ban.row_class[ban.row_class >= 0])
            if bool(ban.forbidden[kind].any())
        ]

    def broken_skews(self, place: int, load: Amounts) -> Amounts:
        """(buckets,) how much a load (buckets,) is above what a skew allows; 0 where it is not."""
        skew = self.skews[place]
        least = int((load + skew.base).min(initial=UNLIMITED))
        above = np.where(load <= skew.excused, 0, np.maximum(load + skew.above - least, 0))
        return np.asarray(above, np.int64)

    def after(self, gives: Sequence[Give]) -> ConstraintSet:
        """What is still demanded when these have given."""
        limits, bans, skews = list(self.limits), list(self.bans), list(self.skews)
        raised: dict[int, int] = {}
        for give in gives:
            place, at = give.instance.source, (give.instance.group, give.instance.bucket)
            if give.instance.is_ban:
                row_class = bans[place].row_class.copy()
                row_class[list(give.rows)] = -1
                bans[place] = replace(bans[place], row_class=row_class)
            elif give.instance.is_skew and give.waived:
                above = skews[place].above.copy()
                above[give.instance.bucket] = -UNLIMITED
                skews[place] = replace(skews[place], above=above)
            elif give.instance.is_skew:
                raised[place] = give.above
            else:
                lower, upper = (bounds.copy() for bounds in limits[place].bounds)
                lower[at] = 0 if give.waived else lower[at] - give.below
                upper[at] = UNLIMITED if give.waived else upper[at] + give.above
                limits[place] = replace(limits[place], lower=lower, upper=upper)
        for place, number in raised.items():
            above = skews[place].above
            allowed = np.where(above > -UNLIMITED, above - number, above)
            skews[place] = replace(skews[place], above=allowed)
        return replace(self, limits=tuple(limits), bans=tuple(bans), skews=tuple(skews))


@dataclass(frozen=True, slots=True)
class Give:
    """What one instance must give: above its upper bound (a skew's is the least), below its lower one, or all of it.

    Of a ban only ``rows`` are let go.
    """

    instance: Instance
    above: int = 0
    below: int = 0
    waived: bool = False
    rows: tuple[int, ...] = ()
