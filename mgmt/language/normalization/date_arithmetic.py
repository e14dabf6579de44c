"""Days beside a date: the engine adds whole numbers of 32 bits to one, and a column of the state has 64."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from mgmt.language.names.scopes import Scope, candidates
from mgmt.state.schema import SqlType


def days_as_integers(tree: exp.Expr, scopes: Iterable[Scope]) -> None:
    """Cast columns of whole numbers that are added to dates, or taken from them, in place."""
    known = tuple(scopes)
    for node in list(tree.find_all(exp.Add, exp.Sub)):
        if _is_date(node.this, known):
            _cast(node.expression, known)
        elif isinstance(node, exp.Add) and _is_date(node.expression, known):
            _cast(node.this, known)


def _is_date(node: exp.Expr, scopes: tuple[Scope, ...]) -> bool:
    """Whether it is a date, perhaps some days from another."""
    while isinstance(node, (exp.Paren, exp.Add, exp.Sub)):
        node = node.this
    cast = isinstance(node, exp.Cast) and node.to.this is exp.DType.DATE
    return cast or _type_of(node, scopes) is SqlType.DATE


def _cast(node: exp.Expr, scopes: tuple[Scope, ...]) -> None:
    columns = list(node.find_all(exp.Column))
    if node.find(exp.Interval) is not None:
        return  # days and more already
    if columns and all(_type_of(column, scopes) is SqlType.INTEGER for column in columns):
        inner = node.copy()
        inner.meta.update(node.meta)
        kind = exp.DataType.build("INTEGER", dialect="duckdb")
        node.replace(exp.Cast(this=exp.Paren(this=inner), to=kind))


def _type_of(node: exp.Expr, scopes: tuple[Scope, ...]) -> SqlType | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    found = (candidates(scope, node.name, node.table) for scope in scopes)
    nearest = next((columns for columns in found if columns), [])
    return nearest[0][1].type if len(nearest) == 1 else None
