"""The stages of the compiler as values to be printed: what is bound, what the database computes, what is to solve."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sqlglot import exp

from mgmt.compiler.encoding.encoder import Encoder, Encoding
from mgmt.compiler.model import Model
from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.compiler.relational.split import SplitQuery
from mgmt.compiler.time_limits import phase
from mgmt.errors import InfeasibleError, PolicyError, SolveTimeout
from mgmt.explaining.policies.slow_policies import SlowPart, slow_parts
from mgmt.language.bound_queries.expressions import DatabasePart, has_variable
from mgmt.language.bound_queries.queries import PushedView, UnionView
from mgmt.optimization.columns import Integers, integers
from mgmt.optimization.problem import LinearRows, Problem, Relation, Rows
from mgmt.solution import Delta
from mgmt.source_text import Position


@dataclass(frozen=True, slots=True)
class ColumnStage:
    """A column of what a query selects.  ``decided``: by the solver, as a value for each row."""

    name: str
    type: str
    decided: bool


@dataclass(frozen=True, slots=True)
class QueryStage:
    """One view, constraint or objective on its way.

    ``database_sql`` is what the database computes, ``solver_sql`` what is left: predicates, then the demand.
    ``columns`` have the types they were bound to.  ``rows`` are those it is demanded of; ``clauses``, ``cardinalities``
    and ``linear_rows`` what that became, over so many ``literals`` of the solver.
    """

    name: str
    kind: str
    position: Position
    tier: int | None
    database_sql: str
    groups: tuple[str, ...] | None
    solver_sql: tuple[str, ...]
    road: str = ""
    """Whether it can be solved in whole columns, or why not; empty for views."""
    fetched_rows: int | None = None
    rows: int | None = None
    clauses: int = 0
    cardinalities: int = 0
    linear_rows: int = 0
    seconds: float = 0.0
    literals: int = 0
    columns: tuple[ColumnStage, ...] = ()
    asks_for_the_time: bool = False
    """Itself; what reads such a view depends on the time, too."""


@dataclass(frozen=True, slots=True)
class ProblemStage:
    """The solver-neutral model, cell by cell."""

    decisions: int
    variables: int
    clauses: int
    cardinalities: int
    linear_rows: int
    operations: int
    encode_seconds: float


@dataclass(frozen=True, slots=True)
class SolveStage:
    """What solved it and what came out."""

    status: str
    backend: str
    seconds: float
    statistics: dict[str, object] = field(default_factory=dict)
    deltas: tuple[Delta, ...] = ()
    reason: str = ""
    """Why nothing came out."""


@dataclass(frozen=True, slots=True)
class CompilationReport:
    """All stages of one model over its present state."""

    queries: tuple[QueryStage, ...]
    problem: ProblemStage | None
    refused: str
    """Why there is no model cell by cell; empty when there is one."""
    solve: SolveStage | None
    slow: tuple[SlowPart, ...] = ()
    """What is solved cell by cell."""


def report_compilation(
    model: Model, *, solve: bool = True, budget: float = 2.0, seed: int = 0
) -> CompilationReport:
    """Look at every stage; with ``solve`` also at the answer, within ``budget`` seconds."""
    model = model.at()
    encoding: Encoding | None = None
    demands: dict[str, Counter[str]] = {}
    literals: dict[str, int] = {}
    refused = ""
    started = time.perf_counter()
    with model.database.snapshot() as snapshot:
        cell_by_cell = model.cell_by_cell(snapshot)
        try:
            with phase(snapshot, budget), snapshot.scratch():
                encoded = Encoder(snapshot).encode(model.program, model.catalog)
                demands, literals = _demands(encoded.problem), _literals(encoded.problem)
                encoding = encoded
        except PolicyError as error:
            refused = str(error)
    spent = time.perf_counter() - started
    solved = _solve_stage(model, budget, seed) if solve else None
    late = () if solved is None else solved.statistics.get("cell_by_cell", ())
    for why in late if isinstance(late, tuple) else ():
        if why not in cell_by_cell.values():  # no engine was found for what the columns turned out to be
            cell_by_cell = {part: str(why) for part in model.partition.parts}
    slow = tuple(slow_parts(cell_by_cell))
    formulations = _formulations(model, slow)
    timely = {result.name for result in model.asking_for_the_time}
    return CompilationReport(
        tuple(
            replace(
                _query_stage(
                    step, encoding, demands.get(step.name, Counter()), formulations.get(step.name, "")
                ),
                columns=_columns(model, step),
                literals=literals.get(step.name, 0),
                asks_for_the_time=step.name in timely,
            )
            for step in model.program
        ),
        _problem_stage(encoding, spent) if encoding is not None else None,
        refused,
        solved,
        slow,
    )


def _query_stage(
    step: PushedView | SplitQuery, encoding: Encoding | None, demands: Counter[str], road: str
) -> QueryStage:
    if isinstance(step, PushedView):
        kind = "union" if isinstance(step, UnionView) else "view of the database"
        return QueryStage(step.name, kind, step.position, None, pushed_sql(step), None, ())
    bound, demand = step.bound, step.bound.demand
    left = [text(predicate.tree) for predicate in bound.predicates if predicate.by_solver]
    if bound.having is not None:
        left.append(f"HAVING {text(bound.having.tree)}")
    kind, tier = "view", None
    if demand is None:
        left.extend(
            f"{output.name}: {text(output.tree.unalias())}"
            for output in bound.outputs
            if not isinstance(output.expression, DatabasePart)
        )
    else:
        kind = str(demand.tail.kind) if not demand.tail.soft else "soft check"
        tier = demand.tail.tier if demand.is_objective else None
        left.append(f"{kind.upper()} {text(demand.tree)}")
    figures = encoding.steps.get(step.name) if encoding is not None else None
    rows = encoding.rows.get(step.name) if encoding is not None else None
    return QueryStage(
        step.name,
        kind,
        bound.position,
        tier,
        step.sql,
        None if bound.keys is None else tuple(text(key.tree) for key in bound.keys),
        tuple(left),
        road,
        None if figures is None else figures.fetched_rows,
        None if rows is None else len(rows),
        demands["clauses"],
        demands["cardinalities"],
        demands["linear rows"],
        0.0 if figures is None else figures.seconds,
    )


def _columns(model: Model, step: PushedView | SplitQuery) -> tuple[ColumnStage, ...]:
    """What a view passes on, or what a constraint selects."""
    relation = model.catalog.find(step.name)
    if relation is not None:
        return tuple(ColumnStage(column.name, column.type, column.symbolic) for column in relation.columns)
    outputs = step.bound.outputs if isinstance(step, SplitQuery) else ()
    return tuple(
        ColumnStage(output.name, output.expression.type, has_variable(output.expression))
        for output in outputs
    )


def _formulations(model: Model, slow: Sequence[SlowPart]) -> dict[str, str]:
    """Per constraint and objective, how it is solved."""
    found = {each.demand.name: "a constant: it holds or does not" for each in model.partition.constants}
    for part in model.partition.parts:
        columns = ", ".join(f"{table}.{column}" for table, column in sorted(part.columns))
        flag = " and a flag" if part.flagged is not None else ""
        for each in part.formulations:
            nothing = "" if each.shapes else f" while it has no rows ({each.why})"
            found[each.demand.name] = f"in whole columns{nothing}: choices of {columns}{flag}"
    for one in slow:
        found.update((name, f"cell by cell: {one.reason}") for name, _ in one.statements)
        because = ", ".join(name for name, _ in one.statements)
        found.update((name, f"cell by cell, because of {because}") for name in one.others)
    return found


def text(tree: exp.Expr) -> str:
    """A tree as policies are written."""
    written: str = tree.sql(dialect="postgres", comments=False)
    return written


def _demands(problem: Problem) -> dict[str, Counter[str]]:
    """Per constraint, what its rows became."""
    found: dict[str, Counter[str]] = {}
    for block in problem.rows:
        if block.source is not None:
            found.setdefault(block.source.constraint, Counter())[_kind(block)] += len(block.enforcement)
    return found


def _kind(block: Rows) -> str:
    if isinstance(block, LinearRows):
        return "linear rows"
    return "clauses" if block.relation is Relation.AT_LEAST_ONE else "cardinalities"


def _literals(problem: Problem) -> dict[str, int]:
    """Per constraint and objective, of how many truths (variables of 0 and 1) it speaks; whole numbers aside."""
    found: dict[str, list[Integers]] = {}
    for block in problem.rows:
        if block.source is not None:
            terms = block.linears.terms.items if isinstance(block, LinearRows) else block.literals.items >> 1
            found.setdefault(block.source.constraint, []).append(terms)
    for objective in problem.objectives:
        found.setdefault(objective.name, []).append(integers(objective.linear.variables))
    truths = (problem.lower == 0) & (problem.upper == 1)
    return {name: int(truths[np.unique(np.concatenate(some))].sum()) for name, some in found.items()}


def _problem_stage(encoding: Encoding, seconds: float) -> ProblemStage:
    problem = encoding.problem
    counts: Counter[str] = Counter()
    for block in problem.rows:
        counts[_kind(block)] += len(block.enforcement)
    defined = sum(len(block.literals.items) + len(block.targets) for block in problem.conjunctions)
    return ProblemStage(
        sum(map(len, encoding.columns)),
        problem.variables - 1,
        counts["clauses"] + defined,
        counts["cardinalities"],
        counts["linear rows"],
        sum(len(block.targets) for block in problem.operations),
        seconds,
    )


def _solve_stage(model: Model, budget: float, seed: int) -> SolveStage:
    started = time.perf_counter()
    try:
        solution = model.solve(budget, seed)
    except InfeasibleError as error:
        spent = time.perf_counter() - started
        return SolveStage("infeasible", "", spent, {"core": list(error.constraints)})
    except SolveTimeout as error:
        return SolveStage("timeout", "", time.perf_counter() - started, reason=error.message)
    statistics = dict(solution.statistics)
    backend = str(statistics.pop("backend", ""))
    return SolveStage(str(solution.status), backend, solution.seconds, statistics, solution.deltas)
