"""Bound queries: what ``mgmt.language.query`` makes of statements, and the later stages work from."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from mgmt.language.expressions import DatabasePart, Expression
from mgmt.language.scoping import Source
from mgmt.language.syntax import Tail, TailKind
from mgmt.source import Position


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


@dataclass(frozen=True, slots=True)
class PushedView:
    """A view the database computes alone."""

    name: str
    tree: exp.Expr
    position: Position


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A normalised SELECT in which the solver has a say, or a constraint.

    ``keys`` is None when rows are not grouped; an empty tuple is one group of all rows.  ``skeleton`` is the
    FROM clause without the conditions of inner joins.
    """

    name: str
    position: Position
    sources: tuple[Source, ...]
    skeleton: exp.Select
    predicates: tuple[Predicate, ...]
    keys: tuple[DatabasePart, ...] | None
    having: Predicate | None
    outputs: tuple[Output, ...]
    demand: Demand | None
    strict_groups: bool
