"""An objective that is a sum, as one objective for each of its terms.

    SELECT 1 MINIMIZE 2 * (SELECT max(cpu) FROM load) + (SELECT count(*) FROM pod WHERE ...)

is two objectives of one tier, of which the first weighs twice as much.  So each may be over rows of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Coalesce,
    DatabasePart,
    Expression,
    SubqueryKind,
    has_variable,
)
from mgmt.language.bound_queries.queries import BoundQuery, Demand, Subquery
from mgmt.language.parsing.trailing_clauses import TailKind

_TURNED = {TailKind.MAXIMIZE: TailKind.MINIMIZE, TailKind.MINIMIZE: TailKind.MAXIMIZE}
_SUMS = {AggregateFunction.SUM, AggregateFunction.COUNT}


def terms_of(query: BoundQuery, views: Mapping[str, BoundQuery]) -> list[BoundQuery]:
    """The objectives, two or more, that together are an objective over rows.  NotAnAssignment where it is no sum."""
    demand = query.demand
    if demand is None or demand.tail.kind not in _TURNED or query.keys is not None:
        raise NotAnAssignment("no sum over rows")
    terms = list(_terms(1, demand.expression))
    terms = [(factor, part) for factor, part in terms if factor]
    decided = [(factor, part) for factor, part in terms if has_variable(part)]
    if len(decided) < 2 or len(decided) < len(terms):
        raise NotAnAssignment("no sum of terms")
    if not all(_is_number(part, views) for _, part in decided):
        raise NotAnAssignment("a sum of what may be NULL")
    return [replace(query, demand=_scaled(demand, factor, part)) for factor, part in decided]


def _terms(factor: int, part: Expression) -> Iterator[tuple[int, Expression]]:
    if isinstance(part, Arithmetic) and part.operator in {"+", "-"}:
        yield from _terms(factor, part.left)
        yield from _terms(factor if part.operator == "+" else -factor, part.right)
        return
    if isinstance(part, Arithmetic) and part.operator == "*":
        for one, other in ((part.left, part.right), (part.right, part.left)):
            number = whole_number(one)
            if number is not None:
                yield from _terms(factor * number, other)
                return
    yield factor, part


def whole_number(part: Expression) -> int | None:
    """The number that a policy has there; None where it has something else."""
    tree = part.tree.unalias().unnest() if isinstance(part, DatabasePart) else None
    return int(tree.this) if isinstance(tree, exp.Literal) and tree.is_int else None


def _scaled(demand: Demand, factor: int, part: Expression) -> Demand:
    tail = demand.tail
    kind = tail.kind if factor > 0 else _TURNED[tail.kind]
    return replace(demand, expression=part, tail=replace(tail, kind=kind, weight=tail.weight * abs(factor)))


def _is_number(part: Expression, views: Mapping[str, BoundQuery]) -> bool:
    """Whether a term is a number whatever is chosen, so that it makes no other term NULL."""
    if isinstance(part, Coalesce) and whole_number(part.operands[-1]) == 0:
        return True
    if not isinstance(part, Subquery) or part.kind is not SubqueryKind.VALUE or part.query.keys != ():
        return False
    ((output,),) = (part.query.outputs,)
    aggregates = [node for node in output.expression.walk() if isinstance(node, Aggregate)]
    if all(one.function in _SUMS for one in aggregates):
        return True
    plain = part.query.having is None and not part.query.predicates and len(part.query.sources) == 1
    view = views.get(part.query.sources[0].relation.name.lower())
    return plain and view is not None and _has_numbers(view)


def _has_numbers(view: BoundQuery) -> bool:
    """Whether a view is of groups that are all there, and what it selects of them is never NULL for want of rows."""
    aggregates = [
        node for output in view.outputs for node in output.expression.walk() if isinstance(node, Aggregate)
    ]
    whole = bool(view.keys) and view.having is None and not view.strict_groups
    return whole and all(one.function in _SUMS for one in aggregates)
