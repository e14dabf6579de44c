"""The text of what the database computes: trees of the policies' dialect as SQL of SQLite.

What SQLite has no word for, or reads otherwise, is written with what it has.  PostgreSQL is given a translation of
the same text (see ``mgmt.state.postgres``).

What it is not: it decides nothing about who computes what (see ``split``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from sqlglot import ErrorLevel, UnsupportedError, exp

from mgmt.compiler.our_aggregates import aggregate_sql, is_ours
from mgmt.errors import PolicyError, UnsupportedConstructError
from mgmt.language.bound import PushedView
from mgmt.language.dates import refuse_what_is_left
from mgmt.source import Position
from mgmt.state import exact_integers, sole_row, text_limits
from mgmt.state.like_patterns import escaped_by_backslash
from mgmt.state.math_functions import XOR

# Of which there are functions from here, and no other word.
_BITS: Mapping[type[exp.Expr], str] = {
    exp.BitwiseAndAgg: "bitwise_and_agg",
    exp.BitwiseOrAgg: "bitwise_or_agg",
    exp.BitwiseXorAgg: "bitwise_xor_agg",
}
# What the database has no word for, or reads otherwise.
_REWRITTEN: tuple[type[exp.Expr], ...] = (
    *(exp.Anonymous, exp.Any, exp.All, exp.Greatest, exp.Least, exp.Subquery, exp.Cast),
    *_BITS,
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg),
    exp.BitwiseXor,
    *text_limits.SEARCHES,
)


def to_sql(tree: exp.Expr) -> str:
    """A tree in the database's dialect."""
    if not any(isinstance(node, _REWRITTEN) for node in tree.walk()):
        return _generated(tree)
    refuse_what_is_left(tree)
    holder = exp.Paren(this=tree.copy())
    sole_row.guard(holder, lambda node: isinstance(node, exp.AggFunc) or is_ours(node))
    for ours in reversed([node for node in holder.find_all(exp.Anonymous) if is_ours(node)]):
        outermost = ours.parent if isinstance(ours.parent, exp.Filter) else ours
        suffix = f" FILTER (WHERE {to_sql(outermost.expression.this)})" if outermost is not ours else ""
        outermost.replace(exp.Var(this=aggregate_sql(ours, suffix, to_sql)))
    for quantified in reversed(list(holder.find_all(exp.Any, exp.All))):
        if isinstance(quantified.parent, exp.Binary):
            quantified.parent.replace(_quantified_for_sqlite(quantified.parent, quantified))
    # Inner ones first: an outer one copies its operands.
    for node in reversed(list(holder.find_all(exp.Greatest, exp.Least))):
        node.replace(_extreme_for_sqlite(node))
    holder.set("this", escaped_by_backslash(holder.this))
    for either in reversed(list(holder.find_all(exp.BitwiseXor))):
        either.replace(exp.Anonymous(this=XOR, expressions=[either.this, either.expression]))
    exact_integers.guard(holder)
    text_limits.guard(holder)
    for bits in list(holder.find_all(*_BITS)):
        bits.replace(exp.Anonymous(this=_BITS[type(bits)], expressions=[bits.this]))
    return _generated(holder.this)


def _generated(tree: exp.Expr) -> str:
    """The text of a tree; what has no word there would be left out of it in silence."""
    try:
        text: str = tree.sql(dialect="sqlite", comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise UnsupportedConstructError(
            f"cannot be encoded: {error}", hint="write it with what both kinds of database have"
        ) from error
    return text


@lru_cache(maxsize=1024)
def pushed_sql(view: PushedView) -> str:
    """The SELECT of a view that the database computes alone; it is written anew for every solve, but made once."""
    tree = view.tree
    while isinstance(tree, (exp.Subquery, exp.Paren)):  # which make no value of the whole
        tree = tree.this
    with standing_at(view.position):
        return to_sql(tree)


@contextmanager
def standing_at(position: Position) -> Iterator[None]:
    """An error that does not say where it stands, stands there."""
    try:
        yield
    except PolicyError as error:
        if error.position is None:
            error.move(position)
        raise


def _quantified_for_sqlite(comparison: exp.Binary, quantified: exp.Expr) -> exp.Expr:
    """x op ANY (SELECT ...), three-valued, with EXISTS: the database has no quantified comparisons."""
    select = quantified.this
    while isinstance(select, (exp.Subquery, exp.Paren)):
        select = select.this
    if not isinstance(select, exp.Select):
        return comparison
    inner = select.copy()
    value = "quantified"
    inner.set("expressions", [exp.alias_(inner.expressions[0].unalias(), value, quoted=True)])
    test = comparison.copy()
    test.set("expression", exp.column(value, table=value, quoted=True))
    wanted = isinstance(quantified, exp.Any)

    def some_row(condition: exp.Expr) -> exp.Exists:
        alias = exp.TableAlias(this=exp.to_identifier(value, quoted=True))
        derived = exp.From(this=exp.Subquery(this=inner.copy(), alias=alias))
        where = exp.Where(this=condition)
        one = [exp.Literal.number(1)]
        return exp.Exists(this=exp.Select(expressions=one, from_=derived, where=where))

    settled = exp.Paren(this=test.copy()) if wanted else exp.Not(this=exp.Paren(this=test.copy()))
    unknown = exp.Is(this=exp.Paren(this=test.copy()), expression=exp.null())
    return exp.Paren(
        this=exp.Case(
            ifs=[
                exp.If(this=some_row(settled), true=exp.Boolean(this=wanted)),
                exp.If(this=some_row(unknown), true=exp.null()),
            ],
            default=exp.Boolean(this=not wanted),
        )
    )


def _extreme_for_sqlite(node: exp.Expr) -> exp.Expr:
    """greatest and least are scalar max and min there, of two or more operands."""
    operands = [node.this, *node.expressions]
    if len(operands) == 1:
        return exp.Paren(this=operands[0].copy())
    name = "max" if isinstance(node, exp.Greatest) else "min"
    return exp.Anonymous(this=name, expressions=[operand.copy() for operand in operands])
