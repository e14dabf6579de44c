"""Small SQL trees that are needed in several places, and the error for a tree that cannot be encoded."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.source_text import SourceText
from mgmt.sql.tokens import position_of


def named_table(name: str, alias: str = "") -> exp.Table:
    """``"name" AS "alias"``."""
    found = exp.Table(this=exp.to_identifier(name, quoted=True))
    if alias:
        found.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return found


def select_as(relation: str, names: Iterable[tuple[str, str]]) -> exp.Select:
    """``SELECT "own" AS "other", ... FROM "relation"``, for pairs of own and other names."""
    columns = [exp.alias_(exp.column(own, quoted=True), other, quoted=True) for own, other in names]
    return exp.Select(expressions=columns, from_=exp.From(this=named_table(relation)))


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The parts of an AND, also of those in parentheses; what is none has one part."""
    tree = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if isinstance(tree, exp.And):
        return [part for side in (tree.this, tree.expression) for part in conjuncts(side)]
    return [tree]


def unsupported(node: exp.Expr, text: SourceText, what: str, hint: str) -> UnsupportedConstructError:
    """The error for a construct that the solver cannot be told, at its place."""
    return UnsupportedConstructError(
        f"cannot be encoded: {what}", position=position_of(node, text), hint=hint
    )
