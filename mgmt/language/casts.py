"""Values made into others that the two databases would make differently: reals and texts, texts as conditions.

The text of a real is PostgreSQL's (2, and not 2.0), and a text that is no number is not 0, both of functions that
SQLite calls; a text is no condition, for what SQLite would take for false is true in PostgreSQL.

What it is not: casts to whole numbers are ``mgmt.state.exact_integers``'s, and to dates ``dates``'s.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.errors import TypeMismatchError
from mgmt.language.tree_types import TreeTypes, mark, marked, own_nodes
from mgmt.source import SourceText
from mgmt.state.reals import REAL_OF, REAL_TEXT
from mgmt.state.schema import SqlType
from mgmt.tokens import position_of

_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR}
_REALS = {exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL}
_NO_REALS = {SqlType.INTEGER, SqlType.TEXT, SqlType.BOOLEAN, SqlType.DATE, SqlType.TIMESTAMP}


def rewrite_casts(tree: exp.Expr, types: TreeTypes, text: SourceText) -> None:
    """Rewrite what stands in a SELECT, or in a part of one, without the SELECTs inside of it."""
    for node in reversed(list(own_nodes(tree))):
        if isinstance(node, exp.Cast) and node.to.this in _TEXTS:
            _write_as_text(node.this, types)
        elif isinstance(node, exp.Cast) and node.to.this is exp.DType.BOOLEAN:
            kind = types.of(node.this)
            if kind is SqlType.TEXT:
                raise TypeMismatchError(
                    "a text is no condition",
                    position=position_of(node, text),
                    hint="compare it: status = 'true'",
                )
            if kind is not SqlType.BOOLEAN and not isinstance(node.this, exp.Null):
                differs = exp.NEQ(this=exp.Paren(this=node.this.copy()), expression=exp.Literal.number(0))
                node.replace(mark(exp.Paren(this=differs), SqlType.BOOLEAN))
        elif isinstance(node, exp.Cast) and node.to.this in _REALS:
            if types.of(node.this) in {SqlType.TEXT, SqlType.UNKNOWN} and marked(node.this) is None:
                _call(REAL_OF, node.this, SqlType.REAL)
        elif isinstance(node, exp.DPipe):
            _write_as_text(node.this, types)
            _write_as_text(node.expression, types)
        elif isinstance(node, (exp.Concat, exp.ConcatWs)):
            for operand in node.expressions:
                _write_as_text(operand, types)


def _write_as_text(operand: exp.Expr, types: TreeTypes) -> None:
    if types.of(operand) in _NO_REALS or isinstance(operand, (exp.Null, exp.DPipe)):
        return
    _call(REAL_TEXT, operand, SqlType.TEXT)


def _call(name: str, operand: exp.Expr, kind: SqlType) -> None:
    operand.replace(mark(exp.Anonymous(this=name, expressions=[operand.copy()]), kind))
