"""Quantities: the integer variables that are numbers to the solver, not lists of values.

A column with a range is one integer variable in each row.  Where policies tell its values apart (group by them, join by
them, let them differ between rows, count the different ones) it stays a list as long as that is short enough; so does a
short one of which they ask whether it is one of its values.  A longer one is compared by thresholds; what else needs
the list is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from sqlglot import exp

from mgmt.compiler.relational.split import SplitQuery
from mgmt.errors import UnsupportedConstructError
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Cell,
    Comparison,
    Computed,
    ComputedKey,
    DatabasePart,
    Expression,
    MembershipQuery,
    has_variable,
)
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, Subquery
from mgmt.language.names.catalog import Catalog
from mgmt.language.names.scopes import Source
from mgmt.source_text import Position
from mgmt.state.schema import Column, SqlType, Table
from mgmt.state.schema_parsing.column_bounds import FEW_VALUES, MOST_VALUES

_Place = tuple[str, str]
_TOLD_APART = {AggregateFunction.COUNT_DISTINCT, AggregateFunction.ALL_DIFFERENT}


def quantities_of(program: Sequence[PushedView | SplitQuery], catalog: Catalog) -> frozenset[_Place]:
    """(table, variable column), in lower case, of every quantity.

    UnsupportedConstructError for a range of more than 10 000 values that must be listed.
    """
    tables = catalog.schema.tables
    ranged = {
        (table.name.lower(), column.name.lower()): column
        for table in tables
        for column in table.variables
        if column.range is not None and column.type is SqlType.INTEGER
    }
    if not ranged:
        return frozenset()
    queries = [
        found
        for step in program
        if isinstance(step, SplitQuery)
        for found in _with_subqueries(step.bound, ())
    ]
    told_apart = chain(_unique(tables), *(_counted(*query) for query in queries))
    listed = {place for query in queries for place in _joined(*query)}
    listed |= {
        place
        for query in queries
        for place in _equated(*query)
        if place in ranged and _width(ranged[place]) <= FEW_VALUES
    }
    for place, what, position in told_apart:
        listed.add(place)
        if place in ranged and _width(ranged[place]) > MOST_VALUES:
            low, high = ranged[place].range or (0, 0)
            raise UnsupportedConstructError(
                f"{what} of {'.'.join(place)}, a number between {low} and {high}",
                position=position or ranged[place].position,
                hint=f"at most {MOST_VALUES} values are told apart: bound it closer, or use a larger unit",
            )
    return frozenset(
        place for place, column in ranged.items() if place not in listed or _width(column) > MOST_VALUES
    )


def _width(column: Column) -> int:
    return 0 if column.range is None else column.range[1] - column.range[0] + 1


def _unique(tables: Iterable[Table]) -> Iterator[tuple[_Place, str, Position | None]]:
    for table in tables:
        for names in table.uniques:
            for name in names:
                yield (table.name.lower(), name.lower()), "UNIQUE", None


def _counted(query: BoundQuery, sources: Sequence[Source]) -> Iterator[tuple[_Place, str, Position | None]]:
    """What different values are counted of."""
    for node in _nodes(query):
        if isinstance(node, Aggregate) and node.function in _TOLD_APART and node.operand is not None:
            for place in _origin(sources, node.operand):
                yield place, str(node.function), node.position


def _joined(query: BoundQuery, sources: Sequence[Source]) -> Iterator[_Place]:
    """What is compared with another source's, looked for in a query, grouped by, or given to a function."""
    for node in _nodes(query):
        if isinstance(node, Comparison) and node.operator in {"=", "<>"}:
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(one, Cell) and _is_value(other) and _sources(other) - {one.source.lower()}:
                    yield from _origin(sources, one)
        elif isinstance(node, (ComputedKey, Computed, MembershipQuery, Subquery)):
            for child in node.operands if isinstance(node, Subquery) else node.children:
                yield from _origin(sources, child)


def _equated(query: BoundQuery, sources: Sequence[Source]) -> Iterator[_Place]:
    """What is compared with one value."""
    for node in _nodes(query):
        if isinstance(node, Comparison) and (node.operator in {"=", "<>"} or node.null_safe):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if _is_value(other):
                    yield from _origin(sources, one)


def _is_value(expression: Expression) -> bool:
    """Whether it is a value by itself, not what the solver computes."""
    return isinstance(expression, Cell) or not has_variable(expression)


def _sources(expression: Expression) -> set[str]:
    found: set[str] = set()
    for node in expression.walk():
        if isinstance(node, Cell):
            found.add(node.source.lower())
        elif isinstance(node, DatabasePart):
            found.update(column.table.lower() for column in node.tree.find_all(exp.Column))
    return found


def _origin(sources: Sequence[Source], expression: Expression) -> Iterator[_Place]:
    """The variable column of a table that a column of one of the sources, the innermost first, is unchanged."""
    if isinstance(expression, Cell):
        alias = expression.source.lower()
        source = next((source for source in sources if source.alias.lower() == alias), None)
        column = None if source is None else source.relation.find(expression.column)
        if column is not None and column.origin is not None:
            yield column.origin[0].lower(), column.origin[1].lower()


def _nodes(query: BoundQuery) -> Iterator[Expression]:
    for expression in query.expressions:
        yield from expression.walk()


def _with_subqueries(
    query: BoundQuery, around: tuple[Source, ...]
) -> Iterator[tuple[BoundQuery, tuple[Source, ...]]]:
    """The query and those in it, each with its sources and those of what is around it."""
    sources = (*query.sources, *around)
    yield query, sources
    for node in _nodes(query):
        if isinstance(node, Subquery):
            yield from _with_subqueries(node.query, sources)
