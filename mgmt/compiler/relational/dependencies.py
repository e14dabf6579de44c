"""What a statement reads: tables and columns of them, so that it is asked again only when one of these has changed.

Where the text does not tell the columns, such as with ``*`` or a row as one value, it reads the whole table: rather too
much than too little.

What it is not: it does not say which columns of a view are read; what is below a view is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.language.bound_queries.queries import PushedView
from mgmt.state.schema import Schema
from mgmt.state.snapshot import NUMBER, WHOLE, Cells

UNKNOWN: Cells = ("?", WHOLE)
"""Read instead of a table: what it says may be different every time."""
PRESENT = re.compile(
    r"\b(?:current_(?:date|timestamp|localtimestamp)|localtimestamp)\b|\b(?:now|today|transaction_timestamp"
    r"|get_current_timestamp)\s*\(",
    re.IGNORECASE,
)
"""What asks for the time."""
_CHANGING = re.compile(
    r"\bcurrent_|\blocaltime\b|\b(?:age|random\w*|\w*uuid\w*|setseed|nextval|get_current\w*|query(?:_table)?)\s*\(",
    re.IGNORECASE,
)
_OF_OTHERS = (exp.Column, exp.Table, exp.TableAlias)
"""Whose names are no columns, or columns that are looked at on their own."""
_OPAQUE = (exp.Pivot, exp.Columns, exp.Command, exp.Describe, exp.Summarize)


@lru_cache(maxsize=4096)
def may_change(sql: str) -> bool:
    """Whether a statement may say something else although no row of what it names has changed.

    It asks for the time or a draw, or reads what is named in a text.
    """
    return PRESENT.search(sql) is not None or _CHANGING.search(sql) is not None


def below_views(views: Sequence[PushedView], schema: Schema) -> dict[str, frozenset[Cells]]:
    """What is below each view, by its name in lower case; a view comes after those that it reads."""
    known: dict[str, frozenset[Cells]] = {}
    for view in views:
        found = read_by(view.tree, known, schema)
        known[view.name.lower()] = found | {UNKNOWN} if may_change(pushed_sql(view)) else found
    return known


def read_by(tree: exp.Expr, views: Mapping[str, frozenset[Cells]], schema: Schema) -> frozenset[Cells]:
    """What a statement reads over these views."""
    return _cells((table.name for table in tree.find_all(exp.Table)), _named(tree), views, schema)


def read_by_text(
    sql: str, names: Iterable[str], views: Mapping[str, frozenset[Cells]], schema: Schema
) -> frozenset[Cells]:
    """The same of a text of which the tables and views are known."""
    found = _cells(names, _named_in_text(sql), views, schema)
    return found | {UNKNOWN} if may_change(sql) else found


@dataclass(frozen=True, slots=True)
class _Named:
    """The names in a statement, in lower case."""

    columns: frozenset[tuple[str, str]]
    """With their qualifiers; without one for whatever may be a column of any table."""
    aliases: frozenset[tuple[str, str]]
    """Names of tables, and what these are called there."""

    def of(self, table: str) -> set[str]:
        """What may be columns of a table."""
        called = {"", table, *(alias for name, alias in self.aliases if name == table)}
        return {column for qualifier, column in self.columns if qualifier in called}


def _cells(
    names: Iterable[str], named: _Named | None, views: Mapping[str, frozenset[Cells]], schema: Schema
) -> frozenset[Cells]:
    found: set[Cells] = set()
    for name in {name.lower() for name in names}:
        table = schema.find(name)
        if name in views:
            found |= views[name]
        elif table is None or named is None:
            found.add((name, WHOLE))
        else:
            columns = named.of(name)
            found.add((name, NUMBER))
            found.update((name, c.name.lower()) for c in table.columns if c.name.lower() in columns)
    return frozenset(found)


def _named(tree: exp.Expr) -> _Named | None:
    """None where it may read columns that it does not name."""
    if not isinstance(tree, exp.Query) or tree.find(*_OPAQUE):
        return None
    aliases = {(table.name.lower(), table.alias_or_name.lower()) for table in tree.find_all(exp.Table)}
    sources = {alias for _, alias in aliases}
    columns: set[tuple[str, str]] = set()
    for node in tree.walk():
        if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
            return None
        if isinstance(node, exp.Join) and node.method == "NATURAL":
            return None
        if isinstance(node, exp.TableAlias) and node.columns and isinstance(node.parent, exp.Table):
            return None
        if isinstance(node, exp.Column):
            if not node.table and node.name.lower() in sources:
                return None  # a row as one value, unless it is a column of that name
            columns.add((node.table.lower(), node.name.lower()))
        elif isinstance(node, exp.Identifier) and not isinstance(node.parent, _OF_OTHERS):
            columns.add(("", node.name.lower()))
    return _Named(frozenset(columns), frozenset(aliases))


_TOKEN = re.compile(r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|\w+|[^\s\w]')


@lru_cache(maxsize=4096)
def names_in_text(sql: str) -> frozenset[str]:
    """Whatever may be the name of something in a statement, in lower case."""
    return frozenset(map(_name, _TOKEN.findall(sql)))


@lru_cache(maxsize=4096)
def _named_in_text(sql: str) -> _Named | None:
    if (
        sql.count("SELECT") == 1 and "*" not in sql
    ):  # one of ours: every name is quoted, and every table has an alias
        return _named_in_tokens([_name(token) for token in _TOKEN.findall(sql)])
    try:
        return _named(parse_one(sql, dialect="duckdb"))
    except SqlglotError:
        return None


def _named_in_tokens(tokens: Sequence[str]) -> _Named:
    columns, aliases = set(), set()
    for before, token, after, last in zip(
        ["", *tokens], tokens, [*tokens[1:], ""], [*tokens[2:], "", ""], strict=False
    ):
        if after == ".":
            columns.add((token, last))
        elif after == "as":
            aliases.add((token, last))
        if before not in {".", "as", "from", "join"}:
            columns.add(("", token))
    return _Named(frozenset(columns), frozenset(aliases))


def _name(token: str) -> str:
    """A token in lower case, a quoted name without its quotes."""
    return (token[1:-1].replace('""', '"') if token.startswith('"') else token).lower()
