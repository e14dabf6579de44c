"""Sources that are joined to rows and to values at once: looked up for each pair of them.

An outer join finds an entry or nothing; what an inner join finds nothing for is no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.compiler.assignments.normalization.block import QueryBlock, aliases_of
from mgmt.compiler.assignments.normalization.expressions import LookupColumn, RowColumn, ValueColumn
from mgmt.compiler.assignments.normalization.row_and_value_sides import compared_column
from mgmt.compiler.assignments.normalization.select import Item, Select, Statement
from mgmt.compiler.assignments.normalization.self_correlation import compared_sides
from mgmt.compiler.assignments.normalization.unnesting import SemiJoin
from mgmt.compiler.assignments.refusal import NotAnAssignment
from mgmt.language.bound_queries.expressions import (
    Cell,
    Conjunction,
    DatabasePart,
    Expression,
    Negation,
    NullTest,
)
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import Position
from mgmt.state.schema import SqlType


@dataclass(frozen=True, slots=True)
class Lookup:
    """A join with what rows and values say together: of its columns, the first ones are compared with these."""

    select: Select
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
    distinct: bool


class LookupJoins:
    """The lookups of one query; ``lower`` makes expressions over slots."""

    def __init__(
        self, bound: BoundQuery, flat: QueryBlock, lower: Callable[[Expression], Expression]
    ) -> None:
        self._bound, self._flat, self._lower = bound, flat, lower
        self._growing: dict[str, _Growing] = {}
        """By alias."""
        self._taken: list[Expression] = []

    def join_outer(self, item: Item, condition: Expression) -> None:
        """An outer join by columns that are equal to a constant of the row or of the value, each."""
        columns: list[exp.Expr] = []
        keys: list[Expression] = []
        for part in condition.operands if isinstance(condition, Conjunction) else (condition,):
            for own, other in compared_sides(part, "="):
                if isinstance(own, Cell) and own.source.lower() == item.alias:
                    columns.append(column_of(own))
                    keys.append(self._lower(other))
                    break
            else:
                raise NotAnAssignment("an outer join between rows and values by more than equal columns")
        if any(isinstance(node, LookupColumn) for key in keys for node in key.walk()):
            raise NotAnAssignment("an outer join by what another one finds")
        self._add(item.alias, (item,), columns, keys)

    def join(self, item: Item) -> Expression:
        """An inner join by columns that are equal to a constant of the row or of the value, each; whether it finds."""
        conditions: list[exp.Expr] = []
        columns: list[exp.Expr] = []
        keys: list[Expression] = []
        for predicate in self._flat.predicates:
            if not isinstance(predicate, DatabasePart) or item.alias not in aliases_of(predicate.tree):
                continue
            self._taken.append(predicate)
            compared = compared_column(predicate.tree, item.alias)
            if compared is None:
                conditions.append(predicate.tree)
                continue
            columns.append(compared[0])
            keys.append(self._lower(DatabasePart(SqlType.UNKNOWN, predicate.position, compared[1])))
            if not isinstance(keys[-1], (RowColumn, ValueColumn)):
                raise NotAnAssignment("a join between rows and values by more than equal columns")
        self._add(item.alias, (item,), columns, keys, conditions, inner=True)
        return self._finds(item.alias, self._bound.position)

    def find(self, subquery: SemiJoin) -> Expression:
        """Whether a subquery of constants finds anything for a row and a value."""
        name = f"found {len(self._growing)}"
        keys = [self._lower(key) for key in subquery.keys]
        self._add(name, subquery.items, subquery.columns, keys, subquery.conditions, distinct=True)
        return self._finds(name, subquery.position)

    def _add(
        self,
        name: str,
        items: tuple[Item, ...],
        columns: Sequence[exp.Expr],
        keys: Sequence[Expression],
        conditions: Sequence[exp.Expr] = (),
        *,
        inner: bool = False,
        distinct: bool = False,
    ) -> None:
        """A lookup of what has these keys in its first columns."""
        statement = Statement()
        for condition in conditions:
            statement.require(condition)
        if [statement.slot(column) for column in columns] != list(range(len(columns))):
            raise NotAnAssignment("a join between rows and values by one column twice")
        self._growing[name] = _Growing(len(self._growing), statement, tuple(keys), inner, items, distinct)

    def _finds(self, name: str, position: Position) -> Expression:
        entry = self.slot(exp.Literal.number(1), DatabasePart(SqlType.INTEGER, position, exp.true()), name)
        return Negation(SqlType.BOOLEAN, position, NullTest(SqlType.BOOLEAN, position, entry))

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

    def slot(self, tree: exp.Expr, part: DatabasePart, alias: str | None = None) -> LookupColumn:
        """A column of what is found."""
        found = self._growing[alias or next(iter(aliases_of(tree)))]
        return LookupColumn(part.type, part.position, found.number, found.statement.slot(tree), found.keys)

    def lookups(self) -> Iterator[Lookup]:
        """All of them, with their statements."""
        for found in self._growing.values():
            items = [replace(item, on=None) for item in found.items]
            yield Lookup(found.statement.select(None, items, distinct=found.distinct), found.keys)


def column_of(cell: Cell) -> exp.Column:
    """A column of a source, as SQL names it."""
    source = exp.to_identifier(cell.source, quoted=True)
    return exp.column(exp.to_identifier(cell.column, quoted=True), table=source)
