"""A constraint that lets some of its rows go: the condition that tells them, and the query with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from mgmt.errors import Waiver
from mgmt.language.bound_queries.expressions import DatabasePart, Disjunction
from mgmt.language.bound_queries.queries import BoundQuery, Predicate
from mgmt.source_text import SourceText
from mgmt.sql.tokens import parse_tokens, tokenize
from mgmt.state.schema import SqlType, literal

_MOST_SINGLY = 20
"""Rows that are told one after the other."""
Told = tuple[tuple[str, Any], ...]
"""Columns, as SQL, with their values."""


def with_waiver(query: BoundQuery, waiver: Waiver) -> BoundQuery:
    """The query with the condition of a waiver."""
    condition = _parsed(waiver.condition)
    values = {variable: value for value, variable in query.grouped_variables.items()}
    for column in list(condition.find_all(exp.Column)):
        if column in values:
            column.replace(values[column].copy())
    part = DatabasePart(SqlType.BOOLEAN, query.position, condition)
    demand = query.demand
    if waiver.clause == "WHERE" or demand is None:
        return replace(query, predicates=(*query.predicates, Predicate(condition, part, False)))
    tree = exp.Or(this=exp.Paren(this=demand.tree.copy()), expression=exp.Paren(this=condition))
    either = Disjunction(SqlType.BOOLEAN, query.position, (demand.expression, part))
    return replace(query, demand=replace(demand, tree=tree, expression=either))


def joined_waivers(waivers: Iterable[Waiver]) -> list[Waiver]:
    """The same with one waiver per clause of a constraint."""
    found: dict[tuple[str, str], Waiver] = {}
    for waiver in waivers:
        place = (waiver.constraint, waiver.clause)
        before = found.get(place)
        if before is None:
            found[place] = waiver
        elif not (before.condition and waiver.condition):
            found[place] = replace(before, rows=(), condition="")
        else:
            word = "AND" if waiver.clause == "WHERE" else "OR"
            condition = f"({before.condition}) {word} ({waiver.condition})"
            found[place] = replace(before, rows=(*before.rows, *waiver.rows), condition=condition)
    return list(found.values())


def condition_without(query: BoundQuery, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """SQL over a constraint's sources that lets these rows go, and the clause it belongs to.

    Empty when the constraint has nothing to tell them by.  A group of what is joined by a choice (an application on a
    host) is let go in the CHECK: a WHERE over both sides would be harder to solve.
    """
    if query.keys == ():
        return "WHERE", ""  # one group of all rows
    trees: dict[str, exp.Expr] = {}
    for output in query.outputs:
        if isinstance(output.expression, DatabasePart):
            trees[output.name] = output.tree.unalias()
    for part in query.keys or ():
        if isinstance(part.tree, exp.Column):
            written = query.grouped_variables.get(part.tree, part.tree)
            trees.setdefault(written.name, part.tree)
            trees.setdefault(f"{written.table}.{written.name}", part.tree)
    if query.keys is None:
        for source in query.sources:
            for name in source.relation.key:
                tree = exp.column(name, source.alias, quoted=True)
                trees.setdefault(f"{source.alias}.{name}", tree)
                trees.setdefault(name, tree)
    spelt = {name: query.grouped_variables.get(tree, tree) for name, tree in trees.items()}
    told: list[Told] = []
    used: set[str] = set()
    for row in rows:
        told.append(tuple((to_text(spelt[name]), value) for name, value in row.items() if name in trees))
        used.update(name for name in row if name in trees)
        if not told[-1]:
            return "WHERE", ""
    distinct = list(dict.fromkeys(told))
    columns = [column for name in used for column in trees[name].find_all(exp.Column)]
    if query.keys is not None and len({column.table for column in columns}) > 1:
        return "CHECK", any_of(distinct)
    if any(
        _may_be_null(query, column) for column in columns
    ):  # NOT of what is unknown would let go more rows
        return "WHERE", f"({any_of(distinct)}) IS NOT TRUE"
    if len(distinct) > _MOST_SINGLY:
        return "WHERE", f"NOT ({any_of(distinct)})"
    return "WHERE", " AND ".join(f"NOT {_all_of(row)}" for row in distinct)


def _may_be_null(query: BoundQuery, column: exp.Column) -> bool:
    sources = [source for source in query.sources if source.alias.lower() == column.table.lower()]
    known = sources[0].relation.find(column.name) if sources else None
    return known is None or known.nullable


def any_of(told: Sequence[Told]) -> str:
    """That a row is one of these, each told by its columns; never deep, for trees are walked recursively."""
    if len(told) <= _MOST_SINGLY:
        return " OR ".join(map(_all_of, told))
    columns = {tuple(text for text, _ in row) for row in told}
    if len(columns) > 1 or any(value is None for row in told for _, value in row):
        return _in_halves([_all_of(row) for row in told])
    values = [{row[place][1] for row in told} for place in range(len(told[0]))]
    varying = [place for place, found in enumerate(values) if len(found) > 1]
    if len(varying) == 1:
        (place,) = varying
        fixed = [f"{_equal(*each)} AND " for other, each in enumerate(told[0]) if other != place]
        listed = ", ".join(literal(row[place][1]) for row in told)
        return f"({''.join(fixed)}{told[0][place][0]} IN ({listed}))"
    coarsest = min(varying, key=lambda place: len(values[place]))
    alike: dict[Any, list[Told]] = {}
    for row in told:
        alike.setdefault(row[coarsest][1], []).append(row)
    return _in_halves([f"({any_of(some)})" for some in alike.values()])


def _in_halves(conditions: Sequence[str]) -> str:
    if len(conditions) <= _MOST_SINGLY:
        return " OR ".join(conditions)
    middle = len(conditions) // 2
    return f"({_in_halves(conditions[:middle])}) OR ({_in_halves(conditions[middle:])})"


def _all_of(row: Told) -> str:
    return "(" + " AND ".join(_equal(text, value) for text, value in row) + ")"


def _equal(text: str, value: Any) -> str:
    return f"{text} {'IS NULL' if value is None else f'= {literal(value)}'}"


def to_text(tree: exp.Expr) -> str:
    text: str = tree.sql(dialect="postgres", comments=False)
    return text


def _parsed(condition: str) -> exp.Expr:
    text = SourceText("relaxation", condition)
    return parse_tokens(tokenize(text), text)
