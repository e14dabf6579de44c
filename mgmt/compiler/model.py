"""A model: policies compiled against a schema, solved as often as the state changes.

    model = mgmt.Model.build(database, policies)   # parse, bind, split; errors carry line and column
    solution = model.solve(budget=2.0)             # snapshot, encode, optimise, verify
    database.apply(solution)                       # compare-and-set on the snapshot's version

The stages are modules of their own (``mgmt.language.syntax`` and ``query``; ``split``, ``encoder`` and ``oracle``
here; ``mgmt.optimization.optimize``); this one only runs them in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import apsw

from mgmt.compiler.columns import Choice
from mgmt.compiler.encoder import Encoder, Encoding
from mgmt.compiler.oracle import Oracle, Verdict
from mgmt.compiler.split import SplitQuery, split
from mgmt.errors import NoConstraintsError, PolicySyntaxError, UnknownFunctionError, VerificationError
from mgmt.language.bound import BoundQuery, PushedView
from mgmt.language.catalog import Catalog
from mgmt.language.policies import PolicyPack
from mgmt.language.query import QueryBinder
from mgmt.language.syntax import parse_statements
from mgmt.optimization.backends import Backend
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.infeasible import explain
from mgmt.optimization.optimize import Optimum, TierResult, optimize, tier_objectives, value_of
from mgmt.solution import Delta, ObjectiveValue, PrimaryKey, Solution, SolveStatus, Value
from mgmt.source import Position, SourceText
from mgmt.state.database import Database, Snapshot
from mgmt.state.schema import Schema, create_statements

# A text, a named text (also as a pair of name and text), a pack, or several of them.
Policy: TypeAlias = str | tuple[str, str] | SourceText | PolicyPack
# (table, variable column) -> primary key -> value
Assignments: TypeAlias = dict[tuple[str, str], dict[PrimaryKey, Value]]


@dataclass(frozen=True, slots=True)
class _Current:
    """The state as it stands: its values, whether they are complete, and what the oracle says of them."""

    assignments: Assignments
    complete: bool
    verdict: Verdict | None


class Model:
    """Compiled policies over one database.  Use :meth:`build`.

    The stages can be looked at: ``catalog`` (names and types), ``program`` (what the database computes and
    what is left to the solver, per query), ``oracle`` (the SQL that checks a solution).
    """

    def __init__(
        self,
        database: Database,
        texts: tuple[SourceText, ...],
        catalog: Catalog,
        results: tuple[PushedView | BoundQuery, ...],
        backend: Backend,
    ) -> None:
        self._database = database
        self._texts = texts
        self.catalog = catalog
        self.program = tuple(
            split(result) if isinstance(result, BoundQuery) else result for result in results
        )
        self._positions = {result.name: result.position for result in results}
        self.oracle = Oracle(results, catalog)
        self._backend = backend

    @classmethod
    def build(
        cls, database: Database, policies: Policy | Iterable[Policy], *, backend: Backend | None = None
    ) -> Model:
        """Compile policies against the database's schema.

        Raises a PolicyError with line and column for the first mistake, NoConstraintsError when there is
        nothing to solve.
        """
        texts = _texts(policies)
        catalog = Catalog(database.schema)
        binder = QueryBinder(catalog, _functions())
        for text in texts:
            for statement in parse_statements(text):
                with _deep_nesting_refused(statement.position):
                    binder.bind(statement)
        if not any(isinstance(result, BoundQuery) and result.demand is not None for result in binder.results):
            raise NoConstraintsError(
                "the policies demand nothing", hint="add CREATE CONSTRAINT ... AS SELECT ... CHECK ..."
            )
        with _deep_nesting_refused(texts[0].position(0)):
            model = cls(database, texts, catalog, tuple(binder.results), backend or CpSatBackend())
            model._rehearse()
        return model

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the constraints and objectives, in order."""
        return tuple(
            step.name
            for step in self.program
            if isinstance(step, SplitQuery) and step.bound.demand is not None
        )

    def solve(self, budget: float = 2.0, seed: int = 0, *, workers: int = 1) -> Solution:
        """Solve the present state within ``budget`` seconds.

        The answer depends on the state and the seed alone as long as the budget is not exhausted.  Raises
        InfeasibleError (with the names of the clashing constraints), SolveTimeout, DataError and its like for
        unusable rows, VerificationError if the database disagrees with the solver.
        """
        started = time.perf_counter()
        with self._database.snapshot() as snapshot:
            with snapshot.scratch():
                encoding = Encoder(snapshot).encode(self.program, self.catalog)
            encoded = time.perf_counter()
            current = self._current(snapshot, encoding)
            optimum = self._settled(encoding, current)
            if optimum is None:
                optimum = optimize(
                    encoding.problem,
                    self._backend,
                    _hint(encoding),
                    choices=[cell.cell.literals for cell in encoding.cells if isinstance(cell.cell, Choice)],
                    budget=max(0.0, budget - (encoded - started)),
                    seed=seed,
                    workers=workers,
                )
                if optimum.values is None:
                    raise explain(
                        encoding.problem,
                        self._backend,
                        self._positions,
                        encoding.rows,
                        budget=max(1.0, budget),
                        seed=seed,
                    )
                assignments = _decode(encoding, optimum, snapshot.schema)
            else:
                assignments = current.assignments
            solved = time.perf_counter()
            verdict = self._verify(snapshot, encoding, assignments, optimum, seed)
        finished = time.perf_counter()
        statistics = {
            "backend": self._backend.name if optimum.solver_calls else "none: the state meets every bound",
            "solver_calls": optimum.solver_calls,
            "variables": len(encoding.problem.lower) - 1,
            "candidate_rows": encoding.fetched_rows,
            "encode_seconds": encoded - started,
            "solve_seconds": solved - encoded,
            "verify_seconds": finished - solved,
            "tier_seconds": {result.tier: round(result.seconds, 3) for result in optimum.tiers},
        }
        return _solution(
            snapshot.version, encoding, assignments, optimum, current, verdict, finished - started, statistics
        )

    # ---- parts --------------------------------------------------------------------------------------

    def _rehearse(self) -> None:
        """Run every statement once over empty tables, so that the database's complaints come at build."""
        empty = apsw.Connection(":memory:")
        schema = self.catalog.schema
        for table in schema.tables:
            empty.execute(create_statements(table))
        with Snapshot(empty, schema, 0) as snapshot:
            for number, step in enumerate(self.program):
                with _database_refusals(step.name, _position(step)), snapshot.scratch():
                    Encoder(snapshot).encode(self.program[: number + 1], self.catalog)
            last = self.program[-1]
            with _database_refusals("checking solutions", _position(last)):
                self.oracle.examine(snapshot, _no_assignments(schema))

    def _current(self, snapshot: Snapshot, encoding: Encoding) -> _Current:
        assignments = _no_assignments(snapshot.schema)
        complete = True
        for cell in encoding.cells:
            assignments[cell.table.name, cell.column.name][cell.primary_key] = cell.current
            complete = complete and (cell.current is not None or cell.column.nullable)
        verdict = self.oracle.examine(snapshot, assignments) if complete else None
        return _Current(assignments, complete, verdict)

    def _settled(self, encoding: Encoding, current: _Current) -> Optimum | None:
        """The state as it stands, if it breaks nothing and meets a bound that nothing can beat."""
        if current.verdict is None or current.verdict.violations:
            return None
        problem = encoding.problem
        values = dict.fromkeys(tier_objectives(problem), 0)
        for objective in problem.objectives:
            sign = -1 if objective.maximize else 1
            values[objective.tier] += sign * objective.weight * current.verdict.objectives[objective.name]
        settled = problem.fixed()
        results = []
        for tier, linear in tier_objectives(problem).items():
            if values[tier] != problem.lower_bound(linear, settled):
                return None
            results.append(TierResult(tier, values[tier], values[tier], True))
        return Optimum((), tuple(results), 0)

    def _verify(
        self,
        snapshot: Snapshot,
        encoding: Encoding,
        assignments: Assignments,
        optimum: Optimum,
        seed: int,
    ) -> Verdict:
        verdict = self.oracle.examine(snapshot, assignments)
        complaints = list(verdict.violations)
        if optimum.values:
            for objective in encoding.problem.objectives:
                claimed = value_of(objective.linear, optimum.values)
                found = verdict.objectives[objective.name]
                if claimed != found:
                    complaints.append(f"{objective.name}: the solver says {claimed}, the database {found}")
        if complaints:
            raise VerificationError(
                f"the database rejects the solution: {'; '.join(complaints)}",
                bundle={
                    "database": snapshot.dump(),
                    "policies": tuple((text.name, text.text) for text in self._texts),
                    "seed": seed,
                    "assignments": {
                        f"{table}.{column}": dict(values) for (table, column), values in assignments.items()
                    },
                },
            )
        return verdict


@contextmanager
def _deep_nesting_refused(position: Position) -> Iterator[None]:
    """Trees are walked recursively; a long chain of operators can be too deep although it has no parentheses."""
    try:
        yield
    except RecursionError as error:
        raise PolicySyntaxError(
            "the expression is nested too deeply", position=position, hint="split it into views"
        ) from error


@contextmanager
def _database_refusals(what: str, position: Position) -> Iterator[None]:
    try:
        yield
    except apsw.SQLError as error:
        kind = UnknownFunctionError if "no such function" in str(error) else PolicySyntaxError
        raise kind(f"{what}: the database refuses it: {error}", position=position) from error


def _texts(policies: Policy | Iterable[Policy]) -> tuple[SourceText, ...]:
    items: list[Policy]
    if isinstance(policies, (str, SourceText, PolicyPack)):
        items = [policies]
    else:
        items = [item for item in policies if isinstance(item, (str, tuple, SourceText, PolicyPack))]
    texts: list[SourceText] = []
    for item in items:
        if isinstance(item, PolicyPack):
            texts.extend(item.policies)
        elif isinstance(item, SourceText):
            texts.append(item)
        elif isinstance(item, tuple):
            texts.append(SourceText(*item))
        else:
            texts.append(SourceText("policy" if len(items) == 1 else f"policy {len(texts) + 1}", item))
    return tuple(texts)


def _functions() -> frozenset[str]:
    connection = apsw.Connection(":memory:")
    return frozenset(name.lower() for (name,) in connection.execute("SELECT name FROM pragma_function_list"))


def _position(step: PushedView | SplitQuery) -> Position:
    return step.bound.position if isinstance(step, SplitQuery) else step.position


def _hint(encoding: Encoding) -> dict[int, int]:
    """Today's values for the solver to start from."""
    hint: dict[int, int] = {}
    for cell in encoding.cells:
        if cell.current is None and not cell.column.nullable:
            continue
        for literal, holds in cell.literals(cell.current):
            variable, negated = divmod(literal, 2)
            if variable:
                hint[variable] = int(holds != bool(negated))
    return hint


def _no_assignments(schema: Schema) -> Assignments:
    return {(table.name, column.name): {} for table in schema.tables for column in table.variables}


def _decode(encoding: Encoding, optimum: Optimum, schema: Schema) -> Assignments:
    assert optimum.values is not None
    holds = [bool(value) for value in optimum.values]
    assignments = _no_assignments(schema)
    for cell in encoding.cells:
        assignments[cell.table.name, cell.column.name][cell.primary_key] = cell.decode(holds)
    return assignments


def _solution(
    version: int,
    encoding: Encoding,
    assignments: Assignments,
    optimum: Optimum,
    current: _Current,
    verdict: Verdict,
    seconds: float,
    statistics: Mapping[str, object],
) -> Solution:
    deltas = []
    for cell in encoding.cells:
        new = assignments[cell.table.name, cell.column.name][cell.primary_key]
        if new != cell.current:
            column = cell.column.current or cell.column.name
            deltas.append(
                Delta(cell.table.name, cell.primary_key, column, cell.current, new, cell.column.name)
            )
    unproven = [tier for tier in optimum.tiers if not tier.proven]
    if unproven:
        status = SolveStatus.FEASIBLE
    else:
        status = SolveStatus.OPTIMAL if deltas else SolveStatus.UNCHANGED
    gap = abs(unproven[0].value - unproven[0].bound) / max(1, abs(unproven[0].value)) if unproven else 0.0
    return Solution(
        status,
        version,
        tuple(deltas),
        _objective_values(encoding, optimum, current, verdict),
        assignments,
        gap,
        seconds,
        statistics,
    )


def _objective_values(
    encoding: Encoding, optimum: Optimum, current: _Current, verdict: Verdict
) -> tuple[ObjectiveValue, ...]:
    tiers = {result.tier: result for result in optimum.tiers}
    objectives = encoding.problem.objectives
    found = []
    for objective in sorted(objectives, key=lambda objective: objective.tier):
        result = tiers[objective.tier]
        alone = sum(other.tier == objective.tier for other in objectives) == 1
        sign = -1 if objective.maximize else 1
        found.append(
            ObjectiveValue(
                objective.name,
                "maximize" if objective.maximize else "minimize",
                objective.tier,
                objective.weight,
                current.verdict.objectives[objective.name] if current.verdict else None,
                verdict.objectives[objective.name],
                sign * result.bound // objective.weight if alone else None,
                result.proven,
            )
        )
    return tuple(found)
