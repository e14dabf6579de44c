"""Rows that have the same value, or values of the same bucket: how many buckets a group of rows uses.

What says so is one atom for each pair of rows.  Rows that are all to match pair by pair use one bucket; where some pair
is not to match, they use two at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mgmt.optimization.assignment import NONE, Occupancy
from mgmt.optimization.columns import Integers, Linears, Lists, components, filled
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.pairs.row_pairs import load_of
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.cell_sums import CellSums


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of rows, and the buckets of the values that they may have in common."""

    left: Integers
    right: Integers
    kind: Integers
    """Of each pair, which of the buckets it is about."""
    buckets: tuple[Integers, ...]
    """(V,) the bucket of each value, or NONE."""

    def together(self, name: str, rows: int) -> Iterator[tuple[Occupancy, Integers]]:
        """All pairs match: conditions, and the rows of each; these have values of buckets, too."""
        for kind, bucket in enumerate(self.buckets):
            mine = self.kind == kind
            group = components(self.left[mine], self.right[mine], rows)
            load = load_of(group, bucket)
            one = filled(load.groups, 1)
            yield Occupancy(name, load, one, one), np.flatnonzero(group >= 0)

    def not_all(self, name: str, owners: Integers, clauses: int, cells: ChoiceCells) -> Iterator[Occupancy]:
        """In each clause some pair does not match."""
        for clause in range(clauses):
            mine = np.flatnonzero(owners == clause)
            kinds = np.unique(self.kind[mine])
            group = components(self.left[mine], self.right[mine], cells.rows)
            if len(kinds) != 1 or int(group.max()) != 0:
                raise NotLiftedError("pairs of which one is not to match, that are no single group")
            bucket = self.buckets[int(kinds[0])]
            if cells.may_be_outside(group >= 0, bucket >= 0):
                raise NotLiftedError("pairs of which one is not to match, of rows that may be in no bucket")
            two = filled(1, 2)
            yield Occupancy(name, load_of(group, bucket), two, filled(1, int(bucket.max()) + 1))


def matches_of(sums: CellSums, atoms: Integers) -> Matches:
    """Raises NotLiftedError where what is to match is not of one row each, or not in the same buckets."""
    operands, owners = sums.operands(atoms)
    operands = sums.cell_by_cell(operands, sums.is_every(operands.terms.items))
    if bool((operands.constants != 0).any()) or bool((operands.coefficients != 1).any()):
        raise NotLiftedError("matches of what is no choice")
    if sums.atomic(operands).any():
        raise NotLiftedError("matches of what is no choice")
    sides = [operands.take(np.arange(side, len(operands), 2)) for side in (0, 1)]
    atom = owners[::2]
    rows = [_row_of_each(sums, side, atom, len(atoms)) for side in sides]
    values = [Lists(side.terms.starts, sums.value_of(side.terms.items)) for side in sides]
    if not all(
        np.array_equal(one, other)
        for one, other in zip(
            (values[0].starts, values[0].items), (values[1].starts, values[1].items), strict=True
        )
    ):
        raise NotLiftedError("matches of choices between different values")
    within = np.arange(len(atom)) - np.searchsorted(atom, atom)
    pairs = np.stack((np.repeat(within, values[0].lengths), values[0].items), 1).ravel()
    whole = Lists.grouped(np.repeat(atom, values[0].lengths), np.arange(len(values[0].items)), len(atoms))
    first, kind = Lists(2 * whole.starts, pairs).alike()
    buckets = []
    for example in first.tolist():
        bucket = filled(sums.cells.values, NONE)
        places = whole.row(example)
        bucket[pairs[2 * places + 1]] = pairs[2 * places]
        buckets.append(bucket)
    return Matches(rows[0], rows[1], kind, tuple(buckets))


def _row_of_each(sums: CellSums, side: Linears, atom: Integers, count: int) -> Integers:
    owner = atom[side.terms.owners]
    row = sums.row_of(side.terms.items)
    found = filled(count, NONE)
    found[owner] = row
    if bool((found < 0).any()) or bool((found[owner] != row).any()):
        raise NotLiftedError("matches of what is no choice")
    return found
