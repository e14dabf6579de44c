"""Scopes: what can be named in a SELECT, and the columns a name can mean there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from mgmt.language.names.catalog import Relation, RelationColumn


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of a FROM clause: an alias for a relation."""

    alias: str
    relation: Relation


Scope = Mapping[str, Source]
# What a SELECT uses of those around it: whose scope, which source and column, and where it is written.
References: TypeAlias = list[tuple[Scope, Source, RelationColumn, exp.Column]]


def candidates(scope: Scope, name: str, qualifier: str) -> list[tuple[Source, RelationColumn]]:
    """The columns that a name can mean; ``qualifier`` is empty where none is written."""
    found = []
    for alias, source in scope.items():
        if qualifier and alias != qualifier.lower():
            continue
        column = source.relation.find(name)
        if column is not None:
            found.append((source, column))
    return found


def from_items(tree: exp.Select) -> list[exp.Expr]:
    """What stands in FROM and in the joins."""
    items: list[exp.Expr] = []
    if tree.args.get("from_"):
        items.append(tree.args["from_"].this)
    items.extend(join.this for join in tree.args.get("joins") or ())
    return items
