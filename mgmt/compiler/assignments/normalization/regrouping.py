"""Groups of groups as groups of rows.

FROM (SELECT host, rack, sum(cpu) AS cpu ... GROUP BY host) GROUP BY rack CHECK sum(cpu) <= 100
    is a sum over the rows of a rack
... GROUP BY rack CHECK max(cpu) <= 100
    is a bound on each host
... GROUP BY rack CHECK max(cpu) - min(cpu) <= 10
    is a bound on each host by the least of its rack
FROM (SELECT app, zone, count(*) AS pods ... GROUP BY app, zone) GROUP BY app
CHECK sum(CASE WHEN pods > 0 THEN 1 ELSE 0 END) >= 2
    is count(DISTINCT zone) >= 2
... GROUP BY rack CHECK sum(cpu) <= sum(cpu_cap) * 8 / 10
    has a constant of each rack on the right, where the groups are the values that rows choose
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of
from mgmt.compiler.assignments.normalization.expressions import Constant, WindowMinimum
from mgmt.compiler.assignments.normalization.row_and_value_sides import link_to_values, sides_of
from mgmt.compiler.assignments.normalization.select import may_be_null
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    TURNED,
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Comparison,
    Conjunction,
    DatabasePart,
    Expression,
    Extreme,
    has_aggregate,
    signature,
)
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import Position
from mgmt.state.schema import SqlType

_ROWS = Aggregate(SqlType.INTEGER, Position("", 1, 1), AggregateFunction.COUNT, None, None)
_SUMS = {AggregateFunction.SUM, AggregateFunction.COUNT}
_OF_CONSTANTS: dict[AggregateFunction, type[exp.Func]] = {
    AggregateFunction.SUM: exp.Sum,
    AggregateFunction.COUNT: exp.Count,
    AggregateFunction.MINIMUM: exp.Min,
    AggregateFunction.MAXIMUM: exp.Max,
}


def of_each_group(outer: QueryBlock) -> QueryBlock | None:
    """A check of groups of groups as one of every group; None when it is something else."""
    if outer.group_gates or outer.demand is None:
        return None
    each = _of_each(outer.demand, tuple(outer.keys or ()))
    return None if each is None else replace(outer, keys=None, demand=each)


def regrouped(outer: QueryBlock, inner: QueryBlock) -> QueryBlock:
    """A query over groups that groups these again, as one over rows.  NotAnAssignment when it is none."""
    if outer.strict or inner.strict or inner.nested:
        raise NotAnAssignment("groups of groups")
    if inner.one_row_per_group or not all(map(_says_some, inner.group_gates)):
        raise NotAnAssignment("groups of groups")
    constant = [part for part in outer.predicates if isinstance(part, DatabasePart)]
    gates = [part for part in outer.predicates if not isinstance(part, DatabasePart)]
    predicates = [*inner.predicates, *constant]
    rows = _OfRows(outer, inner, predicates, gates)
    demand = None if outer.demand is None else rows.of(outer.demand)
    outputs = (
        outer.outputs if demand is not None else {name: rows.of(one) for name, one in outer.outputs.items()}
    )
    return replace(
        outer,
        items=(*inner.items, *outer.items),
        predicates=tuple(predicates),
        group_gates=tuple(map(rows.of, outer.group_gates)),
        outputs=outputs,
        demand=demand,
    )


def _of_each(check: Expression, keys: tuple[Expression, ...]) -> Expression | None:
    """What a bound on the greatest of some groups says of each of them; None when it is something else."""
    if isinstance(check, Conjunction):
        parts = [_of_each(part, keys) for part in check.operands]
        found = tuple(part for part in parts if part is not None)
        return None if len(found) < len(parts) else replace(check, operands=found)
    if isinstance(check, Aggregate) and check.function is AggregateFunction.ALL and check.condition is None:
        return check.operand
    if not isinstance(check, Comparison):
        return None
    sides = ((check.left, check.right, check.operator), (check.right, check.left, TURNED[check.operator]))
    for one, other, operator in sides:
        each = _bounded(one, operator, keys)
        if each is not None and not has_aggregate(other):
            return replace(check, left=each, right=other, operator=operator)
    return None


def _bounded(one: Expression, operator: str, keys: tuple[Expression, ...]) -> Expression | None:
    """What is to be bounded in each group where this is; None when that does not say it."""
    if isinstance(one, Arithmetic) and one.operator == "-":
        most, least = (
            _extreme(one.left, AggregateFunction.MAXIMUM),
            _extreme(one.right, AggregateFunction.MINIMUM),
        )
        if most is None or least is None or operator not in {"<", "<="}:
            return None
        return replace(
            one, left=most, right=WindowMinimum(least.type, least.position, least, keys, of_groups=True)
        )
    if operator in {"<", "<="}:
        return _extreme(one, AggregateFunction.MAXIMUM)
    return _extreme(one, AggregateFunction.MINIMUM) if operator in {">", ">="} else None


def _extreme(part: Expression, function: AggregateFunction) -> Expression | None:
    plain = isinstance(part, Aggregate) and part.function is function and part.condition is None
    return part.operand if plain and isinstance(part, Aggregate) else None


class _OfRows:
    """Aggregates over groups as aggregates of rows."""

    def __init__(
        self,
        outer: QueryBlock,
        inner: QueryBlock,
        predicates: Sequence[Expression],
        gates: Sequence[Expression],
    ) -> None:
        self._gates = tuple(gates)
        self._present = {_present(part) for part in predicates}
        self._kept = {to_sql(key.tree.unnest()) for key in outer.keys or ()}
        self._items = inner.items
        self._outer, self._inner = outer, inner
        self._others = [key for key in inner.keys or () if to_sql(key.tree.unnest()) not in self._kept]

    def of(self, part: Expression) -> Expression:
        if not isinstance(part, Aggregate):
            return part.with_children(self.of)
        if self._gates:
            # Which groups there are depends on what is chosen: as if each aggregate asked for that.
            if part.condition is not None or len(self._gates) > 1:
                raise NotAnAssignment("a condition on variables over a grouped view")
            part = replace(part, condition=self._gates[0])
        counted = _used(part, only_used=bool(self._inner.group_gates))
        if counted is not None and len(self._others) == 1:
            (other,) = self._others
            if may_be_null(other.tree, self._items) and to_sql(other.tree.unnest()) not in self._present:
                # DISTINCT would not count that one
                raise NotAnAssignment("groups of groups with NULL in their key")
            distinct, condition = AggregateFunction.COUNT_DISTINCT, counted.condition
            return Aggregate(part.type, part.position, distinct, other, condition)
        if self._inner.group_gates:
            raise NotAnAssignment("groups of groups")
        inside = part.operand
        if part.condition is None and (inside is None or isinstance(inside, DatabasePart)):
            return self._constant(part, inside)
        if part.function is not AggregateFunction.SUM or part.condition is not None:
            raise NotAnAssignment("groups of groups")
        if not isinstance(inside, Aggregate) or inside.function not in _SUMS:
            raise NotAnAssignment("groups of groups")
        return inside

    def _constant(self, part: Aggregate, inside: DatabasePart | None) -> DatabasePart:
        """An aggregate of constants of the groups as a constant of each row of values, for the database to compute."""
        function = _OF_CONSTANTS.get(part.function)
        if function is None or (inside is not None and may_be_null(inside.tree, self._items)):
            raise NotAnAssignment("groups of groups")
        self._require_values()
        of = exp.Star() if inside is None else inside.tree.unalias().copy()
        keys = [key.tree.unalias().copy() for key in self._outer.keys or ()]
        whole = exp.Window(this=function(this=of), partition_by=keys)
        return DatabasePart(part.type, part.position, exp.Cast(this=whole, to=exp.DataType.build("BIGINT")))

    def _require_values(self) -> None:
        """NotAnAssignment unless the groups are the values that rows choose, one by one."""
        choosers = [item.alias for item in self._items if item.relation.symbolic]
        link = link_to_values(self._inner, choosers[0]) if len(choosers) == 1 else None
        if link is None or self._outer.items:
            raise NotAnAssignment("groups of groups")
        sides = sides_of(self._inner, choosers[0], link)
        for predicate in self._inner.predicates:
            if not isinstance(predicate, DatabasePart):
                continue
            if len({sides[alias] for alias in aliases_of(predicate.tree)}) > 1:
                raise NotAnAssignment("groups of groups")  # which groups there are depends on the rows
        keys = {
            (column.table.lower(), column.name.lower())
            for key in self._inner.keys or ()
            for column in key.tree.find_all(exp.Column)
        }
        if any(sides[alias] != "value" for alias, _ in keys):
            raise NotAnAssignment("groups of groups")
        for item in self._items:
            if (
                sides[item.alias] == "value"
                and not {(item.alias, name.lower()) for name in item.relation.key or ("",)} <= keys
            ):
                raise NotAnAssignment("groups of groups")


def _says_some(gate: Expression) -> bool:
    """Whether a condition of groups is that there is a row."""
    if not isinstance(gate, Comparison) or gate.operator != ">=" or not isinstance(gate.right, Constant):
        return False
    return gate.right.number == 1 and signature(gate.left) == signature(_ROWS)


def _present(part: Expression) -> str:
    """What a condition says is not NULL, if that is all it says."""
    tree = part.tree.unnest() if isinstance(part, DatabasePart) else None
    test = tree.this.unnest() if isinstance(tree, exp.Not) else None
    is_null = isinstance(test, exp.Is) and isinstance(test.expression, exp.Null)
    return to_sql(test.this.unnest()) if test is not None and is_null else ""


def _used(part: Aggregate, *, only_used: bool) -> Aggregate | None:
    """The count of an inner group, where an outer aggregate counts the groups in which it is more than none.

    ``only_used``: others are no groups.
    """
    condition = part.condition
    if only_used and part.function is AggregateFunction.COUNT and part.operand is None and condition is None:
        return replace(_ROWS, position=part.position)
    if part.function is AggregateFunction.SUM and condition is None and isinstance(part.operand, Extreme):
        count, most = part.operand.operands if len(part.operand.operands) == 2 else (part, part)
        least_of_one = not part.operand.greatest and _is_number(most, 1)
        return count if least_of_one and isinstance(count, Aggregate) and _is_count(count) else None
    if part.function is AggregateFunction.SUM and condition is None and isinstance(part.operand, Case):
        case = part.operand
        if len(case.conditions) != 1 or not _is_number(case.values[0], 1) or not _is_number(case.default, 0):
            return None
        condition = case.conditions[0]
    elif part.function is not AggregateFunction.COUNT or part.operand is not None:
        return None
    if not isinstance(condition, Comparison) or not isinstance(condition.left, Aggregate):
        return None
    least = {">": 0, ">=": 1}.get(condition.operator)
    count = condition.left
    return count if least is not None and _is_number(condition.right, least) and _is_count(count) else None


def _is_count(part: Aggregate) -> bool:
    return part.function is AggregateFunction.COUNT and part.operand is None


def _is_number(part: Expression, number: int) -> bool:
    if isinstance(part, Constant):
        return part.number == number
    tree = part.tree.unalias().unnest() if isinstance(part, DatabasePart) else None
    return isinstance(tree, exp.Literal) and not tree.is_string and tree.this == str(number)
