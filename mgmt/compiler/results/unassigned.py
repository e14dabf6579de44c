"""Rows that a plan leaves without a value although nothing says that this is worse than a value.

NULL satisfies: a CHECK of it is UNKNOWN and passes, WHERE and ON drop its row, aggregates skip it.  So where a variable
may be NULL and nothing asks for values, to leave every row without one is an optimal plan, and seldom meant.

A column is asked about where some policy tests it for NULL, or where an objective would be better if these rows had
values.  The latter is tried: the rows are filled with values, and the oracle says what the objectives are worth then.

What it is not: an error; the plan is what the policies say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mgmt.compiler.compilation import Compilation
from mgmt.compiler.decisions import Assignments
from mgmt.compiler.verification.oracle import Verdict
from mgmt.errors import PolicyError
from mgmt.language.bound_queries.expressions import Aggregate, Cell, Coalesce, Expression, NullTest
from mgmt.language.bound_queries.queries import BoundQuery, PushedView, Subquery, UnionView
from mgmt.language.names.catalog import domain_sql
from mgmt.language.parsing.set_statements import MOVE_BUDGET
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.solution import PrimaryKey, Unassigned, Value
from mgmt.state.database import Snapshot
from mgmt.state.schema import quote
from mgmt.state.schema_parsing.column_bounds import MOST_VALUES

_Place = tuple[str, str]  # table, variable column
_FILLINGS = 4
"""How many values are tried in each row; the first is today's."""
_SECONDS = 1.0
"""That they may take the database, beyond the budget of the solve."""


def find_unassigned(
    compilation: Compilation, snapshot: Snapshot, plan: Assignments, verdict: Verdict
) -> tuple[Unassigned, ...]:
    """The variables that have no value in some rows of a plan, and that nothing asks for values of.

    ``verdict`` is what the oracle says of the plan.
    """
    empty = {
        place: rows
        for place, values in plan.items()
        if (rows := [key for key, value in values.items() if value is None])
    }
    demands = _demands(compilation, empty) if empty else {}
    choices = {place: _choices(compilation, snapshot, *place) for place in demands}
    left = {place: empty[place] for place, values in choices.items() if values}
    if not left:
        return ()
    try:
        with snapshot.within(_SECONDS):
            others = list(compilation.oracle.examine_each(snapshot, _fillings(snapshot, plan, left, choices)))
    except PolicyError:  # too long, or nothing to compute with: nothing is known, so nothing is said
        return ()
    found = []
    for place in left:
        named = demands[place]
        satisfied = {
            query.name: _reason(compilation, query, place)
            for query in named
            if query.name not in verdict.broken
        }
        asked = any(_is_better(query, verdict, other) for query in named for other in others)
        if satisfied and not asked:
            found.append(Unassigned(*place, len(empty[place]), len(plan[place]), satisfied))
    return tuple(found)


def emptiest(compilation: Compilation, snapshot: Snapshot) -> Assignments:
    """Values for all variables that must have one, and for none that may be NULL."""
    plan: Assignments = {}
    required, choices = {}, {}
    for table in snapshot.schema.tables:
        for column in table.variables:
            place = table.name, column.name
            plan[place] = dict.fromkeys(_today(snapshot, *place))
            if not column.nullable:
                required[place] = list(plan[place])
                choices[place] = _choices(compilation, snapshot, *place)
    return next(_fillings(snapshot, plan, required, choices))


def _demands(compilation: Compilation, places: Iterable[_Place]) -> dict[_Place, list[BoundQuery]]:
    """By place, the constraints and objectives that speak of it; not if something tests it for NULL."""
    implied = {rule.name for table in compilation.catalog.schema.tables for rule in table.rules} | {
        MOVE_BUDGET
    }
    tested = {
        place
        for result in compilation.results
        for query in _below(compilation, result)
        for expression in query.expressions
        for node in expression.walk()
        if isinstance(node, (NullTest, Coalesce))
        for place in _places(query, node)
    }
    found: dict[_Place, list[BoundQuery]] = {}
    for part in compilation.partition.parts:
        for each in part.demands:
            for table, column in places:
                speaks = (table.lower(), column.lower()) in each.columns and each.demand.name not in implied
                if speaks and (table, column) not in tested:
                    found.setdefault((table, column), []).append(each.demand.bound)
    return found


def _below(compilation: Compilation, *results: PushedView | BoundQuery) -> Iterator[BoundQuery]:
    """Queries in which the solver has a say: these, their subqueries, and the views that they read."""
    named = {result.name.lower(): result for result in compilation.results}
    waiting, seen = list(results), set[int]()
    while waiting:
        result = waiting.pop()
        if id(result) in seen:
            continue
        seen.add(id(result))
        relations = list(result.parts) if isinstance(result, UnionView) else []
        if isinstance(result, BoundQuery):
            yield result
            relations = [source.relation for source in result.sources]
            waiting.extend(
                node.query
                for expression in result.expressions
                for node in expression.walk()
                if isinstance(node, Subquery)
            )
        waiting.extend(named[name] for each in relations if (name := each.name.lower()) in named)


def _places(query: BoundQuery, expression: Expression) -> Iterator[_Place]:
    """The variables of tables that an expression of a query speaks of, itself or by the columns of views."""
    relations = {source.alias.lower(): source.relation for source in query.sources}
    for node in expression.walk():
        if isinstance(node, Cell) and node.source.lower() in relations:
            column = relations[node.source.lower()].find(node.column)
            if column is not None and column.origin is not None:
                yield column.origin


def _reason(compilation: Compilation, query: BoundQuery, place: _Place) -> str:
    """Why NULL satisfies a demand."""
    below = list(_below(compilation, query))
    if any(place in _places(each, one.expression) for each in below for one in each.predicates):
        return "WHERE and ON drop a row without a value"
    nodes = ((each, node) for each in below for one in each.expressions for node in one.walk())
    aggregated = any(isinstance(node, Aggregate) and place in _places(each, node) for each, node in nodes)
    if aggregated or query.demand is None or query.demand.tail.kind is not TailKind.CHECK:
        return "aggregates skip NULL"
    return "a CHECK of NULL is UNKNOWN, which passes"


def _is_better(query: BoundQuery, before: Verdict, after: Verdict) -> bool:
    """Whether an objective is worth more afterwards."""
    if query.demand is None or not query.demand.is_objective:
        return False
    gain = after.objectives[query.name] - before.objectives[query.name]
    return gain > 0 if query.demand.maximize else gain < 0


def _fillings(
    snapshot: Snapshot,
    plan: Assignments,
    rows: Mapping[_Place, Sequence[PrimaryKey]],
    choices: Mapping[_Place, Sequence[Value]],
) -> Iterator[Assignments]:
    """The plan with values in these rows: today's where there are some, then others."""
    for turn in range(_FILLINGS):
        filled = dict(plan)
        for place, keys in rows.items():
            values = choices[place] or (None,)
            numbers = {key: number for number, key in enumerate(plan[place])}
            step = turn * max(1, len(values) // _FILLINGS)
            today = _today(snapshot, *place) if turn == 0 else {}
            chosen = {
                key: values[(numbers[key] + step) % len(values)] if today.get(key) is None else today[key]
                for key in keys
            }
            filled[place] = {**plan[place], **chosen}
        yield filled


def _choices(compilation: Compilation, snapshot: Snapshot, table: str, column: str) -> Sequence[Value]:
    """What a variable may be; those of a foreign key of several columns in one order, so that they stay together."""
    for key in snapshot.schema.table(table).foreign_keys:
        if len(key.columns) > 1 and column in key.columns:
            referenced = dict(zip(key.columns, map(quote, key.referenced), strict=True))
            order = ", ".join(referenced.values())
            return _column(snapshot, f"SELECT {referenced[column]} FROM {quote(key.table)} ORDER BY {order}")
    bounds = compilation.catalog.schema.table(table).column(column).range
    if bounds is not None:
        return range(bounds[0], bounds[1] + 1)[:MOST_VALUES]
    return _column(
        snapshot, f"SELECT value FROM ({domain_sql(compilation.catalog, table, column)}) ORDER BY value"
    )


def _column(snapshot: Snapshot, sql: str) -> list[Value]:
    return [value for (value,) in snapshot.rows(sql)]


def _today(snapshot: Snapshot, table: str, column: str) -> dict[PrimaryKey, Value]:
    """The present value of every row; NULL where that is not known."""
    definition = snapshot.schema.table(table)
    current = definition.column(column).current
    names = ", ".join(map(quote, definition.primary_key))
    value = "NULL" if current is None else quote(current)
    return {tuple(row[:-1]): row[-1] for row in snapshot.rows(f"SELECT {names}, {value} FROM {quote(table)}")}
