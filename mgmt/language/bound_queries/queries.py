"""Bound queries: what ``statement_binder`` makes of statements, and all that the compiler works from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from mgmt.language.bound_queries.expressions import (
    ComputedKey,
    DatabasePart,
    Expression,
    SubqueryKind,
)
from mgmt.language.names.catalog import Relation, RelationColumn
from mgmt.language.names.scopes import Source
from mgmt.language.parsing.trailing_clauses import Tail, TailKind
from mgmt.source_text import Position


@dataclass(frozen=True, slots=True)
class Predicate:
    """One conjunct of WHERE or of an inner join's ON."""

    tree: exp.Expr
    expression: Expression
    by_solver: bool


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    tree: exp.Expr
    expression: Expression


@dataclass(frozen=True, slots=True)
class Demand:
    """A bound tail: a condition to hold, or a number to optimise (the violation, for a soft constraint)."""

    tail: Tail
    tree: exp.Expr
    expression: Expression

    @property
    def is_objective(self) -> bool:
        return self.tail.soft or self.tail.kind is not TailKind.CHECK

    @property
    def maximize(self) -> bool:
        return self.tail.kind is TailKind.MAXIMIZE


@dataclass(frozen=True, slots=True, eq=False)
class PushedView:
    """A view the database computes alone: ``sql`` as it was written, ``tree`` what of it is looked at here."""

    name: str
    tree: exp.Expr
    position: Position
    sql: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class UnionView(PushedView):
    """UNION ALL of views in some of which the solver has a say; ``tree`` is it as plain SQL.

    The parts have as many columns as the union, in the same order.
    """

    parts: tuple[Relation, ...] = ()
    columns: tuple[RelationColumn, ...] = ()
    gated: bool = False


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A normalised SELECT in which the solver has a say, or a constraint.

    ``keys`` is None when rows are not grouped; an empty tuple is one group of all rows.  Of a subquery, and with a
    computed key, only groups with rows are there (``strict_groups``).  ``skeleton`` is the
    FROM clause without the conditions of inner joins.
    """

    name: str
    position: Position
    sources: tuple[Source, ...]
    skeleton: exp.Select
    predicates: tuple[Predicate, ...]
    keys: tuple[DatabasePart | ComputedKey, ...] | None
    having: Predicate | None
    outputs: tuple[Output, ...]
    demand: Demand | None
    strict_groups: bool

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Of its conditions and computed keys, and of its demand or, of a view, of what it selects."""
        keys = self.computed_keys
        having = () if self.having is None else (self.having.expression,)
        last = (
            tuple(output.expression for output in self.outputs)
            if self.demand is None
            else (self.demand.expression,)
        )
        return (*(predicate.expression for predicate in self.predicates), *keys, *having, *last)

    @property
    def computed_keys(self) -> tuple[ComputedKey, ...]:
        """Those of its keys that the solver decides."""
        return tuple(key for key in self.keys or () if isinstance(key, ComputedKey))

    @property
    def grouped_variables(self) -> dict[exp.Expr, exp.Column]:
        """Of the variables that it groups by: by the column of possible values that was joined for it, each itself."""
        made = {
            each.alias.lower() for each in self.sources if each.relation.name.startswith(f"{self.name}__")
        }
        found = dict[exp.Expr, exp.Column]()
        for tree in (predicate.tree for predicate in self.predicates):
            sides = (tree.this, tree.expression) if isinstance(tree, (exp.EQ, exp.NullSafeEQ)) else ()
            if (
                sides
                and all(isinstance(side, exp.Column) for side in sides)
                and sides[1].table.lower() in made
            ):
                sources = [
                    each for each in self.sources if sides[0].table.lower() in {"", each.alias.lower()}
                ]
                alias = next(each.alias for each in sources if each.relation.find(sides[0].name) is not None)
                found[sides[1]] = exp.column(sides[0].name, alias, quoted=True)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Subquery(Expression):
    """A SELECT in an expression in which the solver has a say, or that is compared with what it decides.

    ``operands`` are the left side of ANY and ALL (IN is ``= ANY``), one per output.  ``parameters`` are the constant
    columns of the query around it that it refers to, ``names`` how its trees call them; ``outer_cells`` are the
    columns around it that the solver decides.  ``single``: it provably has at most one row.
    """

    decided: ClassVar[bool] = True
    kind: SubqueryKind
    operator: str
    operands: tuple[Expression, ...]
    parameters: tuple[Expression, ...]
    names: tuple[tuple[str, str], ...]
    outer_cells: tuple[Expression, ...]
    query: BoundQuery
    single: bool

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*self.operands, *self.parameters, *self.outer_cells)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(
            self,
            operands=tuple(map(change, self.operands)),
            parameters=tuple(map(change, self.parameters)),
            outer_cells=tuple(map(change, self.outer_cells)),
        )
