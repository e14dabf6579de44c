"""CHECKs that tie a row's choice to that of another row: a task is where its reservation is, or nowhere.

    SELECT guest.name FROM task AS guest JOIN task AS alloc ON alloc.name = guest.alloc
    CHECK guest.variable__host IS NULL OR guest.variable__host IS NOT DISTINCT FROM alloc.variable__host

Which row follows which is one statement for the database.

What it is not: other comparisons of two choices go cell by cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgmt.compiler.shapes.fetch import Columns
from mgmt.compiler.shapes.frames import Choosers
from mgmt.compiler.shapes.inline import FlatQuery
from mgmt.compiler.shapes.statements import Statement
from mgmt.compiler.shapes.vectors import OtherShape
from mgmt.language.bound import BoundQuery
from mgmt.language.catalog import Catalog
from mgmt.language.expressions import Cell, Comparison, DatabasePart, Disjunction, Expression, NullTest
from mgmt.optimization.assignment import NONE, Following
from mgmt.state.database import Snapshot
from mgmt.state.schema import quote


@dataclass(frozen=True, slots=True)
class Pairing:
    """One demand on pairs of rows; ``sql`` returns the numbers of the one that follows and of the other."""

    bound: BoundQuery
    sql: str
    reads: tuple[str, ...]
    """The tables and views that ``sql`` names, in lower case."""

    @property
    def name(self) -> str:
        return self.bound.name


def pairing_of(bound: BoundQuery, flat: FlatQuery, catalog: Catalog) -> Pairing | None:
    """A demand of this kind; None when it is something else."""
    if flat.keys is not None or flat.group_gates or flat.demand is None or bound.demand is None:
        return None
    if bound.demand.is_objective or any(item.on is not None for item in flat.items):
        return None
    pair = _pair(flat.demand)
    if pair is None or not all(isinstance(part, DatabasePart) for part in flat.predicates):
        return None
    follower, leader, for_nullable = pair
    relations = {item.alias: item.relation.name for item in flat.items}
    sources = [cell.source.lower() for cell in (follower, leader)]
    tables = {relations[source].lower() for source in sources}
    columns = {cell.column.lower() for cell in (follower, leader)}
    if len(set(sources)) != 2 or len(tables) != 1 or len(columns) != 1:
        return None
    if catalog.schema.table(tables.pop()).column(columns.pop()).nullable and not for_nullable:
        return None
    side = Statement()
    for part in flat.predicates:
        assert isinstance(part, DatabasePart)
        side.require(part.tree)
    first, second = (f"{quote(source)}.rowid" for source in sources)
    return Pairing(bound, side.sql(f"{first}, {second}", flat.items), side.relations(flat.items))


def _pair(check: Expression) -> tuple[Cell, Cell, bool] | None:
    """The choice that follows, the other one, and whether the check says so of choices that may be NULL."""
    excused: Expression | None = None
    if isinstance(check, Disjunction) and len(check.operands) == 2:
        tests = [part for part in check.operands if isinstance(part, NullTest)]
        others = [part for part in check.operands if not isinstance(part, NullTest)]
        if len(tests) != 1 or len(others) != 1:
            return None
        (excused,) = tests[0].children
        check = others[0]
    if not isinstance(check, Comparison) or check.operator != "=":
        return None
    one, other = check.left, check.right
    if not isinstance(one, Cell) or not isinstance(other, Cell):
        return None
    if excused is None:
        return one, other, False
    for follower, leader in ((one, other), (other, one)):
        if isinstance(excused, Cell) and (excused.source, excused.column) == (
            follower.source,
            follower.column,
        ):
            return follower, leader, check.null_safe
    return None


def following_of(
    pairing: Pairing, choosers: Choosers, columns: Columns, snapshot: Snapshot
) -> Following | None:
    """The condition; None when nothing follows anything.  OtherShape when a row follows several."""
    table = columns.table(snapshot, pairing.sql, pairing.reads)
    if not table.rows:
        return None
    follower, leader = (choosers.places_of_rows(column.values) for column in table.columns)
    found = np.full(choosers.rows, NONE, np.int32)
    found[follower] = leader
    if not bool((found[follower] == leader).all()):
        raise OtherShape("rows that follow several others")
    found[found == np.arange(choosers.rows)] = NONE
    return Following(pairing.name, found)
