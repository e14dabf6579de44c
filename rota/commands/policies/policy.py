"""Policy authoring, with or without a cluster: the commands ``rota policy list``, ``lint``, ``explain``, ``test`` and
``solve``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from rota.commands.options import json_option
from rota.commands.policies.options import Effort, Sources, solving, sources
from rota.commands.policies.questions import QUESTIONS
from rota.commands.policies.workbench import read_bundle
from rota.errors import AgentError, ReportedFailure, UsageProblem
from rota.terminal.output import as_json, emit, table

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.errors import InfeasibleError
    from mgmt.solution import Solution

    Outcome: TypeAlias = Solution | InfeasibleError


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


@policy.command("list", short_help="What the policies are called, demand and mean.")
@sources
@json_option
def list_policies(given: Sources, json_wanted: bool) -> None:
    """What the policies are called, demand and mean; without FILE and --pack, the packs there are.

    \b
    Examples:
      rota policy list
      rota policy list --pack kubernetes
      rota policy list schema.sql rules.sql --json | jq '.policies[].name'
    """
    from mgmt.language.policy_packs import load_pack, pack_names
    from mgmt.solving.policy_listing import policy_entries
    from rota.commands.policies.documents import entry_document
    from rota.commands.policies.report import show_entries

    if not given.files and given.pack is None:
        packs = [{"name": name, "policies": _count(load_pack(name).policies)} for name in pack_names()]
        emit(
            {"packs": packs},
            json_wanted,
            lambda _: table(("pack", "policies"), [tuple(p.values()) for p in packs]),
        )
        return
    with given.workbench() as bench:
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
def lint(given: Sources, json_wanted: bool) -> None:
    """What compiles and is probably not meant.  Exit status 1 when there is a warning.

    With rows (--data, --db) also what they say: rules that do not hold today, rules that cannot bind, hosts without a
    rack.

    \b
    Examples:
      rota policy lint schema.sql rules.sql
      rota policy lint --pack datastore --db state.sqlite
    """
    from mgmt.explaining.policies.lint import lint as find
    from rota.commands.policies.documents import finding_document
    from rota.commands.policies.report import count, show_findings

    with given.workbench() as bench:
        findings = find(bench.model())
    emit(
        {"findings": [finding_document(finding) for finding in findings]},
        json_wanted,
        lambda _: show_findings(findings, {f: bench.excerpt(f.position) for f in findings}),
    )
    warnings = sum(finding.is_warning for finding in findings)
    if warnings:
        raise ReportedFailure(count(warnings, "warning"))


@policy.command(short_help="Every stage of the compiler, and what is slow.")
@sources
@click.option("--no-solve", is_flag=True, help="Stop before the solver.")
@click.option(
    "--minizinc",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Save the model, with the rows there are, for other solvers.",
)
@click.option("--tier", type=click.INT, metavar="N", help="Which tier --minizinc minimises; else the first.")
@solving
@json_option
def explain(
    given: Sources,
    no_solve: bool,
    minizinc: Path | None,
    tier: int | None,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """Every stage of the compiler: what the database computes, what is left, what it became, what solved it.

    \b
    Examples:
      rota policy explain schema.sql rules.sql --data rows.sql
      rota policy explain --pack kubernetes --no-solve --json | jq '.queries[].database_sql'
      rota policy explain schema.sql rules.sql --data rows.sql --minizinc model.mzn --tier 2
    """
    from mgmt.explaining.policies.compilation_report import report_compilation
    from mgmt.explaining.policies.minizinc_text import minizinc_text
    from rota.commands.policies.documents import explanation_document
    from rota.commands.policies.report import show_explanation

    if tier is not None and minizinc is None:
        raise UsageProblem("--tier says what --minizinc is to minimise: give --minizinc FILE")
    with given.workbench() as bench:
        model = bench.model()
        explanation = report_compilation(model, solve=not no_solve, budget=effort.budget, seed=effort.seed)
        if minizinc is not None:
            text = minizinc_text(model, tier=tier, budget=effort.budget, seed=effort.seed)
            _write(minizinc, text.encode())
    emit(explanation_document(explanation), json_wanted, lambda _: show_explanation(explanation))


@policy.command(short_help="Run tests of policies; say which they cover.")
@sources
@solving
@json_option
def test(
    given: Sources,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """Run tests of policies (FILEs with TEST ... EXPECT ...) and say which policies they cover.

    Exit status 1 when a test fails.  A policy is covered when some test would miss it.

    \b
    Examples:
      rota policy test schema.sql rules.sql tests.sql
      rota policy test --pack borg
    """
    from mgmt.explaining.policies.policy_tests import run_tests
    from rota.commands.policies.documents import report_document
    from rota.commands.policies.report import show_report

    with given.workbench() as bench:
        cases = bench.cases()
        if not cases:
            raise UsageProblem("there are no tests: give a file with TEST '...'; INSERT ...; EXPECT ...;")
        report = run_tests(bench.model(), cases, budget=effort.budget, seed=effort.seed)
    emit(report_document(report), json_wanted, lambda _: show_report(report))
    if not report.passed:
        failed = sum(not result.passed for result in report.results)
        raise ReportedFailure(f"{failed} of {len(report.results)} tests failed")


@policy.command(short_help="The best placement; or what clashes and would help.")
@sources
@click.option(
    "--log", is_flag=True, help="Say of each change what it is for, and whether a rule requires it."
)
@click.option(
    "--apply",
    is_flag=True,
    help="Write the plan back to --db and --data, if they have not changed meanwhile.",
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
    given: Sources,
    log: bool,
    apply: bool,
    bundle: Path | None,
    replay: Path | None,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """The best placement, as changes against today; or what clashes, and what would help.

    Exit status 1 when there is no placement, or when a replay gives another answer than its bundle.

    \b
    Examples:
      rota policy solve schema.sql rules.sql --data rows.sql --log
      rota policy solve schema.sql rules.sql --data nodes.csv --data tasks.parquet --apply
      rota policy solve --pack datastore --db postgresql://rota@db1/cluster --apply
      rota policy solve schema.sql rules.sql --data rows.sql --bundle today.zip
      rota policy solve --replay today.zip
    """
    if replay is not None:
        if given or apply or bundle:
            raise UsageProblem("--replay takes everything from the bundle: leave the rest out")
        _replay(replay, log, json_wanted)
        return
    if apply and given.db is None and not given.data:
        raise UsageProblem("--apply needs where to write to: give --db URL, or --data FILE")
    with given.workbench() as bench:
        if apply and bench.rows_added:
            raise UsageProblem(
                "--apply writes to where rows come from: leave out INSERT and what else makes rows up"
            )
        model = bench.model()
        bench.require_rows()
        outcome = _solved(model, effort, bundle, quiet=json_wanted)
        failure = _show(model, outcome, effort, log, json_wanted, apply=bench.apply if apply else None)
    if failure is not None:
        raise failure


def _solved(model: Model, effort: Effort, bundle: Path | None = None, *, quiet: bool) -> Outcome:
    """What a solve comes to; all of it is saved in ``bundle``."""
    from dataclasses import replace

    from mgmt.errors import VerificationError
    from mgmt.explaining.solutions.replay_bundle import answer_of, bundle_of, bundle_of_error

    now = model.database.now() if effort.now is None else effort.now
    kept = None if bundle is None else bundle_of(model, seed=effort.seed, budget=effort.budget, now=now)
    outcome: Outcome
    try:
        outcome = effort.answered(
            lambda _: model.solve(effort.budget, effort.seed, now=now), "solving", quiet=quiet
        )
    except VerificationError as error:
        if bundle is not None:
            _write(bundle, bundle_of_error(error).save())
        raise
    if bundle is not None and kept is not None:
        _write(bundle, replace(kept, answer=answer_of(outcome)).save())
    return outcome


def _show(
    model: Model,
    outcome: Outcome,
    effort: Effort,
    log: bool,
    json_wanted: bool,
    *,
    apply: Callable[[Solution], int] | None = None,
) -> ReportedFailure | None:
    """Print an outcome, and write it where it is to be applied; the failure to end with, if there is no placement."""
    from mgmt.errors import InfeasibleError
    from mgmt.explaining.policies.lint import remarks
    from mgmt.explaining.solutions.decision_log import decision_log
    from rota.commands.policies.documents import finding_document, infeasible_document, solution_document
    from rota.commands.policies.report import in_one_line, show_infeasible, show_solution

    if isinstance(outcome, InfeasibleError):
        emit(infeasible_document(outcome), json_wanted, lambda _: show_infeasible(outcome))
        return ReportedFailure(in_one_line(outcome))
    moves = decision_log(model, outcome, seed=effort.seed) if log else ()
    said = remarks(model.at(outcome.moment))
    document = solution_document(outcome, moves) | {"remarks": [finding_document(each) for each in said]}
    if apply is not None:
        document["applied_version"] = apply(outcome)
    emit(document, json_wanted, lambda _: show_solution(outcome, moves, said))
    if apply is not None and not json_wanted:
        done = "applied; the state is at" if outcome.deltas else "nothing to apply; the state stays at"
        click.echo(f"{done} version {document['applied_version']}")
    return None


def _write(path: Path, contents: bytes) -> None:
    try:
        path.write_bytes(contents)
    except OSError as error:
        raise AgentError(f"cannot write {path}: {error.strerror or error}") from error


def _replay(path: Path, log: bool, json_wanted: bool) -> None:
    from mgmt.explaining.solutions.replay_bundle import answer_of

    bench, bundle = read_bundle(path)
    with bench.problems_shown():
        model, effort = bundle.model(), Effort(bundle.budget, bundle.seed, bundle.now)
        outcome = _solved(model, effort, quiet=json_wanted)
        failure = _show(model, outcome, effort, log, json_wanted)
    if bundle.answer is not None:
        if _plain(answer_of(outcome)) != _plain(bundle.answer):
            raise ReportedFailure("the replay gives another answer than the bundle has")
        click.echo("the same answer as in the bundle", err=True)
    if failure is not None:
        raise failure


def _plain(answer: Any) -> Any:
    import json

    return json.loads(as_json(answer))


for question in QUESTIONS:
    policy.add_command(question)

COMMANDS = (policy,)
