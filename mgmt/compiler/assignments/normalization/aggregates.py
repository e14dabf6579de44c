"""Aggregates in normal form: conditions that all of them share as predicates of the query, checks as ones of counts.

    count(*) FILTER (WHERE task.host = host.name)           FROM task CROSS JOIN host GROUP BY host.rack
    sum(CASE WHEN task.host = host.name THEN 1 ELSE 0 END)  FROM task CROSS JOIN host GROUP BY host.rack
    sum(task.host = host.name)                              FROM task CROSS JOIN host GROUP BY host.rack

are all ``count(*)`` of ``task JOIN host ON task.host = host.name``: groups are those of all candidates either way.

    max(host.size) <= 8       is   count(*) FILTER (WHERE host.size > 8) = 0
    any(host.zone = 'z1')     is   count(*) FILTER (WHERE host.zone = 'z1') >= 1
                              OR   count(host.zone = 'z1') < 1
    NOT all_equal(host.zone)  is   count(DISTINCT host.zone) >= 2

A check passes unless it is FALSE, so UNKNOWN and TRUE need not be told apart; over no rows MIN, MAX, ANY and ALL are
NULL, and ALL_EQUAL is TRUE (see ``mgmt.compiler.aggregates``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock
from mgmt.compiler.assignments.normalization.expressions import Constant
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    EXTREMES,
    TURNED,
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Cell,
    Coalesce,
    Comparison,
    Conjunction,
    DatabasePart,
    Disjunction,
    Expression,
    Extreme,
    Negation,
    NullTest,
    has_aggregate,
    has_variable,
    signature,
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


def with_common_gate(flat: QueryBlock) -> QueryBlock:
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
    if aggregate.function is AggregateFunction.SUM and case is not None:
        factors = list(_factors(case))
        truths = [truth for factor in factors if (truth := _truth_of(factor)) is not None]
        if truths:
            numbers = [factor for factor in factors if _truth_of(factor) is None]
            condition = _all([*_conjuncts(aggregate.condition), *truths])
            if not numbers:
                return replace(aggregate, function=AggregateFunction.COUNT, operand=None, condition=condition)
            number = numbers[0]
            for other in numbers[1:]:
                number = Arithmetic(aggregate.type, aggregate.position, number, other, "*")
            return replace(aggregate, operand=number, condition=condition)
    if not isinstance(case, Case) or len(case.conditions) != 1 or aggregate.function not in _SKIPS_NULL:
        return aggregate
    zero = "0" if aggregate.function is AggregateFunction.SUM else "NULL"
    if _literal(case.default) not in {"NULL", zero}:
        return aggregate
    condition = _all([*_conjuncts(aggregate.condition), *_conjuncts(case.conditions[0])])
    return replace(aggregate, operand=case.values[0], condition=condition)


def _factors(part: Expression) -> Iterator[Expression]:
    if isinstance(part, Arithmetic) and part.operator == "*":
        yield from _factors(part.left)
        yield from _factors(part.right)
    else:
        yield part


def _truth_of(part: Expression) -> Expression | None:
    """The condition that a factor of 0 or 1 is; None for any other number."""
    if isinstance(part, Arithmetic) and part.operator == "+" and _literal(part.left) == "0":
        part = part.right  # CAST(condition AS INTEGER)
    return part if part.type is SqlType.BOOLEAN and has_variable(part) else None


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


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MOST_CLAUSES = 16
_SUMS = {AggregateFunction.SUM, AggregateFunction.COUNT}


def counted(check: Expression) -> Expression:
    """A check that passes when, and only when, this one does."""
    return _counted(check, holds=True)


def clauses(check: Expression) -> list[Expression]:
    """Checks without AND that together demand what this one does.  NotAnAssignment when they are too many."""
    if isinstance(check, Conjunction):
        return [clause for part in check.operands for clause in clauses(part)]
    if not isinstance(check, Disjunction):
        return [check]
    every: list[tuple[Expression, ...]] = [()]
    for part in check.operands:
        every = [(*one, other) for one in every for other in clauses(part)]
        if len(every) > _MOST_CLAUSES:
            raise NotAnAssignment(f"a check that is more than {_MOST_CLAUSES} alternatives")
    return [Disjunction(check.type, check.position, tuple(_flat(one))) for one in every]


def _flat(parts: Iterable[Expression]) -> Iterator[Expression]:
    for part in parts:
        yield from _flat(part.operands) if isinstance(part, Disjunction) else (part,)


def gated(gates: Iterable[Expression], check: Expression) -> Expression:
    """The check of groups for which all of these hold, as a check of every group."""
    refused = [Negation(SqlType.BOOLEAN, gate.position, gate) for gate in gates]
    return Disjunction(SqlType.BOOLEAN, check.position, (*refused, check)) if refused else check


def _counted(check: Expression, *, holds: bool) -> Expression:
    """``check``, or its negation where it ``holds`` not."""
    if not has_aggregate(check):
        return check if holds else Negation(SqlType.BOOLEAN, check.position, check)
    if isinstance(check, Negation):
        return _counted(check.operand, holds=not holds)
    if isinstance(check, (Conjunction, Disjunction)):
        kind = Conjunction if isinstance(check, Conjunction) == holds else Disjunction
        parts = tuple(_counted(part, holds=holds) for part in check.operands)
        return kind(SqlType.BOOLEAN, check.position, parts)
    if isinstance(check, Aggregate):
        return _of_aggregate(check, holds)
    if (
        isinstance(check, NullTest)
        and isinstance(check.operand, Aggregate)
        and check.operand.function in _SUMS
    ):
        # Sums and counts are numbers, over no rows 0: so this is TRUE or FALSE, whatever is chosen.
        return _compared(Constant(SqlType.INTEGER, check.position, 0), "=", int(holds))
    if isinstance(check, Comparison) and not check.null_safe:
        if not holds:
            check = replace(check, operator=_OPPOSITE[check.operator])
        return _of_comparison(check)
    return check if holds else Negation(SqlType.BOOLEAN, check.position, check)


def _of_aggregate(check: Aggregate, holds: bool) -> Expression:
    function, operand = check.function, check.operand
    assert operand is not None
    if function in {AggregateFunction.ANY, AggregateFunction.ALL}:
        is_any = function is AggregateFunction.ANY
        settling = operand if is_any else Negation(SqlType.BOOLEAN, operand.position, operand)
        settled = _compared(_count(check, settling), ">=" if is_any == holds else "<", 1)
        if is_any != holds:
            return settled
        return Disjunction(SqlType.BOOLEAN, check.position, (settled, _compared(_count_of(check), "<", 1)))
    if function is AggregateFunction.ALL_EQUAL:
        distinct = replace(check, type=SqlType.INTEGER, function=AggregateFunction.COUNT_DISTINCT)
        return _compared(distinct, "<=" if holds else ">", 1)
    return check if holds else Negation(SqlType.BOOLEAN, check.position, check)


def _of_comparison(check: Comparison) -> Expression:
    for one, other, operator in (
        (check.left, check.right, check.operator),
        (check.right, check.left, TURNED[check.operator]),
    ):
        if isinstance(one, Extreme) and not has_aggregate(other) and operator not in {"=", "<>"}:
            return _of_each(one, operator, other)
        if isinstance(one, Coalesce) and _is_extreme_or_constant(one) and not has_aggregate(other):
            extreme, default = one.operands
            assert isinstance(extreme, Aggregate)
            return _of_extreme(extreme, operator, other, default)
        if not isinstance(one, Aggregate):
            continue
        if one.function in EXTREMES and not has_aggregate(other):
            return _of_extreme(one, operator, other, None)
        if isinstance(other, Aggregate):
            together = _of_two(one, operator, other)
            if together is not None:
                return together
    return check


def _of_each(extreme: Extreme, operator: str, bound: Expression) -> Expression:
    """``least(a, b) >= bound`` and its like as comparisons of each; where one of them is NULL the check passes."""
    position = extreme.position
    leaves = [leaf for part in extreme.operands for leaf in _constants_of(part)]
    null = tuple(NullTest(SqlType.BOOLEAN, position, leaf) for leaf in leaves)
    parts = tuple(
        _of_comparison(Comparison(SqlType.BOOLEAN, position, part, bound, operator))
        for part in extreme.operands
    )
    if (operator in {"<", "<="}) != extreme.greatest:
        return Disjunction(SqlType.BOOLEAN, position, (*parts, *null))
    return Conjunction(
        SqlType.BOOLEAN,
        position,
        tuple(Disjunction(SqlType.BOOLEAN, position, (part, *null)) if null else part for part in parts),
    )


def _constants_of(part: Expression) -> Iterator[Expression]:
    """What in an operand may be NULL: all but sums and counts.  NotAnAssignment for a least."""
    if isinstance(part, Aggregate):
        if part.function in EXTREMES:
            raise NotAnAssignment("the least or greatest of what may be of no rows")
    elif part.children:
        for child in part.children:
            yield from _constants_of(child)
    elif not isinstance(part, Constant):
        yield part


def _is_extreme_or_constant(part: Coalesce) -> bool:
    """Whether it is a least or greatest, with a constant in its place over no rows."""
    extreme, *others = part.operands
    return (
        isinstance(extreme, Aggregate)
        and extreme.function in EXTREMES
        and len(others) == 1
        and not has_aggregate(others[0])
    )


def _of_extreme(
    extreme: Aggregate, operator: str, bound: Expression, default: Expression | None
) -> Expression:
    """``max(x) <= bound`` and its like; over no rows the check passes, or says what it says of the default."""
    operand, position = extreme.operand, extreme.position
    assert operand is not None
    is_maximum = extreme.function is AggregateFunction.MAXIMUM
    nothing: Expression = _compared(_count_of(extreme), "<", 1)
    if default is not None:
        of_default = Comparison(SqlType.BOOLEAN, position, default, bound, operator)
        nothing = Conjunction(SqlType.BOOLEAN, position, (nothing, of_default))

    def where(comparison: str) -> Expression:
        return _count(extreme, Comparison(SqlType.BOOLEAN, position, operand, bound, comparison))

    def for_all(comparison: str) -> Expression:
        all_ = _compared(where(_OPPOSITE[comparison]), "<", 1)
        if default is None:
            return all_
        some = _compared(_count_of(extreme), ">=", 1)
        parts = (all_, Disjunction(SqlType.BOOLEAN, position, (some, of_default)))
        return Conjunction(SqlType.BOOLEAN, position, parts)

    def for_some(comparison: str) -> Expression:
        unknown = Comparison(SqlType.BOOLEAN, position, bound, bound, "<>")  # UNKNOWN passes
        parts = (_compared(where(comparison), ">=", 1), nothing, unknown)
        return Disjunction(SqlType.BOOLEAN, position, parts)

    if operator == "=":
        parts = (
            _of_extreme(extreme, "<=", bound, default),
            _of_extreme(extreme, ">=", bound, default),
        )
        return Conjunction(SqlType.BOOLEAN, position, parts)
    if operator == "<>":
        parts = (_of_extreme(extreme, "<", bound, default), _of_extreme(extreme, ">", bound, default))
        return Disjunction(SqlType.BOOLEAN, position, parts)
    bounds_all = (operator in {"<", "<="}) == is_maximum
    return for_all(operator) if bounds_all else for_some(operator)


def _of_two(one: Aggregate, operator: str, other: Aggregate) -> Expression | None:
    """What two aggregates of the same operand say of each other: all equal, or all different."""
    functions = (one.function, other.function)
    same_rows = _signature_of(one.condition) == _signature_of(other.condition)
    same = same_rows and _signature_of(one.operand) == _signature_of(other.operand)
    if functions == (AggregateFunction.MINIMUM, AggregateFunction.MAXIMUM) and same:
        distinct = replace(one, type=SqlType.INTEGER, function=AggregateFunction.COUNT_DISTINCT)
        if operator in {"=", ">="}:
            return _compared(distinct, "<=", 1)
        if operator in {"<>", "<"}:
            parts = (_compared(distinct, ">=", 2), _compared(_count_of(one), "<", 1))
            return Disjunction(SqlType.BOOLEAN, one.position, parts)
    if functions == (AggregateFunction.COUNT_DISTINCT, AggregateFunction.COUNT) and operator in {"=", ">="}:
        different = replace(one, type=SqlType.BOOLEAN, function=AggregateFunction.ALL_DIFFERENT)
        if same:
            return different
        if other.operand is None and same_rows and one.operand is not None:
            null = NullTest(SqlType.BOOLEAN, one.position, one.operand)  # which count(*) counts
            parts = (different, _compared(_count(one, null), "<", 1))
            return Conjunction(SqlType.BOOLEAN, one.position, parts)
    return None


def _count(like: Aggregate, condition: Expression) -> Aggregate:
    """The number of an aggregate's rows for which a further condition holds."""
    if like.condition is not None:
        condition = Conjunction(SqlType.BOOLEAN, like.position, (like.condition, condition))
    return Aggregate(SqlType.INTEGER, like.position, AggregateFunction.COUNT, None, condition)


def _count_of(like: Aggregate) -> Aggregate:
    """The number of values that an aggregate looks at."""
    return replace(like, type=SqlType.INTEGER, function=AggregateFunction.COUNT)


def _compared(left: Expression, operator: str, number: int) -> Expression:
    right = Constant(SqlType.INTEGER, left.position, number)
    return Comparison(SqlType.BOOLEAN, left.position, left, right, operator)


def _signature_of(expression: Expression | None) -> object:
    return None if expression is None else signature(expression)
