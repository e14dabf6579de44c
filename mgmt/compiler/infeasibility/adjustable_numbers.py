"""Which numbers of the state a constraint compares with, so that one can say which of them to raise.

``sum(demand) <= host.capacity`` has its limit in the column ``capacity`` of the table ``host``; so has a view's column
that is computed from it by adding and subtracting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.language.bound_queries.expressions import (
    Arithmetic,
    Comparison,
    Conjunction,
    DatabasePart,
    Expression,
)
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.state.schema import Schema, SqlType, Table

_DEEPEST_VIEW = 10


@dataclass(frozen=True, slots=True)
class Adjustable:
    """A number of the state.

    Adding to it lets the smaller side of the check be larger if ``sign`` is 1; subtracting from it does if it is -1.
    ``smaller_on_right``: the check is written with ``>=``.
    """

    table: str
    column: str
    sign: int
    key: Mapping[str, str]
    """The table's key columns, each with the constraint's output that holds its value."""
    smaller_on_right: bool = False


@dataclass(frozen=True, slots=True)
class _Origin:
    table: str
    column: str
    sign: int
    key: Mapping[str, str]  # key column of the table -> column of the relation it was looked up in


class Limits:
    """Looks through the views of one program."""

    def __init__(self, schema: Schema, queries: Sequence[PushedView | BoundQuery]) -> None:
        self._schema = schema
        self._queries = {query.name.lower(): query for query in queries}

    def adjustable(self, query: BoundQuery, names: Sequence[str]) -> Adjustable | None:
        """The first number that, when raised or lowered, lets the left side of the check be larger.

        ``names`` are the constraint's outputs, as its rows have them.
        """
        for comparison, swapped in _comparisons(query):
            sides = ((comparison.right, 1), (comparison.left, -1))
            for side, sign in sides:
                for tree, own in _leaves(side, sign):
                    found = self._find(query, tree, own, names)
                    if found is not None:
                        return replace(found, smaller_on_right=swapped)
        return None

    def _find(self, query: BoundQuery, tree: exp.Expr, sign: int, names: Sequence[str]) -> Adjustable | None:
        for column, own in _columns(tree, sign):
            alias = column.table.lower()
            source = next((source for source in query.sources if source.alias.lower() == alias), None)
            if source is None:
                continue
            origin = self._origin(source.relation.name, column.name, 0)
            if origin is None:
                continue
            key = {}
            for key_column, relation_column in origin.key.items():
                output = output_of(query, source.alias, relation_column, names)
                if output is not None:
                    key[key_column] = output
            if len(key) == len(origin.key):
                return Adjustable(origin.table, origin.column, own * origin.sign, key)
        return None

    def _origin(self, relation: str, column: str, depth: int) -> _Origin | None:
        """The table's column that a relation's column is, or is computed from by adding and subtracting."""
        table = self._schema.find(relation)
        if table is not None:
            return _table_origin(table, column)
        view = self._queries.get(relation.lower())
        if view is None or depth > _DEEPEST_VIEW:
            return None
        select = view.tree if isinstance(view, PushedView) else view.skeleton
        projections: Mapping[str, exp.Expr]
        if isinstance(view, PushedView):
            projections = {item.alias_or_name.lower(): item.unalias() for item in view.tree.expressions}
        else:
            projections = {output.name.lower(): output.tree.unalias() for output in view.outputs}
        if not isinstance(select, exp.Select):
            return None
        sources = {
            (part.alias or part.name).lower(): part.name
            for part in select.find_all(exp.Table)
            if part.find_ancestor(exp.Select) is select
        }
        wanted = projections.get(column.lower())
        for leaf, sign in _columns(wanted, 1) if wanted is not None else ():
            inner = self._origin(sources.get(leaf.table.lower(), ""), leaf.name, depth + 1)
            if inner is None:
                continue
            key = {}
            for key_column, name in inner.key.items():
                passed = next(
                    (
                        output
                        for output, tree in projections.items()
                        if isinstance(tree, exp.Column)
                        and (tree.table.lower(), tree.name.lower()) == (leaf.table.lower(), name.lower())
                    ),
                    None,
                )
                if passed is not None:
                    key[key_column] = passed
            if len(key) == len(inner.key):
                return _Origin(inner.table, inner.column, sign * inner.sign, key)
        return None


def _table_origin(table: Table, column: str) -> _Origin | None:
    try:
        found = table.column(column)
    except KeyError:
        return None
    key = {name.lower() for name in table.primary_key}
    if found.type is not SqlType.INTEGER or found.is_variable or not key or found.name.lower() in key:
        return None
    return _Origin(table.name, found.name, 1, {table.column(name).name: name for name in table.primary_key})


def _comparisons(query: BoundQuery) -> Iterator[tuple[Comparison, bool]]:
    """Of the check, with what must be the smaller side on the left, and whether it was on the right."""
    if query.demand is None:
        return
    parts: list[Expression] = [query.demand.expression]
    while parts:
        part = parts.pop(0)
        if isinstance(part, Conjunction):
            parts.extend(part.operands)
        elif isinstance(part, Comparison) and part.operator in {"<=", "<", "="}:
            yield part, False
        elif isinstance(part, Comparison) and part.operator in {">=", ">"}:
            yield Comparison(part.type, part.position, part.right, part.left, "<="), True


def _leaves(expression: Expression, sign: int) -> Iterator[tuple[exp.Expr, int]]:
    if isinstance(expression, DatabasePart):
        yield expression.tree, sign
    elif isinstance(expression, Arithmetic) and expression.operator in {"+", "-"}:
        yield from _leaves(expression.left, sign)
        yield from _leaves(expression.right, sign if expression.operator == "+" else -sign)


def _columns(tree: exp.Expr, sign: int) -> Iterator[tuple[exp.Column, int]]:
    tree = tree.unalias()
    if isinstance(tree, exp.Column):
        yield tree, sign
    elif isinstance(tree, exp.Paren):
        yield from _columns(tree.this, sign)
    elif isinstance(tree, (exp.Add, exp.Sub)):
        yield from _columns(tree.this, sign)
        yield from _columns(tree.expression, -sign if isinstance(tree, exp.Sub) else sign)


def output_of(query: BoundQuery, alias: str, column: str, names: Sequence[str]) -> str | None:
    """The output of a constraint that holds a source's column."""
    for output in query.outputs:
        tree = output.tree.unalias()
        if isinstance(tree, exp.Column) and (tree.table.lower(), tree.name.lower()) == (
            alias.lower(),
            column.lower(),
        ):
            return output.name if output.name in names else None
    # What tells the rows apart is there even if it was not selected (``mgmt.compiler.relational.split``).
    for name in (f"{alias}.{column}", column):
        for known in names:
            if known.lower() == name.lower():
                return known
    return None
