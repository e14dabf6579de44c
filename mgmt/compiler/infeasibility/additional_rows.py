"""Rows that variables could choose besides (a host, a host in a new rack): the fewest like one there is that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from sqlglot import exp

from mgmt.compiler.infeasibility.adjustable_numbers import Limits, output_of
from mgmt.errors import DataError, Relaxation
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.solution import Value
from mgmt.state.database import Database
from mgmt.state.row_duplication import NewRow, RowCopier, by_table, insertion, row_condition
from mgmt.state.schema import SqlType, Table, quote

_MOST_ADDED = 8  # or half more than the least that it takes; if that is not enough,
_MANY_MORE = 10  # times as many are tried
_ATTEMPTS = 3
_MOST_AT_ALL = 1_000  # more rows are no advice
_MOST_TEMPLATES = 3


class Lacking(Protocol):
    """What clashes, as far as rows that are not there could help."""

    @property
    def rows(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Per constraint the constants of its rows."""

    def missing(self, name: str) -> int:
        """By how much a constraint's rows need more than they allow together; 0 where that is not known."""


class Additions:
    """Candidates of one clash, each tried."""

    def __init__(
        self, database: Database, clash: Lacking, limits: Limits, helps: Callable[[Relaxation], bool]
    ) -> None:
        self._database = database
        self._clash = clash
        self._limits = limits
        self._helps = helps

    def of(self, queries: Sequence[BoundQuery]) -> Iterator[Relaxation]:
        """For each table that variables choose from: the fewest further rows like one it has that help.

        One row of each kind is tried before many of any: that is what helps most often, and time may be short.
        """
        for table in self._targets(queries):
            templates = [
                (each, self._least_added(table, each, queries)) for each in self._templates(table, queries)
            ]
            kinds = {
                fresh: [
                    _Copies(self._database, table, template, fresh, least, self._helps)
                    for template, least in templates
                ]
                for fresh in self._fresh_columns(table, queries)
            }
            for attempt in range(_ATTEMPTS):
                for fresh, candidates in tuple(kinds.items()):
                    found = next(filter(None, (copies.fewest(attempt) for copies in candidates)), None)
                    if found is not None:
                        del kinds[fresh]
                        yield found

    def _targets(self, queries: Sequence[BoundQuery]) -> list[Table]:
        schema = self._database.schema
        names = {
            column.references[0].lower()
            for table in schema.tables
            for column in table.variables
            if column.references is not None
        }
        sources = {source.relation.name.lower() for query in queries for source in query.sources}
        chosen = [schema.table(name) for name in sorted(names)]
        return [
            table
            for table in chosen
            if table.primary_key and (table.name.lower() in sources or len(chosen) == 1)
        ]

    def _fresh_columns(self, table: Table, queries: Sequence[BoundQuery]) -> list[tuple[str, ...]]:
        """Just another row, or one that opens a new group: with a rack of its own."""
        key = {name.lower() for name in table.primary_key}
        grouped: dict[str, None] = {}
        for query in queries:
            aliases = {
                s.alias.lower() for s in query.sources if s.relation.name.lower() == table.name.lower()
            }
            for part in query.keys or ():
                if isinstance(part.tree, exp.Column) and part.tree.table.lower() in aliases:
                    grouped[part.tree.name] = None
        columns = [
            name
            for name in grouped
            if name.lower() not in key and table.column(name).type in {SqlType.TEXT, SqlType.INTEGER}
        ]
        # A number that is compared with (a capacity) is no group of its own.
        columns = [
            name
            for name in columns
            if table.column(name).type is SqlType.TEXT or table.column(name).references
        ]
        return [(), *((name,) for name in columns)]

    def _templates(self, table: Table, queries: Sequence[BoundQuery]) -> list[tuple[Value, ...]]:
        """Rows to copy: one that clashes, then one of each of the most frequent kinds."""
        return list(dict.fromkeys([*self._clashing(table, queries), *self._frequent(table)]))[
            :_MOST_TEMPLATES
        ]

    def _clashing(self, table: Table, queries: Sequence[BoundQuery]) -> Iterator[tuple[Value, ...]]:
        """The first row of a table that the rows of each constraint speak of."""
        for query in queries:
            rows = self._clash.rows.get(query.name)
            aliases = [s.alias for s in query.sources if s.relation.name.lower() == table.name.lower()]
            if not rows or not aliases:
                continue
            names = [output_of(query, aliases[0], name, list(rows[0])) for name in table.primary_key]
            if None not in names:
                yield tuple(rows[0][name] for name in names if name is not None)

    def _frequent(self, table: Table) -> list[tuple[Value, ...]]:
        key = {name.lower() for name in table.primary_key}
        others = [
            column.name
            for column in table.columns
            if column.name.lower() not in key and not column.is_variable
        ]
        keys = ", ".join(f"min({quote(name)})" for name in table.primary_key)
        if len(table.primary_key) > 1:
            keys = ", ".join(map(quote, table.primary_key))
            sql = f"SELECT {keys} FROM {quote(table.name)} ORDER BY {keys} LIMIT {_MOST_TEMPLATES}"
        else:
            grouping = f" GROUP BY {', '.join(map(quote, others))}" if others else ""
            having = "" if others else " HAVING count(*) > 0"
            sql = (
                f"SELECT {keys} FROM {quote(table.name)}{grouping}{having}"
                f" ORDER BY count(*) DESC, {keys} LIMIT {_MOST_TEMPLATES}"
            )
        return self._database.execute(sql)

    def _least_added(self, table: Table, template: tuple[Value, ...], queries: Sequence[BoundQuery]) -> int:
        """With fewer rows like this one a constraint still has less than it needs; at least 1."""
        least = 1
        for query in queries:
            missing, rows = self._clash.missing(query.name), self._clash.rows.get(query.name)
            limit = self._limits.adjustable(query, list(rows[0])) if missing and rows else None
            if limit is None or limit.table.lower() != table.name.lower() or limit.sign < 0:
                continue
            key = dict(zip(table.primary_key, template, strict=True))
            sql = f"SELECT {quote(limit.column)} FROM {quote(table.name)} WHERE {row_condition(key)}"
            for (brings,) in self._database.execute(sql):
                least = max(least, -(-missing // brings) if isinstance(brings, int) and brings > 0 else 1)
        return least


class _Copies:
    """Ever more rows like one of a table, with values of their own in the ``fresh`` columns."""

    def __init__(
        self,
        database: Database,
        table: Table,
        template: tuple[Value, ...],
        fresh: tuple[str, ...],
        least: int,
        helps: Callable[[Relaxation], bool],
    ) -> None:
        self._copier = RowCopier(database)
        self._table = table
        self._template = template
        self._fresh = fresh
        self._helps = helps
        self._rows: list[list[NewRow]] = []
        some = max(_MOST_ADDED, least + least // 2)
        self._numbers = (least, some, _MANY_MORE * some)
        self._too_few = least - 1

    def fewest(self, attempt: int) -> Relaxation | None:
        """So few rows, up to an attempt's number, that the next fewer was not seen to help."""
        low, high = self._too_few, self._numbers[attempt]
        if not low < high <= _MOST_AT_ALL:
            return None
        self._too_few = high
        try:
            found = self._helpful(high)
            while found is not None and high - low > 1:
                middle = (low + high) // 2
                fewer = self._helpful(middle)
                found, low, high = (found, middle, high) if fewer is None else (fewer, low, middle)
        except DataError:
            return None
        return found

    def _helpful(self, number: int) -> Relaxation | None:
        while len(self._rows) < number:
            self._rows.append(self._copier.copy(self._table.name, self._template, fresh=self._fresh))
        candidate = self._added(self._rows[:number])
        return candidate if self._helps(candidate) else None

    def _added(self, copies: Sequence[Sequence[NewRow]]) -> Relaxation:
        rows = by_table(chain.from_iterable(copies))
        statements = tuple(insertion(name, new) for name, new in rows.items())
        like = "/".join(map(str, self._template))
        new = f"a new {self._fresh[0]}" if self._fresh else ""
        where = "" if not new else f", each in {new}" if len(copies) > 1 else f" in {new}"
        what = f"a {self._table.name}" if len(copies) == 1 else f"{len(copies)} rows of {self._table.name}"
        return Relaxation(f"add {what} like {like}{where}", statements)
