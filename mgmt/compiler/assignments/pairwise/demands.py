"""The limits, conditions and costs that a demand on pairs of rows comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmt.compiler.assignments.columns.candidates import Choosers, Places, classes, each_once, places_in
from mgmt.compiler.assignments.columns.fetch import Columns, Table
from mgmt.compiler.assignments.columns.vectors import Mask
from mgmt.compiler.assignments.pairwise.covers import (
    Groups,
    all_complete,
    bicliques_of,
    cliques_of,
    components_of,
    twins_of,
)
from mgmt.compiler.assignments.pairwise.evaluation import (
    DIFFERENT,
    SAME,
    UNKNOWN,
    Case,
    Cases,
    refused_kinds,
)
from mgmt.compiler.assignments.pairwise.pairing import Pairing
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.optimization.assignment import (
    NONE,
    Amounts,
    Colocation,
    Condition,
    Either,
    Limit,
    Load,
    LoadCost,
    Occupancy,
)
from mgmt.optimization.load_functions import LoadNumber
from mgmt.state.database import Snapshot

_MOST_PAIRS = 200_000
"""More are not put together to cliques one by one."""
_MOST_PRICES = 256
_MOST_PLACES = 1_000_000
"""Of all groups of an objective, by values: each is in arrays."""
_MOST_VALUE_KINDS = 64
"""Each is a condition of its own."""
_MOST_PAIR_KINDS = 16
_MOST_LEADERS = 16
"""Of one row."""
_LOAD = LoadNumber(0)


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """What a demand on pairs comes to."""

    limits: tuple[Limit, ...] = ()
    conditions: tuple[Condition, ...] = ()
    impossible: bool = False
    """A pair fails whatever is chosen."""
    costs: tuple[LoadCost, ...] = ()
    constant: int = 0
    """What an objective costs whatever is chosen, weight and sign included."""


def paired(
    pairing: Pairing, choosers: Choosers, columns: Columns, snapshot: Snapshot, limits: Sequence[Limit] = ()
) -> Paired:
    """The limits and conditions of a demand on pairs.  NotAnAssignment when its rows need more.

    ``limits`` of others may keep rows apart as well, so that larger cliques are found.
    """
    table = columns.table(snapshot, *pairing.pairs)
    if not table.rows:
        return Paired()
    if table.rows > _MOST_PAIRS:
        raise NotAnAssignment(f"{table.rows} pairs of rows")
    if pairing.of_kinds:
        return _beside(pairing, table, choosers, columns, snapshot)
    bucket, buckets, complete = _buckets(pairing, choosers, columns, snapshot)
    first, second = (choosers.places_of_rows(column.values) for column in table.columns[:2])
    cases = Cases(pairing, choosers.nullable, table.columns[2:], table.rows, columns)
    found = _Finder(pairing.name, choosers, bucket, buckets, complete)
    demand = pairing.bound.demand
    assert demand is not None
    if demand.is_objective:
        return _priced(pairing, cases, first, second, found)
    apart, together = cases.broken(SAME), cases.broken(DIFFERENT)
    if not complete and bool(cases.broken(UNKNOWN).any()):
        raise NotAnAssignment("a check on pairs that fails where an attribute is NULL")
    alone = [cases.broken(Case(None, missing)) for missing in ((True, False), (False, True))]
    if bool((apart & together).any()) and not found.optional:
        return Paired(impossible=True)
    if bool(cases.broken(Case(None, (True, True))).any() | (apart & together).any()):
        raise NotAnAssignment("a check on pairs of rows that some must be without a value")
    if bool(together.any()) and not complete and not all(pairing.joined):
        raise NotAnAssignment("rows that are together where one of them is in what the other is joined to")
    if bool(((alone[0] | alone[1]) & ~together).any()):
        raise NotAnAssignment("a check on pairs of rows that only asks whether there are values")
    found.require_apart(first[apart], second[apart], _kept_apart(limits, bucket))
    follows = [second[alone[0]], first[alone[1]]], [first[alone[0]], second[alone[1]]]
    found.require_colocation(*(np.concatenate(each) for each in follows))
    both = together & ~alone[0] & ~alone[1]
    found.require_together(first[both], second[both])
    return Paired(tuple(found.limits), tuple(found.conditions), found.impossible)


def _beside(
    pairing: Pairing, table: Table, choosers: Choosers, columns: Columns, snapshot: Snapshot
) -> Paired:
    """Which kinds of values may not stand beside each other, as conditions on how many rows have them."""
    assert pairing.values is not None
    if not all(pairing.joined):
        raise NotAnAssignment("a choice beside what another leads to")
    values = columns.table(snapshot, *pairing.values)
    places = places_in(choosers.codes, values.columns[0])
    known = np.flatnonzero(places >= 0)
    if not each_once(places[known]):
        raise NotAnAssignment("a choice that leads to several rows")
    kinds = classes([column.take(known) for column in values.columns[1:]], len(known))
    if kinds.count > _MOST_VALUE_KINDS:
        raise NotAnAssignment(f"{kinds.count} kinds of values beside each other")
    kind = np.full(choosers.values, NONE, np.int32)
    kind[places[known]] = kinds.of
    of_kinds = [column.take(known).take(kinds.examples) for column in values.columns[1:]]
    pairs = classes(table.columns[2:], table.rows)
    if pairs.count > _MOST_PAIR_KINDS:
        raise NotAnAssignment(f"{pairs.count} kinds of pairs")
    first, second = (choosers.places_of_rows(column.values) for column in table.columns[:2])
    finder = _Beside(pairing.name, choosers, kind)
    for number, example in enumerate(pairs.examples.tolist()):
        slots = [column.take(np.array([example])) for column in table.columns[2:]]
        refused = refused_kinds(pairing, slots, of_kinds, kinds.count, columns)
        some = pairs.of == number
        if refused.any():
            finder.require(first[some], second[some], refused)
    return Paired(tuple(finder.limits), tuple(finder.conditions))


class _Beside:
    """Makes conditions of which kinds of values may not stand beside each other."""

    def __init__(self, name: str, choosers: Choosers, kind: NDArray[np.int32]) -> None:
        self._name, self._rows, self._kind = name, choosers.rows, kind
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []

    def require(self, first: Places, second: Places, refused: Mask) -> None:
        """No pair of these rows has two kinds that are ``refused``, (kinds, kinds)."""
        if bool((first == second).any()):
            raise NotAnAssignment("a row beside itself")
        if bool(np.isin(second * self._rows + first, first * self._rows + second).all()):
            refused = refused | refused.T  # each pair is there in both orders
        if not np.array_equal(refused, refused.T):
            for one, other in bicliques_of(first, second, self._rows):
                self._refuse(one, other, refused, np.zeros(len(refused), np.bool_))
            return
        alone: Mask = refused.diagonal().copy()
        if not refused[np.ix_(alone, alone)].all():
            raise NotAnAssignment("kinds of values of which some may not be there twice")
        for clique in cliques_of(first, second, self._rows, ()):
            self._refuse(clique, clique, refused, alone)
            if alone.any():
                self.limits.append(self._at_most(clique, alone, 1))

    def _refuse(self, one: Groups, other: Groups, refused: Mask, alone: Mask) -> None:
        """Where rows have a kind, no others have one that may not stand beside it."""
        for beside in np.unique(refused[refused.any(axis=1)], axis=0):
            having = (refused | ~beside).all(axis=1) & ~alone
            if having.any():
                sides = (self._at_most(one, having, 0), self._at_most(other, beside, 0))
                self.conditions.append(Either(self._name, sides))

    def _at_most(self, rows: Groups, kinds: Mask, number: int) -> Limit:
        group, groups = rows
        bucket = np.where(np.append(kinds, False)[self._kind], 0, NONE).astype(np.int32)
        load = Load(group, groups, bucket, 1, (group != NONE).astype(np.int64))
        return Limit(self._name, load, np.zeros((1, 1), np.int64), np.full((1, 1), number, np.int64))


def _priced(pairing: Pairing, cases: Cases, first: Places, second: Places, finder: _Finder) -> Paired:
    """What pairs cost that are in one bucket beyond what they cost apart."""
    demand = pairing.bound.demand
    assert demand is not None
    apart = cases.worth(DIFFERENT)
    others = [Case(None, missing) for missing in ((True, False), (False, True), (True, True))]
    others = [case for case in others if cases.may_be(case)] + ([] if finder.complete else [UNKNOWN])
    if any(bool((cases.worth(case) != apart).any()) for case in others):
        raise NotAnAssignment("an objective over pairs that looks at whether there are values")
    if any(pairing.joined) and finder.optional and bool(apart.any()):
        raise NotAnAssignment("an objective over pairs that are not there where a row leads to nothing")
    more = cases.worth(SAME) - apart
    sign = -1 if demand.maximize else 1
    costs = finder.costs(first, second, sign * more, demand.tail.weight)
    return Paired(costs=tuple(costs), constant=sign * demand.tail.weight * int(apart.sum()))


def _buckets(
    pairing: Pairing, choosers: Choosers, columns: Columns, snapshot: Snapshot
) -> tuple[NDArray[np.int32], int, bool]:
    """(V,) the attribute of each value or NONE, how many there are, and whether every value has one."""
    if pairing.values is None:
        return np.arange(choosers.values, dtype=np.int32), choosers.values, True
    table = columns.table(snapshot, *pairing.values)
    bucket = np.full(choosers.values, NONE, np.int32)
    places = places_in(choosers.codes, table.columns[0])
    known = places >= 0
    if len(np.unique(places[known])) < int(known.sum()):
        raise NotAnAssignment("a choice that leads to several rows")
    attribute = table.columns[-1]
    kinds = np.unique(attribute.values, return_inverse=True)[1].astype(np.int32)
    inside = known & ~attribute.nulls
    bucket[places[inside]] = kinds[inside]
    return bucket, int(kinds.max(initial=-1)) + 1, bool((bucket != NONE).all())


class _Finder:
    """Makes limits and conditions of pairs."""

    def __init__(
        self, name: str, choosers: Choosers, bucket: NDArray[np.int32], buckets: int, complete: bool
    ) -> None:
        self._name, self._choosers, self.complete = name, choosers, complete
        self._bucket, self._buckets = bucket, max(1, buckets)
        self._is_choice = complete and buckets == choosers.values
        self.optional = choosers.nullable or not complete
        """Whether a row may be in no bucket."""
        self.limits: list[Limit] = []
        self.conditions: list[Condition] = []
        self.impossible = False

    def _load(self, group: NDArray[np.int32], groups: int) -> Load:
        return Load(group, groups, self._bucket, self._buckets, (group != NONE).astype(np.int64))

    def require_apart(self, first: Places, second: Places, known: Sequence[NDArray[np.int32]]) -> None:
        """These have different attributes: every one takes at most one row of a clique."""
        if bool((first == second).any()):
            if self.optional:
                raise NotAnAssignment("a row that must differ from itself")
            self.impossible = True
            return
        for group, groups in cliques_of(first, second, self._choosers.rows, known):
            self.limits.append(
                Limit(
                    self._name,
                    self._load(group, groups),
                    np.zeros((1, 1), np.int64),
                    np.ones((1, 1), np.int64),
                )
            )

    def costs(
        self, first: Places, second: Places, more: NDArray[np.int64], weight: int
    ) -> Iterator[LoadCost]:
        """What pairs cost that have the same attribute: by what each costs, in cliques that share no pair.

        A row costs what its pair with itself does, in any bucket.
        """
        rows = self._choosers.rows
        own = np.zeros(rows, np.int64)
        itself = first == second
        np.add.at(own, first[itself], more[itself])
        first, second, more = first[~itself], second[~itself], more[~itself]
        low, high = np.minimum(first, second).astype(np.int64), np.maximum(first, second)
        pairs, of = np.unique(low * rows + high, return_inverse=True)
        total = np.zeros(len(pairs), np.int64)
        np.add.at(total, of.reshape(-1), more)
        size = _square_of(own, pairs // rows, pairs % rows, total)
        if size is not None:
            group = np.where(size > 0, 0, NONE).astype(np.int32)
            load = Load(group, 1, self._bucket, self._buckets, size)
            yield LoadCost(self._name, weight, (load,), _LOAD * _LOAD * (1 if own.max() > 0 else -1), False)
            return
        prices = np.unique(total[total != 0])
        if len(prices) > _MOST_PRICES:
            raise NotAnAssignment(f"pairs with {len(prices)} different costs")
        places = 0
        for price in prices.tolist():
            one, other = pairs[total == price] // rows, pairs[total == price] % rows
            for times, group, groups in self._counted(one, other):
                places += groups * self._buckets
                if places > _MOST_PLACES:
                    raise NotAnAssignment(f"pairs of {len(prices)} prices among {self._buckets} values")
                load = self._load(group, groups)
                yield LoadCost(
                    self._name, weight, (load,), (_LOAD * (_LOAD - 1)).over(2) * (times * price), False
                )
        for sign in (1, -1):
            amount = np.maximum(sign * own, 0)
            if amount.any():
                group = np.where(amount > 0, 0, NONE).astype(np.int32)
                load = Load(group, 1, self._bucket, self._buckets, amount)
                yield LoadCost(self._name, weight, (load,), _LOAD * sign, False)

    def _counted(self, one: Places, other: Places) -> Iterator[tuple[int, NDArray[np.int32], int]]:
        """Groups of rows whose pairs, so many times each, are all these pairs and no others.

        Cliques, or where these are too many what rows that are paired with the same others come to: the pairs between
        two such sets are those of both together, less those inside each.
        """
        rows = self._choosers.rows
        cliques = list(cliques_of(one, other, rows, (), apart=True))
        if sum(groups for _, groups in cliques) * self._buckets <= _MOST_PLACES:
            yield from ((1, group, groups) for group, groups in cliques)
            return
        for members, number in zip(*twins_of(one, other), strict=True):
            group = np.full(rows, NONE, np.int32)
            group[list(members)] = 0
            yield number, group, 1

    def require_colocation(self, follower: Places, leader: Places) -> None:
        """Each is where the other is, or has no value."""
        if not len(follower):
            return
        if not self._is_choice:
            raise NotAnAssignment("a row that follows an attribute of another")
        # One condition has one leader for each row: the second leaders are another condition, and so on.
        pairs = np.unique(np.stack((follower, leader))[:, follower != leader], axis=1)
        rank = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
        if int(rank.max(initial=0)) >= _MOST_LEADERS:
            raise NotAnAssignment(f"rows that follow more than {_MOST_LEADERS} others")
        for number in range(int(rank.max(initial=-1)) + 1):
            found = np.full(self._choosers.rows, NONE, np.int32)
            found[pairs[0, rank == number]] = pairs[1, rank == number]
            self.conditions.append(Colocation(self._name, found))

    def require_together(self, first: Places, second: Places) -> None:
        """These have the same attribute, as far as they have values."""
        rows = self._choosers.rows
        group, groups = components_of(first, second, rows)
        if not groups:
            return
        if self.optional and not all_complete(first, second, group, groups):
            # Two that are together with a third need not be if this one has no value: of each clique by itself.
            for clique, cliques in cliques_of(first[first != second], second[first != second], rows, ()):
                zero = np.zeros(cliques, np.int64)
                self.conditions.append(Occupancy(self._name, self._load(clique, cliques), zero, zero + 1))
            return
        if self._is_choice and not self.optional:
            leader = np.full(groups, rows, np.int64)
            np.minimum.at(leader, group[group != NONE], np.flatnonzero(group != NONE))
            found = np.where(group != NONE, leader[group], NONE).astype(np.int32)
            found[leader] = NONE
            self.conditions.append(Colocation(self._name, found))
            return
        zero = np.zeros(groups, np.int64)
        self.conditions.append(Occupancy(self._name, self._load(group, groups), zero, zero + 1))


def _kept_apart(limits: Sequence[Limit], bucket: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """(rows,) groups in which no two rows have the same attribute, by limits of one on that or on more."""
    found = []
    for limit in limits:
        load = limit.load
        pairs = np.unique(np.stack((bucket, load.bucket))[:, bucket != NONE], axis=1)
        coarser = pairs.shape[1] == len(np.unique(pairs[0])) and not bool((pairs[1] == NONE).any())
        if coarser and int(np.max(limit.upper, initial=0)) <= 1:
            found.append(np.where(load.weight > 0, load.group, NONE).astype(np.int32))
    return found


def _square_of(own: Amounts, first: Places, second: Places, cost: Amounts) -> Amounts | None:
    """(rows,) sizes of which the square of what is in a bucket is what all pairs there cost, or less that; or None."""
    size = np.sqrt(np.abs(own).astype(np.float64)).round().astype(np.int64)
    number = int(np.count_nonzero(size))
    sign = 1 if bool((own >= 0).all()) else -1
    whole = bool((sign * size * size == own).all()) and len(cost) == number * (number - 1) // 2
    return size if number and whole and bool((cost == 2 * sign * size[first] * size[second]).all()) else None
