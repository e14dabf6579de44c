"""What a solve hands out: decided values, the changes they mean, and how good they are.

A :class:`Solution` is plain data, bound to the version of the state it was computed from; applying it is
``Database.apply``, a compare-and-set on that version.  How to get from the old placement to the new one
(steps, order, throttles) is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

Value: TypeAlias = int | str | bool | None
PrimaryKey: TypeAlias = tuple[Value, ...]


class SolveStatus(StrEnum):
    """How a solve ended.  An infeasible one raises instead."""

    OPTIMAL = "optimal"  # every objective is proven, tier by tier
    FEASIBLE = "feasible"  # all hard constraints hold; the budget ended before the proof
    UNCHANGED = "unchanged"  # proven optimal, and it is what the state already says: no deltas


@dataclass(frozen=True, slots=True)
class Delta:
    """One cell that changes.

    ``primary_key`` holds the values of the table's primary key, in key order.  ``column`` is the column with
    the current value (``host``), ``variable`` the variable column that decides it (``controllable__host``);
    both are the same when the variable is not paired with a current value.
    """

    table: str
    primary_key: PrimaryKey
    column: str
    old: Value
    new: Value
    variable: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """(table, variable column), as in the assignments of a solution."""
        return self.table, self.variable or self.column


@dataclass(frozen=True, slots=True)
class ObjectiveValue:
    """One objective: its value under the current state (None if that is incomplete), now, and its bound."""

    name: str
    sense: str  # "minimize" or "maximize"
    tier: int
    weight: int
    before: int | None
    after: int
    bound: int | None
    """The best that the more important tiers leave possible; None when not alone in its tier, or not known."""
    proven: bool
    unit: str = ""
    """What it counts: ``rows of task``, ``memory``; empty where that cannot be told."""


@dataclass(frozen=True, slots=True)
class Unassigned:
    """Rows whose nullable variable has no value in a plan, though nothing says that this is worse than a value.

    ``rows`` of the ``of`` rows of the table; ``satisfied`` are the constraints and objectives that NULL satisfies, with
    the reason.
    """

    table: str
    variable: str
    rows: int
    of: int
    satisfied: Mapping[str, str]

    @property
    def hint(self) -> str:
        """What to write."""
        return (
            f"declare {self.variable} NOT NULL, or say that a value is better: CREATE CONSTRAINT {self.table}_left_out "
            f"AS SELECT * FROM {self.table} WHERE {self.variable} IS NULL MINIMIZE count(*), in a tier before others"
        )

    @property
    def reasons(self) -> str:
        """What NULL satisfies, and why."""
        names: dict[str, list[str]] = {}
        for name, reason in self.satisfied.items():
            names.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(each)} ({reason})" for reason, each in names.items())

    def __str__(self) -> str:
        return f"{self.rows} of {self.of} rows of {self.table} have no {self.variable}: NULL satisfies {self.reasons}"


@dataclass(frozen=True, slots=True)
class Solution:
    """A verified solution of one snapshot."""

    status: SolveStatus
    version: int
    deltas: tuple[Delta, ...]
    objectives: tuple[ObjectiveValue, ...]
    # (table, variable column) -> primary key -> decided value, for every row, changed or not
    assignments: Mapping[tuple[str, str], Mapping[PrimaryKey, Value]]
    gap: float = 0.0  # |value - bound| / max(1, |value|) of the first tier that is not proven; 1 where nothing is known
    seconds: float = 0.0  # wall time of the solve, verification included
    statistics: Mapping[str, Any] = field(default_factory=dict)
    held: str = ""
    """What keeps a better plan back (SET cooldown, SET min_gain), and until when; for people."""
    moment: datetime | None = None
    """The time that the policies were told, in UTC; None if none asks for it."""
    unassigned: tuple[Unassigned, ...] = ()
    """Rows left without a value that nothing asks one of: mostly an oversight of the policies."""

    def value(self, table: str, variable: str, *primary_key: Value) -> Value:
        """The decided value of one cell; KeyError if there is no such row."""
        return self.assignments[table, variable][primary_key]

    def without(self, deltas: Iterable[Delta]) -> dict[tuple[str, str], Mapping[PrimaryKey, Value]]:
        """The assignments, but for these changes."""
        found, old = dict(self.assignments), dict[tuple[str, str], dict[PrimaryKey, Value]]()
        for delta in deltas:
            old.setdefault(delta.place, {})[delta.primary_key] = delta.old
        for place, values in old.items():
            found[place] = {**found[place], **values}
        return found
