"""What in an assignment makes a network: bundles of rows that are alike, and two trees of counts.

The rows of a *bundle* (the copies of one segment) differ in nothing but where each is today.  Counts within a bundle
(at most one copy per host, per rack) are the branches on the way out of it; counts of all rows together (per host,
per rack) are those on the way to the sink.  A family of counts is a tree when any two are nested or apart.

This module finds that structure or says what is in the way; it makes no arcs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mgmt.optimization.assignment import (
    NONE,
    UNLIMITED,
    Amounts,
    Assignment,
    Indices,
    Integers,
    LoadCost,
    Mask,
)
from mgmt.optimization.dense_ranks import alike_rows, firsts, joint_ranks, ranks
from mgmt.optimization.engines.flow.counts import Count, NotAFlowError, counts_of
from mgmt.optimization.engines.flow.row_costs import Price, prices_of

MOST_LEAVES = 1 << 22
"""Kinds of rows times values."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """A count within bundles."""

    count: Count
    group: Indices
    """(bundles,) the count's group that is the bundle, or NONE."""

    def limits(self, bundle: Integers, bucket: Integers) -> tuple[Amounts, Amounts]:
        """Lower and upper limit for pairs of a bundle and a bucket (NONE: of no bucket)."""
        group = self.group[bundle]
        counted = (group >= 0) & (bucket >= 0)
        lower = np.where(counted, _at(self.count.lower, group, bucket), 0)
        return lower, np.where(counted, _at(self.count.upper, group, bucket), UNLIMITED)


def _at(limits: Amounts, group: Integers, bucket: Integers) -> Amounts:
    """The elements of a two-dimensional array that may have been left unbroadcast."""
    rows, columns = limits.shape
    found: Amounts = np.asarray(limits[group if rows > 1 else 0, bucket if columns > 1 else 0], np.int64)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class NetworkStructure:
    """The structure, found."""

    bundle: Indices
    """(R,) of each row."""
    bundles: int
    class_: Indices
    """(bundles,) bundles of a class may choose, pay and count alike."""
    representative: Indices
    """(classes,) a row of each."""
    allowed: Mask
    """(classes, V) the values that a row of the class may come to; where it is today it may perhaps stay besides."""
    prices: tuple[Price, ...]
    cluster: Indices
    """(bundles,) of which several bundles may be counted together, whatever their values; or NONE."""
    clusters: int
    over: tuple[Level, ...]
    """What counts them: one, or none.  Its groups are by cluster."""
    levels: tuple[Level, ...]
    """Counts within bundles that make branches, coarse before fine."""
    each: tuple[Level, ...]
    """Upper limits within bundles by single values."""
    sinks: tuple[Count, ...]
    """Counts over bundles, fine before coarse."""
    exact: bool
    """Whether the counts say all that the limits say."""
    possible: bool
    """False when some limit cannot be met by any choice."""

    def room(self, bundle: Integers, value: Integers) -> Amounts:
        """How many rows of a bundle a value may take, for pairs of them."""
        room = np.full(len(bundle), UNLIMITED)
        for level in self.each:
            np.minimum(room, level.limits(bundle, level.count.bucket[value])[1], out=room)
        return room


def structure_of(assignment: Assignment) -> NetworkStructure:
    """The network structure.  Raises NotAFlowError."""
    usable = _usable(assignment)
    costs = [(place, cost) for place, tier in enumerate(assignment.tiers) for cost in tier.costs]
    load_costs = [(place, cost) for place, cost in costs if isinstance(cost, LoadCost)]
    prices = prices_of(assignment)
    counts, exact = counts_of(assignment.limits, load_costs, usable)
    possible = not any(count.impossible for count in counts)
    bundle, inner, outer = _bundles(assignment.rows, counts)
    sinks = _tree(outer)
    row_class, allowed = _newcomers(assignment)
    sorts = [row_class, assignment.required.astype(np.int32)]
    sorts += [price.row_class for price in prices]
    sorts += [count.group for count in sinks]
    sort = joint_ranks(sorts, assignment.rows)[0].astype(np.int32)
    cluster_of_row = np.full(assignment.rows, NONE, np.int32)
    over: list[Count] = []
    if not _alike(bundle, sort):
        over = [count for count in inner if _whole(count, usable)]
        if len(over) != 1 or len(inner) > 1:
            raise NotAFlowError("rows that are counted together may not choose, pay or count alike")
        cluster_of_row, inner = bundle, []
        bundle = joint_ranks([sort, cluster_of_row], assignment.rows)[0].astype(np.int32)
    loose = bundle < 0
    number = int(bundle.max(initial=-1)) + 1
    bundle = bundle.copy()
    if bool(loose.any()):
        numbers, more = ranks(sort[loose])
        bundle[loose] = number + numbers
        number += more
    first = firsts(bundle.astype(np.int64), number)
    class_, classes = ranks(sort[first])
    representative = firsts(class_, classes)
    if len(representative) * max(assignment.values, 1) > MOST_LEAVES:
        raise NotAFlowError(
            f"{len(representative)} classes of rows for {assignment.values} values are too many"
        )
    levels, each = _levels(inner, number, bundle)
    clusters = int(cluster_of_row.max(initial=NONE)) + 1
    return NetworkStructure(
        bundle,
        number,
        class_.astype(np.int32),
        first[representative].astype(np.int32),
        allowed[row_class[first[representative]]],
        prices,
        cluster_of_row[first],
        clusters,
        tuple(_level(count, clusters, cluster_of_row) for count in over),
        levels,
        each,
        sinks,
        exact,
        possible,
    )


def _alike(bundle: Indices, sort: Indices) -> bool:
    """Whether the rows of each bundle are of one sort."""
    inside = bundle >= 0
    if not bool(inside.any()):
        return True
    of_bundle = np.zeros(int(bundle.max()) + 1, np.int64)
    of_bundle[bundle[inside]] = sort[inside]
    return bool((of_bundle[bundle[inside]] == sort[inside]).all())


def _whole(count: Count, usable: Mask) -> bool:
    """Whether it counts every value alike."""
    return len(np.unique(count.bucket[usable])) == 1 and bool((count.bucket[usable] >= 0).all())


def _newcomers(assignment: Assignment) -> tuple[Indices, Mask]:
    """Classes of rows by what they may come to: (R,), and (C, V).

    A value that is closed to all but the rows that are there (a host in maintenance) makes no difference between rows.
    """
    here = np.flatnonzero(assignment.current >= 0)
    row_class, current = assignment.row_class[here], assignment.current[here]
    own = assignment.allowed[row_class, current]
    rows = np.bincount(assignment.row_class, minlength=len(assignment.allowed))
    may = rows @ assignment.allowed.astype(np.int64)
    stay = np.bincount(current[own], minlength=assignment.values)
    allowed = assignment.allowed & (may != stay)[None]
    of_class, number = alike_rows(allowed)
    return of_class[assignment.row_class].astype(np.int32), allowed[firsts(of_class, number)]


def _usable(assignment: Assignment) -> Mask:
    """(V,) values that some row may have."""
    used = np.bincount(assignment.row_class, minlength=len(assignment.allowed)) > 0
    return np.asarray(assignment.allowed[used].any(axis=0), np.bool_)


def _bundles(rows: int, counts: Sequence[Count]) -> tuple[Indices, list[Count], list[Count]]:
    """Bundle of each row (NONE: of no group), the counts within bundles, and those over them.

    Counts of the most groups make the bundles; others with the very same groups are within them too.
    """
    bundle = np.full(rows, NONE, np.int32)
    number = 0
    inner: list[Count] = []
    outer: list[Count] = []
    for count in sorted(counts, key=lambda count: -int((count.sizes > 0).sum())):
        if int((count.sizes > 0).sum()) < 2 or (inner and not _fits(count, bundle)):
            outer.append(count)
            continue
        inner.append(count)
        fresh = (count.group >= 0) & (bundle < 0)
        if bool(fresh.any()):
            numbers, more = ranks(count.group[fresh])
            bundle[fresh] = number + numbers
            number += more
    return bundle, inner, outer


def _fits(count: Count, bundle: Indices) -> bool:
    """Whether each group of the count is a bundle, or has rows of no bundle only."""
    covered = count.group >= 0
    both = covered & (bundle >= 0)
    if not bool(both.any()):
        return True
    group, own = count.group[both], bundle[both]
    if not (maps(group, own) and maps(own, group)):
        return False
    sizes = np.bincount(bundle[bundle >= 0])
    return bool((count.sizes[group] == sizes[own]).all())


def nested(fine: Count, coarse: Count) -> bool:
    """Whether whatever ``fine`` counts in one place, ``coarse`` counts in one place or not at all."""
    return maps(fine.group, coarse.group) and maps(fine.bucket, coarse.bucket)


def apart(one: Count, other: Count) -> bool:
    """Whether nothing is counted by both."""
    rows = (one.group >= 0) & (other.group >= 0)
    values = (one.bucket >= 0) & (other.bucket >= 0)
    return not bool(rows.any()) or not bool(values.any())


def maps(fine: Indices, coarse: Indices) -> bool:
    """Whether what is in one part of ``fine`` is in one part of ``coarse``, or all in none."""
    covered = fine >= 0
    if not bool(covered.any()):
        return True
    image = np.full(int(fine.max()) + 1, -2, np.int64)
    image[fine[covered]] = coarse[covered]
    return bool((image[fine[covered]] == coarse[covered]).all())


def _tree(counts: Sequence[Count]) -> tuple[Count, ...]:
    """In an order with the fine ones first.  Raises NotAFlowError for two that cross."""
    for one, other in combinations(counts, 2):
        if not (nested(one, other) or nested(other, one) or apart(one, other)):
            raise NotAFlowError(f"{one.name} and {other.name} count across each other")
    waiting, ordered = list(counts), []
    while waiting:
        inner = (c for c in waiting if all(nested(c, other) or apart(c, other) for other in waiting))
        finest = next(inner, None)
        if finest is None:
            raise NotAFlowError(f"{waiting[0].name} and others count across each other")
        waiting.remove(finest)
        ordered.append(finest)
    return tuple(ordered)


def _levels(
    inner: Sequence[Count], bundles: int, bundle: Indices
) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
    """The counts within bundles: those that make branches, and plain upper limits by single values."""
    each: list[Level] = []
    levels: list[Level] = []
    for count in inner:
        level = _level(count, bundles, bundle)
        simple = count.single and not count.costs and not bool((count.lower > 0).any())
        (each if simple else levels).append(level)
    if any(level.count.single for level in levels):
        levels.extend(each)  # branches by single values are there anyhow
        each = []
    levels.sort(key=lambda level: len(np.unique(level.count.bucket)))
    for coarse, fine in combinations(levels, 2):
        if not maps(fine.count.bucket, coarse.count.bucket):
            raise NotAFlowError(f"{coarse.count.name} and {fine.count.name} count across each other")
    return tuple(levels), tuple(each)


def _level(count: Count, bundles: int, bundle: Indices) -> Level:
    group = np.full(bundles, NONE, np.int32)
    covered = count.group >= 0
    covered &= bundle >= 0
    group[bundle[covered]] = count.group[covered]
    return Level(count, group)
