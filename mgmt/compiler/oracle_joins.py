"""The oracle's SQL without cross products: groups that hold a row, and apart from them those that are empty.

The rows that exist are few, the pairs of a row and a value many.  Where every group of the values' side is possible,
the groups with rows are joined to it, and where there is none the aggregates are those of no rows.  A CHECK is asked of
the groups with rows first, and with the aggregates of no rows of anything that may be a group: if both pass, so does
the CHECK; else the plain statement decides.

What it is not: the plain statements (see ``oracle_sql``); it knows nothing of how plans are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.language.bound import BoundQuery
from mgmt.language.our_aggregates import is_ours
from mgmt.language.sql_text import to_sql
from mgmt.state.schema import quote

_GROUPS = "groups with rows"


@dataclass(frozen=True, slots=True)
class JoinedGroups:
    """FROM ... GROUP BY over all possible groups, and what stands for each aggregate in it."""

    sql: str
    replace: Callable[[exp.Expr], exp.Expr]


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
    if isinstance(inner, (exp.Min, exp.Max)):
        return "NULL"
    if isinstance(inner, exp.Anonymous) and str(inner.this).lower() == "all_different":
        return "TRUE"
    return None


def replaced(tree: exp.Expr, texts: Callable[[exp.Expr], str]) -> exp.Expr:
    """A copy of a tree with each aggregate put as this text."""
    holder = exp.Paren(this=tree.copy())
    for node in aggregates_of(holder):
        node.replace(exp.Var(this=f"({texts(node)})"))
    return holder


def empty_group(query: BoundQuery, tree: exp.Expr) -> tuple[str, tuple[str, ...]] | None:
    """FROM and WHERE of where a condition fails for a group without rows, and the relations named; None if unknown.

    It is asked of a superset of the possible groups: all that the sources it names can be.
    """
    found = aggregates_of(tree)
    if any(of_no_rows(aggregate) is None for aggregate in found) or tree.find(exp.Query):
        return None
    empty = replaced(tree, lambda aggregate: of_no_rows(aggregate) or "NULL")
    aliases = _aliases(empty)
    if _outer(query) & aliases:
        return None
    where = [f"({to_sql(tree)})" for tree in _within(query, aliases)]
    where.append(f"NOT ({to_sql(empty)})")
    relations = (source.relation.name for source in query.sources if source.alias.lower() in aliases)
    return f"{_from(query, aliases)}{_where(where)}", tuple(relations)


def joined_groups(
    query: BoundQuery,
    trees: Iterable[exp.Expr],
    exists: Sequence[str],
    fixed: Sequence[str],
    plain: Callable[[exp.Expr], str],
) -> JoinedGroups | None:
    """The possible groups with their aggregates, where all keys are of sources that nothing ties to the others.

    ``trees`` are what is asked of the groups, ``exists`` the conditions under which rows exist, ``fixed`` the columns
    that the keys determine; ``plain`` writes an aggregate.
    """
    keys = [key.tree for key in query.keys or ()]
    if not keys or not exists or query.strict_groups or _outer(query):
        return None
    trees = list(trees)
    if any(tree.find(exp.Query) for tree in trees):
        return None
    aggregates = {aggregate.sql(): aggregate for tree in trees for aggregate in aggregates_of(tree)}
    if any(of_no_rows(aggregate) is None for aggregate in aggregates.values()):
        return None
    inside = set().union(*map(_aliases, keys))
    for tree in trees:
        inside |= _aliases(replaced(tree, lambda _: "NULL"))
    others = {source.alias.lower() for source in query.sources} - inside
    constants = [p.tree for p in query.predicates if not p.by_solver]
    if any(tree.find(exp.Query) for tree in constants):
        return None
    if not others or any(_aliases(tree) & inside and _aliases(tree) & others for tree in constants):
        return None
    numbers = {text: number for number, text in enumerate(aggregates)}
    everything = inside | others
    rows = " AND ".join([*(f"({to_sql(tree)})" for tree in constants), *exists])
    with_rows = ", ".join(
        [*(f"{to_sql(key)} AS k{number}" for number, key in enumerate(keys))]
        + [f"{plain(aggregate)} AS a{numbers[text]}" for text, aggregate in aggregates.items()]
    )
    names = ", ".join(map(to_sql, keys))
    groups = quote(_GROUPS)
    there = [f"({to_sql(tree)})" for tree in _within(query, inside)]
    apart = [f"({to_sql(tree)})" for tree in constants if not _aliases(tree) & inside]
    there.append(f"EXISTS (SELECT 1{_from(query, others)}{_where(apart)})")
    match = " AND ".join(
        f"{to_sql(key)} {_same(query, key)} {groups}.k{number}" for number, key in enumerate(keys)
    )
    columns = "".join(f", {groups}.a{number}" for number in numbers.values())
    together = f" GROUP BY {', '.join([names, *fixed])}{columns}"
    sql = (
        f"{_from(query, inside)} LEFT JOIN (SELECT {with_rows}{_from(query, everything)} WHERE {rows} GROUP BY"
        f" {names}) AS {groups} ON {match}{_where(there)}{together}"
    )

    def text_of(aggregate: exp.Expr) -> str:
        column = f"{groups}.a{numbers[aggregate.sql()]}"
        return f"coalesce({column}, {of_no_rows(aggregate)})"

    return JoinedGroups(sql, lambda tree: replaced(tree, text_of))


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


def _from(query: BoundQuery, aliases: set[str]) -> str:
    names = [
        f"{quote(source.relation.name)} AS {quote(source.alias)}"
        for source in query.sources
        if source.alias.lower() in aliases
    ]
    return f" FROM {', '.join(names)}" if names else ""


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _same(query: BoundQuery, key: exp.Expr) -> str:
    """How a key is compared: by = where it cannot be NULL, which an index helps."""
    if isinstance(key, exp.Column):
        relation = next(s.relation for s in query.sources if s.alias.lower() == key.table.lower())
        column = relation.find(key.name)
        if column is not None and not column.nullable:
            return "="
    return "IS NOT DISTINCT FROM"
