"""Runs policy tests: fill a copy of the state with each case's rows, solve, and compare with what is expected.

Coverage (see ``coverage``) says which policies some case would miss.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from mgmt.compiler.model import Model
from mgmt.errors import DataError, InfeasibleError, PolicyError, PolicySyntaxError, UnknownColumnError
from mgmt.explaining.policies.coverage import Coverage, solved
from mgmt.explaining.policies.policy_files import located
from mgmt.explaining.policies.policy_test_syntax import Expectation, Expected, PolicyTest, Target
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.solution import PrimaryKey, Solution, Value
from mgmt.state.database import Database
from mgmt.state.schema import literal, quote, unique_name

_COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that did not come true, and what was so instead."""

    expectation: Expectation
    found: str

    def __str__(self) -> str:
        return f"{self.expectation.position}: {self.expectation.text}: {self.found}"


@dataclass(frozen=True, slots=True)
class PolicyTestResult:
    """One case.  ``seconds`` of wall time."""

    test: PolicyTest
    failures: tuple[Failure, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class PolicyTestReport:
    """All cases; ``covered`` says for each constraint and objective in which case it was first binding, or None."""

    results: tuple[PolicyTestResult, ...]
    covered: Mapping[str, str | None]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)

    @property
    def coverage(self) -> float:
        """The share of constraints and objectives that were binding; 1 when there are none."""
        return sum(name is not None for name in self.covered.values()) / max(1, len(self.covered))


def run_tests(
    model: Model, tests: Iterable[PolicyTest], *, budget: float = 10.0, seed: int = 0
) -> PolicyTestReport:
    """Run the cases over copies of the model's state.

    Raises the error (with its position) when a case's rows or targets make no sense; SolveTimeout when ``budget``
    seconds were too few for one of them.
    """
    tests = tuple(tests)
    for test in tests:
        for expectation in test.expectations:
            _refuse_unknown_names(model, expectation)
        _refuse_without_time(model, test)
    results = []
    covered: dict[str, str | None] = dict.fromkeys(model.constraints)
    coverage = Coverage(model)
    for test in tests:
        started = time.perf_counter()
        state = model.database.clone(moment=test.now)
        for statement in test.rows:
            try:
                state.execute(statement.text)
            except PolicyError as error:
                raise (located(error, statement.position) if error.position is None else error) from error
        asked = model.revised(database=state)
        outcome = solved(asked, budget, seed)
        failures = []
        for expectation in test.expectations:
            try:
                found = _mismatch(asked, outcome, expectation)
            except PolicyError as error:
                raise (located(error, expectation.position) if error.position is None else error) from error
            if found:
                failures.append(Failure(expectation, found))
        results.append(PolicyTestResult(test, tuple(failures), time.perf_counter() - started))
        possible = coverage.may_bind(state)
        for name, known in covered.items():
            if known is None and name in possible and coverage.binds(asked, outcome, name, budget, seed):
                covered[name] = test.name
    return PolicyTestReport(tuple(results), covered)


# ---- expectations ---------------------------------------------------------------------------------------


def _refuse_without_time(model: Model, test: PolicyTest) -> None:
    """A case is the same whenever it is run."""
    if test.now is None and model.asking_for_the_time:
        asking = model.asking_for_the_time[0]
        raise PolicySyntaxError(
            f"{asking.name} asks for the time, and the test {test.name!r} does not say which it is",
            position=test.position,
            hint="write NOW '2026-11-23 07:40:00'; after TEST, or for all of them before the first",
        )


def _refuse_unknown_names(model: Model, expectation: Expectation) -> None:
    """A name that is misspelt is no failure of the policies."""
    if expectation.kind is Expected.INFEASIBLE:
        known, what = [*_rules(model)], "constraint"
    elif expectation.kind is Expected.OBJECTIVE:
        known, what = [name for name in model.constraints if name not in set(_rules(model))], "objective"
    else:
        return
    spelt = {name.lower(): name for name in known}
    for name, place in zip(expectation.names or (), expectation.places, strict=True):
        if name.lower() not in spelt:
            close = get_close_matches(name.lower(), spelt, n=1)
            hint = f"did you mean {spelt[close[0]]}?" if close else f"there are {', '.join(known) or 'none'}"
            raise PolicySyntaxError(f"there is no {what} {name!r}", position=place, hint=hint)


def _rules(model: Model) -> Iterator[str]:
    """What can clash: constraints, and what tables demand of their variables."""
    for query in model.queries:
        if isinstance(query, BoundQuery) and query.demand is not None and not query.demand.is_objective:
            yield query.name
    for table in model.database.schema.tables:
        variable = {column.name.lower() for column in table.variables}
        for unique in table.uniques:
            if variable & {name.lower() for name in unique}:
                yield unique_name(table, unique)


def _mismatch(model: Model, outcome: Solution | InfeasibleError, expectation: Expectation) -> str:
    """What was found instead; empty when the expectation holds."""
    if expectation.kind is Expected.INFEASIBLE:
        if isinstance(outcome, Solution):
            return "there is a plan"
        if expectation.names is not None and _lower(expectation.names) != _lower(outcome.constraints):
            return f"what clashes is {', '.join(outcome.constraints)}"
        return ""
    if isinstance(outcome, InfeasibleError):
        return str(outcome.message)
    if expectation.kind is Expected.OBJECTIVE:
        return _objective_mismatch(outcome, expectation)
    decided = [row for target in expectation.targets for row in _decided(model, outcome, target)]
    if not decided:
        return "no such row"
    if expectation.kind in {Expected.COLOCATED, Expected.SPREAD}:
        return _grouping_mismatch(model, decided, expectation)
    allowed = set(map(_key, expectation.values))
    inside = expectation.kind is not Expected.NOT_IN
    wrong = [f"{name} is {_shown(value)}" for name, value in decided if (_key(value) in allowed) != inside]
    return _some(wrong)


def _objective_mismatch(outcome: Solution, expectation: Expectation) -> str:
    assert expectation.names
    values = {objective.name.lower(): objective.after for objective in outcome.objectives}
    name = expectation.names[0]
    value = values[name.lower()]
    bound = expectation.values[0]
    if not isinstance(bound, int):
        raise DataError("an objective is a whole number", hint="write EXPECT OBJECTIVE name <= 3")
    return "" if _COMPARE[expectation.operator](value, bound) else f"{name} is {value}"


def _grouping_mismatch(model: Model, decided: Sequence[tuple[str, Value]], expectation: Expectation) -> str:
    places: dict[Value, list[str]] = {}
    for name, value in decided:
        place = value if expectation.by is None else _attribute(model.database, expectation.by, value)
        places.setdefault(place, []).append(name)
    if expectation.kind is Expected.COLOCATED:
        if len(places) <= 1:
            return ""
        return _some([f"{', '.join(names)} on {_shown(place)}" for place, names in places.items()])
    shared = [
        f"{', '.join(names)} share {_shown(place)}" for place, names in places.items() if len(names) > 1
    ]
    return _some(shared)


def _decided(model: Model, outcome: Solution, target: Target) -> list[tuple[str, Value]]:
    """The rows of a target by name, with what was decided for them."""
    table = model.database.schema.table(target.table)
    wanted = target.column.lower()
    variables = [
        v for v in table.variables if not wanted or wanted in {v.name.lower(), (v.current or "").lower()}
    ]
    if len(variables) != 1:
        raise UnknownColumnError(
            f"the solver decides {len(variables)} columns of {table.name!r} that could be meant",
            hint=f"write {table.name}.column for one of {', '.join(v.name for v in table.variables) or 'none'}",
        )
    keys = ", ".join(map(quote, table.primary_key))
    where = f" WHERE {target.condition}" if target.condition else ""
    if target.key is not None:
        if len(target.key) != len(table.primary_key):
            raise DataError(
                f"the key of {table.name!r} is ({', '.join(table.primary_key)})",
                hint="write a value for each column of the key, in this order",
            )
        parts = zip(table.primary_key, target.key, strict=True)
        where = " WHERE " + " AND ".join(f"{quote(name)} = {literal(value)}" for name, value in parts)
    found = model.database.execute(f"SELECT {keys} FROM {quote(table.name)}{where} ORDER BY {keys}")
    decided: Mapping[PrimaryKey, Value] = outcome.assignments[table.name, variables[0].name]
    return [(f"{table.name}({', '.join(map(str, key))})", decided[key]) for key in found]


def _attribute(database: Database, by: tuple[str, str], value: Value) -> Value:
    """A column of the row that was chosen."""
    table = database.schema.table(by[0])
    try:
        column = table.column(by[1])
    except KeyError:
        raise UnknownColumnError(
            f"no column {by[1]!r} in table {table.name!r}",
            hint=f"it has {', '.join(each.name for each in table.columns)}",
        ) from None
    if len(table.primary_key) != 1:
        raise DataError(
            f"BY needs a table with a key of one column; {table.name!r} has none",
            hint="compare the chosen values themselves: leave BY out",
        )
    sql = f"SELECT {quote(column.name)} FROM {quote(table.name)} WHERE {quote(table.primary_key[0])} = ?"
    rows = database.execute(sql, (value,))
    found: Value = rows[0][0] if rows else None
    return found


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _key(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value


def _shown(value: Value) -> str:
    return "NULL" if value is None else str(value)


def _some(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - _MOST_SHOWN} more" if len(parts) > _MOST_SHOWN else ""
    return "; ".join(parts[:_MOST_SHOWN]) + more
