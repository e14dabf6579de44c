"""Helpers of the policy compiler's tests: small databases, and a brute-force twin of the solver.

The twin enumerates every assignment, asks plain SQL (the oracle) which are allowed and what they are worth,
and takes the lexicographic best.  It shares nothing with the encoder and the backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product, tee

from mgmt.compiler.model import Model
from mgmt.compiler.relational.split import SplitQuery
from mgmt.compiler.verification.oracle import Verdict
from mgmt.language.bound_queries.queries import Demand
from mgmt.language.names.catalog import domain_sql
from mgmt.solution import PrimaryKey, Solution, Value
from mgmt.state.database import Database

UNHURRIED = 3600.0
"""Seconds: so far away that an answer depends on the seed alone, however little of the machine a test gets."""

Assignments = dict[tuple[str, str], dict[PrimaryKey, Value]]


class Backend:
    """The kind of database that ``database`` makes: what the fixture ``each_database`` says, else DuckDB."""

    def __init__(self) -> None:
        self.address: Callable[[], str] = lambda: ":memory:"
        self.opened: list[Database] = []

    def open(self, address: str | None = None) -> Database:
        """A new database, or a further client of one."""
        self.opened.append(Database(self.address() if address is None else address))
        return self.opened[-1]

    def close(self) -> None:
        """Close all that were opened."""
        while self.opened:
            self.opened.pop().close()


BACKEND = Backend()


def database(schema: str, rows: Mapping[str, list[dict[str, Value]]] | None = None) -> Database:
    """A database of its own with these rows."""
    made = BACKEND.open()
    made.load_schema(schema)
    for table, contents in (rows or {}).items():
        made.insert(table, contents)
    return made


def solve(schema: str, rows: Mapping[str, list[dict[str, Value]]], policies: str) -> Solution:
    """Build and solve in one go."""
    return Model.build(database(schema, rows), policies).solve(budget=20)


def brute_force(model: Model, state: Database) -> tuple[tuple[int, ...], Assignments] | None:
    """The best value per tier (to minimise) and one assignment that has it; None when nothing is allowed."""
    best: tuple[tuple[int, ...], Assignments] | None = None
    tiers = sorted({d.tail.tier for d in objectives_of(model).values()})
    with state.snapshot() as snapshot:
        # Written out one by one, so that each is judged when its turn comes.
        candidates, judged = tee(assignments(model, state))
        for assignment, verdict in zip(candidates, model.oracle.examine_each(snapshot, judged), strict=True):
            if verdict.violations:
                continue
            value = tuple(tier_value(model, verdict, tier) for tier in tiers)
            if best is None or value < best[0]:
                best = (value, assignment)
    return best


def objectives_of(model: Model) -> dict[str, Demand]:
    """The objectives' demands by name."""
    demands = {step.name: step.bound.demand for step in model.program if isinstance(step, SplitQuery)}
    return {name: demand for name, demand in demands.items() if demand is not None and demand.is_objective}


def tier_value(model: Model, verdict: Verdict, tier: int) -> int:
    total = 0
    for name, demand in objectives_of(model).items():
        if demand.tail.tier == tier:
            sign = -1 if demand.maximize else 1
            total += sign * demand.tail.weight * verdict.objectives[name]
    return total


def solution_value(model: Model, solution: Solution) -> tuple[int, ...]:
    tiers: dict[int, int] = {}
    for objective in solution.objectives:
        sign = -1 if objective.sense == "maximize" else 1
        tiers[objective.tier] = tiers.get(objective.tier, 0) + sign * objective.weight * objective.after
    return tuple(tiers[tier] for tier in sorted(tiers))


def assignments(model: Model, state: Database) -> Iterator[Assignments]:
    """Every assignment of every variable cell."""
    cells: list[tuple[str, str, PrimaryKey]] = []
    options: list[list[Value]] = []
    with state.snapshot() as snapshot:
        for table in state.schema.tables:
            key = ", ".join(f'"{name}"' for name in table.primary_key)
            for column in table.variables:
                values = [v for (v,) in snapshot.rows(domain_sql(model.catalog, table.name, column.name))]
                if column.nullable:
                    values.append(None)
                for row in snapshot.rows(f'SELECT {key} FROM "{table.name}" ORDER BY {key}'):
                    cells.append((table.name, column.name, tuple(row)))
                    options.append(values)
    for values_of_cells in product(*options):
        found: Assignments = {(t.name, c.name): {} for t in state.schema.tables for c in t.variables}
        for (table_name, column_name, row_key), value in zip(cells, values_of_cells, strict=True):
            found[table_name, column_name][row_key] = value
        yield found
