"""The difference of two solutions: decisions, and what each objective is worth in either."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mgmt.explaining.solutions.decisions import Decision
from mgmt.solution import ObjectiveValue, Solution, Value


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """A decision that differs; None on a side also where that side has no such row."""

    decision: Decision
    one: Value
    other: Value


@dataclass(frozen=True, slots=True)
class ObjectiveChange:
    """An objective that differs.  ``worse_by`` is negative when the other solution is better in it."""

    name: str
    tier: int
    sense: str
    one: int
    other: int
    unit: str = ""

    @property
    def worse_by(self) -> int:
        change = self.other - self.one
        return -change if self.sense == "maximize" else change

    def __str__(self) -> str:
        """``2 memory in level (7 instead of 5)``: what is paid, or gained."""
        amount = abs(self.worse_by)
        unit = f" {self.unit}" if self.unit else ""
        if amount == 1 and unit.startswith(" rows of "):
            unit = unit.replace(" rows ", " row ", 1)
        return f"{amount}{unit} in {self.name} ({self.other} instead of {self.one})"


@dataclass(frozen=True, slots=True)
class Difference:
    """From one solution to another."""

    decisions: tuple[DecisionChange, ...]
    objectives: tuple[ObjectiveChange, ...]
    only_one: tuple[str, ...] = ()
    """The objectives that the other solution's policies do not have."""
    only_other: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.decisions or self.objectives or self.only_one or self.only_other)

    @property
    def decisive_tier(self) -> int | None:
        """The first tier in which they are not equally good; None when they are equally good in all."""
        return self.decisive[0].tier if self.decisive else None

    @property
    def decisive(self) -> tuple[ObjectiveChange, ...]:
        """The objectives of that tier that differ."""
        tiers: dict[int, list[ObjectiveChange]] = {}
        for change in self.objectives:
            tiers.setdefault(change.tier, []).append(change)
        return tuple(tiers[min(tiers)]) if tiers else ()

    @property
    def cost(self) -> str:
        """``costs 2 memory in level (7 instead of 5)``, by the objectives that decide."""
        paid = [str(change) for change in self.decisive if change.worse_by > 0]
        gained = [str(change) for change in self.decisive if change.worse_by < 0]
        words = [f"costs {' and '.join(paid)}"] if paid else []
        words += [f"gains {' and '.join(gained)}"] if gained else []
        return " and ".join(words) or "costs nothing in any objective"

    @property
    def alike(self) -> tuple[tuple[DecisionChange, ...], ...]:
        """The decisions, those together that change from the same value to the same value."""
        found: dict[tuple[object, ...], list[DecisionChange]] = {}
        for change in self.decisions:
            place = change.decision.table, change.decision.variable, change.one, change.other
            found.setdefault(place, []).append(change)
        return tuple(map(tuple, found.values()))

    def without(self, decision: Decision) -> Difference:
        """What changes besides."""
        return replace(self, decisions=tuple(each for each in self.decisions if each.decision != decision))


def shown(value: Value) -> str:
    """A value for people; nothing is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def diff(one: Solution, other: Solution) -> Difference:
    """What changes from ``one`` to ``other``."""
    changes = [
        DecisionChange(Decision(place[0], key, place[1]), mine.get(key), theirs.get(key))
        for place in dict.fromkeys((*one.assignments, *other.assignments))
        for mine, theirs in [(one.assignments.get(place, {}), other.assignments.get(place, {}))]
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]
    return Difference(
        tuple(changes),
        objective_changes(one.objectives, other.objectives),
        _missing(one.objectives, other.objectives),
        _missing(other.objectives, one.objectives),
    )


def _missing(objectives: tuple[ObjectiveValue, ...], others: tuple[ObjectiveValue, ...]) -> tuple[str, ...]:
    known = {objective.name for objective in others}
    return tuple(objective.name for objective in objectives if objective.name not in known)


def objective_changes(
    one: tuple[ObjectiveValue, ...], other: tuple[ObjectiveValue, ...]
) -> tuple[ObjectiveChange, ...]:
    """The objectives that both have and that differ."""
    theirs = {objective.name: objective for objective in other}
    return tuple(
        ObjectiveChange(mine.name, mine.tier, mine.sense, mine.after, theirs[mine.name].after, mine.unit)
        for mine in one
        if mine.name in theirs and theirs[mine.name].after != mine.after
    )
