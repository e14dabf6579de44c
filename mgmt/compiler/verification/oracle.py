"""The oracle: plain SQL in the database re-checks every plan with the decided values put in.

Independent of the encoder: it starts again from the bound SQL (``mgmt.compiler.verification.oracle_sql``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgmt.compiler.relational.dependencies import may_change
from mgmt.compiler.relational.memo import Memo
from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.compiler.verification.oracle_sql import Asked, OracleSql, needed
from mgmt.errors import DataError, OverflowError, StatementTimeoutError  # noqa: A004 - the published name
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, UnionView
from mgmt.language.names.catalog import Catalog, domain_sql
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Snapshot
from mgmt.state.duckdb_access.engine import RefusedStatementError
from mgmt.state.schema import Column, Table, quote

if TYPE_CHECKING:
    from duckdb import Statement

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
    """What is asked about one query: a statement, and of a demand what often settles it, if only by itself.

    Short statements of a check settle it if all count 0, that of an objective if it is not NULL.
    """

    sql: str
    asked: tuple[Asked, ...] = ()
    needs: tuple[str, ...] = ()
    """Relations of a view: while one of them has no row, neither has the view."""


Result = PushedView | BoundQuery


class Oracle:
    """Checks assignments of one compiled program.  The SQL is made once."""

    def __init__(
        self,
        results: Sequence[Result],
        catalog: Catalog,
        *,
        joins: bool = True,
        questions: Memo[Result, Question] | None = None,
    ) -> None:
        """``joins``: ask without cross products of rows and values where that can be.

        ``questions``: those that are known, of this or a smaller catalog.
        """
        sql = OracleSql(
            (name for name in catalog.names if (found := catalog.find(name)) and found.gated),
            (table.name for table in catalog.schema.tables),
            joins=joins,
        )
        self.questions = Memo[Result, Question]() if questions is None else questions
        self._views: list[tuple[str, str]] = []
        self._checks: list[tuple[str, Asked]] = []
        self._objectives: list[tuple[str, Asked]] = []
        self._demands: dict[str, str] = {}
        """The whole statement about each demand."""
        self._settled: dict[int, int | None] = {}
        """What is the same whatever the state is, by the numbers of the statements."""
        below: dict[str, frozenset[str]] = {}
        self._positions = {result.name: result.position for result in results}
        self._schema_checks = tuple(_schema_checks(catalog))
        for result in results:
            question = self.questions.of(result, lambda result: _question(result, sql))
            if isinstance(result, PushedView) or result.demand is None:
                self._views.append((result.name, question.sql))
                if isinstance(result, BoundQuery):
                    empty = result.keys == ()
                    below[result.name.lower()] = frozenset() if empty else _in_tables(question.needs, below)
                elif isinstance(result, UnionView):
                    below[result.name.lower()] = frozenset()
            else:
                demands = self._objectives if result.demand.is_objective else self._checks
                demands.extend((result.name, asked) for asked in question.asked)
                self._demands[result.name] = question.sql
        self._asked = (*self._schema_checks, *self._checks, *self._objectives)
        self._needs = [_in_tables(asked.needs, below) for _, asked in self._asked]
        self._grouping = self._grouping_views(results)
        self._in_one: dict[frozenset[int], Statement | None] = {}
        """What is asked, by the numbers of the statements."""

    def _grouping_views(self, results: Sequence[Result]) -> list[tuple[str, str]]:
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
        demands = (asked.rows for _, asked in (*self._checks, *self._objectives))
        return sum(quote(view) in sql for sql in (*demands, *(sql for _, sql in self._views)))

    def matches(self, result: Result, pattern: re.Pattern[str]) -> bool:
        """Whether what is asked about one of its queries matches a pattern."""
        return pattern.search(self.questions.of(result, lambda _: Question("")).sql) is not None

    def examine(self, snapshot: Snapshot, assignments: Assignments) -> Verdict:
        """Put the values in, ask every constraint and objective, and take the values out again."""
        (verdict,) = self.examine_each(snapshot, (assignments,))
        return verdict

    def examine_each(
        self, snapshot: Snapshot, many: Iterable[Assignments], *, objectives: bool = True
    ) -> Iterator[Verdict]:
        """The same for one assignment after the other, with ``objectives`` or constraints alone.

        The views over them are defined once, and only what differs from the one before is written.
        """
        assignments: Assignments = {}
        try:
            with snapshot.scratch():
                before: Assignments | None = None
                for assignments in many:
                    _write(snapshot, assignments, before)
                    if before is None:
                        self._define_views(snapshot)
                    before = assignments
                    yield self._verdict(snapshot, objectives=objectives)
        except (RefusedStatementError, OverflowError, DataError, StatementTimeoutError) as error:
            if error.position is None:
                self._ask_one_by_one(snapshot, assignments)
            raise

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

    def _verdict(self, snapshot: Snapshot, *, objectives: bool) -> Verdict:
        values = self._ask(snapshot, objectives=objectives)
        answers = [(name, values.get(number, 0)) for number, (name, _) in enumerate(self._asked)]
        kinds = len(self._schema_checks), len(answers) - len(self._objectives)
        doubtful = dict.fromkeys(name for name, count in answers[kinds[0] : kinds[1]] if count)
        # Where short statements do not show that it holds, it may hold all the same.
        counts = [(name, self._whole(snapshot, name)) for name in doubtful]
        values_of = {
            name: self._whole(snapshot, name) if value is None else value
            for name, value in (answers[kinds[1] :] if objectives else ())
        }
        violations = [
            *(f"{text} ({count})" for text, count in answers[: kinds[0]] if count),
            *(f"{name}: {count} rows" for name, count in counts if count),
        ]
        broken = tuple(name for name, count in counts if count)
        return Verdict(tuple(violations), values_of, broken)

    def _whole(self, snapshot: Snapshot, name: str) -> int:
        """The answer of the whole statement about a demand."""
        with self._at(name):
            return int(snapshot.rows(self._demands[name])[0][0])

    def _ask(self, snapshot: Snapshot, *, objectives: bool) -> dict[int, int | None]:
        """The answers by the numbers of the statements; what is without rows anyway is not asked."""
        numbers = frozenset(
            number
            for number in range(len(self._asked) - (0 if objectives else len(self._objectives)))
            if number not in self._settled and all(map(snapshot.has_rows, self._needs[number]))
        )
        if numbers not in self._in_one:
            asked = [(number, self._asked[number][1]) for number in sorted(numbers)]
            self._in_one = {numbers: snapshot.parsed(_in_one(asked, self._grouping)) if asked else None}
        statement = self._in_one[numbers]
        rows = snapshot.rows(statement) if statement else ()
        answers = [pair for numbers, values in rows for pair in zip(numbers, values, strict=True)]
        found = {number: None if answer is None else int(answer) for number, answer in answers}
        self._settled.update(
            (number, found[number]) for number in numbers if _settles(self._asked[number][1].sql)
        )
        return found | self._settled

    def _ask_one_by_one(self, snapshot: Snapshot, assignments: Assignments) -> None:
        """Raises the error of the first statement that has one, with its place."""
        with snapshot.scratch():
            _write(snapshot, assignments)
            self._define_views(snapshot)
            for name, asked in self._asked[len(self._schema_checks) :]:
                with self._at(name):
                    snapshot.rows(asked.sql)

    def _at(self, name: str) -> AbstractContextManager[None]:
        return refusals_at(f"checking solutions of {name}", self._positions[name])


def _settles(sql: str) -> bool:
    """Whether a statement has the same answer always."""
    return " FROM " not in sql and not may_change(sql)


def _question(result: Result, sql: OracleSql) -> Question:
    if isinstance(result, UnionView):
        return Question(sql.union(result))
    if isinstance(result, PushedView):
        return Question(pushed_sql(result))
    if result.demand is None:
        return Question(sql.view(result), needs=needed(result))
    if result.demand.is_objective:
        whole, quick = sql.objective(result), sql.quick_objective(result)
    else:
        whole, quick = sql.check(result), sql.quick_checks(result)
    return Question(whole.sql, quick or (whole,))


def _in_tables(needs: Iterable[str], below: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The tables behind what is needed, and the views of which none are known."""
    return frozenset[str]().union(*(below.get(name, {name}) for name in map(str.lower, needs)))


def _in_one(asked: Iterable[tuple[int, Asked]], views: Sequence[tuple[str, str]]) -> str:
    """One statement whose rows are the numbers of some statements, and their answers.

    What is asked of the same rows is asked together.  Of the views that take time, one that several parts name is
    computed once for them.
    """
    alike: dict[str, list[tuple[int, Asked]]] = {}
    for number, one in asked:
        alike.setdefault(one.rows, []).append((number, one))
    left = [_together(members) for members in alike.values()]
    parts: list[str] = []
    for name, view in views:
        reading = [part for part in left if quote(name) in part]
        if len(reading) > 1:
            left = [part for part in left if part not in reading]
            parts.append(f"(WITH {quote(name)} AS MATERIALIZED ({view}) {' UNION ALL '.join(reading)})")
    return " UNION ALL ".join([*parts, *(f"({part})" for part in left)])


def _together(asked: Sequence[tuple[int, Asked]]) -> str:
    numbers = ", ".join(str(number) for number, _ in asked)
    answers = ", ".join(f"CAST({one.answer} AS HUGEINT)" for _, one in asked)
    return f"SELECT [{numbers}] AS numbers, [{answers}] AS answers{asked[0][1].rows}"


def _write(snapshot: Snapshot, assignments: Assignments, before: Assignments | None = None) -> None:
    """Put values in; where others are in already, those that differ."""
    for table in snapshot.schema.tables:
        columns = {}
        for column in table.variables:
            values = assignments[table.name, column.name]
            if before is not None:
                present = before[table.name, column.name]
                values = {key: value for key, value in values.items() if present[key] != value}
            if values:
                columns[column.name] = values
        if columns:
            snapshot.write(table, columns)


def _schema_checks(catalog: Catalog) -> Iterator[tuple[str, Asked]]:
    """Domains, NOT NULL and UNIQUE over variable columns: what would be wrong, and how often it is."""
    for table in catalog.schema.tables:
        for column in table.variables:
            name = quote(column.name)
            wrong = [] if column.nullable else [f"{name} IS NULL"]
            if column.range is not None:
                low, high = column.range
                wrong.append(f"{name} NOT BETWEEN {low} AND {high}")
            elif column.domain is not None or column.references is not None:
                # NULL NOT IN an empty list is true: a row that has nothing to choose from stays without.
                values = _values_sql(catalog, table, column)
                wrong.append(f"{name} IS NOT NULL AND {name} NOT IN ({values})")
            if wrong:
                count = f"count(*) FILTER (WHERE {' OR '.join(wrong)})"
                rows = f" FROM {quote(table.name)} AS {quote(table.name)}"
                yield f"{table.name}.{column.name}: values outside the domain", Asked(count, rows)
        variable = {column.name.lower() for column in table.variables}
        for unique in table.uniques:
            if variable & {name.lower() for name in unique}:
                names = ", ".join(map(quote, unique))
                known = " AND ".join(f"{quote(name)} IS NOT NULL" for name in unique)
                sql = f"SELECT 1 FROM {quote(table.name)} WHERE {known} GROUP BY {names} HAVING count(*) > 1"
                yield f"{table.name}: UNIQUE ({names}) is broken", Asked("count(*)", f" FROM ({sql})")


def _values_sql(catalog: Catalog, table: Table, column: Column) -> str:
    """The values of a column's domain; by a key without NULLs for what it is, so that its index is looked into."""
    if column.domain is None and column.references is not None:
        target = catalog.schema.table(column.references[0])
        key = target.column(column.references[1] or target.primary_key[0])
        if not key.nullable and (key.name,) in target.uniques:
            return f"SELECT {quote(key.name)} FROM {quote(target.name)}"
    return f"SELECT value FROM ({domain_sql(catalog, table.name, column.name)})"
