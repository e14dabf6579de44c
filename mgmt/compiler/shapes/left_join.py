"""LEFT JOIN on a choice under GROUP BY, where only what it finds counts: the inner join, if every group is there.

    FROM host LEFT JOIN pod ON pod.controllable__host = host.name GROUP BY host.name, host.cpu
    CHECK coalesce(sum(pod.cpu), 0) <= host.cpu

A LEFT JOIN in which the solver has a say is a union of the pairs and of rows with NULL in place of a partner
(``mgmt.language.normalization.outer_joins``).  The latter add nothing to an aggregate of a column that is NULL in them.

What it is not: ``count(*)`` counts a row without a partner, so that goes cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from mgmt.compiler.shapes.vectors import OtherShape
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Arithmetic,
    Cell,
    Comparison,
    DatabasePart,
    Expression,
)
from mgmt.language.bound_queries.queries import BoundQuery, Output

_NOT_STRICT = (
    exp.Coalesce,
    exp.Case,
    exp.If,
    exp.Is,
    exp.And,
    exp.Or,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Anonymous,
)


def missing_columns(alone: BoundQuery) -> frozenset[str]:
    """The columns that are NULL in rows without a partner, in lower case."""
    return frozenset(output.name.lower() for output in alone.outputs if _is_null(output))


def _is_null(output: Output) -> bool:
    part = output.expression
    return isinstance(part, DatabasePart) and isinstance(part.tree.unalias().unnest(), exp.Null)


def require_strict(query: BoundQuery, alias: str, missing: frozenset[str]) -> None:
    """OtherShape where rows without a partner would count in an aggregate, or be a condition."""
    if query.keys is None:
        raise OtherShape("an outer join over choices that is not grouped")
    constants = [part.expression for part in query.predicates]
    if any(_names(part, alias, missing) for part in (*query.keys, *constants)):
        raise OtherShape("an outer join over choices whose rows are told apart by what it finds")
    parts = query.expressions[len(query.predicates) :]
    for part in parts:
        for node in part.walk():
            if isinstance(node, Aggregate) and not (
                node.operand is not None and _is_strict(node.operand, alias, missing)
            ):
                raise OtherShape("an aggregate that counts what an outer join does not find")


def _names(part: Expression, alias: str, missing: frozenset[str]) -> bool:
    return any(column in missing for node in part.walk() for column in _columns(node, alias))


def _columns(node: Expression, alias: str) -> Iterable[str]:
    if isinstance(node, Cell) and node.source.lower() == alias:
        yield node.column.lower()
    elif isinstance(node, DatabasePart):
        for column in node.tree.find_all(exp.Column):
            if column.table.lower() == alias:
                yield column.name.lower()


def _is_strict(operand: Expression, alias: str, missing: frozenset[str]) -> bool:
    """Whether it is NULL where the missing columns are."""
    if isinstance(operand, (Arithmetic, Comparison)):
        return any(_is_strict(child, alias, missing) for child in operand.children)
    if isinstance(operand, DatabasePart) and operand.tree.find(*_NOT_STRICT):
        return False
    return isinstance(operand, (Cell, DatabasePart)) and _names(operand, alias, missing)
