"""From a flow to a choice: which row of a bundle stays, and which values those in a pool take.

In a pool any unit may take any of the values that leave it, but for one thing: a value may have room for one row of a
bundle only.  Units are dealt out so that this rarely happens, and pairs are swapped where it does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Assignment, Indices, Mask
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.engines.flow.structure import NetworkStructure

_PRIME = 2_147_483_647
_SCATTER = 1_103_515_245


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """Arcs of rows that stay as they are, alike rows together."""

    rows: Amounts
    """All of them, those of an arc one after the other."""
    start: Amounts
    """(arcs,) the first row of each, in ``rows``."""
    bundle: Amounts
    value: Amounts
    """(arcs,)"""
    count: Amounts
    saving: Amounts
    """(tiers, arcs)."""

    @classmethod
    def of(cls, rows: Amounts, bundle: Amounts, value: Amounts, saving: Amounts) -> Stays:
        """From rows in order."""
        differs = (bundle[1:] != bundle[:-1]) | (value[1:] != value[:-1])
        differs |= (saving[:, 1:] != saving[:, :-1]).any(axis=0)
        start = np.flatnonzero(np.append(True, differs)[: len(rows)])
        count = np.diff(np.append(start, len(rows)))
        return cls(rows, start, bundle[start], value[start], count, saving[:, start])


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """A flow, read."""

    stays: Stays
    staying: Amounts
    """(stay arcs,) rows."""
    bundle: Amounts
    value: Amounts
    row: Amounts
    """Triples: units whose value is known already, with a row that rather has it, or NONE."""
    into_bundle: Amounts
    into_pool: Amounts
    """Units in pools."""
    token_pool: Amounts
    token_value: Amounts
    """Values for them, as many."""


def choice_of(
    assignment: Assignment, structure: NetworkStructure, units: Units, deadline: Deadline
) -> Indices | None:
    """The choice of each row; None when the values of a pool could not be dealt out.

    Raises TimeoutError at the deadline.
    """
    choice = np.full(assignment.rows, NONE, np.int64)
    rest = np.ones(assignment.rows, np.bool_)
    stays = units.stays
    offset = np.arange(units.staying.sum()) - np.repeat(
        np.cumsum(units.staying) - units.staying, units.staying
    )
    rows = stays.rows[np.repeat(stays.start, units.staying) + offset]
    value = np.repeat(stays.value, units.staying)
    choice[rows] = value
    rest[rows] = False
    dealt = _deal(structure, units, choice, rest, deadline)
    if dealt is None:
        return None
    given = _given(units.row, rest)
    choice[units.row[given]] = units.value[given]
    rest[units.row[given]] = False
    bundle = np.concatenate([units.bundle[~given], dealt[0]])
    value = np.concatenate([units.value[~given], dealt[1]])
    waiting = np.flatnonzero(rest)
    waiting = waiting[np.argsort(structure.bundle[waiting], kind="stable")]
    # The first of a bundle's waiting rows get its values; the others get none.
    own = structure.bundle[waiting]
    starts = np.searchsorted(own, own)
    number = np.bincount(bundle, minlength=structure.bundles)
    served = np.arange(len(waiting)) - starts < number[own]
    choice[waiting[served]] = value[np.argsort(bundle, kind="stable")]
    return choice.astype(np.int32)


def _given(row: Amounts, rest: Mask) -> Mask:
    """Which units have the row that they ask for: the first that asks for one that is left."""
    first = np.zeros(len(row), np.bool_)
    first[np.unique(row, return_index=True)[1]] = True
    return np.asarray(first & (row >= 0) & rest[row])


def _deal(
    structure: NetworkStructure, units: Units, choice: Amounts, rest: Mask, deadline: Deadline
) -> tuple[Amounts, Amounts] | None:
    """Pairs of bundle and value for the units in pools."""
    order = np.lexsort([units.into_bundle, units.into_pool])
    bundle, pool = units.into_bundle[order], units.into_pool[order]
    # First one unit of every bundle, then a second one: equal values are then dealt to different bundles.
    fresh = np.append(True, (bundle[1:] != bundle[:-1]) | (pool[1:] != pool[:-1]))[: len(bundle)]
    starts = np.flatnonzero(fresh)
    turn = np.arange(len(bundle)) - starts[np.cumsum(fresh) - 1] if len(bundle) else bundle
    # And in no particular order of bundles: a host's copies should have their siblings everywhere.
    order = np.lexsort([bundle * _SCATTER % _PRIME, turn, pool])
    bundle, pool = bundle[order], pool[order]
    order = np.lexsort([units.token_value, units.token_pool])
    value = units.token_value[order]
    if not structure.each or not len(bundle):
        return bundle, value
    kept = np.flatnonzero(~rest & (choice >= 0))
    swaps = _Swaps(structure, bundle, pool, value, structure.bundle[kept], choice[kept])
    return (bundle, swaps.value) if swaps.settle(deadline) else None


class _Swaps:
    """Swaps values within pools until no bundle has more on a value than there is room for."""

    def __init__(
        self,
        structure: NetworkStructure,
        bundle: Amounts,
        pool: Amounts,
        value: Amounts,
        kept_bundle: Indices,
        kept_value: Amounts,
    ) -> None:
        self._structure = structure
        self._bundle = bundle
        self._pool = pool
        self.value = value
        span = int(max(value.max(initial=0), kept_value.max(initial=0))) + 1
        kept = kept_bundle.astype(np.int64) * span + kept_value
        keys, number = np.unique(np.concatenate([bundle * span + value, kept]), return_counts=True)
        over = keys[number > structure.room(keys // span, keys % span)]
        self._over = np.flatnonzero(np.isin(bundle * span + value, over))
        # Only where something is over are counts needed one by one.
        pools = np.isin(pool, pool[self._over])
        pairs = np.concatenate(
            [np.stack([bundle[pools], value[pools]]), np.stack([kept_bundle, kept_value])], axis=1
        )
        self._count = Counter(map(tuple, pairs.T.tolist())) if len(self._over) else Counter()

    def settle(self, deadline: Deadline) -> bool:
        for unit in self._over.tolist():
            deadline.check()
            if not self._settle(unit):
                return False
        return True

    def _settle(self, unit: int) -> bool:
        bundle, value = int(self._bundle[unit]), int(self.value[unit])
        if self._count[bundle, value] <= self._room(bundle, value):
            return True
        first, last = np.searchsorted(self._pool, [self._pool[unit], self._pool[unit] + 1])
        for other in range(int(first), int(last)):
            partner, theirs = int(self._bundle[other]), int(self.value[other])
            if partner == bundle or theirs == value:
                continue
            if self._has_room(bundle, theirs) and self._has_room(partner, value):
                self.value[unit], self.value[other] = theirs, value
                self._count.subtract([(bundle, value), (partner, theirs)])
                self._count.update([(bundle, theirs), (partner, value)])
                return True
        return False

    def _has_room(self, bundle: int, value: int) -> bool:
        return self._count[bundle, value] < self._room(bundle, value)

    def _room(self, bundle: int, value: int) -> int:
        return int(self._structure.room(np.array([bundle]), np.array([value]))[0])
