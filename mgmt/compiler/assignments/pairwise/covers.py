"""Pairs of rows as a graph: its components, and cliques and bicliques that cover its edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.columns.candidates import Places
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.optimization.assignment import NONE

_MOST_SETS = 200
"""Of rows that are paired with the same others."""
Groups = tuple[NDArray[np.int32], int]
"""(rows,) the group of each row or NONE, and how many groups there are."""


def components_of(first: Places, second: Places, rows: int) -> Groups:
    """(rows,) the component of each row that pairs connect with another, or NONE, and how many there are."""
    apart = first != second
    first, second = first[apart], second[apart]
    label = np.arange(rows)
    while True:
        least = np.minimum(label[first], label[second])
        before = label.copy()
        np.minimum.at(label, first, least)
        np.minimum.at(label, second, least)
        label = label[label]
        if bool((label == before).all()):
            break
    group = np.full(rows, NONE, np.int32)
    inside = np.unique(np.concatenate((first, second)))
    group[inside] = np.unique(label[inside], return_inverse=True)[1]
    return group, int(group.max(initial=-1)) + 1


def all_complete(first: Places, second: Places, group: NDArray[np.int32], groups: int) -> bool:
    """Whether in every component all rows are paired with all others."""
    sizes = np.bincount(group[group != NONE], minlength=groups)
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs = np.unique(low[low != high].astype(np.int64) * len(group) + high[low != high])
    return len(pairs) == int((sizes * (sizes - 1) // 2).sum())


def cliques_of(
    first: Places, second: Places, rows: int, known: Sequence[NDArray[np.int32]], *, apart: bool = False
) -> Iterator[Groups]:
    """Groups of rows that cover all pairs: (rows,) the clique of each row or NONE, and how many there are.

    ``apart``: no pair is in two of them.  ``known``: groups of rows that may be in a clique anyhow.
    """
    group, groups = components_of(first, second, rows)
    if not groups:
        return
    if all_complete(first, second, group, groups):
        yield group, groups
        return
    layers: list[NDArray[np.int32]] = []
    for clique in _cover(first, second, known, apart):
        members = list(clique)
        for layer in layers:
            if bool((layer[members] == NONE).all()):
                break
        else:
            layer = np.full(rows, NONE, np.int32)
            layers.append(layer)
        layer[members] = int(layer.max()) + 1
    for layer in layers:
        yield layer, int(layer.max()) + 1


def twins_of(first: Places, second: Places) -> tuple[list[frozenset[int]], list[int]]:
    """Sets of rows, and how often to count the pairs in each, so that in the end these pairs are counted once."""
    near = _neighbours(first, second)
    of: dict[int, frozenset[int]] = {}
    for closed in (True, False):  # twins that are paired with each other first
        same: dict[frozenset[int], list[int]] = {}
        for row in near.keys() - of.keys():
            same.setdefault(frozenset(near[row] | {row} if closed else near[row]), []).append(row)
        of |= {
            row: frozenset(members)
            for members in same.values()
            if len(members) > 1 or not closed
            for row in members
        }
    counted: dict[frozenset[int], int] = {}
    for twins in sorted(set(of.values()), key=min):
        row = min(twins)
        beside = {of[other] for other in near[row]} - {twins}
        inside = any(other in near[row] for other in twins)
        counted[twins] = counted.get(twins, 0) + inside - len(beside)
        for others in sorted(beside, key=min):
            if min(twins) < min(others):
                counted[twins | others] = counted.get(twins | others, 0) + 1
    kept = {members: times for members, times in counted.items() if times and len(members) > 1}
    return list(kept), list(kept.values())


def _neighbours(first: Places, second: Places) -> dict[int, set[int]]:
    """By row those that it is paired with, whichever of them comes first."""
    near: dict[int, set[int]] = {}
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    return near


def _cover(
    first: Places, second: Places, known: Sequence[NDArray[np.int32]], apart: bool
) -> Iterator[Iterable[int]]:
    """Cliques that together have every pair, large ones first found where a pair begins them."""
    near = _neighbours(first, second)
    open_pairs = {row: set(others) for row, others in near.items()}
    for group in known:
        members: dict[int, set[int]] = {}
        for row in near:
            if group[row] != NONE:
                members.setdefault(int(group[row]), set()).add(row)
        for some in members.values():
            for row in some:
                near[row] |= some - {row}
    for row in sorted(near):
        while open_pairs[row]:
            clique = [row]
            common, fresh = set((open_pairs if apart else near)[row]), set(open_pairs[row])
            while common:
                # Pairs that no clique has yet come first.
                chosen = min(fresh & common or common)
                if not fresh & common and len(clique) > 1 and not open_pairs[chosen] & set(clique):
                    break
                clique.append(chosen)
                common &= (open_pairs if apart else near)[chosen]
                fresh |= open_pairs[chosen]
            for one in clique:
                open_pairs[one] -= set(clique)
            yield clique


def bicliques_of(first: Places, second: Places, rows: int) -> Iterator[tuple[Groups, Groups]]:
    """Sets of rows on both sides that cover all pairs: for each, (rows,) 0 or NONE of the first and of the second."""
    beside: dict[int, set[int]] = {}
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        beside.setdefault(one, set()).add(other)
    same: dict[frozenset[int], list[int]] = {}
    for row, others_of_row in beside.items():
        same.setdefault(frozenset(others_of_row), []).append(row)
    if len(same) > _MOST_SETS:
        raise NotAnAssignment(f"{len(same)} sets of rows beside others")
    for others, ones in same.items():
        sides = []
        for members in (ones, list(others)):
            group = np.full(rows, NONE, np.int32)
            group[members] = 0
            sides.append((group, 1))
        yield sides[0], sides[1]
