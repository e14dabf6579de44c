"""Two choices of one row as one: where it is, and whether it is flagged (the primary among the copies).

A boolean column beside a choice is often spoken of together with it: how many flagged rows a host has, which flags are
on values that are new.  For such demands only the flagged rows count, and a flag is the value of the flagged row: the
column ``value if flagged, else NULL``.  Every demand that asks for values of flagged rows alone is a demand on that one
column.
"""

from __future__ import annotations

from dataclasses import replace

from mgmt.compiler.assignments.normalization.block import QueryBlock
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Cell,
    Conjunction,
    DatabasePart,
    Expression,
    Negation,
    NullTest,
)


def flagged_only(flat: QueryBlock, place: str, flag: str) -> QueryBlock:
    """A query over ``place`` and ``flag`` (columns, in lower case) as one over the flagged rows' places.

    Raises NotAnAssignment where rows that are not flagged matter by their place.
    """
    parts = [*flat.predicates, *flat.group_gates, *([flat.demand] if flat.demand is not None else [])]
    cells = [node for part in parts for node in part.walk() if isinstance(node, Cell)]
    if len({cell.source.lower() for cell in cells}) != 1:
        raise NotAnAssignment("flags of several rows at once")
    if not any(_flags(predicate, flag) for predicate in flat.predicates):
        _check_aggregates(flat, place, flag)

    def rewritten(expression: Expression) -> Expression:
        if isinstance(expression, Cell) and expression.column.lower() == flag:
            value = replace(expression, column=place)
            test = NullTest(expression.type, expression.position, value)
            return Negation(expression.type, expression.position, test)
        if isinstance(expression, (Cell, DatabasePart)):
            return expression
        return expression.with_children(rewritten)

    return replace(
        flat,
        predicates=tuple(map(rewritten, flat.predicates)),
        group_gates=tuple(map(rewritten, flat.group_gates)),
        demand=None if flat.demand is None else rewritten(flat.demand),
    )


def _flags(expression: Expression, flag: str) -> bool:
    """Whether it can hold of flagged rows only."""
    if isinstance(expression, Conjunction):
        return any(_flags(part, flag) for part in expression.children)
    return isinstance(expression, Cell) and expression.column.lower() == flag


def _check_aggregates(flat: QueryBlock, place: str, flag: str) -> None:
    """Refuse what looks at the place of a row that may not be flagged."""
    parts = [*flat.predicates, *flat.group_gates, *([flat.demand] if flat.demand is not None else [])]
    if not any(_speaks_of(part, place) for part in parts):
        return
    outer = [*flat.group_gates, *([flat.demand] if flat.demand is not None else [])]
    aggregates = [node for part in outer for node in part.walk() if isinstance(node, Aggregate)]
    inner = [node for node in aggregates if not any(isinstance(n, Aggregate) for n in _below(node))]
    counted = all(node.condition is not None and _flags(node.condition, flag) for node in inner)
    if flat.keys is None or flat.strict or not inner or not counted:
        raise NotAnAssignment("the places of rows that are not flagged matter")
    if any(_speaks_of_outside(part, place) for part in outer):
        raise NotAnAssignment("the places of rows that are not flagged matter")


def _below(node: Aggregate) -> list[Expression]:
    return [below for child in node.children for below in child.walk()]


def _speaks_of(expression: Expression, column: str) -> bool:
    return any(isinstance(node, Cell) and node.column.lower() == column for node in expression.walk())


def _speaks_of_outside(expression: Expression, column: str) -> bool:
    """Whether a column stands outside of the innermost aggregates."""
    if isinstance(expression, Aggregate) and not any(isinstance(n, Aggregate) for n in _below(expression)):
        return False
    if isinstance(expression, Cell):
        return expression.column.lower() == column
    return any(_speaks_of_outside(child, column) for child in expression.children)
