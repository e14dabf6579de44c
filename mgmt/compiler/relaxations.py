"""What would help an infeasible state, the smallest of each kind, each tried before it is offered.

Three kinds: to raise (or lower) numbers of the state that constraints of the core compare with, by the least amounts;
to add rows that variables choose from (a host, a host in a new rack); to let as few rows as possible of one constraint
go.

What it is not: it changes nothing but private copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

from sqlglot import exp

from mgmt.compiler.limits import Adjustable, Limits, output_of
from mgmt.compiler.waivers import condition_without, with_waiver
from mgmt.errors import DataError, PolicyError, Relaxation, Waiver
from mgmt.language.bound import BoundQuery, PushedView
from mgmt.optimization.backends import Backend
from mgmt.optimization.elastic import Give, Placement, Slack, by_amount, by_rows
from mgmt.optimization.problem import Problem
from mgmt.solution import Value
from mgmt.state.database import Database
from mgmt.state.row_copies import NewRow, RowCopier, literal
from mgmt.state.schema import SqlType, Table, quote

_MOST_ADDED = 8  # or half more than the least that it takes; if that is not enough,
_MANY_MORE = 10  # times as many are tried
_MOST_AT_ALL = 1_000  # more rows are no advice
_SHARE = 0.5  # of the time left, for one question
_MOST_TEMPLATES = 3
_NOT_THE_LEAST = "(less may do)"
_MOST_NAMED = 5  # rows told one by one in a sentence


class Solvable(Protocol):
    """What a compiled model can do, as far as it is needed here."""

    @property
    def database(self) -> Database: ...

    @property
    def queries(self) -> tuple[PushedView | BoundQuery, ...]: ...

    def revised(
        self, revise: Callable[[BoundQuery], BoundQuery | None] = ..., database: Database | None = None
    ) -> Solvable: ...

    def satisfiable(self, budget: float = ..., seed: int = ...) -> bool | None: ...

    def accepts(self, assignments: Placement) -> bool: ...


class Clash(Protocol):
    """What clashes, and how much it must give."""

    @property
    def core(self) -> tuple[str, ...]:
        """Names of constraints that clash."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all constraints that may be asked to give."""

    @property
    def certain(self) -> bool:
        """Whether what gives is known to be enough for everything there is, without trying."""

    @property
    def rows(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Per constraint the constants of its rows; gives speak of them by number."""

    def missing(self, name: str) -> int:
        """By how much a constraint's rows need more than they allow together; 0 where that is not known."""

    def amounts(self, names: set[str], seconds: float) -> Slack | None:
        """The amounts by which these constraints must give; None if that cannot help, or not in time."""

    def waivers(self, names: set[str], seconds: float) -> Slack | None:
        """The fewest rows of these constraints that must be let go."""


@dataclass(frozen=True, slots=True)
class CellClash:
    """An infeasible problem, cell by cell."""

    problem: Problem
    core: tuple[str, ...]
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    backend: Backend
    seed: int
    certain: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.problem.constraint_names

    def missing(self, name: str) -> int:
        return 0

    def amounts(self, names: set[str], seconds: float) -> Slack | None:
        return by_amount(self.problem, names, self.backend, seconds=seconds, seed=self.seed)

    def waivers(self, names: set[str], seconds: float) -> Slack | None:
        return by_rows(self.problem, names, self.backend, seconds=seconds, seed=self.seed)


def relaxed(model: Solvable, relaxation: Relaxation) -> Solvable:
    """The model with a relaxation applied, over a private copy of its state."""
    database = model.database
    if relaxation.statements:
        database = database.clone()
        for statement in relaxation.statements:
            database.execute(statement)

    waivers = {waiver.constraint: waiver for waiver in relaxation.waivers}

    def revise(query: BoundQuery) -> BoundQuery | None:
        waiver = waivers.get(query.name)
        if waiver is None:
            return query
        if not waiver.condition:
            return None
        return with_waiver(query, waiver)

    return model.revised(revise, database)


def find_relaxations(model: Solvable, clash: Clash, *, budget: float, seed: int) -> tuple[Relaxation, ...]:
    """What was found in about ``budget`` seconds, changes of the state first."""
    deadline = time.monotonic() + budget
    finder = _Finder(model, clash, seed, deadline)
    kinds = (finder.numbers, finder.additions, finder.waivers)
    singly = (candidates([name]) for candidates in kinds for name in finder.core)
    together = (candidates(finder.all) for candidates in (finder.numbers, finder.waivers))
    found: dict[str, Relaxation] = {}
    for ways in (singly, together):
        for relaxation, placement in chain.from_iterable(ways):
            if deadline <= time.monotonic():
                return tuple(found.values())
            known = bool(relaxation.waivers) and clash.certain
            if relaxation.text not in found and (known or finder.helps(relaxation, placement)):
                found[relaxation.text] = relaxation
        if found:
            break  # giving way in one place is enough
    return tuple(found.values())


_Candidate = tuple[Relaxation, Placement | None]
"""With the values that are satisfied then, where they are known."""


class _Finder:
    """Candidates, not yet tried."""

    def __init__(self, model: Solvable, clash: Clash, seed: int, deadline: float) -> None:
        self._model = model
        self._clash = clash
        self._seed = seed
        self._deadline = deadline
        self._queries = {query.name: query for query in model.queries if isinstance(query, BoundQuery)}
        self.core = [name for name in clash.core if name in self._queries] or ["" for _ in clash.core[:1]]
        self.all = [name for name in clash.names if name in self._queries]
        self._limits = Limits(model.database.schema, model.queries)

    def helps(self, relaxation: Relaxation, placement: Placement | None = None) -> bool:
        """Whether it does when applied; with values at hand the database needs only to look at these."""
        try:
            model = relaxed(self._model, relaxation)
            if placement is not None and model.accepts(placement):
                return True
            return bool(model.satisfiable(self._seconds, self._seed))
        except PolicyError:
            return False  # there can be no such rows

    @property
    def _seconds(self) -> float:
        """For one question, so that there is time for others."""
        return max(0.0, self._deadline - time.monotonic()) * _SHARE

    # ---- numbers of the state -----------------------------------------------------------------------

    def numbers(self, names: Sequence[str]) -> Iterator[_Candidate]:
        """By how much the numbers of these constraints must change."""
        limits: dict[str, Adjustable] = {}
        for name in names:
            rows = self._clash.rows.get(name)
            limit = self._limits.adjustable(self._queries[name], list(rows[0])) if rows else None
            if limit is not None:
                limits[name] = limit
        slack = self._clash.amounts(set(limits), self._seconds)
        if slack is not None and slack.gives:
            yield _told(self._raised(limits, slack.gives), slack), slack.placement

    def _raised(self, limits: Mapping[str, Adjustable], gives: Sequence[Give]) -> Relaxation:
        amounts: dict[tuple[str, str, str], tuple[int, str]] = {}
        for give in gives:
            limit = limits[give.tag.constraint]
            row = self._clash.rows[give.tag.constraint][give.tag.row]
            key = {column: row[output] for column, output in limit.key.items()}
            place = (limit.table, limit.column, _row_condition(key))
            beyond = give.below - give.above if limit.smaller_on_right else give.above - give.below
            change = limit.sign * beyond
            if abs(change) > abs(amounts.get(place, (0, ""))[0]):
                amounts[place] = (change, "/".join(map(str, key.values())))
        words, statements = [], []
        for (table, column, where), (change, shown) in amounts.items():
            verb, sign = ("raise", "+") if change > 0 else ("lower", "-")
            words.append(f"{verb} {shown}.{column} by {abs(change)}")
            name = quote(column)
            statements.append(f"UPDATE {quote(table)} SET {name} = {name} {sign} {abs(change)} WHERE {where}")
        return Relaxation(_joined(words), tuple(statements))

    # ---- more to choose from ------------------------------------------------------------------------

    def additions(self, names: Sequence[str]) -> Iterator[_Candidate]:
        """For each table that variables choose from: the fewest further rows like one it has that help."""
        queries = [self._queries[name] for name in names if name in self._queries]
        for table in self._targets(queries):
            for fresh in self._fresh_columns(table, queries):
                for template in self._templates(table, queries):
                    least = self._least_added(table, template, queries)
                    found = self._fewest(table, template, fresh, least)
                    if found is not None:
                        yield found, None
                        break

    def _targets(self, queries: Sequence[BoundQuery]) -> list[Table]:
        schema = self._model.database.schema
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
        return self._model.database.execute(sql)

    def _least_added(self, table: Table, template: tuple[Value, ...], queries: Sequence[BoundQuery]) -> int:
        """With fewer rows like this one a constraint still has less than it needs; at least 1."""
        least = 1
        for query in queries:
            missing, rows = self._clash.missing(query.name), self._clash.rows.get(query.name)
            limit = self._limits.adjustable(query, list(rows[0])) if missing and rows else None
            if limit is None or limit.table.lower() != table.name.lower() or limit.sign < 0:
                continue
            key = dict(zip(table.primary_key, template, strict=True))
            sql = f"SELECT {quote(limit.column)} FROM {quote(table.name)} WHERE {_row_condition(key)}"
            for (brings,) in self._model.database.execute(sql):
                least = max(least, -(-missing // brings) if isinstance(brings, int) and brings > 0 else 1)
        return least

    def _fewest(
        self, table: Table, template: tuple[Value, ...], fresh: tuple[str, ...], least: int
    ) -> Relaxation | None:
        """So few rows more, between the least and some more than that, that the next fewer was not seen to help."""
        copier = RowCopier(self._model.database)
        rows: list[list[NewRow]] = []
        some = max(_MOST_ADDED, least + least // 2)
        tries = [number for number in (least, some, _MANY_MORE * some) if least <= number <= _MOST_AT_ALL]

        def helpful(number: int) -> Relaxation | None:
            while len(rows) < number:
                rows.append(copier.copy(table.name, template, fresh=fresh))
            candidate = self._added(table, template, fresh, rows[:number])
            return candidate if self._seconds > 0 and self.helps(candidate) else None

        try:
            found, low, high = None, least - 1, least - 1
            for number in tries:
                low, high = high, number
                found = helpful(number)
                if found is not None:
                    break
            while found is not None and high - low > 1:
                middle = (low + high) // 2
                fewer = helpful(middle)
                found, low, high = (found, middle, high) if fewer is None else (fewer, low, middle)
        except DataError:
            return None
        return found

    def _added(
        self,
        table: Table,
        template: tuple[Value, ...],
        fresh: tuple[str, ...],
        copies: Sequence[Sequence[NewRow]],
    ) -> Relaxation:
        statements = tuple(dict.fromkeys(row.statement for rows in copies for row in rows))
        like = "/".join(map(str, template))
        where = (
            f", each in a new {fresh[0]}"
            if len(copies) > 1 and fresh
            else f" in a new {fresh[0]}"
            if fresh
            else ""
        )
        what = f"a {table.name}" if len(copies) == 1 else f"{len(copies)} rows of {table.name}"
        return Relaxation(f"add {what} like {like}{where}", statements)

    # ---- rows let go --------------------------------------------------------------------------------

    def waivers(self, names: Sequence[str]) -> Iterator[_Candidate]:
        """The fewest rows of these constraints that must be let go."""
        known = [name for name in names if name in self._queries]
        slack = self._clash.waivers(set(known), self._seconds)
        if slack is None or not slack.gives:
            return
        waived: dict[str, list[Mapping[str, Any]]] = {}
        for give in slack.gives:
            waived.setdefault(give.tag.constraint, []).append(
                self._clash.rows[give.tag.constraint][give.tag.row]
            )
        waivers, words = [], []
        for name, rows in waived.items():
            clause, condition = condition_without(self._queries[name], rows)
            waivers.append(Waiver(name, tuple(rows) if condition else (), condition, clause))
            shown = "; ".join(_shown(row) for row in rows[:_MOST_NAMED])
            more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
            words.append(f"drop {name} for {shown}{more}" if condition else f"drop {name}")
        yield _told(Relaxation(_joined(words), (), tuple(waivers)), slack), slack.placement


def _told(relaxation: Relaxation, slack: Slack) -> Relaxation:
    """It says so where it is not known to be the least: of amounts in all, or of rows."""
    return relaxation if slack.least else replace(relaxation, text=f"{relaxation.text} {_NOT_THE_LEAST}")


def _row_condition(values: Mapping[str, Value]) -> str:
    return " AND ".join(f"{quote(name)} = {literal(value)}" for name, value in values.items())


def _shown(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items())


def _joined(words: Sequence[str]) -> str:
    shown = list(words[:_MOST_NAMED])
    if len(words) > _MOST_NAMED:
        shown.append(f"{len(words) - _MOST_NAMED} more (see the statements)")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
