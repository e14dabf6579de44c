"""Set operations of bound SELECTs, as both kinds of database have them.

SQLite lacks EXCEPT ALL and INTERSECT ALL: they become EXCEPT and INTERSECT of rows that are numbered among their
equals, so that the third row of its kind on the left goes if there is a third on the right.  NULLs are equal here, as
they are in both operations and in PARTITION BY, in both databases.  And it takes no parentheses around an operand.

What it is not: it binds nothing; set operations over variables are ``query``'s business.
"""

from __future__ import annotations

from sqlglot import exp

_NUMBER = "number among equals"


def counts_equals(tree: exp.SetOperation) -> bool:
    """Whether it is EXCEPT ALL or INTERSECT ALL."""
    return not isinstance(tree, exp.Union) and not tree.args.get("distinct")


def written_for_both(tree: exp.Expr) -> exp.Expr:
    """A SELECT or set operation, whose SELECTs name their outputs, without any of these."""
    if not isinstance(tree, exp.SetOperation):
        return tree
    for side in ("this", "expression"):
        tree.set(side, _operand(tree.args[side]))
    if not counts_equals(tree):
        return tree
    sets = type(tree)(this=_numbered(tree.this), expression=_numbered(tree.expression), distinct=True)
    select = _select(_names(tree), sets)
    for clause in ("order", "limit", "offset"):
        if tree.args.get(clause) is not None:
            select.set(clause, tree.args[clause])
    return select


def _operand(tree: exp.Expr) -> exp.Expr:
    if not isinstance(tree, exp.Subquery):
        return written_for_both(tree)
    inner = written_for_both(tree.unnest())
    return _select(_names(inner), inner)


def _numbered(tree: exp.Expr) -> exp.Select:
    """The rows with their numbers among their equals."""
    select = _select(_names(tree), tree)
    partition = [column.copy() for column in select.expressions]
    row_number = exp.Window(this=exp.RowNumber(), partition_by=partition)
    select.append("expressions", exp.alias_(row_number, _NUMBER, quoted=True))
    return select


def _select(names: list[str], rows: exp.Expr) -> exp.Select:
    """SELECT these columns FROM (rows)."""
    alias = exp.TableAlias(this=exp.to_identifier("rows", quoted=True))
    columns = [exp.column(exp.to_identifier(name, quoted=True)) for name in names]
    return exp.Select(expressions=columns, from_=exp.From(this=exp.Subquery(this=rows, alias=alias)))


def _names(tree: exp.Expr) -> list[str]:
    while not isinstance(tree, exp.Select):
        tree = tree.this
    return [output.alias_or_name for output in tree.expressions]
