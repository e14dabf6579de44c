"""Subqueries used as values have one row at most; SQLite by itself would take the first of several in silence.

The compiler writes ``(SELECT x ...)`` so that SQLite looks for a second row, and calls a function that is an error when
there is one.  PostgreSQL looks by itself: there the SELECT is taken out again.

What it is not: it says nothing about subqueries over what the solver decides (see ``mgmt.compiler.subqueries``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import apsw
from sqlglot import exp

from mgmt.errors import DataError

SEVERAL = "more than one row returned by a subquery used as a value"
HINT = "aggregate it, as in (SELECT max(...) ...), or compare by the key of its table"
_SEVERAL = "rota_several_rows"
_ROWS = "sole row"
_VALUE = "value"
# Below these a SELECT in parentheses is a relation, or compared row by row, and no value.
_NO_VALUE = (
    *(exp.From, exp.Join, exp.Lateral, exp.CTE, exp.SetOperation, exp.Subquery),
    *(exp.Exists, exp.Any, exp.All),
)


def several_rows(*_: object) -> NoReturn:
    """What SQLite calls when there is a second row."""
    raise DataError(SEVERAL, hint=HINT)


def is_ours(message: str) -> bool:
    """Whether a DataError of either database is about this."""
    return "more than one row returned by a subquery" in message


def install(connection: apsw.Connection) -> None:
    """Let the connection run what ``guard`` makes."""
    connection.create_scalar_function(_SEVERAL, several_rows, 0)


def guard(tree: exp.Expr, is_aggregate: Callable[[exp.Expr], bool]) -> None:
    """Change every subquery below ``tree`` that is used as a value and may have several rows."""
    # Inner ones first: an outer one takes them with it.
    for subquery in reversed(list(tree.find_all(exp.Subquery))):
        if may_have_several(subquery, is_aggregate):
            subquery.set("this", _guarded(subquery.unnest()))


def may_have_several(subquery: exp.Subquery, is_aggregate: Callable[[exp.Expr], bool]) -> bool:
    """Whether it is used as a value and is not seen to have one row at most."""
    return _is_value(subquery) and not _has_one_row(subquery.unnest(), is_aggregate)


def unguarded(select: exp.Expr) -> exp.Expr | None:
    """The SELECT that ``guard`` has put into this one; None when it is not its work."""
    clause = select.args.get("with_")
    parts = clause.expressions if clause is not None else []
    if len(parts) == 1 and parts[0].alias == _ROWS:
        found: exp.Expr = parts[0].this
        return found
    return None


def _is_value(subquery: exp.Subquery) -> bool:
    parent = subquery.parent
    if isinstance(parent, _NO_VALUE) or (isinstance(parent, exp.In) and subquery.arg_key == "query"):
        return False
    # (a, b) = (SELECT c, d ...) compares rows.
    beside = [parent.this, parent.expression] if isinstance(parent, exp.Binary) else []
    return not any(isinstance(side, exp.Tuple) for side in beside)


def _has_one_row(select: exp.Expr, is_aggregate: Callable[[exp.Expr], bool]) -> bool:
    """Whether that can be seen: it is an aggregate of all rows, has no FROM, or the first row is asked for."""
    limit = select.args.get("limit")
    if limit is not None and limit.expression is not None and limit.expression.sql() in {"0", "1"}:
        return True
    if not isinstance(select, exp.Select) or select.args.get("group"):
        return False
    if not select.args.get("from_"):
        return True
    return any(
        is_aggregate(node) and not _is_elsewhere(node, select) for node in select.expressions[0].walk()
    )


def _is_elsewhere(node: exp.Expr, select: exp.Select) -> bool:
    """Whether an aggregate belongs to a SELECT further in, or only looks at the rows around its own."""
    window = node.find_ancestor(exp.Window, exp.Select)
    return window is not select


def _guarded(select: exp.Expr) -> exp.Select:
    """WITH rows (value) AS (SELECT ... LIMIT 2) SELECT CASE WHEN count(*) > 1 THEN <error> ELSE max(value) END."""
    rows = select.copy()
    if rows.args.get("limit") is None:
        rows.set("limit", exp.Limit(expression=exp.Literal.number(2)))
    name = exp.to_identifier(_ROWS, quoted=True)
    columns = [exp.to_identifier(_VALUE, quoted=True)]
    found = exp.Max(this=exp.column(_VALUE, quoted=True))
    several = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(1))
    case = exp.Case(ifs=[exp.If(this=several, true=exp.Anonymous(this=_SEVERAL))], default=found)
    clause = exp.With(expressions=[exp.CTE(this=rows, alias=exp.TableAlias(this=name, columns=columns))])
    return exp.Select(expressions=[case], from_=exp.From(this=exp.Table(this=name.copy())), with_=clause)
