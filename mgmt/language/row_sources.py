"""What may stand in FROM besides tables and SELECTs: rows that are written out (VALUES); what may not, and what to do.

What it is not: it defines no view (see ``normalize``).
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.tokens import position_of

_HINTS: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    ((exp.Lateral,), "LATERAL", "write a join, or a subquery in the SELECT list for a single value"),
    (
        (exp.GenerateSeries, exp.Unnest, exp.Anonymous, exp.Func),
        "a function",
        "put its rows into a table, or write them out: (VALUES (1), (2)) AS v (n)",
    ),
)


def not_in_from(item: exp.Expr, text: SourceText) -> UnsupportedConstructError:
    """The error for a relation that is none of a kind that both databases have."""
    inner = item.this if isinstance(item, exp.Table) else item
    for kinds, what, hint in _HINTS:
        if isinstance(item, kinds) or isinstance(inner, kinds):
            return UnsupportedConstructError(
                f"cannot be encoded: {what} in FROM", position=position_of(item, text), hint=hint
            )
    return UnsupportedConstructError(
        f"cannot be encoded: {item.key.upper()} in FROM",
        position=position_of(item, text),
        hint="FROM takes tables, views, (SELECT ...) AS name, (VALUES ...) AS name (columns), and joins",
    )


def values_as_selects(values: exp.Values, text: SourceText) -> exp.Expr:
    """VALUES (1, 2), (3, 4) as SELECT ... UNION ALL SELECT ..., in parentheses with its name where it has one."""
    alias = values.args.get("alias")
    columns = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
    width = len(rows[0])
    for row, written in zip(rows, values.expressions, strict=True):
        if len(row) != width:
            raise PolicySyntaxError(
                f"this row of VALUES has {len(row)} values, the first has {width}",
                position=position_of(written, text),
                hint="write as many in each row; NULL stands for what is not known",
            )
    if len(columns) > width:
        raise PolicySyntaxError(
            f"VALUES has {width} columns, and {len(columns)} names are given",
            position=position_of(values, text),
            hint="give a name to each column",
        )
    names = [*columns, *(f"column{number}" for number in range(len(columns) + 1, width + 1))]
    selects: list[exp.Expr] = [
        exp.Select(
            expressions=[
                exp.alias_(value.copy(), name, quoted=True) for name, value in zip(names, row, strict=True)
            ]
        )
        for row in rows
    ]
    tree = selects[0]
    for select in selects[1:]:
        tree = exp.Union(this=tree, distinct=False, expression=select)
    if alias is None:
        return tree
    return exp.Subquery(this=tree, alias=exp.TableAlias(this=alias.this.copy()))
