"""Encode UNION ALL over variables: the rows of its parts one after the other, each existing as it does there.

A column is the database's where all parts leave it to the database; else it holds cells of a kind that the values of
all parts fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mgmt.compiler.columns import Column, Constants, RelationData
from mgmt.compiler.evaluate import Evaluator
from mgmt.language.bound_queries.expressions import Expression
from mgmt.language.bound_queries.queries import UnionView
from mgmt.language.names.catalog import Relation, RelationColumn
from mgmt.optimization.problem import TRUE
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType, quote


@dataclass(frozen=True, slots=True)
class UnionRows:
    """What a union holds: constant columns with their rows, columns over variables, and which rows exist."""

    constants: list[tuple[str, SqlType]]
    rows: list[tuple[Any, ...]]
    symbolic: dict[str, Column]
    exists: list[int]


def unite(
    view: UnionView, snapshot: Snapshot, relations: Mapping[str, RelationData], evaluator: Evaluator
) -> UnionRows:
    """Put the parts together."""
    exists: list[int] = []
    pieces: list[list[Column]] = [[] for _ in view.columns]
    for part in view.parts:
        columns, there = _columns_of(part, snapshot, relations)
        exists.extend(there)
        for place, found in enumerate(columns):
            pieces[place].append(found)
    constants: list[tuple[str, SqlType]] = []
    cells: list[Sequence[Any]] = []
    symbolic: dict[str, Column] = {}
    for column, cells_of_parts in zip(view.columns, pieces, strict=True):
        expression = Expression(column.type, view.position)
        together = evaluator.concatenate(cells_of_parts, expression)
        if isinstance(together, Constants) and not column.symbolic:
            constants.append((column.name, column.type))
            cells.append(together.cells)
        else:
            symbolic[column.name.lower()] = together
    rows: list[tuple[Any, ...]] = list(zip(*cells, strict=True)) if cells else [()] * len(exists)
    return UnionRows(constants, rows, symbolic, exists)


def _columns_of(
    part: Relation, snapshot: Snapshot, relations: Mapping[str, RelationData]
) -> tuple[list[Column], Sequence[int]]:
    """The columns of one part, in order, and which of its rows exist."""
    fetched = [column for column in part.columns if not column.symbolic]
    names = [quote(column.name) for column in fetched]
    if not part.symbolic:
        rows = snapshot.rows(f"SELECT {', '.join(names)} FROM {quote(part.name)}")
        return [_constants(rows, place) for place in range(len(names))], [TRUE] * len(rows)
    relation = relations[part.name.lower()]
    wanted = ", ".join(["rowid", *names])
    rows = snapshot.rows(f"SELECT {wanted} FROM {quote(part.name)}")
    rows.sort(key=lambda row: relation.places[row[0]])
    numbers = {column.name: place for place, column in enumerate(fetched, 1)}

    def column_of(column: RelationColumn) -> Column:
        if column.symbolic:
            return relation.columns[column.name.lower()]
        return _constants(rows, numbers[column.name])

    return [column_of(column) for column in part.columns], relation.exists


def _constants(rows: Sequence[Sequence[Any]], place: int) -> Column:
    return Constants([row[place] for row in rows])
