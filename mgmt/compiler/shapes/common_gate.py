"""What every aggregate of a query asks of its rows is asked by the query itself.

    count(*) FILTER (WHERE task.host = host.name)           FROM task CROSS JOIN host GROUP BY host.rack
    sum(CASE WHEN task.host = host.name THEN 1 ELSE 0 END)  FROM task CROSS JOIN host GROUP BY host.rack

are ``count(*)`` of ``task JOIN host ON task.host = host.name``: groups are those of all candidates either way.

What it is not: it looks for no other conditions than a choice being equal to what stands in another source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from mgmt.compiler.shapes.flat_query import FlatQuery
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Case,
    Cell,
    Comparison,
    Conjunction,
    DatabasePart,
    Expression,
    has_aggregate,
)
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import SqlType

_SKIPS_NULL = (
    AggregateFunction.SUM,
    AggregateFunction.COUNT,
    AggregateFunction.MINIMUM,
    AggregateFunction.MAXIMUM,
    AggregateFunction.COUNT_DISTINCT,
)


def with_common_gate(flat: FlatQuery) -> FlatQuery:
    """The same query with the condition that all its aggregates share among its predicates, if there is one."""
    if flat.keys is None or flat.strict or flat.demand is None:
        return flat
    parts = (flat.demand, *flat.group_gates)
    inner = [node for part in parts for node in part.walk() if _is_of_rows(node)]
    if not inner:
        return flat
    filtered = {id(node): _filtered(node) for node in inner if isinstance(node, Aggregate)}
    gates = [{_said(part): part for part in _conjuncts(node.condition)} for node in filtered.values()]
    shared = [text for text in gates[0] if text and all(text in others for others in gates)]
    if not shared:
        return flat
    text, gate = shared[0], gates[0][shared[0]]

    def without(part: Expression) -> Expression:
        if id(part) not in filtered:
            return part.with_children(without)
        aggregate = filtered[id(part)]
        return replace(
            aggregate, condition=_all([one for one in _conjuncts(aggregate.condition) if _said(one) != text])
        )

    return replace(
        flat,
        predicates=(*flat.predicates, gate),
        demand=without(flat.demand),
        group_gates=tuple(map(without, flat.group_gates)),
    )


def _is_of_rows(node: Expression) -> bool:
    """Whether it is an aggregate over rows, not over groups."""
    return isinstance(node, Aggregate) and not any(map(has_aggregate, node.children))


def _filtered(aggregate: Aggregate) -> Aggregate:
    """The same with FILTER in place of a CASE that leaves out the other rows."""
    case = aggregate.operand
    if not isinstance(case, Case) or len(case.conditions) != 1 or aggregate.function not in _SKIPS_NULL:
        return aggregate
    zero = "0" if aggregate.function is AggregateFunction.SUM else "NULL"
    if _literal(case.default) not in {"NULL", zero}:
        return aggregate
    condition = _all([*_conjuncts(aggregate.condition), *_conjuncts(case.conditions[0])])
    return replace(aggregate, operand=case.values[0], condition=condition)


def _literal(part: Expression) -> str:
    return to_sql(part.tree.unalias().unnest()) if isinstance(part, DatabasePart) else ""


def _conjuncts(part: Expression | None) -> Iterator[Expression]:
    if isinstance(part, Conjunction):
        for operand in part.operands:
            yield from _conjuncts(operand)
    elif part is not None:
        yield part


def _all(parts: list[Expression]) -> Expression | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return Conjunction(SqlType.BOOLEAN, parts[0].position, tuple(parts))


def _said(part: Expression) -> str:
    """A choice that is equal to what stands in another source, in words; empty for anything else."""
    if not isinstance(part, Comparison) or part.operator != "=" or part.null_safe:
        return ""
    for one, other in ((part.left, part.right), (part.right, part.left)):
        if isinstance(one, Cell) and isinstance(other, DatabasePart) and other.tree.find(exp.Column):
            return f"{one.source}.{one.column} = {to_sql(other.tree)}".lower()
    return ""
