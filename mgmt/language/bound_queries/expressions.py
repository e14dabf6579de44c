"""Typed expressions: what the binder makes of SQL trees, and what the encoder evaluates.

An expression without a variable and without an aggregate is never looked into: it stays SQL and is computed
by the database (:class:`DatabasePart`, later :class:`Fetched`).  Everything else is one of the few node types
below, each of which the encoder and the brute-force twin in the tests understand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import ClassVar

from sqlglot import exp

from mgmt.source_text import Position
from mgmt.state.schema import SqlType

_ELSEWHERE = {"position", "type"}


class AggregateFunction(StrEnum):
    COUNT = "count"  # without an operand: of rows
    COUNT_DISTINCT = "count distinct"
    SUM = "sum"
    MINIMUM = "min"
    MAXIMUM = "max"
    ANY = "any"
    ALL = "all"
    ALL_DIFFERENT = "all_different"
    ALL_EQUAL = "all_equal"
    INCREASING = "increasing"


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """Base.  ``type`` is that of its value, ``position`` where it is written.

    ``decided``: the solver has a say in a node of this kind, whatever is below it.
    """

    decided: ClassVar[bool] = False

    type: SqlType
    position: Position

    @property
    def children(self) -> tuple[Expression, ...]:
        return ()

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        """The same node over changed children."""
        del change
        return self

    def walk(self) -> Iterator[Expression]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, eq=False)
class DatabasePart(Expression):
    """SQL free of variables and aggregates, over the columns of the query's sources."""

    tree: exp.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Fetched(Expression):
    """Column ``slot`` of what the database computed."""

    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class Cell(Expression):
    """A column of a source that the solver decides: a variable, or a view's column over variables."""

    decided: ClassVar[bool] = True

    source: str
    column: str


@dataclass(frozen=True, slots=True, eq=False)
class _Unary(Expression):
    operand: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(self, operand=change(self.operand))


@dataclass(frozen=True, slots=True, eq=False)
class _Binary(Expression):
    left: Expression
    right: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.left, self.right)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(self, left=change(self.left), right=change(self.right))


@dataclass(frozen=True, slots=True, eq=False)
class _Nary(Expression):
    operands: tuple[Expression, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.operands

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(self, operands=tuple(change(operand) for operand in self.operands))


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(_Binary):
    """``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``; ``null_safe`` for IS [NOT] DISTINCT FROM (``<>`` and ``=``)."""

    operator: str
    null_safe: bool = False


TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What is between the sides of a comparison when these change places."""


@dataclass(frozen=True, slots=True, eq=False)
class Conjunction(_Nary):
    """AND."""


@dataclass(frozen=True, slots=True, eq=False)
class Disjunction(_Nary):
    """OR."""


@dataclass(frozen=True, slots=True, eq=False)
class Negation(_Unary):
    """NOT."""


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def negated(expression: Expression) -> Expression:
    """What is true where this is false, and the other way round."""
    if isinstance(expression, Negation):
        return expression.operand
    if isinstance(expression, Comparison):
        return replace(expression, operator=_OPPOSITE[expression.operator])
    if isinstance(expression, (Conjunction, Disjunction)):
        other = Disjunction if isinstance(expression, Conjunction) else Conjunction
        return other(expression.type, expression.position, tuple(map(negated, expression.operands)))
    return Negation(expression.type, expression.position, expression)


@dataclass(frozen=True, slots=True, eq=False)
class NullTest(_Unary):
    """IS NULL."""


@dataclass(frozen=True, slots=True, eq=False)
class MembershipQuery(_Unary):
    """IN (SELECT ...) where the SELECT is free of variables and of the outer query."""

    decided: ClassVar[bool] = True

    tree: exp.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Computed(_Nary):
    """What the database computes at each value of what the solver decides: ``tree`` over the operands.

    They are its columns ``p0``, ``p1``, ... of the table ``VALUES_OF``.
    """

    decided: ClassVar[bool] = True

    tree: exp.Expr


@dataclass(frozen=True, slots=True, eq=False)
class ComputedKey(_Unary):
    """What rows are grouped by that the solver decides; each value that a row may have is a group with other rows.

    ``tree`` is it in the query.  ``place``: from the end, among the columns of its kind that the rows have.
    """

    decided: ClassVar[bool] = True

    tree: exp.Expr
    place: int


VALUES_OF = "values of"
"""No table of a policy has this name: it would need quotes and a space."""


class SubqueryKind(StrEnum):
    EXISTS = "exists"
    ANY = "any"
    ALL = "all"
    VALUE = "value"


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic(_Binary):
    """``+``, ``-``, ``*``, ``/`` and ``%`` on exact integers; the last two truncate."""

    operator: str


@dataclass(frozen=True, slots=True, eq=False)
class Case(Expression):
    """CASE WHEN condition THEN value ... ELSE default END."""

    conditions: tuple[Expression, ...]
    values: tuple[Expression, ...]
    default: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*self.conditions, *self.values, self.default)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(
            self,
            conditions=tuple(map(change, self.conditions)),
            values=tuple(map(change, self.values)),
            default=change(self.default),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Coalesce(_Nary):
    """The first operand that is not NULL."""


@dataclass(frozen=True, slots=True, eq=False)
class Extreme(_Nary):
    """``greatest`` or ``least``; NULL when an operand is NULL."""

    greatest: bool


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Expression):
    """An aggregate over a group; ``condition`` is FILTER (WHERE ...).

    ``order``, for increasing alone, are the keys by which the rows are ordered, each perhaps ``descending``.
    """

    function: AggregateFunction
    operand: Expression | None
    condition: Expression | None
    order: tuple[Expression, ...] = ()
    descending: tuple[bool, ...] = ()

    @property
    def children(self) -> tuple[Expression, ...]:
        return tuple(part for part in (self.operand, self.condition, *self.order) if part is not None)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(
            self,
            operand=None if self.operand is None else change(self.operand),
            condition=None if self.condition is None else change(self.condition),
            order=tuple(map(change, self.order)),
        )


def signature(expression: Expression) -> tuple[object, ...]:
    """Equal for expressions that say the same, wherever they are written."""

    def of(value: object) -> object:
        if isinstance(value, Expression):
            return signature(value)
        if isinstance(value, tuple):
            return tuple(map(of, value))
        return value.sql(dialect="duckdb", identify=True) if isinstance(value, exp.Expr) else value

    parts = [of(getattr(expression, one.name)) for one in fields(expression) if one.name not in _ELSEWHERE]
    return (type(expression), *parts)


def has_variable(expression: Expression) -> bool:
    """Whether the solver decides a part of it."""
    return any(node.decided for node in expression.walk())


def has_aggregate(expression: Expression) -> bool:
    return any(isinstance(node, Aggregate) for node in expression.walk())
