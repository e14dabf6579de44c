"""What solving one part of a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from mgmt.optimization.general.lexicographic import TierResult
from mgmt.solution import Delta, PrimaryKey, Value
from mgmt.state.schema import Column, Schema, Table

# (table, variable column) -> primary key -> value
Assignments: TypeAlias = dict[tuple[str, str], dict[PrimaryKey, Value]]


@dataclass(frozen=True, slots=True)
class Decided:
    """The values of a part's cells, and how good they are."""

    assignments: Mapping[tuple[str, str], dict[PrimaryKey, Value]]
    deltas: tuple[Delta, ...]
    tiers: tuple[TierResult, ...]
    claims: Mapping[str, int]
    """Per objective the value it should have, to be compared with the database's."""
    objectives: tuple[str, ...]
    """The objectives that are in ``tiers``."""
    left_out: tuple[str, ...] = ()
    """What the engines were not asked about, and why."""
    statistics: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Impossible:
    """A part that no values satisfy."""

    constraints: tuple[str, ...] = ()
    """Those that fail whatever is chosen, if that is why."""


def no_assignments(schema: Schema) -> Assignments:
    """Every variable column, without a value for any row."""
    return {(table.name, column.name): {} for table in schema.tables for column in table.variables}


def delta_of(table: Table, column: Column, key: PrimaryKey, old: Value, new: Value) -> Delta:
    """One change."""
    return Delta(table.name, key, column.current or column.name, old, new, column.name)
