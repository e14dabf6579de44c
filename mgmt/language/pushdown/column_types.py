"""The types of columns and the functions that DuckDB knows, without running anything.

It is asked over the tables of the schema, without a row in them, and the views defined so far.  Names, types and
mistakes in what reads no variable are thereby DuckDB's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from mgmt.language.names.catalog import Relation, RelationColumn
from mgmt.state.duckdb_access.engine import RefusedStatementError, type_of
from mgmt.state.schema import SqlType, quote
from mgmt.state.snapshot import Snapshot

_STAND_INS = {SqlType.UNKNOWN: SqlType.INTEGER}


_FUNCTIONS: set[str] = set()
"""The same in every state of one process."""


class EngineTypes:
    """Asks one snapshot without rows, which it fills with views."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._known: dict[str, SqlType] = {}

    @property
    def functions(self) -> frozenset[str]:
        """The names, in lower case, of the functions there are."""
        if not _FUNCTIONS:
            found = self.snapshot.rows("SELECT DISTINCT lower(function_name) FROM duckdb_functions()")
            _FUNCTIONS.update(name for (name,) in found)
        return frozenset(_FUNCTIONS)

    def columns(self, sql: str) -> tuple[RelationColumn, ...]:
        """The columns of a query.  RefusedStatementError when the engine cannot run it."""
        return tuple(
            RelationColumn(name, SqlType.UNKNOWN if kind == '"NULL"' else type_of(kind), False)
            for name, kind in self.snapshot.describe(sql)
        )

    def define_view(self, name: str, sql: str) -> None:
        """Make a view, for the queries after it."""
        self.snapshot.define_view(name, sql)

    def define_symbolic(self, relation: Relation) -> None:
        """Make a stand-in for a view over variables, for what reads its constants."""
        columns = [(column.name, _STAND_INS.get(column.type, column.type)) for column in relation.columns]
        self.snapshot.define_table(relation.name, columns, [[]] * len(columns), 0)

    def type_of(self, sql: str, sources: Mapping[str, str]) -> SqlType:
        """The type of an expression over sources (alias to relation)."""
        items = ", ".join(f"{quote(relation)} AS {quote(alias)}" for alias, relation in sources.items())
        text = f"SELECT {sql}{f' FROM {items}' if items else ''}"
        if text not in self._known:
            self._known[text] = self.columns(text)[0].type
        return self._known[text]


__all__ = ["EngineTypes", "RefusedStatementError"]
