"""Sources that are joined to rows and to values at once: looked up for each pair of them.

An outer join finds an entry or nothing; what an inner join finds nothing for is no candidate.

What it is not: it says not which sources are joined like that (see ``sides``), and it sees no data (see ``lookups``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.shapes.aliases import aliases_of
from mgmt.compiler.shapes.flat_query import FlatQuery
from mgmt.compiler.shapes.sides import compared_column
from mgmt.compiler.shapes.slots import PairSlot, RowSlot, ValueSlot
from mgmt.compiler.shapes.statements import Item, Statement
from mgmt.compiler.shapes.unnesting import Found
from mgmt.compiler.shapes.vectors import OtherShape
from mgmt.language.bound_queries.expressions import (
    Cell,
    Comparison,
    Conjunction,
    DatabasePart,
    Expression,
    Negation,
    NullTest,
)
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import SqlType


@dataclass(frozen=True, slots=True)
class Lookup:
    """A join with what rows and values say together: of its columns, the first ones are compared with these."""

    sql: str
    reads: tuple[str, ...]
    """The tables and views it names, in lower case."""
    keys: tuple[Expression, ...]
    """What its first columns are compared with."""


@dataclass(frozen=True, slots=True)
class _Growing:
    """A lookup while its statement grows."""

    number: int
    statement: Statement
    keys: tuple[Expression, ...]
    inner: bool
    items: tuple[Item, ...]
    distinct: bool = False


class Pairs:
    """The lookups of one query; ``lower`` makes expressions over slots."""

    def __init__(self, bound: BoundQuery, flat: FlatQuery, lower: Callable[[Expression], Expression]) -> None:
        self._bound, self._flat, self._lower = bound, flat, lower
        self._growing: dict[str, _Growing] = {}
        """By alias."""
        self._taken: list[Expression] = []

    def join_outer(self, item: Item, condition: Expression) -> None:
        """An outer join by columns that are equal to a constant of the row or of the value, each."""
        parts = condition.operands if isinstance(condition, Conjunction) else (condition,)
        statement, keys = Statement(), []
        for part in parts:
            if not isinstance(part, Comparison) or part.operator != "=" or part.null_safe:
                raise OtherShape("an outer join between rows and values by more than equal columns")
            own, other = part.left, part.right
            if not isinstance(own, Cell) or own.source.lower() != item.alias:
                own, other = other, own
            if not isinstance(own, Cell) or own.source.lower() != item.alias:
                raise OtherShape("an outer join between rows and values by more than equal columns")
            keys.append(self._lower(other))
            if statement.slot(column_of(own)) != len(keys) - 1:
                raise OtherShape("an outer join by one column twice")
        if any(isinstance(node, PairSlot) for key in keys for node in key.walk()):
            raise OtherShape("an outer join by what another one finds")
        self._growing[item.alias] = _Growing(len(self._growing), statement, tuple(keys), False, (item,))

    def join(self, item: Item) -> Expression:
        """An inner join by columns that are equal to a constant of the row or of the value, each; whether it finds."""
        statement = Statement()
        keys: list[Expression] = []
        for predicate in self._flat.predicates:
            if not isinstance(predicate, DatabasePart) or item.alias not in aliases_of(predicate.tree):
                continue
            self._taken.append(predicate)
            compared = compared_column(predicate.tree, item.alias)
            if compared is None:
                statement.require(predicate.tree)
                continue
            column, other = compared
            key = self._lower(DatabasePart(SqlType.UNKNOWN, predicate.position, other))
            if not isinstance(key, (RowSlot, ValueSlot)) or statement.slot(column) != len(keys):
                raise OtherShape("a join between rows and values by more than equal columns")
            keys.append(key)
        self._growing[item.alias] = _Growing(len(self._growing), statement, tuple(keys), True, (item,))
        position = self._bound.position
        entry = self.slot(
            exp.Literal.number(1), DatabasePart(SqlType.INTEGER, position, exp.true()), item.alias
        )
        return Negation(SqlType.BOOLEAN, position, NullTest(SqlType.BOOLEAN, position, entry))

    def find(self, subquery: Found) -> Expression:
        """Whether a subquery of constants finds anything for a row and a value."""
        statement = Statement()
        for condition in subquery.conditions:
            statement.require(condition)
        for number, column in enumerate(subquery.columns):
            if statement.slot(column) != number:
                raise OtherShape("a subquery that compares one column twice")
        keys = tuple(map(self._lower, subquery.keys))
        found = _Growing(len(self._growing), statement, keys, False, subquery.items, distinct=True)
        self._growing[f"found {found.number}"] = found
        slot = statement.slot(exp.Literal.number(1))
        entry = PairSlot(SqlType.INTEGER, subquery.position, found.number, slot, keys)
        return Negation(
            SqlType.BOOLEAN, subquery.position, NullTest(SqlType.BOOLEAN, subquery.position, entry)
        )

    def took(self, predicate: Expression) -> bool:
        """Whether a predicate says by what a source is joined."""
        return any(predicate is one for one in self._taken)

    def keys(self, alias: str) -> tuple[Expression, ...]:
        """What the source is looked up by."""
        return self._growing[alias].keys

    def counterpart(self, tree: exp.Expr) -> Expression | None:
        """What a column of an inner join is equal to wherever that finds anything, if it is joined by it."""
        column = tree.unalias().unnest()
        found = self._growing.get(column.table.lower()) if isinstance(column, exp.Column) else None
        place = -1 if found is None else found.statement.texts.get(to_sql(column), -1)
        return (
            found.keys[place] if found is not None and found.inner and 0 <= place < len(found.keys) else None
        )

    def slot(self, tree: exp.Expr, part: DatabasePart, alias: str | None = None) -> PairSlot:
        """A column of what is found."""
        found = self._growing[alias or next(iter(aliases_of(tree)))]
        return PairSlot(part.type, part.position, found.number, found.statement.slot(tree), found.keys)

    def lookups(self) -> Iterator[Lookup]:
        """All of them, with their statements."""
        for found in self._growing.values():
            items = [replace(item, on=None) for item in found.items]
            sql = found.statement.sql(None, items, distinct=found.distinct)
            yield Lookup(sql, found.statement.relations(items), found.keys)


def column_of(cell: Cell) -> exp.Column:
    """A column of a source, as SQL names it."""
    source = exp.to_identifier(cell.source, quoted=True)
    return exp.column(exp.to_identifier(cell.column, quoted=True), table=source)
