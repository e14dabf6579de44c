"""LIKE with a backslash that takes a sign as it is, as in the policies' dialect; SQLite by itself has no such sign.

What it is not: how long a search may take is ``text_limits``'s matter.
"""

from __future__ import annotations

from sqlglot import exp

_BACKSLASH = "\\"


def escaped_by_backslash(tree: exp.Expr) -> exp.Expr:
    """The tree, changed, with ESCAPE where the pattern has one, or may have one."""
    holder = exp.Paren(this=tree)
    for like in reversed(list(holder.find_all(exp.Like, exp.ILike))):
        pattern = like.expression
        plain = isinstance(pattern, exp.Literal) and _BACKSLASH not in pattern.name
        if not plain and not isinstance(like.parent, exp.Escape):
            like.replace(exp.Escape(this=like.copy(), expression=exp.Literal.string(_BACKSLASH)))
    found: exp.Expr = holder.this
    found.pop()
    return found
