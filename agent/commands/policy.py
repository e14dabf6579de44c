"""Policy authoring, with or without a cluster: the commands ``rota policy ...``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agent.commands.options import json_option
from agent.errors import AgentError, ReportedFailure, UsageProblem
from agent.output import as_json, emit, table
from agent.policy_workbench import Workbench, open_workbench

if TYPE_CHECKING:
    from mgmt.errors import InfeasibleError

Command = TypeVar("Command", bound=Callable[..., Any])


def sources(command: Command) -> Command:
    """What every command here works on."""
    options = (
        click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path)),
        click.option(
            "--pack", metavar="NAME", help="An installed policy pack; `rota policy list` names them."
        ),
        click.option(
            "--data",
            metavar="FILE",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Rows: .sql with INSERT statements, or .json with {table: [{column: value}]}.",
        ),
        click.option("--db", metavar="URL", help="A state database with rows; it is only read."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def solving(command: Command) -> Command:
    options = (
        click.option(
            "--budget",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="Time for a solve.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the search."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def policy() -> None:
    """Write, check, test and explain policies.

    FILEs hold a schema (CREATE TABLE), rows (INSERT) and policies (CREATE CONSTRAINT, CREATE VIEW), together or apart;
    a pack brings its own schema and policies.

    \b
    Examples:
      rota policy list --pack datastore
      rota policy lint schema.sql rules.sql
      rota policy test schema.sql rules.sql tests.sql
      rota policy solve schema.sql rules.sql --data rows.json
      rota policy why-not replica:s1,0 h3 --pack datastore --db state.sqlite
    """


@policy.command("list")
@sources
@json_option
def list_policies(
    files: Sequence[Path], pack: str | None, data: Sequence[Path], db: str | None, json_wanted: bool
) -> None:
    """What the policies are called, demand and mean; without FILE and --pack, the packs there are.

    \b
    Examples:
      rota policy list
      rota policy list --pack kubernetes
      rota policy list schema.sql rules.sql --json | jq '.policies[].name'
    """
    from agent.policy_report import entry_document, show_entries
    from mgmt.language.policies import load_pack, pack_names
    from mgmt.solving.policy_listing import policy_entries

    if not files and pack is None:
        packs = [{"name": name, "policies": _count(load_pack(name).policies)} for name in pack_names()]
        emit(
            {"packs": packs},
            json_wanted,
            lambda _: table(("pack", "policies"), [tuple(p.values()) for p in packs]),
        )
        return
    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        entries = policy_entries(bench.policies, bench.readme)
    emit(
        {"policies": [entry_document(entry) for entry in entries]},
        json_wanted,
        lambda _: show_entries(entries),
    )


def _count(texts: Sequence[Any]) -> int:
    from mgmt.solving.policy_listing import policy_entries

    return len(policy_entries(texts))


@policy.command()
@sources
@json_option
def lint(
    files: Sequence[Path], pack: str | None, data: Sequence[Path], db: str | None, json_wanted: bool
) -> None:
    """What compiles and is probably not meant.  Exit status 1 when there is a warning.

    With rows (--data, --db) also what they say: rules that do not hold today, rules that cannot bind, hosts without a
    rack.

    \b
    Examples:
      rota policy lint schema.sql rules.sql
      rota policy lint --pack datastore --db state.sqlite
    """
    from agent.policy_report import count, finding_document, show_findings
    from mgmt.explaining.lint import lint as find

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        findings = find(bench.model())
    emit(
        {"findings": [finding_document(finding) for finding in findings]},
        json_wanted,
        lambda _: show_findings(findings, {f: bench.excerpt(f.position) for f in findings}),
    )
    warnings = sum(finding.is_warning for finding in findings)
    if warnings:
        raise ReportedFailure(count(warnings, "warning"))


@policy.command()
@sources
@click.option("--no-solve", is_flag=True, help="Stop before the solver.")
@solving
@json_option
def explain(
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    no_solve: bool,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """Every stage of the compiler: what the database computes, what is left, what it became, what solved it.

    \b
    Examples:
      rota policy explain schema.sql rules.sql --data rows.sql
      rota policy explain --pack kubernetes --no-solve --json | jq '.queries[].database_sql'
    """
    from agent.policy_report import explanation_document, show_explanation
    from mgmt.explaining.stages import explain as look

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        explanation = look(bench.model(), solve=not no_solve, budget=budget, seed=seed)
    emit(explanation_document(explanation), json_wanted, lambda _: show_explanation(explanation))


@policy.command()
@sources
@solving
@json_option
def test(
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """Run tests of policies (FILEs with TEST ... EXPECT ...) and say which policies they cover.

    Exit status 1 when a test fails.  A policy is covered when some test would miss it.

    \b
    Examples:
      rota policy test schema.sql rules.sql tests.sql
      rota policy test --pack borg
    """
    from agent.policy_report import report_document, show_report
    from mgmt.explaining.policy_tests import run_tests

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        cases = bench.cases()
        if not cases:
            raise UsageProblem("there are no tests: give a file with TEST '...'; INSERT ...; EXPECT ...;")
        report = run_tests(bench.model(), cases, budget=budget, seed=seed)
    emit(report_document(report), json_wanted, lambda _: show_report(report))
    if not report.passed:
        failed = sum(not result.passed for result in report.results)
        raise ReportedFailure(f"{failed} of {len(report.results)} tests failed")


@policy.command()
@sources
@click.option(
    "--log", is_flag=True, help="Say of each change what it is for, and whether a rule requires it."
)
@click.option(
    "--apply", is_flag=True, help="Write the plan to the database of --db, if it has not changed meanwhile."
)
@click.option(
    "--bundle", metavar="FILE", type=click.Path(path_type=Path), help="Save all of it, to be replayed."
)
@click.option(
    "--replay", metavar="FILE", type=click.Path(path_type=Path), help="Solve what a bundle holds instead."
)
@solving
@json_option
def solve(
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    log: bool,
    apply: bool,
    bundle: Path | None,
    replay: Path | None,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """The best placement, as changes against today; or what clashes, and what would help.

    Exit status 1 when there is no placement, or when a replay gives another answer than its bundle.

    \b
    Examples:
      rota policy solve schema.sql rules.sql --data rows.sql --log
      rota policy solve --pack datastore --db state.sqlite --apply
      rota policy solve schema.sql rules.sql --data rows.sql --bundle today.zip
      rota policy solve --replay today.zip
    """
    if replay is not None:
        if files or pack or data or db or apply or bundle:
            raise UsageProblem("--replay takes everything from the bundle: leave the rest out")
        _replay(replay, log, json_wanted)
        return
    if apply and db is None:
        raise UsageProblem("--apply needs the database to write to: give --db URL")
    bench = open_workbench(files, pack, data, db)
    if apply and (data or _has_rows(bench)):
        raise UsageProblem("--apply writes to the database as it is: leave out --data and files with rows")
    with bench.problems_shown():
        model = bench.model()
        _solve(bench, model, budget, seed, log, json_wanted, bundle=bundle, apply=apply)


def _has_rows(bench: Workbench) -> bool:
    assert bench.state is not None
    assert bench.stored is not None
    return bench.state.version != bench.stored.version


def _solve(
    bench: Workbench,
    model: Any,
    budget: float,
    seed: int,
    log: bool,
    json_wanted: bool,
    *,
    bundle: Path | None = None,
    apply: bool = False,
) -> Any:
    """Solve, show, save and apply; returns the outcome.  ReportedFailure when there is no placement."""
    from dataclasses import replace

    from agent.policy_report import infeasible_document, show_infeasible, show_solution, solution_document
    from mgmt.errors import InfeasibleError, VerificationError
    from mgmt.explaining.bundles import answer_of, bundle_of, bundle_of_error
    from mgmt.explaining.decision_log import decision_log

    kept = bundle_of(model, seed=seed, budget=budget) if bundle is not None else None
    outcome: Any
    try:
        outcome = model.solve(budget, seed)
    except InfeasibleError as error:
        outcome = error
    except VerificationError as error:
        if bundle is not None:
            _write(bundle, bundle_of_error(error).save())
        raise
    if kept is not None and bundle is not None:
        _write(bundle, replace(kept, answer=answer_of(outcome)).save())
    if isinstance(outcome, InfeasibleError):
        emit(infeasible_document(outcome), json_wanted, lambda _: show_infeasible(outcome))
        raise ReportedFailure(_one_line(outcome))
    moves = decision_log(model, outcome, seed=seed) if log else ()
    document = solution_document(outcome, moves)
    if apply:
        document["applied_version"] = bench.apply(outcome)
    emit(document, json_wanted, lambda _: show_solution(outcome, moves))
    if apply and not json_wanted:
        click.echo(f"applied; the state is at version {document['applied_version']}")
    return outcome


def _one_line(error: InfeasibleError) -> str:
    names = ", ".join(str(member) for member in error.core)
    return f"no placement satisfies these constraints together: {names}"


def _write(path: Path, contents: bytes) -> None:
    try:
        path.write_bytes(contents)
    except OSError as error:
        raise AgentError(f"cannot write {path}: {error.strerror or error}") from error


def _replay(path: Path, log: bool, json_wanted: bool) -> None:
    from mgmt.errors import InfeasibleError
    from mgmt.explaining.bundles import Bundle, answer_of

    bench = Workbench()
    with bench.problems_shown():
        try:
            bundle = Bundle.load(path.read_bytes())
        except OSError as error:
            raise UsageProblem(f"cannot read {path}: {error.strerror or error}") from error
        bench.originals.update({text.name: text.text for text in (*bundle.schema, *bundle.policies)})
        model = bundle.model()
        failure: ReportedFailure | None = None
        try:
            outcome = _solve(bench, model, bundle.budget, bundle.seed, log, json_wanted)
        except ReportedFailure as error:
            failure = error
            try:
                outcome = model.solve(bundle.budget, bundle.seed)
            except InfeasibleError as infeasible:
                outcome = infeasible
    if bundle.answer is not None:
        if _plain(answer_of(outcome)) != _plain(bundle.answer):
            raise ReportedFailure("the replay gives another answer than the bundle has")
        click.echo("the same answer as in the bundle", err=True)
    if failure is not None:
        raise failure


def _plain(answer: Any) -> Any:
    import json

    return json.loads(as_json(answer))


@policy.command()
@click.argument("row")
@sources
@click.option("--column", metavar="NAME", help="The variable column, where there are several.")
@solving
@json_option
def why(
    row: str,
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    column: str | None,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """Why ROW (table:key, or table:part,part) is placed as it is: what forbids every other value, or what the next best
    one costs.

    \b
    Examples:
      rota policy why task:7 schema.sql rules.sql --data rows.sql
      rota policy why replica:s1,0 --pack datastore --db state.sqlite
    """
    from agent.policy_report import show_verdicts, verdict_document
    from mgmt.explaining.decisions import row_named
    from mgmt.explaining.placing import why as ask

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        model = bench.model()
        found, key = row_named(model.database.schema, row)
        verdicts = _or_infeasible(
            lambda: ask(model, found.name, key, column, budget=budget, seed=seed), json_wanted
        )
    emit(
        {"decisions": [verdict_document(verdict) for verdict in verdicts]},
        json_wanted,
        lambda _: show_verdicts(verdicts),
    )


@policy.command("why-not")
@click.argument("row")
@click.argument("value")
@sources
@click.option("--column", metavar="NAME", help="The variable column, where there are several.")
@solving
@json_option
def why_not(
    row: str,
    value: str,
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    column: str | None,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """Why ROW does not have VALUE: the constraints that forbid it, or which objective gets worse and by how much.

    \b
    Examples:
      rota policy why-not task:7 h3 schema.sql rules.sql --data rows.sql
      rota policy why-not replica:s1,0 h3 --column host --pack datastore --db state.sqlite
    """
    from agent.policy_report import show_verdict, verdict_document
    from mgmt.explaining.decisions import decisions_of, parsed_value, row_named
    from mgmt.explaining.placing import why_not as ask

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        model = bench.model()
        found, key = row_named(model.database.schema, row)
        decision = decisions_of(model, found.name, key, column)[0]
        wanted = parsed_value(found.column(decision.variable), value)
        verdict = _or_infeasible(
            lambda: ask(model, found.name, key, wanted, column, budget=budget, seed=seed), json_wanted
        )
    emit(verdict_document(verdict), json_wanted, lambda _: show_verdict(verdict))


@policy.command("what-if")
@click.argument("sql")
@sources
@solving
@json_option
def what_if(
    sql: str,
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """What would change after SQL (INSERT, UPDATE, DELETE); it is run on a private copy.

    Exit status 1 when nothing could be placed then.

    \b
    Examples:
      rota policy what-if "DELETE FROM host WHERE rack = 'r1'" schema.sql rules.sql --data rows.sql
    """
    from agent.policy_report import show_what_if, what_if_document
    from mgmt.errors import InfeasibleError
    from mgmt.explaining.what_if import what_if as ask

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        answer = ask(bench.model(), sql, budget=budget, seed=seed)
    emit(what_if_document(answer), json_wanted, lambda _: show_what_if(answer))
    if isinstance(answer.after, InfeasibleError):
        raise ReportedFailure(_one_line(answer.after))


@policy.command()
@click.argument("row")
@sources
@solving
@json_option
def headroom(
    row: str,
    files: Sequence[Path],
    pack: str | None,
    data: Sequence[Path],
    db: str | None,
    budget: float,
    seed: int,
    json_wanted: bool,
) -> None:
    """How many more rows like ROW (with the rows that belong to it) would fit, and what forbids one more.

    \b
    Examples:
      rota policy headroom task:7 schema.sql rules.sql --data rows.sql
      rota policy headroom segment:s1 --pack datastore --db state.sqlite
    """
    from agent.policy_report import headroom_document, show_headroom
    from mgmt.explaining.decisions import row_named
    from mgmt.explaining.headroom import headroom as ask

    bench = open_workbench(files, pack, data, db)
    with bench.problems_shown():
        model = bench.model()
        found, key = row_named(model.database.schema, row)
        answer = _or_infeasible(lambda: ask(model, found.name, key, budget=budget, seed=seed), json_wanted)
    emit(headroom_document(answer), json_wanted, lambda _: show_headroom(answer))


Answer = TypeVar("Answer")


def _or_infeasible(ask: Callable[[], Answer], json_wanted: bool) -> Answer:
    """The answer; if not even today's rows can be placed, the clash is the answer."""
    from agent.policy_report import infeasible_document, show_infeasible
    from mgmt.errors import InfeasibleError

    try:
        return ask()
    except InfeasibleError as error:
        caught = error
    emit(infeasible_document(caught), json_wanted, lambda _: show_infeasible(caught))
    raise ReportedFailure(_one_line(caught))


COMMANDS = (policy,)
