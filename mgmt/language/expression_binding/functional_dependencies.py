"""Functional dependencies: what a grouped SELECT may show outside of aggregates, the same in each row of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlglot import exp

from mgmt.language.bound_queries.expressions import Aggregate, Cell, ComputedKey, DatabasePart, Expression
from mgmt.language.names.scopes import Source
from mgmt.source_text import Position
from mgmt.state.schema import Schema

_Column = tuple[str, str]  # alias and name, in lower case
_AGGREGATED = (exp.AggFunc, exp.Filter)


def ungrouped_columns(
    parts: Sequence[Expression],
    keys: Sequence[DatabasePart | ComputedKey],
    scope: Mapping[str, Source],
    settled: Iterable[_Column] = (),
) -> Iterator[tuple[Position, str, str]]:
    """The columns in these that may differ within a group: place, alias and name.

    ``settled``: some that are known not to, besides what the keys settle.
    """
    fixed = fixed_columns(filter(None, map(_column, keys)), scope) | set(settled)
    spelled = {key.tree.sql() for key in keys}
    for part in parts:
        yield from _ungrouped(part, fixed, spelled, scope)


def _column(key: DatabasePart | ComputedKey) -> _Column | None:
    return (key.tree.table.lower(), key.tree.name.lower()) if isinstance(key.tree, exp.Column) else None


def _ungrouped(
    part: Expression, fixed: set[_Column], spelled: set[str], scope: Mapping[str, Source]
) -> Iterator[tuple[Position, str, str]]:
    if isinstance(part, (Aggregate, ComputedKey)):
        return
    used: list[_Column] = []
    if isinstance(part, DatabasePart):
        columns = _outside_aggregates(part.tree, spelled)
        used = [(column.table.lower(), column.name.lower()) for column in columns if column.table]
        used = [pair for pair in used if pair[0] in scope]
    elif isinstance(part, Cell):
        used = [(part.source.lower(), part.column.lower())]
    for alias, name in used:
        if (alias, name) not in fixed:
            yield part.position, alias, name
    for child in part.children:
        yield from _ungrouped(child, fixed, spelled, scope)


def _outside_aggregates(tree: exp.Expr, spelled: set[str]) -> Iterator[exp.Column]:
    """The columns of what the database computes, without those in its own aggregates and in what is grouped by."""
    for node in tree.walk(prune=lambda node: isinstance(node, _AGGREGATED) or node.sql() in spelled):
        if isinstance(node, exp.Column) and node.sql() not in spelled:
            yield node


def fixed_columns(
    keys: Iterable[_Column], scope: Mapping[str, Source], equal: Sequence[tuple[_Column, _Column]] = ()
) -> set[_Column]:
    """Columns that are constant in a group: the keys, and all of a source whose own key is among them.

    ``equal``: columns that are equal in every row.
    """
    fixed: set[_Column] = set()
    found = set(keys)
    while found - fixed:
        fixed |= found
        for alias, source in scope.items():
            if source.relation.key and all((alias, name.lower()) in fixed for name in source.relation.key):
                found |= {(alias, column.name.lower()) for column in source.relation.columns}
            for key, settled in source.relation.dependencies:
                if all((alias, name) in fixed for name in key):
                    found |= {(alias, name) for name in settled}
        found |= {column for pair in equal if fixed.intersection(pair) for column in pair}
    return fixed


def dependencies_of_view(
    sources: Iterable[Source], schema: Schema, names: Mapping[tuple[str, str], str]
) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    """What the keys of the tables below a view settle; ``names``: in it, of the sources' columns, in lower case.

    Of tables only: a key that may be NULL would not tell a row from one without a partner.
    """
    found = []
    for source in sources:
        alias, relation = source.alias.lower(), source.relation
        known = list(relation.dependencies)
        if relation.key and schema.find(relation.name) is not None:
            columns = frozenset(column.name.lower() for column in relation.columns)
            known.append((frozenset(name.lower() for name in relation.key), columns))
        for key, settled in known:
            if all((alias, name) in names for name in key):
                own = frozenset(names[alias, name] for name in settled if (alias, name) in names)
                found.append((frozenset(names[alias, name] for name in key), own))
    return tuple(found)
