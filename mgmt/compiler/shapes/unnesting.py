"""Subqueries of a CHECK of rows as joins, where both mean the same: what must hold for all rows that they find.

    FROM pod AS a WHERE EXISTS (SELECT 1 FROM pod AS b WHERE b.app = a.app AND b.host = a.host) CHECK FALSE

demands as much as a join of a with b does.  So do NOT EXISTS, NOT IN and ``<> ALL`` in a CHECK, by themselves or beside
an OR; a row that is there several times is demanded several times, which changes nothing.

What it is not: a CHECK that something exists is no join, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from mgmt.compiler.shapes.inline import FlatQuery, Item, Views, renamed
from mgmt.compiler.shapes.vectors import OtherShape
from mgmt.language.bound import Subquery
from mgmt.language.expressions import (
    Comparison,
    Conjunction,
    DatabasePart,
    Disjunction,
    Expression,
    Negation,
    SubqueryKind,
)
from mgmt.state.schema import SqlType


def unnested(flat: FlatQuery, views: Views) -> FlatQuery:
    """A CHECK of rows with such subqueries joined; the same query where there are none."""
    if flat.keys is not None or flat.demand is None:
        return flat
    joins = _Joins(views, {item.alias for item in flat.items})
    predicates = [part for predicate in flat.predicates for part in joins.found(predicate)]
    demand = joins.refuted(flat.demand)
    return replace(
        flat,
        items=(*flat.items, *joins.items),
        predicates=(*predicates, *joins.predicates),
        demand=demand,
    )


@dataclass(slots=True)
class _Joins:
    """What subqueries add to FROM and WHERE."""

    views: Views
    known: set[str]
    """The aliases outside."""
    items: list[Item] = field(default_factory=list)
    predicates: list[Expression] = field(default_factory=list)
    number: int = 0

    def found(self, predicate: Expression) -> Iterable[Expression]:
        """What is left of a condition: of one that something is found, what it is found by."""
        if not isinstance(predicate, Subquery) or predicate.kind is SubqueryKind.ALL:
            return [predicate]
        if predicate.kind is SubqueryKind.VALUE:
            return [predicate]
        compared = self._join(predicate)
        return [] if compared is None else [compared]

    def refuted(self, check: Expression) -> Expression:
        """The check, with what nothing may be found by in place of a subquery that must find nothing."""
        if isinstance(check, Disjunction):
            return check.with_children(self.refuted)
        if isinstance(check, Negation) and isinstance(check.operand, Subquery):
            subquery = check.operand
            if subquery.kind is SubqueryKind.EXISTS:
                self._join(subquery)
                return DatabasePart(SqlType.BOOLEAN, check.position, exp.false())
            if subquery.kind is SubqueryKind.ANY:
                compared = self._join(subquery)
                assert compared is not None
                return Negation(SqlType.BOOLEAN, check.position, compared)
        if isinstance(check, Subquery) and check.kind is SubqueryKind.ALL:
            compared = self._join(check)
            assert compared is not None
            return compared
        return check

    def _join(self, subquery: Subquery) -> Expression | None:
        """Join what a subquery selects; what its operands are compared with, None for EXISTS."""
        if not {alias for alias, _ in subquery.names} <= self.known:
            raise OtherShape("a subquery that refers to a view around it")
        inner = self.views.flatten(subquery.query)
        if inner.keys is not None:
            raise OtherShape("a subquery over groups")
        self.number += 1
        inner = renamed(inner, f"subquery {self.number}")
        self.items.extend(inner.items)
        self.predicates.extend(inner.predicates)
        if subquery.kind is SubqueryKind.EXISTS:
            return None
        outputs = list(inner.outputs.values())
        compared = tuple(
            Comparison(SqlType.BOOLEAN, subquery.position, operand, output, subquery.operator)
            for operand, output in zip(subquery.operands, outputs, strict=True)
        )
        if len(compared) == 1:
            return compared[0]
        if subquery.operator != "=":
            raise OtherShape("rows compared with a subquery")
        return Conjunction(SqlType.BOOLEAN, subquery.position, compared)
