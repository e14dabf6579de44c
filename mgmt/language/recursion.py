"""WITH RECURSIVE, which the database computes: what it may look like, and the view that it becomes.

The first SELECT says what there is to begin with, the second what more comes of the rows found last.
One that never ends is stopped by the time that a statement has.

What it is not: it binds nothing (see ``query``, which does so in between).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.language.catalog import RelationColumn
from mgmt.language.column_names import renaming, selects_of
from mgmt.language.scopes import from_items
from mgmt.source import SourceText
from mgmt.tokens import position_of

_FORM = "write WITH RECURSIVE x AS (SELECT ... UNION ALL SELECT ... FROM x ...)"


def refers_to(tree: exp.Expr, name: str) -> bool:
    """Whether a table of this name is read in it."""
    return any(table.name.lower() == name.lower() for table in tree.find_all(exp.Table))


def refuse_other_forms(part: exp.CTE, text: SourceText) -> None:
    """UnsupportedConstructError for a recursion that is not of the one form that both databases have."""
    name, tree = part.alias, part.this
    if not isinstance(tree, exp.Union) or refers_to(tree.left, name):
        raise _unsupported(tree, "a recursion of another form", text, _FORM)
    for clause in ("order", "limit", "offset", "with_"):
        if tree.args.get(clause):
            raise _unsupported(
                tree, f"{clause.rstrip('_').upper()} in a recursion", text, "say so where it is read"
            )
    read = sum(table.name.lower() == name.lower() for table in tree.right.find_all(exp.Table))
    beside = [item for select in selects_of(tree.right) for item in from_items(select)]
    direct = sum(isinstance(item, exp.Table) and item.name.lower() == name.lower() for item in beside)
    if read != 1 or direct != 1:
        raise _unsupported(
            tree.right,
            f"{name} other than once in the FROM of its second SELECT",
            text,
            "join it there, once",
        )


def recursive_view(rows: str, tree: exp.Expr, columns: Sequence[RelationColumn]) -> exp.Select:
    """All rows of the recursion, as a SELECT of its own; ``rows`` is what it calls itself."""
    names = [exp.to_identifier(column.name, quoted=True) for column in columns]
    alias = exp.TableAlias(this=exp.to_identifier(rows, quoted=True), columns=names)
    select = renaming(rows, columns, columns)
    select.set("with_", exp.With(expressions=[exp.CTE(this=tree.copy(), alias=alias)], recursive=True))
    return select


def _unsupported(node: exp.Expr, what: str, text: SourceText, hint: str) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"cannot be encoded: {what}", position=position_of(node, text), hint=hint
    )
