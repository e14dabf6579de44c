"""What may stand in FROM besides tables and SELECTs: VALUES and generate_series; what may not, and what to do.

What it is not: it defines no view (see ``normalize``).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, UnsupportedConstructError
from mgmt.source import SourceText
from mgmt.tokens import position_of

SERIES = (exp.GenerateSeries, exp.ExplodingGenerateSeries)
_HINTS: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    (
        (exp.Lateral,),
        "LATERAL of this",
        "LATERAL (SELECT ...) AS name, generate_series and json_each stand there",
    ),
    (
        (exp.Unnest, exp.Anonymous, exp.Func),
        "a function",
        "put its rows into a table, or write them out: (VALUES (1), (2)) AS v (n); json_each(x) stands in FROM of a"
        " SELECT, or of a subquery that is a value, or behind EXISTS or IN, by itself",
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


def unnest_as_lateral(unnest: exp.Unnest) -> exp.Lateral | None:
    """unnest(ARRAY[a.x, a.y]) AS u (x) as LATERAL (VALUES (a.x), (a.y)) AS u (x); None for a list of constants."""
    arrays = unnest.expressions
    if len(arrays) != 1 or not isinstance(arrays[0], exp.Array) or arrays[0].find(exp.Column) is None:
        return None
    rows = [exp.Tuple(expressions=[value.copy()]) for value in arrays[0].expressions]
    alias = _alias_of_unnest(unnest)
    return exp.Lateral(this=exp.Subquery(this=exp.Values(expressions=rows)), alias=alias)


def _alias_of_unnest(unnest: exp.Unnest) -> exp.TableAlias:
    alias = unnest.args.get("alias")
    name = alias.this.copy() if alias is not None and alias.this else exp.to_identifier("unnest")
    names = alias.args.get("columns") if alias is not None else None
    return exp.TableAlias(this=name, columns=[column.copy() for column in names or [name]])


def unnest_as_values(unnest: exp.Unnest, text: SourceText) -> exp.Values:
    """unnest(ARRAY['a', 'b']) AS u (x) as (VALUES ('a'), ('b')) AS u (x)."""
    arrays = unnest.expressions
    constants = len(arrays) == 1 and isinstance(arrays[0], exp.Array) and bool(arrays[0].expressions)
    if not constants or arrays[0].find(exp.Column, exp.Query) is not None or unnest.args.get("offset"):
        raise not_in_from(unnest, text)
    rows = [exp.Tuple(expressions=[value.copy()]) for value in arrays[0].expressions]
    return exp.Values(expressions=rows, alias=_alias_of_unnest(unnest))


def is_series(item: exp.Expr) -> bool:
    """Whether it is generate_series(...) in FROM."""
    return isinstance(item, exp.Table) and isinstance(item.this, SERIES)


def name_of_series(item: exp.Table) -> str:
    """What its column is called."""
    alias = item.args.get("alias")
    names = alias.args.get("columns") if alias is not None else None
    return names[0].name if names else (item.alias or "generate_series")


def series_as_select(
    item: exp.Table, text: SourceText, beside: exp.Table | None = None, carried: Sequence[str] = ()
) -> exp.Select:
    """generate_series(a, b, step) as a recursion, which both databases have; numbers, or timestamps by an interval.

    Its operands may be of columns of the table ``beside``, which are outputs, too: those that are ``carried``.
    """
    series = item.this
    first, last = series.args["start"], series.args["end"]
    step = series.args.get("step")
    for inner in series.find_all(*SERIES):
        if inner is not series:  # it would be written more than once, and what is in it more often yet
            raise UnsupportedConstructError(
                "cannot be encoded: a series within a series",
                position=position_of(item, text),
                hint="make a view of the inner one, and select from it",
            )
    for column in series.find_all(exp.Column):
        query = column.find_ancestor(exp.Query)
        if beside is not None and column.table == beside.alias:
            continue
        if query is None or query.find(type(series)) is not None:
            raise UnsupportedConstructError(
                "cannot be encoded: generate_series of what is no constant column to the left",
                position=position_of(column, text),
                hint="go to the greatest, and keep what is meant: generate_series(1, (SELECT max(x) FROM t)) AS n"
                " ... WHERE n <= x",
            )
    name = name_of_series(item)
    if item.args.get("alias") is None:
        item.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
    if step is not None and step.find(exp.Interval, exp.MakeInterval) is not None:
        kind = exp.DataType.build("timestamp", dialect="postgres")
        first, last = (exp.Cast(this=part.copy(), to=kind.copy()) for part in (first, last))
    return _series(name, first, last, step, beside, carried)


def _series(
    name: str,
    first: exp.Expr,
    last: exp.Expr,
    step: exp.Expr | None,
    beside: exp.Table | None,
    carried: Sequence[str],
) -> exp.Select:
    rows = "series"
    value = exp.column(exp.to_identifier(name, quoted=True), table=rows)

    def kept(table: str) -> list[exp.Expr]:
        columns = [
            exp.column(exp.to_identifier(one, quoted=True), table=table, quoted=True) for one in carried
        ]
        return [exp.alias_(column, one, quoted=True) for column, one in zip(columns, carried, strict=True)]

    def following(one: exp.Expr) -> exp.Expr:
        added = exp.Literal.number(1) if step is None else exp.Paren(this=step.copy())
        return exp.Add(this=exp.Paren(this=one.copy()), expression=added)

    def ahead(one: exp.Expr, limit: exp.Expr, *, strictly: bool) -> exp.Expr:
        """Whether a number does not lie beyond the last one, in the direction of the step."""
        up, down = (exp.LT, exp.GT) if strictly else (exp.LTE, exp.GTE)
        rising = up(this=one.copy(), expression=exp.Paren(this=limit.copy()))
        if step is None:
            return rising
        goes_up = exp.GT(this=following(first), expression=exp.Paren(this=first.copy()))
        goes_down = exp.LT(this=following(first), expression=exp.Paren(this=first.copy()))
        falling = down(this=one.copy(), expression=exp.Paren(this=limit.copy()))
        return exp.or_(exp.and_(goes_up, rising), exp.and_(goes_down, falling))

    start = exp.Select(expressions=[exp.alias_(exp.Paren(this=first.copy()), name, quoted=True)])
    if beside is not None:
        start.set("from_", exp.From(this=beside))
        start.set("expressions", [*start.expressions, *kept(beside.alias)])
    start.set("where", exp.Where(this=ahead(exp.Paren(this=first), last, strictly=False)))
    source = exp.Table(this=exp.to_identifier(rows))
    more = exp.Select(
        expressions=[exp.alias_(following(value), name, quoted=True)], from_=exp.From(this=source)
    )
    reached = value if step is None else following(value)
    more.set("where", exp.Where(this=ahead(reached, last, strictly=step is None)))
    for column in more.find_all(exp.Column):
        if beside is not None and column.table == beside.alias:
            column.set("table", exp.to_identifier(rows, quoted=True))
    more.set("expressions", [*more.expressions, *kept(rows)])
    union = exp.Union(this=start, distinct=False, expression=more)
    part = exp.CTE(this=union, alias=exp.TableAlias(this=exp.to_identifier(rows)))
    output = exp.alias_(value.copy(), name, quoted=True)
    select = exp.Select(expressions=[output, *kept(rows)], from_=exp.From(this=source.copy()))
    select.set("with_", exp.With(expressions=[part], recursive=True))
    return select
