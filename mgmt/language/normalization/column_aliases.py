"""Column alias lists: ``(SELECT ...) AS t (a, b)``, ``WITH t (a, b) AS (...)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from mgmt.errors import PolicySyntaxError
from mgmt.language.names.catalog import Catalog, RelationColumn
from mgmt.source_text import SourceText
from mgmt.sql.tokens import position_of
from mgmt.sql.trees import select_as


def view_under_names(
    hoist: Callable[[exp.Expr], str], catalog: Catalog, tree: exp.Expr, alias: exp.Expr, text: SourceText
) -> str:
    """The view that ``hoist`` makes of a tree, its columns named by the list behind ``alias``, if there is one."""
    give_names(tree, alias)
    name = hoist(tree)
    relation = catalog.find(name)
    assert relation is not None
    named = named_columns(relation.columns, alias, text)
    if [column.name for column in named] == [column.name for column in relation.columns]:
        return name
    names = [(own.name, other.name) for own, other in zip(relation.columns, named, strict=True)]
    return hoist(select_as(name, names))


def selects_of(tree: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs of a set operation."""
    waiting = [tree]
    while waiting:
        branch = waiting.pop()
        branch = branch.unnest() if isinstance(branch, exp.Subquery) else branch
        if isinstance(branch, exp.SetOperation):
            waiting.extend((branch.right, branch.left))
        elif isinstance(branch, exp.Select):
            yield branch


def named_columns(
    columns: Sequence[RelationColumn], alias: exp.Expr, text: SourceText
) -> tuple[RelationColumn, ...]:
    """The columns with the names that a list behind an alias gives to them, or to the first of them."""
    names = [column.name for column in alias.args.get("columns") or ()]
    if len(names) > len(columns):
        raise PolicySyntaxError(
            f"{len(names)} names are given to {len(columns)} columns",
            position=position_of(alias, text),
            hint="give at most one name to each column",
        )
    own = [column.name for column in columns[len(names) :]]
    return tuple(
        RelationColumn(name, c.type, c.symbolic, c.origin, c.nullable, c.empty)
        for name, c in zip((*names, *own), columns, strict=True)
    )


def give_names(tree: exp.Expr, alias: exp.Expr) -> None:
    """Put the names of a list behind an alias where they are selected, as far as that can be seen."""
    names = [column.name for column in alias.args.get("columns") or ()]
    for select in selects_of(tree):
        if len(names) == len(select.expressions) and not any(output.is_star for output in select.expressions):
            named = zip(select.expressions, names, strict=True)
            select.set("expressions", [exp.alias_(o.unalias().copy(), n, quoted=True) for o, n in named])
