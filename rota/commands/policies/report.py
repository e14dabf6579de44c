"""What the ``rota policy`` commands print for people: tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from rota.terminal.output import table, width

if TYPE_CHECKING:
    from mgmt.errors import CoreMember, InfeasibleError, Relaxation
    from mgmt.explaining.policies.compilation_report import CompilationReport
    from mgmt.explaining.policies.lint import Finding
    from mgmt.explaining.policies.policy_tests import PolicyTestReport
    from mgmt.explaining.solutions.decision_log import LoggedMove
    from mgmt.explaining.solutions.difference import DecisionChange, Difference
    from mgmt.explaining.solutions.headroom import Headroom
    from mgmt.explaining.solutions.what_if import WhatIf
    from mgmt.explaining.solutions.why import Verdict
    from mgmt.solution import Delta, Solution
    from mgmt.solving.policy_listing import PolicyEntry

ROOM_FOR_PLACES = 110
"""Columns from which on a list of policies says where each of them stands."""
_MOST_MOVES = 50
_MOST_ROWS = 6
_MOST_CHANGES = 12
"""Lines of rows that change with what is asked for."""
_MOST_KEYS = 3
"""Rows named of those that change alike."""
_UNPROVEN = "(time ended before the best was proven: with a larger --budget it may cost less)"


def show_solution(
    solution: Solution, log: Sequence[LoggedMove] = (), remarks: Sequence[Finding] = ()
) -> None:
    gap = f", at most {solution.gap:.1%} from the optimum" if solution.gap else ""
    backend = solution.statistics.get("backend", "")
    click.echo(
        f"{solution.status}{gap}: {count(len(solution.deltas), 'change')}, in {solution.seconds:.2f} s ({backend})"
    )
    if solution.moment is not None:
        click.echo(f"as of {solution.moment.isoformat(' ', 'seconds')}")
    if solution.held:
        click.echo(solution.held)
    if solution.objectives:
        table(
            ("tier", "objective", "before", "after", "bound", "proven"),
            [
                (
                    objective.tier,
                    f"{objective.sense} {objective.name}",
                    "-" if objective.before is None else objective.before,
                    objective.after,
                    "-" if objective.bound is None else objective.bound,
                    "yes" if objective.proven else "no",
                )
                for objective in solution.objectives
            ],
        )
    for error in solution.statistics.get("solver_errors", ()):
        click.echo(f"warning: the solver contradicts itself, so nothing is proven: {error}")
    show_deltas(solution.deltas, log)
    for unassigned in solution.unassigned:
        click.echo(f"warning: {unassigned}\n{_indented(unassigned.hint)}")
    for remark in remarks:
        click.echo(_finding(remark))


def show_deltas(deltas: Sequence[Delta], log: Sequence[LoggedMove] = ()) -> None:
    if not deltas:
        return
    causes = {(move.delta.table, move.delta.primary_key, move.delta.variable): _cause(move) for move in log}
    shown = deltas[:_MOST_MOVES]
    columns = ("row", "column", "old", "new", *(("why",) if log else ()))
    table(
        columns,
        [
            (
                f"{delta.table} {_key(delta.primary_key)}",
                delta.column,
                "-" if delta.old is None else delta.old,
                "-" if delta.new is None else delta.new,
                *((causes.get((delta.table, delta.primary_key, delta.variable), ""),) if log else ()),
            )
            for delta in shown
        ],
    )
    if len(deltas) > len(shown):
        click.echo(f"and {len(deltas) - len(shown)} more (--json has them all)")


def _cause(move: LoggedMove) -> str:
    return str(move).partition(", ")[2]


def show_infeasible(error: InfeasibleError) -> None:
    show_core(error.core)
    if not error.minimal:
        click.echo("(time ended before every one of these was shown to be needed)")
    show_relaxations(error.relaxations)


def show_core(core: Sequence[CoreMember]) -> None:
    table(
        ("clashing constraint", "where", "rows"),
        [(member.constraint, member.position or "", _rows(member)) for member in core],
    )
    for member in core:
        if member.clash:
            click.echo(f"{member.constraint}: {member.clash}")
        if member.reason:
            click.echo(f"{member.constraint}: {member.reason}")


def _rows(member: CoreMember) -> str:
    if not member.rows:
        return ""
    from mgmt.state.schema import shown_row

    shown = list(map(shown_row, member.rows[:_MOST_ROWS]))
    more = member.count - len(shown)
    return "; ".join(shown) + (f"; and {more} more (--json)" if more > 0 else "")


def show_relaxations(relaxations: Sequence[Relaxation]) -> None:
    if not relaxations:
        return
    click.echo("Any one of these helps:")
    for relaxation in relaxations:
        click.echo(f"  * {relaxation.text}")
        for statement in relaxation.statements[:_MOST_ROWS]:
            click.echo(f"      {statement}")
        for waiver in relaxation.waivers:
            if waiver.condition and len(waiver.rows) <= _MOST_ROWS:
                click.echo(f"      {waiver}")


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        show_verdict(verdict)


def show_verdict(verdict: Verdict) -> None:
    click.echo(str(verdict))
    if verdict.core:
        show_core(verdict.core)
    show_relaxations(verdict.relaxations)
    if verdict.consequences.decisions:
        click.echo("With it:")
    show_difference(verdict.consequences)
    if not verdict.proven:
        click.echo(_UNPROVEN)


def show_difference(difference: Difference, sides: tuple[str, str] = ("is", "would be")) -> None:
    """The rows that change, those that do so alike in one line; then the objectives, the most important first."""
    from mgmt.explaining.solutions.difference import shown

    alike = difference.alike
    if alike:
        table(
            ("row", "column", *sides),
            [
                (
                    _rows_of(changes),
                    changes[0].decision.column,
                    shown(changes[0].one),
                    shown(changes[0].other),
                )
                for changes in alike[:_MOST_CHANGES]
            ],
        )
    more = sum(map(len, alike[_MOST_CHANGES:]))
    if more:
        click.echo(f"and {count(more, 'more row')} (--json has them all)")
    if difference.objectives:
        table(
            ("objective", *sides, "worse by", "unit"),
            [(f"{c.sense} {c.name}", c.one, c.other, c.worse_by, c.unit) for c in difference.objectives],
        )


def _rows_of(changes: Sequence[DecisionChange]) -> str:
    """``task 1, 4, 7 and 3 more``: all of one table."""
    from mgmt.explaining.solutions.decisions import shown_key

    keys = [shown_key(change.decision.primary_key) for change in changes]
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return f"{changes[0].decision.table} {', '.join(keys[:_MOST_KEYS])}{more}"


def show_what_if(answer: WhatIf) -> None:
    from mgmt.errors import InfeasibleError
    from mgmt.solution import Solution, SolveStatus

    click.echo(str(answer))
    if isinstance(answer.after, InfeasibleError):
        show_infeasible(answer.after)
    if answer.difference:
        show_difference(answer.difference)
        outcomes = (answer.before, answer.after)
        if any(isinstance(each, Solution) and each.status is SolveStatus.FEASIBLE for each in outcomes):
            click.echo(_UNPROVEN)


def _show_outcomes(outcomes: Sequence[tuple[str, Solution | InfeasibleError]]) -> None:
    from mgmt.errors import InfeasibleError

    for name, outcome in outcomes:
        if isinstance(outcome, InfeasibleError):
            click.echo(f"{name}: no placement is possible")
            show_infeasible(outcome)
        else:
            click.echo(f"{name}: {outcome.status}, {count(len(outcome.deltas), 'change')} against today")


def show_comparison(
    outcomes: Sequence[tuple[str, Solution | InfeasibleError]], difference: Difference | None
) -> None:
    """Two kept plans, each with the name of its file."""
    _show_outcomes(outcomes)
    if difference is None:
        return
    if not difference:
        click.echo("the plans are the same")
    show_difference(difference, ("one", "other"))
    for side, names in (("one", difference.only_one), ("other", difference.only_other)):
        if names:
            click.echo(f"only {side} has: {', '.join(names)}")


def show_headroom(answer: Headroom) -> None:
    least = "" if answer.exact else "at least "
    click.echo(f"{least}{count(answer.count, 'more row')} like {answer.table} {_key(answer.primary_key)} fit")
    if answer.core:
        click.echo("what forbids one more:")
        show_core(answer.core)


def show_findings(findings: Sequence[Finding], excerpts: Mapping[Finding, str]) -> None:
    for finding in findings:
        click.echo(_finding(finding))
        if excerpts.get(finding):
            click.echo(_indented(excerpts[finding]))
    warnings = sum(finding.is_warning for finding in findings)
    notes = len(findings) - warnings
    click.echo(f"{count(warnings, 'warning')}, {count(notes, 'note')}" if findings else "nothing to remark")


def _finding(finding: Finding) -> str:
    return f"{'warning' if finding.is_warning else 'note'}: {finding}"


def show_entries(entries: Sequence[PolicyEntry]) -> None:
    """Where each stands only if there is room beside what it means."""
    with_place = width() >= ROOM_FOR_PLACES
    table(
        ("policy", "kind", "tier", *(("where",) if with_place else ()), "meaning"),
        [
            (
                entry.name,
                entry.kind,
                "" if entry.tier is None else entry.tier,
                *((entry.where,) if with_place else ()),
                entry.meaning,
            )
            for entry in entries
        ],
    )


def show_report(report: PolicyTestReport) -> None:
    for result in report.results:
        click.echo(f"{'ok  ' if result.passed else 'FAIL'} {result.test.name}")
        for failure in result.failures:
            click.echo(f"       {failure}")
    passed = sum(result.passed for result in report.results)
    click.echo(f"{passed} of {len(report.results)} tests passed")
    missed = [name for name, test in report.covered.items() if test is None]
    click.echo(f"{report.coverage:.0%} of the policies were binding in some test")
    if missed:
        click.echo(f"no test would miss: {', '.join(missed)}")


def show_explanation(explanation: CompilationReport) -> None:
    for query in explanation.queries:
        tier = f", tier {query.tier}" if query.tier is not None else ""
        click.echo(f"{query.name}: {query.kind}{tier} ({query.position})")
        _line("the database computes", query.database_sql)
        if query.columns:
            typed = (
                f"{column.name} {column.type}{' (decided)' * column.decided}" for column in query.columns
            )
            _line("columns", ", ".join(typed))
        if query.asks_for_the_time:
            _line("asks for the time", "of the solve")
        if query.groups is not None:
            _line("possible groups by", ", ".join(query.groups) or "(one group of all rows)")
        for part in query.solver_sql:
            _line("left to the solver", part)
        for each in query.lifted:
            _line("lifted to", each)
        for each in query.left_out:
            _line("not lifted", each)
        if query.fetched_rows is not None:
            rows = "" if query.rows is None else f", demanded of {query.rows}"
            parts = [
                f"{number} {what}"
                for number, what in (
                    (query.linear_rows, "linear rows"),
                    (query.clauses, "clauses"),
                    (query.cardinalities, "cardinalities"),
                )
                if number
            ]
            became = f", which became {', '.join(parts)}" if parts else ""
            if query.literals:
                became += f" over {count(query.literals, 'literal')}"
            _line("rows", f"{query.fetched_rows} fetched{rows}{became}, {1000 * query.seconds:.1f} ms")
        click.echo()
    if explanation.refused:
        click.echo(f"no model for the solver: {explanation.refused}")
    problem = explanation.problem
    if problem is not None:
        click.echo(
            f"model: {problem.decisions} decisions, {problem.variables} variables, {problem.linear_rows} linear rows, "
            f"{problem.clauses} clauses, {problem.cardinalities} cardinalities, {problem.operations} operations, "
            f"encoded in {1000 * problem.encode_seconds:.1f} ms"
        )
    solve = explanation.solve
    if solve is not None:
        backend = f" by {solve.backend}" if solve.backend else ""
        reason = f" ({solve.reason})" if solve.reason else ""
        click.echo(f"solved: {solve.status}{backend} in {1000 * solve.seconds:.1f} ms{reason}")
        for name, value in solve.statistics.items():
            if value != ():
                _show_figure(name.replace("_", " "), value)
    left = [query.name for query in explanation.queries if query.left_out]
    if left:
        click.echo(f"not lifted, so CP-SAT goes on from the engines' plan for the rest: {', '.join(left)}")
    if solve is not None:
        show_deltas(solve.deltas)


def _show_figure(name: str, value: object) -> None:
    """What there is several of, each on its own line; what there is nothing of, not at all."""
    if isinstance(value, Mapping):
        _line(name, ", ".join(f"{_figure(each)} {key}" for key, each in value.items()) if value else "-")
    elif isinstance(value, (list, tuple)) and any(isinstance(each, Mapping) for each in value):
        for each in value:
            _line(name.removesuffix("s"), "; ".join(f"{key}: {_figure(it)}" for key, it in each.items()))
    else:
        _line(name, _figure(value))


def _figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _line(name: str, value: str) -> None:
    click.echo(f"  {name:<22} {value}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def count(number: int, what: str) -> str:
    """``1 note``, ``2 notes``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _key(key: Iterable[object]) -> str:
    return "/".join(map(str, key))


def in_one_line(error: InfeasibleError) -> str:
    """Which constraints clash."""
    names = ", ".join(str(member) for member in error.core)
    return f"no placement satisfies these constraints together: {names}"
