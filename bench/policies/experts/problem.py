"""What is compared: an instance drawn from a seed, policies in SQL, a CP-SAT model by hand, and a check of plans.

The check is plain Python over the rows.  It knows neither the policies nor the model, and judges the plans of both.
All objectives are minimised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, TypeAlias

from ortools.sat.python import cp_model

from bench.policies.workloads import Tables
from mgmt.solution import Value

Plan: TypeAlias = Mapping[tuple[str, str], Mapping[Any, Value]]
"""(table, variable column) to primary key to value, as in ``Solution.assignments``."""
Literal: TypeAlias = Any
"""A variable of CP-SAT that is 0 or 1."""


class BrokenRuleError(Exception):
    """A plan breaks a rule of its problem; ``str`` says which, and where."""


def require(holds: bool, rule: str) -> None:
    """Raise BrokenRuleError unless it holds."""
    if not holds:
        raise BrokenRuleError(rule)


@dataclass(frozen=True, slots=True)
class Handwritten:
    """An expert's model: what to minimise, the most important first, and how to read a plan from a solution."""

    model: cp_model.CpModel
    tiers: Sequence[Any]
    plan: Callable[[cp_model.CpSolver], Plan]


@dataclass(frozen=True, slots=True)
class Instance:
    """``check`` raises BrokenRuleError, or returns the value of each tier."""

    tables: Tables
    expert: Callable[[], Handwritten]
    check: Callable[[Plan], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Spellings:
    """The same policies by three habits."""

    joins: str
    subqueries: str
    views: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter((each.name, getattr(self, each.name)) for each in fields(self))


@dataclass(frozen=True, slots=True)
class Problem:
    """``instance`` draws one; its second argument is the size, 1 for what is reported."""

    name: str
    about: str
    schema: str
    policies: Spellings
    instance: Callable[[Random, float], Instance]


def scaled(number: int, size: float, least: int) -> int:
    """How many there are of something at a size."""
    return max(least, round(number * size))


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:03}" for number in range(count)]


def text(value: Value) -> str:
    """A value that must be there."""
    require(value is not None, "something has no value")
    return str(value)


def whole(value: Value) -> int:
    """A number that must be there."""
    require(value is not None, "something has no value")
    return int(value or 0)


def totals(pairs: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    """The sum of each key's amounts."""
    found: dict[Any, int] = defaultdict(int)
    for key, amount in pairs:
        found[key] += amount
    return found


def one_of_each(model: cp_model.CpModel, rows: int, values: int) -> list[list[Literal]]:
    """A literal for each row and value, exactly one of each row true."""
    literals = [[model.new_bool_var("") for _ in range(values)] for _ in range(rows)]
    for row in literals:
        model.add_exactly_one(row)
    return literals


def plan_of(
    table: str, column: str, rows: Sequence[str], values: Sequence[str], literals: Sequence[Sequence[Literal]]
) -> Callable[[cp_model.CpSolver], Plan]:
    """For models made with `one_of_each`: reads which value each row of a table has in a solution."""

    def plan(solver: cp_model.CpSolver) -> Plan:
        found = {(row,): values[chosen(solver, each) or 0] for row, each in zip(rows, literals, strict=True)}
        return {(table, column): found}

    return plan


def chosen(solver: cp_model.CpSolver, literals: Sequence[Literal]) -> int | None:
    """Which of these is true, if any."""
    return next((place for place, literal in enumerate(literals) if solver.boolean_value(literal)), None)


def cells_of(solver: cp_model.CpSolver, rows: Iterable[str], numbers: Iterable[Any]) -> dict[Any, Value]:
    """What these numbers of a model are in a solution, by the key of their row."""
    return {(row,): solver.value(number) for row, number in zip(rows, numbers, strict=True)}
