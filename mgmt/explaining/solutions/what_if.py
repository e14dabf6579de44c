"""What if the state were different: the change is made to a private copy, which is solved and forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from mgmt.compiler.model import Model
from mgmt.errors import DataError, InfeasibleError, PolicySyntaxError
from mgmt.explaining.policies.policy_files import statements_of
from mgmt.explaining.solutions.difference import Difference, diff
from mgmt.explaining.solutions.nearest import Row, Tell, decided_anew, nearest, worth
from mgmt.explaining.solutions.why import FIRST_SHARE, quiet
from mgmt.optimization.deadline import Deadline
from mgmt.solution import Solution, SolveStatus, Value
from mgmt.source_text import SourceText
from mgmt.state.database import Database
from mgmt.state.duckdb_access.engine import RefusedStatementError
from mgmt.state.schema import Table, quote

_SHARE_FOR_BOTH = 0.3
"""Of the time, where the first plan is not proven: to tell consequences of a change from what is better anyway."""
_HINT = "give INSERT, UPDATE or DELETE statements"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The best solutions as things are and as they would be; an error where there is none."""

    before: Solution | InfeasibleError
    after: Solution | InfeasibleError
    then: Model = field(repr=False)
    """The model over the state as it would be."""

    @property
    def difference(self) -> Difference | None:
        """What would change; None unless both can be solved."""
        if isinstance(self.before, InfeasibleError) or isinstance(self.after, InfeasibleError):
            return None
        return diff(self.before, self.after)

    def __str__(self) -> str:
        if isinstance(self.after, InfeasibleError):
            return f"then no placement satisfies {', '.join(map(str, self.after.core))}"
        difference = self.difference
        if difference is None:
            return "then there is a placement; as things are there is none"
        if not difference:
            return "nothing would change"
        number = len(difference.decisions)
        changed = {0: "nothing else changes", 1: "1 value changes"}.get(number, f"{number} values change")
        return f"it {difference.cost}; {changed}"


def what_if(model: Model, sql: str, *, budget: float = 2.0, seed: int = 0, tell: Tell = quiet) -> WhatIf:
    """Solve the present state, and again after running ``sql`` (one or more statements) on a private copy of it.

    Of solutions that are as good as the best then, one near that of the present state is taken.  Both take ``budget``
    seconds at most.  Raises PolicySyntaxError or DataError when the copy refuses the statements, or one is about more
    than rows; SolveTimeout.
    """
    before = model.database.clone()
    after = _changed_copy(before, sql)
    deadline = Deadline.after(budget, model.clock)

    def solved(solve: Callable[[], Solution]) -> Solution | InfeasibleError:
        try:
            return solve()
        except InfeasibleError as error:
            tell("looking for what would help")
            error.relaxations_within(deadline.left)
            return error

    now, then = model.revised(database=before), model.revised(database=after)
    tell("looking for the best plan as things are")
    plan = solved(lambda: now.solve(FIRST_SHARE * budget, seed))
    tell("looking for the best plan as things would be")
    if isinstance(plan, InfeasibleError):
        found = solved(lambda: then.solve(max(1.0, deadline.left), seed))
        return WhatIf(plan, found, then)
    changed = {table.name: _changed(before, after, table) for table in after.schema.tables}
    if not any(changed.values()):
        return WhatIf(plan, plan, then)
    touched = _touched(after, changed, plan)

    is_proven = plan.status is not SolveStatus.FEASIBLE
    end = deadline if is_proven else deadline.part(1 - _SHARE_FOR_BOTH)

    def near() -> Solution:
        return nearest(then, plan, touched, bounded=False, deadline=end, seed=seed, tell=tell)

    found = solved(near)
    if not is_proven and isinstance(found, Solution):
        return WhatIf(*_on_equal_terms(now, then, plan, found, deadline, seed), then)
    return WhatIf(plan, found, then)


def _on_equal_terms(
    now: Model, then: Model, plan: Solution, found: Solution, deadline: Deadline, seed: int
) -> tuple[Solution, Solution]:
    """A plan that is not proven, and what was found near it, without what is better in either state.

    The rows that changed are decided anew as things are, too: moves that gain as much there are no consequences.
    """
    rows = {(each.decision.table, each.decision.primary_key) for each in diff(plan, found).decisions}
    better = decided_anew(now, plan, rows, deadline=deadline.part(1 / 2), seed=seed)
    if better is None or worth(better) >= worth(plan):
        return plan, found
    again = decided_anew(then, better, rows, deadline=deadline, seed=seed)
    return better, found if again is None or worth(again) > worth(found) else again


def _changed_copy(state: Database, sql: str) -> Database:
    """A private copy of a state after statements about rows.  Raises PolicySyntaxError and DataError."""
    statements = statements_of(SourceText("what-if", sql))
    if not statements:
        raise DataError("there is nothing to try", hint=_HINT)
    for statement in statements:
        if not statement.is_rows:
            what = " ".join(statement.words[:1]) or "this"
            raise DataError(f"{what} is not tried: only rows may be other than they are", hint=_HINT)
    after = state.clone()
    for statement in statements:
        try:
            after.execute(statement.text)
        except RefusedStatementError as error:
            tables = ", ".join(sorted(table.name for table in state.schema.tables))
            raise PolicySyntaxError(error.message, hint=f"the tables are {tables}") from error
    return after


def _touched(
    after: Database, keys: Mapping[str, Collection[tuple[Value, ...]]], plan: Solution
) -> Collection[Row]:
    """The rows to be placed that are others, and those that are placed at, or refer to, rows that are."""
    schema = after.schema
    found: set[Row] = set()
    for table in schema.tables:
        if not table.variables:
            continue
        found.update((table.name, key) for key in keys[table.name] if key)
        for column in table.columns:
            if column.references is None:
                continue
            names = {key[0] for key in keys[schema.table(column.references[0]).name] if len(key) == 1}
            if column.is_variable:
                cells = plan.assignments[table.name, column.name].items()
                found.update((table.name, key) for key, value in cells if value in names)
            elif names:
                listed = ", ".join(map(quote, (*table.primary_key, column.name)))
                rows = after.execute(f"SELECT {listed} FROM {quote(table.name)}")
                found.update((table.name, row[:-1]) for row in rows if row[-1] in names)
    return found


def _changed(before: Database, after: Database, table: Table) -> set[tuple[Value, ...]]:
    """The keys of the rows of a table that only one has, or that differ; empty ones of a table without a key.

    What a variable column holds is today's value at most, of which no demand can speak.
    """
    names = [*table.primary_key, *(column.name for column in table.columns if not column.is_variable)]
    sql = f"SELECT {', '.join([*map(quote, names), '1'])} FROM {quote(table.name)}"
    one, other = Counter(before.execute(sql)), Counter(after.execute(sql))
    return {row[: len(table.primary_key)] for row in (*(one - other), *(other - one))}
