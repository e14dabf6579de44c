"""The oracle's SQL without cross products: groups by an outer join, and checks of those that hold a row.

The rows that exist are few, the pairs of a row and a value many.  Where every group of the values' side is possible,
the rows that exist are joined to it.  A CHECK is asked of the groups with rows first, and with the aggregates of no
rows of anything that may be a group: if both pass, so does the CHECK; else the plain statement decides.

What it is not: the plain statements (see ``oracle_sql``); it knows nothing of how plans are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.language.names.scopes import Source
from mgmt.language.pushdown.aggregates import is_ours
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import quote

THERE = "row there"  # no column of a policy has this name: it would need quotes and a space


def aggregates_of(tree: exp.Expr) -> list[exp.Expr]:
    """The aggregates in a tree, those of its subqueries left out."""
    if isinstance(tree, exp.Query):
        return []
    if isinstance(tree, (exp.Filter, exp.Count, exp.Sum, exp.Min, exp.Max)) or is_ours(tree):
        return [tree]
    return [found for child in tree.iter_expressions() for found in aggregates_of(child)]


def of_no_rows(aggregate: exp.Expr) -> str | None:
    """An aggregate over an empty group; None for one that is not known here."""
    inner = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
    if isinstance(inner, (exp.Count, exp.Sum)):
        return "0"
    own = str(inner.this).lower() if isinstance(inner, exp.Anonymous) else ""
    if isinstance(inner, (exp.Min, exp.Max)) or own in {"any", "all"}:
        return "NULL"
    if own == "all_different":
        return "TRUE"
    return None


def replaced(tree: exp.Expr, texts: Callable[[exp.Expr], str]) -> exp.Expr:
    """A copy of a tree with each aggregate put as this text."""
    holder = exp.Paren(this=tree.copy())
    for node in aggregates_of(holder):
        node.replace(exp.Var(this=f"({texts(node)})"))
    return holder


def empty_group(query: BoundQuery, tree: exp.Expr) -> tuple[list[str], list[Source]] | None:
    """Where a condition fails for a group without rows: the conditions, and the sources they name; None if unknown.

    It is asked of a superset of the possible groups: all that the sources it names can be.
    """
    found = aggregates_of(tree)
    if any(of_no_rows(aggregate) is None for aggregate in found) or tree.find(exp.Query):
        return None
    empty = replaced(tree, lambda aggregate: of_no_rows(aggregate) or "NULL")
    aliases = _aliases(empty)
    if _outer(query) & aliases:
        return None
    where = [*(f"({to_sql(tree)})" for tree in _within(query, aliases)), f"NOT ({to_sql(empty)})"]
    return where, _relations(query, aliases)


def joined_rows(query: BoundQuery, trees: Iterable[exp.Expr], exists: Sequence[str]) -> str | None:
    """FROM and WHERE of rows that make all possible groups, where nothing ties the sources of keys to the others.

    ``trees`` are what is asked of the groups, ``exists`` the conditions under which rows exist; those that do have the
    column THERE.
    """
    if not query.keys or not exists or _outer(query):
        return None
    trees = list(trees)
    if any(tree.find(exp.Query) for tree in (*trees, *(p.tree for p in query.predicates))):
        return None
    inside = set().union(*(_aliases(key.tree) for key in query.keys))
    for tree in trees:
        inside |= _aliases(replaced(tree, lambda _: "NULL"))
    others = {source.alias.lower() for source in query.sources} - inside
    constants = [p.tree for p in query.predicates if not p.by_solver]
    if (
        not inside
        or not others
        or any(_aliases(tree) & inside and _aliases(tree) & others for tree in constants)
    ):
        return None
    apart = [f"({to_sql(tree)})" for tree in constants if not _aliases(tree) <= inside]
    first, *rest = _relations(query, others)
    marked = f"(SELECT *, TRUE AS {quote(THERE)} FROM {quote(first.relation.name)}) AS {quote(first.alias)}"
    joined = " CROSS JOIN ".join([marked, *map(named, rest)])
    there = [f"({to_sql(tree)})" for tree in _within(query, inside)]
    there.append(f"EXISTS (SELECT 1{_from(query, others)}{_where(apart)})")
    return (
        f" FROM {' CROSS JOIN '.join(map(named, _relations(query, inside)))}"
        f" LEFT JOIN {f'({joined})' if rest else joined} ON {' AND '.join([*apart, *exists])}{_where(there)}"
    )


def _aliases(tree: exp.Expr) -> set[str]:
    return {column.table.lower() for column in tree.find_all(exp.Column) if column.table}


def _outer(query: BoundQuery) -> set[str]:
    """The sources that outer joins bring."""
    joins = query.skeleton.args.get("joins") or ()
    return {join.this.alias_or_name.lower() for join in joins if join.args.get("side")}


def _within(query: BoundQuery, aliases: set[str]) -> list[exp.Expr]:
    """The constant predicates over these sources alone."""
    trees = [p.tree for p in query.predicates if not p.by_solver]
    return [tree for tree in trees if _aliases(tree) <= aliases and not tree.find(exp.Query)]


def _relations(query: BoundQuery, aliases: set[str]) -> list[Source]:
    return [source for source in query.sources if source.alias.lower() in aliases]


def named(source: Source) -> str:
    """A source in a FROM clause."""
    return f"{quote(source.relation.name)} AS {quote(source.alias)}"


def _from(query: BoundQuery, aliases: set[str]) -> str:
    names = ", ".join(map(named, _relations(query, aliases)))
    return f" FROM {names}" if names else ""


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
