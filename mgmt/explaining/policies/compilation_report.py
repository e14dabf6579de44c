"""The stages of the compiler as values to be printed: what is bound, what the database computes, what is to solve."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from sqlglot import exp

from mgmt.compiler.encoding.encoder import Encoding
from mgmt.compiler.model import Model
from mgmt.compiler.parts.encoded_part import EncodedPart
from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.compiler.relational.split import SplitQuery
from mgmt.compiler.time_limits import phase
from mgmt.errors import InfeasibleError, OverflowError, PolicyError, SolveTimeout  # noqa: A004 - the published name
from mgmt.language.bound_queries.expressions import DatabasePart, has_variable
from mgmt.language.bound_queries.queries import PushedView, UnionView
from mgmt.optimization.columns import Integers, integers
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.lifting import lift, structures_of
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
    and ``linear_rows`` what that became, over so many ``literals`` of the solver.  ``lifted``: what the engines for
    assignments see in them; ``left_out``: why the solver is asked as well, and about what.
    """

    name: str
    kind: str
    position: Position
    tier: int | None
    database_sql: str
    groups: tuple[str, ...] | None
    solver_sql: tuple[str, ...]
    lifted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
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
    """The solver-neutral model, with a truth for each row and value."""

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
    """Why there is no model for the solver; empty when there is one."""
    solve: SolveStage | None


def report_compilation(
    model: Model, *, solve: bool = True, budget: float = 2.0, seed: int = 0
) -> CompilationReport:
    """Look at every stage; with ``solve`` also at the answer, within ``budget`` seconds."""
    model = model.at()
    found = _Matrix()
    refused = ""
    started = time.perf_counter()
    with model.database.snapshot() as snapshot:
        try:
            with phase(snapshot, budget):
                deadline = Deadline.after(budget, model.clock)
                for part in model.encoded(snapshot):
                    found.add(part, deadline)
        except PolicyError as error:
            refused = str(error)
    spent = time.perf_counter() - started
    for each in model.partition.constants:
        found.lifted[each.demand.name] = ("a constant, which holds or does not",)
    solved = _solve_stage(model, budget, seed) if solve else None
    timely = {result.name for result in model.asking_for_the_time}
    return CompilationReport(
        tuple(
            replace(
                _query_stage(step, found),
                columns=_columns(model, step),
                asks_for_the_time=step.name in timely,
            )
            for step in model.program
        ),
        None if refused else _problem_stage(found, spent),
        refused,
        solved,
    )


@dataclass(slots=True)
class _Matrix:
    """What the parts of a model became, by the names of constraints, objectives and views."""

    encodings: list[Encoding] = field(default_factory=list)
    demands: dict[str, Counter[str]] = field(default_factory=dict)
    literals: dict[str, int] = field(default_factory=dict)
    lifted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, part: EncodedPart, deadline: Deadline) -> None:
        encoding = part.encoding
        self.encodings.append(encoding)
        names = [name for name in encoding.rows if name]
        if part.cells is None:
            self.left_out.update((name, (part.unasked,)) for name in names)
        else:
            try:
                lifted = lift(encoding.factored, part.cells, deadline)
            except OverflowError as error:
                self.left_out.update((name, (str(error),)) for name in names)
            except TimeoutError:
                self.left_out.update((name, ("the time ended while it was lifted",)) for name in names)
            else:
                same = ("nothing: it is the same whatever is chosen",)
                self.lifted.update(dict.fromkeys({*names} - {each.name for each in lifted.left_out}, same))
                self.lifted.update(structures_of(lifted))
                for each in lifted.left_out:
                    known = self.left_out.get(each.name, ())
                    self.left_out[each.name] = (*known, *({each.why} - set(known)))
        self.demands.update(_demands(encoding.problem))
        self.literals.update(_literals(encoding.problem))


def _query_stage(step: PushedView | SplitQuery, found: _Matrix) -> QueryStage:
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
    figures = next((each.steps[step.name] for each in found.encodings if step.name in each.steps), None)
    rows = next((each.rows[step.name] for each in found.encodings if step.name in each.rows), None)
    counts = found.demands.get(step.name, Counter())
    return QueryStage(
        step.name,
        kind,
        bound.position,
        tier,
        step.sql,
        None if bound.keys is None else tuple(text(key.tree) for key in bound.keys),
        tuple(left),
        found.lifted.get(step.name, ()),
        found.left_out.get(step.name, ()),
        None if figures is None else figures.fetched_rows,
        None if rows is None else len(rows),
        counts["clauses"],
        counts["cardinalities"],
        counts["linear rows"],
        0.0 if figures is None else figures.seconds,
        found.literals.get(step.name, 0),
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


def _problem_stage(found: _Matrix, seconds: float) -> ProblemStage:
    problems = [encoding.problem for encoding in found.encodings]
    counts: Counter[str] = Counter()
    for problem in problems:
        for block in problem.rows:
            counts[_kind(block)] += len(block.enforcement)
        for defined in problem.conjunctions:
            counts["clauses"] += len(defined.literals.items) + len(defined.targets)
        counts["operations"] += sum(len(block.targets) for block in problem.operations)
    return ProblemStage(
        sum(len(column) for encoding in found.encodings for column in encoding.columns),
        sum(problem.variables - 1 for problem in problems),
        counts["clauses"],
        counts["cardinalities"],
        counts["linear rows"],
        counts["operations"],
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
