"""Prices of pairs of rows by what both have, as costs of rows and loads.

What a pair pays is what the one row pays, what the other does, and a price where both have values of one bucket: a
table over the values of both is taken apart into that.  Rows that pay ``weight * weight`` for each pair are one load: a
load of W costs W (W - 1) / 2, less what each row would pay alone.  Other prices are counted by sets of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import NONE, Cost, Load, LoadCost, RowCost
from mgmt.optimization.columns import LIMIT, Integers, Lists, components, filled, group_numbers
from mgmt.optimization.lifting.choices import ChoiceCells
from mgmt.optimization.lifting.pairs.tables import PairTables
from mgmt.optimization.lifting.refusal import NotLiftedError
from mgmt.optimization.lifting.sums.families import layers_of
from mgmt.optimization.load_functions import LoadNumber, Product, Quotient, Total, constant

_MOST_PAID = 20_000_000
"""Rows times values."""
_MOST_SETS = 64
"""Of rows whose pairs are counted."""
_MOST_LEVELS = 4
"""Different numbers in a table, any of which all pairs may pay."""

Table = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class PairPrices:
    """What pairs pay, collected by the buckets in which they do."""

    cells: ChoiceCells
    constant: int = 0
    _rows: Table = field(init=False)
    """(R, V + 1) what rows pay, the last where they have no value."""
    _edges: dict[tuple[bytes, bytes], list[tuple[Integers, Integers, Integers]]] = field(default_factory=dict)
    """By (V,) the bucket of each value and (buckets,) the price there: pairs, and how often each pays it."""

    def __post_init__(self) -> None:
        if self.cells.rows * (self.cells.values + 1) > _MOST_PAID:
            raise NotLiftedError("prices of pairs of too many rows")
        self._rows = np.zeros((self.cells.rows, self.cells.values + 1), np.int64)

    def add(self, pairs: PairTables, factors: Integers) -> None:
        """Each pair pays what its table says, so many times.  NotLiftedError where that is of no buckets."""
        column = self.cells.column
        first, number = group_numbers(pairs.number, column[pairs.left], column[pairs.right])
        kind_of = np.append(pairs.kind_of, len(pairs.tables[0]) - 1)
        for place, example in enumerate(first.tolist()):
            some = number == place
            left, right, times = pairs.left[some], pairs.right[some], factors[some]
            table = pairs.tables[int(pairs.number[example])].copy()
            # What is said of having no value is nothing where rows must have one.
            required = self.cells.required[[left[0], right[0]]]
            table[-1] *= not required[0]
            table[:, -1] *= not required[1]
            self.constant += int(table[-1, -1]) * int(times.sum())
            alone = table[:, -1] - table[-1, -1], table[-1] - table[-1, -1]
            both = (table - table[:, -1:] - table[-1:] + table[-1, -1])[:-1, :-1]
            for rows, paid in zip((left, right), alone, strict=True):
                if paid.any():
                    np.add.at(self._rows, rows, times[:, None] * paid[kind_of][None, :])
            domains = self.cells.domains[column[[left[0], right[0]]]]
            may = [np.isin(np.arange(len(both)), pairs.kind_of[domain]) for domain in domains]
            for kinds, prices in _in_buckets(both, may[0][:, None] & may[1][None, :]):
                key = kinds[pairs.kind_of].tobytes(), prices.tobytes()
                self._edges.setdefault(key, []).append((left, right, times))

    def costs(self, name: str) -> Iterator[Cost]:
        """What comes to the same, but for the constant."""
        for (bucket, price), edges in self._edges.items():
            left, right, times = (np.concatenate(some) for some in zip(*edges, strict=True))
            first, number = group_numbers(left, right)
            total = filled(len(first), 0)
            np.add.at(total, number, times)
            there = total != 0
            pairs = left[first[there]], right[first[there]], total[there]
            yield from self._of_buckets(
                name, np.frombuffer(bucket, np.int64), np.frombuffer(price, np.int64), *pairs
            )
        if self._rows.any():
            table, number = np.unique(self._rows, axis=0, return_inverse=True)
            none, paid = table[:, -1].copy(), table[:, :-1].copy()
            yield RowCost(
                name, 1, number.reshape(-1).astype(np.int32), paid, none, filled(self.cells.rows, 0)
            )

    def _of_buckets(
        self, name: str, bucket: Integers, price: Integers, left: Integers, right: Integers, times: Integers
    ) -> Iterator[LoadCost]:
        component = components(left, right, self.cells.rows)
        weights: dict[int, Integers] = {}
        groups: dict[int, Integers] = {}
        sets: list[tuple[Integers, int]] = []
        for number in range(int(component.max(initial=NONE)) + 1):
            rows, mine = np.flatnonzero(component == number), component[left] == number
            table = np.zeros((len(rows), len(rows)), np.int64)
            places = np.searchsorted(rows, left[mine]), np.searchsorted(rows, right[mine])
            table[places] = table[places[::-1]] = times[mine]
            found = _as_weights(table)
            if found is None:
                sets += [(rows[some], often) for some, often in _sets(table)]
                continue
            factor, weight = found
            weights.setdefault(factor, filled(self.cells.rows, 0))[rows] = weight
            groups.setdefault(factor, filled(self.cells.rows, NONE))[rows] = number
        for factor, weight in weights.items():
            group = groups[factor]
            group[group != NONE] = np.unique(group[group != NONE], return_inverse=True)[1]
            alone = factor * weight * (weight - 1) // 2
            paid = np.append(price, 0)[bucket]
            self._rows[:, :-1] -= alone[:, None] * paid[None, :]
            yield _pairs(name, group, weight, bucket, factor * price)
        for often in dict.fromkeys(often for _, often in sets):
            some = [rows for rows, times in sets if times == often]
            yield from self._counted(name, some, bucket, often * price)

    def _counted(
        self, name: str, sets: list[Integers], bucket: Integers, price: Integers
    ) -> Iterator[LoadCost]:
        """All pairs in each of these sets of rows; those that share none are groups of one load."""
        _, _, marks = layers_of([Lists.of([rows.tolist() for rows in sets])], self.cells.rows)
        for (group,) in marks:
            yield _pairs(name, group, filled(self.cells.rows, 1), bucket, price)


def _pairs(name: str, group: Integers, weight: Integers, bucket: Integers, price: Integers) -> LoadCost:
    """Of a load W its W (W - 1) / 2, at each bucket's price."""
    load = Load(
        group.astype(np.int32),
        int(group.max()) + 1,
        bucket.astype(np.int32),
        len(price),
        np.where(group == NONE, 0, weight),
    )
    number = LoadNumber(0)
    pairs = Quotient(Product(number, Total((number, constant(-1)))), constant(2))
    weight_of_all = int(price[0]) if price[0] > 0 and bool((price == price[0]).all()) else 1
    paid = price // weight_of_all
    cost = pairs if bool((paid == 1).all()) else Product(constant(paid[None, :]), pairs)
    return LoadCost(name, weight_of_all, (load,), cost, False)


def _in_buckets(both: Table, asked: NDArray[np.bool_]) -> list[tuple[Integers, Integers]]:
    """(K,) the bucket of each kind and (buckets,) the price there; what all pairs pay is the price of one bucket."""
    number, times = np.unique(both[asked], return_counts=True)
    levels = [0, *number[np.argsort(-times, kind="stable")].tolist()[:_MOST_LEVELS]]
    for level in dict.fromkeys(levels):
        rest = np.where(asked, both - level, 0)
        one, other = np.nonzero(rest)
        bucket = components(one, other, len(both))
        price = filled(int(bucket.max(initial=NONE)) + 1, 0)
        price[bucket[one]] = rest[one, other]
        same = (bucket[:, None] == bucket[None, :]) & (bucket >= 0)[:, None]
        if np.array_equal(np.where(asked & same, np.append(price, 0)[bucket][:, None], 0), rest):
            found = [(bucket, price)] if len(price) else []
            return [*found, (filled(len(both), 0), filled(1, level))] if level else found
    raise NotLiftedError("prices of pairs by values that are of no buckets")


def _as_weights(table: Table) -> tuple[int, Integers] | None:
    """A factor and positive weights of rows, so that each two pay the factor times both weights."""
    count = len(table)
    if count == 2:
        return int(table[0, 1]), filled(2, 1)
    if not bool((table[~np.eye(count, dtype=np.bool_)] != 0).all()):
        return None
    # Three pairs tell how the first row weighs beside the others.
    first, second, third = int(table[1, 2]), int(table[0, 1]), int(table[0, 2])
    weight = [second * third, *(int(each) * first for each in table[0, 1:].tolist())]
    divisor = int(np.gcd.reduce(np.array(weight, object)))
    weight = [each // divisor if weight[0] > 0 else -each // divisor for each in weight]
    factor = second // (weight[0] * weight[1])
    if min(weight) <= 0 or abs(factor) * max(weight) ** 2 > LIMIT:
        return None
    found = np.array(weight, np.int64)
    wrong = table != factor * found[:, None] * found[None, :]
    return None if bool((wrong & ~np.eye(count, dtype=np.bool_)).any()) else (factor, found)


def _sets(table: Table) -> list[tuple[Integers, int]]:
    """Sets of rows, and how often all pairs in each are counted, so that in the end each pair is as often as it says.

    Rows that go with all others alike are one class; all pairs between two classes are those of both together without
    those of each.
    """
    count = len(table)
    class_of = np.arange(count)
    for row in range(count):
        for other in range(row):
            outside = np.ones(count, np.bool_)
            outside[[row, other]] = False
            same = np.array_equal(table[row, outside], table[other, outside])
            mates = np.flatnonzero(class_of == class_of[other])
            if (
                same
                and bool((table[row, mates] == table[row, other]).all())
                and _is_even(table, mates, table[row, other])
            ):
                class_of[row] = class_of[other]
                break
    classes = [np.flatnonzero(class_of == each) for each in np.unique(class_of).tolist()]
    own = [int(table[some[0], some[1]]) if len(some) > 1 else 0 for some in classes]
    found: list[tuple[Integers, int]] = []
    for number, some in enumerate(classes):
        for place, others in enumerate(classes[:number]):
            often = int(table[some[0], others[0]])
            if often:
                found.append((np.sort(np.concatenate((some, others))), often))
                own[number] -= often
                own[place] -= often
    found += [(some, often) for some, often in zip(classes, own, strict=True) if often and len(some) > 1]
    if len(found) > _MOST_SETS:
        raise NotLiftedError("prices of pairs that are of too many sets of rows")
    return found


def _is_even(table: Table, rows: Integers, price: int) -> bool:
    """Whether each two of the rows pay that."""
    inside = table[np.ix_(rows, rows)]
    return bool((inside[~np.eye(len(rows), dtype=np.bool_)] == price).all())
