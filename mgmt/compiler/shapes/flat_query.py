"""A query without views over variables: what ``inline`` makes, and the other modules here read.

What it is not: it says nothing about rows and values (see ``recognise``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mgmt.compiler.shapes.statements import Item
from mgmt.language.bound_queries.expressions import DatabasePart, Expression


@dataclass(frozen=True, slots=True)
class FlatQuery:
    """A query without views over variables.

    ``predicates`` hold of rows, ``group_gates`` of groups.  ``keys`` is None when nothing is grouped.  ``nested``:
    the demand aggregates over groups, so that aggregates stand inside aggregates.
    """

    items: tuple[Item, ...]
    predicates: tuple[Expression, ...]
    keys: tuple[DatabasePart, ...] | None
    group_gates: tuple[Expression, ...]
    strict: bool
    nested: bool
    outputs: Mapping[str, Expression]
    demand: Expression | None
    one_row_per_group: tuple[str, ...] = ()
    """Aliases of what is joined to the groups of a view."""
    groups_sql: str | None = None
    """How many groups there have to be, if each row of some sources has to be one; what it reads: ``groups_from``."""
    groups_from: tuple[str, ...] = ()
