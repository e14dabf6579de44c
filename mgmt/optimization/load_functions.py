"""What loads cost: functions of them, made of few known operators, bucket by bucket.

A cost is a tree: loads and constants added, multiplied, divided by a constant with SQL's truncation, compared with
nothing, and the greatest of them.  What a function is like (affine, convex, growing) and what it comes to at least is
read off the tree, however large the loads are (see ``engines.model.load_analysis``).  Constants may tell buckets apart;
so a function can be had for some buckets alone, and asked once for those that cost alike.

A function of any other kind, that can only be asked for values, is :class:`Opaque`; engines tabulate it.

What it is not: it knows neither what the functions mean nor which buckets matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import TypeAlias

import numpy as np

from mgmt.optimization.assignment import Amounts, CostFunction, Indices, LoadCost, Mask
from mgmt.optimization.dense_ranks import joint_ranks

Values: TypeAlias = Amounts | Mask
"""Constants: of (groups, buckets), or what broadcasts to that; a truth is 0 or 1."""

_MOST_GROUPS = 64
"""Of a constant: where there are more, its buckets are not compared."""


class LoadFunction(ABC):
    """A function of loads, arrays (..., groups, buckets), element by element.

    Numbers in an expression are constants, and arrays those of (groups, buckets) that broadcast.
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        """What it is a function of."""
        return ()

    @abstractmethod
    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        """The same function of other parts."""

    @abstractmethod
    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        """What it comes to when its parts come to these."""

    def __call__(self, loads: tuple[Amounts, ...]) -> Amounts:
        return self.evaluated(lambda leaf: leaf.of_values(loads))

    def evaluated(self, leaf: Callable[[LoadFunction], Amounts]) -> Amounts:
        """What it comes to with leaves that come to these."""
        found: dict[int, Amounts] = {}
        for node in self.walk():
            parts = [found[id(part)] for part in node.parts]
            found[id(node)] = node.of_values(parts) if parts else leaf(node)
        return found[id(self)]

    def walk(self) -> Iterator[LoadFunction]:
        """Every node once, parts before what they are parts of."""
        return iter(self._nodes({}).values())

    def _nodes(self, known: dict[int, LoadFunction]) -> dict[int, LoadFunction]:
        if id(self) not in known:
            for part in self.parts:
                part._nodes(known)
            known[id(self)] = self
        return known

    def mapped(self, leaf: Callable[[LoadFunction], LoadFunction]) -> LoadFunction:
        """The same with other leaves."""
        made: dict[int, LoadFunction] = {}
        for node in self.walk():
            parts = tuple(made[id(part)] for part in node.parts)
            made[id(node)] = node.with_parts(parts) if parts else leaf(node)
        return made[id(self)]

    def simplified(self) -> LoadFunction:
        """The same with constants taken together, and what is there twice there once."""
        known: dict[tuple[object, ...], LoadFunction] = {}
        made: dict[int, LoadFunction] = {}
        for node in self.walk():
            parts = tuple(made[id(part)] for part in node.parts)
            found = node.folded(parts) if parts else node
            made[id(node)] = known.setdefault(found.key(), found)
        return made[id(self)]

    def folded(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        """The same function of other parts, or what is simpler and comes to the same."""
        return self.with_parts(parts)

    def key(self) -> tuple[object, ...]:
        """What is equal for functions of one kind of the very same parts."""
        return (type(self), *map(id, self.parts or (self,)))

    @property
    def loads(self) -> frozenset[int]:
        """The numbers of the loads that it depends on."""
        return frozenset(node.number for node in self.walk() if isinstance(node, LoadNumber))

    def of_buckets(self, buckets: Indices, number: int) -> LoadFunction:
        """The function over these of its ``number`` buckets, in this order."""

        def chosen(leaf: LoadFunction) -> LoadFunction:
            if not isinstance(leaf, Constant) or leaf.values.shape[-1] != number:
                return leaf
            return Constant(leaf.values[..., buckets])

        return self.mapped(chosen)

    def sorts(self, number: int) -> Indices:
        """(number,) what sort each bucket is of: those of one sort cost alike under equal loads."""
        told = [node.values for node in self.walk() if isinstance(node, Constant)]
        told = [values for values in told if values.shape[-1] == number > 1]
        opaque = any(isinstance(node, Opaque) for node in self.walk())
        if opaque or sum(map(len, told)) > _MOST_GROUPS:
            return np.arange(number, dtype=np.int32)
        return joint_ranks([row for values in told for row in values], number)[0].astype(np.int32)

    def shifted(self, number: int) -> LoadFunction:
        """The same of loads that come so many places later."""
        return self.mapped(
            lambda leaf: LoadNumber(leaf.number + number) if isinstance(leaf, LoadNumber) else leaf
        )

    def magnitude(self, most: Sequence[float]) -> float:
        """What neither it nor anything on the way to it exceeds, with loads up to these."""
        sizes: dict[int, float] = {}
        for node in self.walk():
            sizes[id(node)] = node.size([sizes[id(part)] for part in node.parts] or most)
        return max(sizes.values())

    def size(self, parts: Sequence[float]) -> float:
        """What it does not exceed where its parts (of a load: the loads) do not exceed these."""
        return sum(parts)

    def __add__(self, other: LoadFunction | Values | int) -> LoadFunction:
        return _folded(Total((self, function(other))), same=0)

    def __radd__(self, other: Values | int) -> LoadFunction:
        return self + other

    def __neg__(self) -> LoadFunction:
        return self * -1

    def __sub__(self, other: LoadFunction | Values | int) -> LoadFunction:
        return self + -function(other)

    def __rsub__(self, other: Values | int) -> LoadFunction:
        return -self + other

    def __mul__(self, other: LoadFunction | Values | int) -> LoadFunction:
        return _folded(Product(self, function(other)), same=1)

    def __rmul__(self, other: Values | int) -> LoadFunction:
        return self * other

    def over(self, divisor: Values | int) -> LoadFunction:
        """Divided by constants, towards 0."""
        return Quotient(self, constant(divisor))

    __array_ufunc__ = None  # an array beside a function is a constant, not a column of functions


@dataclass(frozen=True, slots=True, eq=False)
class LoadNumber(LoadFunction):
    """One of the loads."""

    number: int

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        del parts
        return self

    def key(self) -> tuple[object, ...]:
        return (LoadNumber, self.number)

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        return values[self.number]

    def size(self, parts: Sequence[float]) -> float:
        return parts[self.number]


@dataclass(frozen=True, slots=True, eq=False)
class Constant(LoadFunction):
    """What costs the same under any load."""

    values: Amounts
    """Broadcastable to (groups, buckets)."""

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        del parts
        return self

    def key(self) -> tuple[object, ...]:
        return (Constant, self.values.shape, self.values.tobytes())

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        del values
        return self.values

    def size(self, parts: Sequence[float]) -> float:
        del parts
        return float(np.abs(self.values.astype(np.float64)).max(initial=0))

    def __neg__(self) -> LoadFunction:
        return Constant(-self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Total(LoadFunction):
    """The sum."""

    terms: tuple[LoadFunction, ...]

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        return self.terms

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        return Total(parts)

    def folded(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        terms = [term for part in parts for term in (part.terms if isinstance(part, Total) else (part,))]
        rest = [term for term in terms if not isinstance(term, Constant)]
        base = constant(
            sum((term.values for term in terms if isinstance(term, Constant)), np.zeros((1, 1), np.int64))
        )
        if not rest or bool(base.values.any()):
            rest.append(base)
        return rest[0] if len(rest) == 1 else Total(tuple(rest))

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        return reduce(np.add, values)


@dataclass(frozen=True, slots=True, eq=False)
class Product(LoadFunction):
    """One times the other."""

    one: LoadFunction
    other: LoadFunction

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        return (self.one, self.other)

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        return Product(*parts)

    def folded(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        one, other = parts
        return _folded(Product(other, one) if isinstance(one, Constant) else Product(one, other), same=1)

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        one, other = values
        return np.asarray(one * other)

    def size(self, parts: Sequence[float]) -> float:
        return parts[0] * parts[1]


@dataclass(frozen=True, slots=True, eq=False)
class Quotient(LoadFunction):
    """One divided by the other, towards 0; by 1 where that is 0."""

    dividend: LoadFunction
    divisor: LoadFunction

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        return (self.dividend, self.divisor)

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        return Quotient(*parts)

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        return quotient(*values)

    def size(self, parts: Sequence[float]) -> float:
        return parts[0]


@dataclass(frozen=True, slots=True, eq=False)
class Positive(LoadFunction):
    """1 where something is more than 0, else 0."""

    number: LoadFunction

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        return (self.number,)

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        return Positive(*parts)

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        return np.asarray(values[0] > 0).astype(np.int64)

    def size(self, parts: Sequence[float]) -> float:
        del parts
        return 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Greatest(LoadFunction):
    """The greatest of several."""

    terms: tuple[LoadFunction, ...]

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        return self.terms

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        return Greatest(parts)

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        return reduce(np.maximum, values)

    def size(self, parts: Sequence[float]) -> float:
        return max(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Opaque(LoadFunction):
    """A function that is not known but can be asked, of ``number`` buckets, and asked for some of them."""

    function: CostFunction
    arguments: tuple[LoadFunction, ...]
    buckets: Indices
    number: int

    @property
    def parts(self) -> tuple[LoadFunction, ...]:
        return self.arguments

    def with_parts(self, parts: tuple[LoadFunction, ...]) -> LoadFunction:
        return replace(self, arguments=parts)

    def of_buckets(self, buckets: Indices, number: int) -> LoadFunction:
        arguments = tuple(part.of_buckets(buckets, number) for part in self.arguments)
        return Opaque(self.function, arguments, self.buckets[buckets], self.number)

    def of_values(self, values: Sequence[Amounts]) -> Amounts:
        whole = []
        for load in values:
            spread = np.zeros((*load.shape[:-1], self.number), np.int64)
            spread[..., self.buckets] = load
            whole.append(spread)
        costs = np.broadcast_to(self.function(tuple(whole)), whole[0].shape)
        return np.asarray(costs[..., self.buckets])


def quotient(dividend: Amounts, divisor: Amounts) -> Amounts:
    """Divided towards 0, as SQL does; by 1 where the divisor is 0."""
    divisor = np.where(divisor == 0, 1, divisor)
    whole = np.abs(dividend) // np.abs(divisor)
    return np.where((dividend < 0) == (divisor < 0), whole, -whole)


def constant(value: Values | int) -> Constant:
    """What is the same under any load; of (groups, buckets), or one for all of them."""
    values = np.atleast_2d(np.asarray(value, np.int64))
    return Constant(values[:1, :1] if values.size and bool((values == values[0, 0]).all()) else values)


def _folded(node: LoadFunction, *, same: int) -> LoadFunction:
    """An operator of two parts, or what it comes to where both are constant, or one is what changes nothing."""
    one, other = node.parts
    if isinstance(one, Constant) and isinstance(other, Constant):
        return constant(node(()))
    for part, rest in ((one, other), (other, one)):
        if isinstance(part, Constant) and part.values.size == 1 and part.values.item() == same:
            return rest
    return node


def function(value: LoadFunction | Values | int) -> LoadFunction:
    """A constant, where it is not a function already."""
    return value if isinstance(value, LoadFunction) else constant(value)


def greatest(*terms: LoadFunction | Values | int) -> LoadFunction:
    """The greatest of several."""
    return Greatest(tuple(map(function, terms)))


def tree_of(cost: LoadCost) -> LoadFunction:
    """A cost's function as a tree."""
    if isinstance(cost.cost, LoadFunction):
        return cost.cost
    number = cost.loads[0].buckets
    arguments = tuple(map(LoadNumber, range(len(cost.loads))))
    return Opaque(cost.cost, arguments, np.arange(number, dtype=np.int32), number)


@lru_cache(maxsize=32)
def parts_of(cost: LoadCost) -> tuple[LoadCost, ...]:
    """The peaks of which a cost is the greatest; itself where it is not made of several."""
    if not cost.peak or not isinstance(cost.cost, Greatest):
        return (cost,)
    parts = []
    for term in cost.cost.terms:
        used = sorted(term.loads) or [0]
        number = {old: LoadNumber(new) for new, old in enumerate(used)}

        def renumbered(leaf: LoadFunction, number: dict[int, LoadNumber] = number) -> LoadFunction:
            return number[leaf.number] if isinstance(leaf, LoadNumber) else leaf

        loads = tuple(cost.loads[old] for old in used)
        parts.append(LoadCost(cost.name, cost.weight, loads, term.mapped(renumbered), True))
    return tuple(parts)
