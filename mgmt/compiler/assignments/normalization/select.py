"""One statement for the database, put together while a query is recognised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp

from mgmt.language.names.catalog import Relation
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import quote


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of FROM: a table or a view of the database's.  ``on`` is the condition of a LEFT JOIN."""

    alias: str
    relation: Relation
    on: exp.Expr | None


class Select(NamedTuple):
    """A statement for the database, and the tables and views that it names, in lower case."""

    sql: str
    reads: tuple[str, ...]


@dataclass(slots=True)
class Statement:
    """The statement of one side: its slots are distinct texts."""

    texts: dict[str, int] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)
    """Named in subqueries, in lower case."""

    def slot(self, tree: exp.Expr) -> int:
        tree = tree.this if isinstance(tree, exp.Alias) else tree
        self._note_tables(tree)
        return self.texts.setdefault(to_sql(tree), len(self.texts))

    def require(self, tree: exp.Expr) -> None:
        self._note_tables(tree)
        self.conditions.append(to_sql(tree))

    def _note_tables(self, tree: exp.Expr) -> None:
        self.tables.update(table.name.lower() for table in tree.find_all(exp.Table))

    def select(self, first: str | None, items: Sequence[Item], *, distinct: bool = False) -> Select:
        """The statement over these sources; ``first`` is a column before the slots."""
        columns = ([first] if first else []) + list(self.texts)
        where = f" WHERE {' AND '.join(f'({c})' for c in self.conditions)}" if self.conditions else ""
        select = "SELECT DISTINCT" if distinct else "SELECT"
        for item in items:
            self.tables.add(item.relation.name.lower())
            if item.on is not None:
                self._note_tables(item.on)
        sql = f"{select} {', '.join(columns)}{from_clause_of(items)}{where}"
        return Select(sql, tuple(sorted(self.tables)))


def from_clause_of(items: Iterable[Item]) -> str:
    """FROM with all inner joins unconditional; their conditions are in WHERE."""
    parts: list[str] = []
    for item in items:
        name = f"{quote(item.relation.name)} AS {quote(item.alias)}"
        if item.on is not None:
            parts.append(f" LEFT JOIN {name} ON {to_sql(item.on)}")
        else:
            parts.append(f" CROSS JOIN {name}" if parts else f" FROM {name}")
    return "".join(parts)


def may_be_null(tree: exp.Expr, items: Iterable[Item]) -> bool:
    """Whether an expression over these sources may be NULL, as far as the schema tells."""
    column = tree.unalias().unnest()
    if not isinstance(column, exp.Column):
        return not isinstance(column, exp.Literal)
    for item in items:
        found = item.relation.find(column.name) if item.alias == column.table.lower() else None
        if found is not None:
            return found.nullable and column.name.lower() not in {name.lower() for name in item.relation.key}
    return True
