"""The oracle: plain SQL in the database re-checks every plan with the decided values put in.

Independent of the encoder: it starts again from the bound SQL (``mgmt.compiler.oracle_sql``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from mgmt.compiler.kept import Kept
from mgmt.compiler.oracle_sql import OracleSql
from mgmt.language.sql_text import pushed_sql
from mgmt.errors import OverflowError  # noqa: A004 - the published name
from mgmt.language.bound import BoundQuery, PushedView, UnionView
from mgmt.language.catalog import Catalog, domain_sql
from mgmt.language.refusals import refusals_at
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Snapshot
from mgmt.state.engine import RefusedStatementError
from mgmt.state.schema import Column, Table, quote

Assignments = Mapping[tuple[str, str], Mapping[PrimaryKey, Value]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the database says of an assignment: broken demands in words, and the value of each objective."""

    violations: tuple[str, ...]
    objectives: Mapping[str, int]
    broken: tuple[str, ...] = ()
    """The names of the policies' constraints among the broken demands."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one query: a statement, and for a check short ones that often settle it."""

    sql: str
    quick: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Together:
    """Objectives over one view that takes time, asked in one statement that computes its rows once."""

    objectives: tuple[tuple[str, str], ...]
    """Names, and what each is asked by alone."""
    sql: str
    """One row of all their values."""


Result = PushedView | BoundQuery


class Oracle:
    """Checks assignments of one compiled program.  The SQL is made once."""

    def __init__(
        self,
        results: Sequence[Result],
        catalog: Catalog,
        *,
        joins: bool = True,
        kept: Kept[Result, Question] | None = None,
    ) -> None:
        """``joins``: ask without cross products of rows and values where that can be.

        ``kept``: the questions that are known, of this or a smaller catalog.
        """
        sql = OracleSql(
            (name for name in catalog.names if (found := catalog.find(name)) and found.gated),
            joins=joins,
        )
        self.kept = Kept[Result, Question]() if kept is None else kept
        self._views: list[tuple[str, str]] = []
        self._checks: list[tuple[str, str]] = []
        self._quick: dict[str, tuple[str, ...]] = {}
        self._objectives: list[tuple[str, str]] = []
        self._positions = {result.name: result.position for result in results}
        self._schema_checks = tuple(_schema_checks(catalog))
        for result in results:
            question = self.kept.of(result, lambda result: _question(result, sql))
            if isinstance(result, PushedView) or result.demand is None:
                self._views.append((result.name, question.sql))
            elif result.demand.is_objective:
                self._objectives.append((result.name, question.sql))
            else:
                self._checks.append((result.name, question.sql))
                self._quick[result.name] = question.quick
        self._together = tuple(_together(self._grouping(results), self._objectives))

    def _grouping(self, results: Sequence[Result]) -> list[tuple[str, str]]:
        """The views that group rows, or read one that does: what they say takes time."""
        found: dict[str, str] = {}
        grouped = {
            result.name for result in results if isinstance(result, BoundQuery) and result.keys is not None
        }
        for name, sql in self._views:
            if name in grouped or any(quote(other) in sql for other in found):
                found[name] = sql
        return list(found.items())

    @property
    def views(self) -> Sequence[tuple[str, str]]:
        """The views it asks, with their SQL, in order."""
        return self._views

    def uses_of(self, view: str) -> int:
        """How many of its statements and views name a view."""
        name = quote(view)
        quick = (sql for statements in self._quick.values() for sql in statements)
        plain = (sql for check, sql in self._checks if not self._quick[check])
        others = (sql for _, sql in (*self._views, *self._objectives))
        return sum(name in sql for sql in (*quick, *plain, *others))

    def matches(self, result: Result, pattern: re.Pattern[str]) -> bool:
        """Whether what is asked about one of its queries matches a pattern."""
        return pattern.search(self.kept.of(result, lambda _: Question("")).sql) is not None

    def examine(self, snapshot: Snapshot, assignments: Assignments) -> Verdict:
        """Put the values in, ask every constraint and objective, and take the values out again."""
        (verdict,) = self.examine_each(snapshot, (assignments,))
        return verdict

    def examine_each(self, snapshot: Snapshot, many: Iterable[Assignments]) -> Iterator[Verdict]:
        """The same for one assignment after the other; the views over them are defined once."""
        with snapshot.scratch():
            for number, assignments in enumerate(many):
                _write(snapshot, assignments)
                if number == 0:
                    self._define_views(snapshot)
                yield self._verdict(snapshot)

    @contextmanager
    def filled(self, snapshot: Snapshot, assignments: Assignments) -> Iterator[None]:
        """Inside, the snapshot holds these values, and the policies' views over them."""
        with snapshot.scratch():
            _write(snapshot, assignments)
            self._define_views(snapshot)
            yield

    def _define_views(self, snapshot: Snapshot) -> None:
        for name, sql in self._views:
            with self._at(name):
                snapshot.define_view(name, sql)

    def _verdict(self, snapshot: Snapshot) -> Verdict:
        doubtful = [(name, check) for name, check in self._checks if not self._surely_holds(snapshot, name)]
        counts = [(name, count) for name, count in self._ask(snapshot, doubtful) if count]
        broken = [(text, snapshot.rows(sql)[0][0]) for text, sql in self._schema_checks]
        violations = [
            *(f"{text} ({count})" for text, count in broken if count),
            *(f"{name}: {count} rows" for name, count in counts),
        ]
        worth: dict[str, int] = {}
        for together in self._together:
            with self._at(together.objectives[0][0]):
                worth.update(self._ask_together(snapshot, together))
        objectives = {name: worth[name] for name, _ in self._objectives}
        return Verdict(tuple(violations), objectives, tuple(name for name, _ in counts))

    def _surely_holds(self, snapshot: Snapshot, name: str) -> bool:
        """Whether the short statements show that a check holds; if not, it may hold all the same."""
        quick = self._quick[name]
        with self._at(name):
            return bool(quick) and not any(snapshot.rows(sql)[0][0] for sql in quick)

    def _ask(self, snapshot: Snapshot, questions: Iterable[tuple[str, str]]) -> list[tuple[str, int]]:
        answers = []
        for name, sql in questions:
            with self._at(name):
                answers.append((name, int(snapshot.rows(sql)[0][0])))
        return answers

    def _ask_together(self, snapshot: Snapshot, together: Together) -> list[tuple[str, int]]:
        try:
            (values,) = snapshot.rows(together.sql)
        except (RefusedStatementError, OverflowError):  # asked one by one it is told which of them it is
            return self._ask(snapshot, together.objectives)
        names = (name for name, _ in together.objectives)
        return [(name, int(value)) for name, value in zip(names, values, strict=True)]

    def _at(self, name: str) -> AbstractContextManager[None]:
        return refusals_at(f"checking solutions of {name}", self._positions[name])


def _question(result: Result, sql: OracleSql) -> Question:
    if isinstance(result, UnionView):
        return Question(sql.union(result))
    if isinstance(result, PushedView):
        return Question(pushed_sql(result))
    if result.demand is None:
        return Question(sql.view(result))
    if result.demand.is_objective:
        return Question(sql.objective(result))
    return Question(sql.check(result), sql.quick_checks(result))


def _together(views: Iterable[tuple[str, str]], objectives: Iterable[tuple[str, str]]) -> Iterator[Together]:
    """All objectives, those that name the same of these views together."""
    left = list(objectives)
    for name, view in views:
        members = [(objective, sql) for objective, sql in left if quote(name) in sql]
        if len(members) > 1:
            left = [each for each in left if each not in members]
            values = ", ".join(f"({sql}) AS {quote(objective)}" for objective, sql in members)
            yield Together(tuple(members), f"WITH {quote(name)} AS MATERIALIZED ({view}) SELECT {values}")
    yield from (Together(((name, sql),), sql) for name, sql in left)


def _write(snapshot: Snapshot, assignments: Assignments) -> None:
    for table in snapshot.schema.tables:
        columns = {column.name: assignments[table.name, column.name] for column in table.variables}
        if columns:
            snapshot.write(table, columns)


def _schema_checks(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Domains, NOT NULL and UNIQUE over variable columns: what would be wrong, and SQL that counts it."""
    for table in catalog.schema.tables:
        for column in table.variables:
            name = quote(column.name)
            wrong = f"{name} NOT IN ({_values_sql(catalog, table, column)})"
            # NULL NOT IN an empty list is true: a row that has nothing to choose from stays without.
            wrong = f"{name} IS NOT NULL AND {wrong}" if column.nullable else f"{name} IS NULL OR {wrong}"
            sql = f"SELECT count(*) FROM {quote(table.name)} WHERE {wrong}"
            yield f"{table.name}.{column.name}: values outside the domain", sql
        variable = {column.name.lower() for column in table.variables}
        for unique in table.uniques:
            if variable & {name.lower() for name in unique}:
                names = ", ".join(map(quote, unique))
                known = " AND ".join(f"{quote(name)} IS NOT NULL" for name in unique)
                sql = f"SELECT 1 FROM {quote(table.name)} WHERE {known} GROUP BY {names} HAVING count(*) > 1"
                yield f"{table.name}: UNIQUE ({names}) is broken", f"SELECT count(*) FROM ({sql})"


def _values_sql(catalog: Catalog, table: Table, column: Column) -> str:
    """The values of a column's domain; by a key without NULLs for what it is, so that its index is looked into."""
    if column.domain is None and column.references is not None:
        target = catalog.schema.table(column.references[0])
        key = target.column(column.references[1] or target.primary_key[0])
        if not key.nullable and (key.name,) in target.uniques:
            return f"SELECT {quote(key.name)} FROM {quote(target.name)}"
    return f"SELECT value FROM ({domain_sql(catalog, table.name, column.name)})"
