"""Random small problems over amounts of 2^20 to 2^60, and the twin that tries every choice.

Amounts are bytes, nanoseconds or cents: of any digits, with no divisor in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, product
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgmt.optimization.assignment import UNLIMITED, Cost, CostFunction, Limit, Load, RowCost
from mgmt.optimization.columns import Integers, Linear, Linears, Lists, Mask, integers
from mgmt.optimization.load_functions import LoadNumber, greatest
from mgmt.optimization.problem import Objective, Problem, Source, add, scale
from tests.mgmt.engines.random_assignments import Maker


def unit_of(random: Random) -> int:
    """The size of amounts: each power of two from 2^20 to 2^60 as often as any other."""
    return int(2 ** random.uniform(20, 60))


def amounts_of(random: Random, unit: int, count: int) -> list[int]:
    """So many amounts of up to a unit, whose sum and as much again is exact in 64 bits."""
    most = min(unit, (2**61 - 1) // max(1, count))
    return [random.randint(most // 2, most) for _ in range(count)]


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """An expression of a problem, and what it is worth under each choice."""

    linear: Linear
    worth: Integers

    def __add__(self, other: Number) -> Number:
        return Number(add(self.linear, other.linear), self.worth + other.worth)

    def times(self, factor: int) -> Number:
        return Number(scale(self.linear, factor), self.worth * factor)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A literal, and whether it holds under each choice."""

    literal: int
    holds: Mask

    def __invert__(self) -> Condition:
        return Condition(self.literal ^ 1, ~self.holds)


class AmountsProblem:
    """Items of random amounts at places, places in states, random demands over both, and one or two tiers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.problem = problem = Problem()
        items, places, states = random.randint(2, 5), random.randint(1, 3), random.randint(2, 3)
        sizes = [places] * items + [states] * places
        self.choices = Lists.of([problem.new_literals(size).tolist() for size in sizes])
        problem.require_one(self.choices, exactly=True)
        every = np.array(list(product(*map(range, sizes))), np.int64)
        self.allowed = np.ones(len(every), np.bool_)
        self.unit = unit_of(random)
        amounts = amounts_of(random, self.unit, items)
        self.total = sum(amounts)
        is_at = [
            [Condition(literal, every[:, row] == value) for value, literal in enumerate(literals)]
            for row, literals in enumerate(map(list, map(self.choices.row, range(len(sizes)))))
        ]
        self.is_at, self.is_in = is_at[:items], is_at[items:]
        ones = np.ones(len(every), np.int64)
        self.loads = [
            self.sum_of([(amount, at[place]) for amount, at in zip(amounts, self.is_at, strict=True)])
            for place in range(places)
        ]
        self.counts = [self.sum_of([(1, at[place]) for at in self.is_at]) for place in range(places)]
        self.one = Number(Linear(1), ones)
        for number in range(random.randint(2, 5)):
            random.choice(self.demands())(Source(random.choice("xyz"), integers([number])))
        self.worth: list[Integers] = []
        for tier in range(1, random.randint(1, 2) + 1):
            aim, maximize = random.choice(self.objectives())(), random.random() < 0.4
            problem.objectives.append(Objective(f"o{tier}", aim.linear, maximize, tier, 1))
            self.worth.append(-aim.worth if maximize else aim.worth)

    def best(self) -> tuple[int, ...] | None:
        """Per tier what the best choice costs; None when nothing is allowed."""
        worths = np.stack(self.worth, 1)[self.allowed]
        return min(map(tuple, worths.tolist()), default=None)

    # ---- demands and objectives ---------------------------------------------------------------------

    def demands(self) -> list[Callable[[Source], None]]:
        return [
            self.room_in_a_state,
            self.room_in_a_state,
            self.room_or_state,
            self.room,
            self.band,
            self.gate,
        ]

    def room_in_a_state(self, source: Source) -> None:
        """A place in a state has so much room; what it takes besides depends on another state."""
        place = self.random.randrange(len(self.loads))
        when = self.state(place)
        load = self.loads[place]
        if self.random.random() < 0.4:
            load = load + self.sum_of([(self.random.randint(1, self.unit), self.state())])
        self.require(load, None, self.size(), source, when)

    def room_or_state(self, source: Source) -> None:
        """Either so little there, or another state."""
        place = self.random.randrange(len(self.loads))
        size, state = self.size(), self.state(place)
        low = self.problem.at_most(Linears.of(self.loads[place].linear), size)
        self.problem.require_any(Lists.of([(int(low[0]), state.literal)]), source)
        self.allowed &= (self.loads[place].worth <= size) | state.holds

    def room(self, source: Source) -> None:
        self.require(self.random.choice(self.loads), None, self.size(), source)

    def band(self, source: Source) -> None:
        """Two places differ by so much at most, of amounts or of what amounts and states weigh."""
        number = self.random.choice(self.loads) + self.random.choice(self.loads).times(-1)
        self.require(number + self.sum_of([(self.size(), self.state())]), -self.size(), self.size(), source)

    def gate(self, source: Source) -> None:
        """What stands at a place in a state, and what the greatest place has, is bounded."""
        gated = self.gated()
        self.require(
            gated + self.greatest() if self.random.random() < 0.5 else gated, None, self.size(), source
        )

    def objectives(self) -> list[Callable[[], Number]]:
        return [self.states, self.states, self.weighed, self.gated, self.greatest, self.quotient]

    def states(self) -> Number:
        """How many places are in some states."""
        return self.sum_of([(self.random.randint(0, 3), self.state()) for _ in range(4)])

    def weighed(self) -> Number:
        """An amount for each item where it is, and one for some state."""
        terms = [(self.random.randint(0, self.unit), at) for places in self.is_at for at in places]
        return self.sum_of(terms).times(1) if self.total < 2**58 else self.sum_of(terms[:2])

    def gated(self) -> Number:
        """What stands at a place while that is in a state."""
        place = self.random.randrange(len(self.loads))
        load, state = self.loads[place], self.state(place)
        linear = self.problem.gated(Linears.of(load.linear), integers([state.literal])).row(0)
        return Number(linear, np.where(state.holds, load.worth, 0))

    def greatest(self) -> Number:
        """What the fullest place has."""
        operands = Linears.of(*(load.linear for load in self.loads))
        linear = self.problem.maximum(operands, integers([0] * len(self.loads)), 1).row(0)
        return Number(linear, np.max([load.worth for load in self.loads], axis=0))

    def quotient(self) -> Number:
        """A load in another unit."""
        load, divisor = self.random.choice(self.loads), max(1, self.unit // self.random.randint(1, 9))
        linear = self.problem.quotient(Linears.of(load.linear), integers([divisor])).row(0)
        return Number(linear, load.worth // divisor)

    # ---- parts --------------------------------------------------------------------------------------

    def require(
        self, number: Number, lower: int | None, upper: int, source: Source, when: Condition | None = None
    ) -> None:
        literal = None if when is None else integers([when.literal])
        self.problem.require_range(Linears.of(number.linear), lower, upper, source, when=literal)
        holds = number.worth <= upper
        if lower is not None:
            holds &= number.worth >= lower
        self.allowed &= holds if when is None else holds | ~when.holds

    def state(self, place: int | None = None) -> Condition:
        """That a place is in some state, or is not."""
        states = self.is_in[self.random.randrange(len(self.is_in)) if place is None else place]
        state = self.random.choice(states)
        return ~state if self.random.random() < 0.5 else state

    def size(self) -> int:
        return int(self.total * self.random.uniform(0.2, 0.9))

    def sum_of(self, terms: list[tuple[int, Condition]]) -> Number:
        literals = integers([condition.literal for _, condition in terms])
        amounts = integers([amount for amount, _ in terms])
        linears = [Linears.literals(literals[[row]], amounts[[row]]).row(0) for row in range(len(terms))]
        worth = sum(amount * condition.holds.astype(np.int64) for amount, condition in terms)
        return Number(add(*linears), np.asarray(worth, np.int64))


class AmountsMaker(Maker):
    """Random assignments whose weights, limits and prices are such amounts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, most_rows=4, most_values=3)
        self.unit = min(unit_of(self.random), 2**56)

    def load(self) -> Load:
        load = super().load()
        weight = [self.random.randint(self.unit // 2, self.unit) for _ in range(self.rows)]
        return replace(load, weight=np.where(load.weight > 1, weight, load.weight))

    def limit(self, name: str, loads: list[Load]) -> Limit:
        limit = super().limit(name, loads)
        if int(limit.load.weight.max(initial=0)) < self.unit // 2:
            return limit
        some = self.random.randint(self.unit // 2, self.unit)
        upper = np.where(limit.upper < UNLIMITED, limit.upper * some, limit.upper)
        return replace(limit, lower=limit.lower * (some // 4), upper=upper)

    def cost(self, loads: list[Load]) -> Cost:
        cost = super().cost(loads)
        if isinstance(cost, RowCost) and self.random.random() < 0.5:
            return replace(
                cost, cost=cost.cost * (self.unit // 16), unplaced=cost.unplaced * (self.unit // 16)
            )
        return cost

    def function(self, loads: int, buckets: int) -> CostFunction:
        """No squares: of such amounts they leave 64 bits."""
        whole = sum(map(LoadNumber, range(1, loads)), LoadNumber(0))
        offset = np.arange(buckets) * (self.unit // 4)
        return self.random.choice((whole + offset, greatest(whole - offset, 0)))


SCHEMA = """
CREATE TABLE size (name TEXT PRIMARY KEY);
CREATE TABLE host (
  name TEXT PRIMARY KEY, small BIGINT NOT NULL, large BIGINT NOT NULL, price BIGINT NOT NULL,
  variable__size TEXT NOT NULL REFERENCES size (name)
);
CREATE TABLE item (id INTEGER PRIMARY KEY, bytes BIGINT NOT NULL, variable__host TEXT NOT NULL REFERENCES host (name));
"""
_PLACED = "FROM item JOIN host ON item.variable__host = host.name"
_BY_HOST = f"{_PLACED} GROUP BY host.name, host.small, host.large"
RULES = {
    "sized": f"""SELECT host.name {_BY_HOST}, host.variable__size
        CHECK (variable__size = 'S' AND sum(bytes) <= small)
        OR (variable__size = 'M' AND sum(bytes) <= large) OR variable__size = 'L'""",
    "room": f"SELECT host.name {_BY_HOST} CHECK sum(bytes) <= large",
    "few": f"SELECT host.name {_BY_HOST} CHECK count(*) <= 3",
    "no_l": "SELECT * FROM host CHECK variable__size <> 'L'",
    "one_m": "SELECT * FROM host WHERE variable__size = 'M' CHECK count(*) <= 1",
    "least_l": "SELECT * FROM host WHERE variable__size = 'L' MINIMIZE count(*)",
    "least_m": "SELECT * FROM host WHERE variable__size = 'M' MINIMIZE count(*)",
    "most_in_s": f"SELECT * {_PLACED} WHERE variable__size = 'S' MAXIMIZE sum(bytes)",
    "even": f"SELECT host.name, sum(bytes) AS total {_BY_HOST} MINIMIZE max(total)",
    "paid": f"SELECT * {_PLACED} MINIMIZE sum(bytes * price)",
}
POLICIES = (
    ("sized", "least_l", "least_m"),
    ("sized", "no_l", "one_m", "paid"),
    ("sized", "no_l", "most_in_s"),
    ("room", "few", "even", "paid"),
    ("room", "paid"),
)


def policies_of(names: tuple[str, ...]) -> str:
    """Rules by name, each objective in a tier of its own."""
    tier = count(1)
    objective = ("MINIMIZE", "MAXIMIZE")
    tails = {
        name: f" TIER {next(tier)}" if any(w in RULES[name] for w in objective) else "" for name in names
    }
    return "".join(f"CREATE CONSTRAINT {name} AS {RULES[name]}{tail};\n" for name, tail in tails.items())


class AmountsData:
    """Rows for these rules, and what each rule says of every choice."""

    def __init__(self, random: Random) -> None:
        items, hosts = random.randint(3, 5), random.randint(2, 3)
        unit = min(unit_of(random), 2**57)
        self.bytes = amounts_of(random, unit, items)
        total = sum(self.bytes)
        self.small = [int(total * random.uniform(0.15, 0.6)) for _ in range(hosts)]
        self.large = [int(total * random.uniform(0.35, 0.9)) for _ in range(hosts)]
        self.price = [random.randint(1, 5) for _ in range(hosts)]

    def rows(self) -> dict[str, list[dict[str, int | str]]]:
        hosts = zip(self.small, self.large, self.price, strict=True)
        return {
            "size": [{"name": name} for name in "SML"],
            "host": [
                {"name": f"h{number}", "small": small, "large": large, "price": price}
                for number, (small, large, price) in enumerate(hosts)
            ],
            "item": [{"id": number, "bytes": size} for number, size in enumerate(self.bytes)],
        }

    def best(self, names: tuple[str, ...]) -> list[int] | None:
        """What the objectives cost at best, in order; None when nothing keeps the rules."""
        says = self.of_every_choice(names)
        kept = np.logical_and.reduce([holds for holds in says.values() if holds.dtype == np.bool_])
        costs = [costs for costs in says.values() if costs.dtype != np.bool_]
        found: list[int] | None = min(np.stack(costs, 1)[kept].tolist(), default=None)
        return found

    def of_every_choice(self, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        """By rule: whether each choice keeps it, or what it costs."""
        hosts, items = len(self.price), len(self.bytes)
        sized = any("variable__size" in RULES[name] for name in names)
        every = np.array(
            list(product(*[range(hosts)] * items, *[range(3 if sized else 1)] * hosts)), np.int64
        )
        at, size = every[:, :items, None] == np.arange(hosts), every[:, items:]
        load = (at * np.array(self.bytes, np.int64)[:, None]).sum(axis=1)
        fits = np.stack([load <= self.small, load <= self.large, np.ones_like(load, np.bool_)])
        small_medium_large = (size == np.arange(3)[:, None, None]) & fits
        says = {
            "sized": small_medium_large.any(axis=0).all(axis=1),
            "room": (load <= self.large).all(axis=1),
            "few": (at.sum(axis=1) <= 3).all(axis=1),
            "no_l": (size != 2).all(axis=1),
            "one_m": (size == 1).sum(axis=1) <= 1,
            "least_l": (size == 2).sum(axis=1),
            "least_m": (size == 1).sum(axis=1),
            "most_in_s": -(load * (size == 0)).sum(axis=1),
            "even": load.max(axis=1),
            "paid": (load * self.price).sum(axis=1),
        }
        return {name: says[name] for name in names}
