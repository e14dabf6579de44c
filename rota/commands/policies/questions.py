"""What is asked of a placement: the commands ``rota policy why``, ``why-not``, ``what-if``,
``diff`` and ``headroom``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.commands.options import json_option
from rota.commands.policies.options import Answer, Effort, Sources, solving, sources
from rota.commands.policies.workbench import read_bundle
from rota.errors import ReportedFailure
from rota.terminal.output import emit

if TYPE_CHECKING:
    from mgmt.errors import InfeasibleError
    from mgmt.solution import Solution


@click.command(short_help="Why ROW is placed as it is.")
@click.argument("row")
@sources
@click.option("--column", metavar="NAME", help="The variable column, where there are several.")
@solving
@json_option
def why(
    row: str,
    given: Sources,
    column: str | None,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """Why ROW (table:key, or table:part,part) is placed as it is: what forbids every other value, or what the next best
    one costs.

    \b
    Examples:
      rota policy why task:7 schema.sql rules.sql --data rows.sql
      rota policy why replica:s1,0 --pack datastore --db state.sqlite
    """
    from mgmt.explaining.solutions.decisions import row_named
    from mgmt.explaining.solutions.why import why as ask
    from rota.commands.policies.documents import verdict_document
    from rota.commands.policies.report import show_verdicts

    with given.workbench() as bench:
        model = bench.model()
        found, key = row_named(model.database.schema, row)
        verdicts = _or_failure(
            lambda tell: ask(
                model, found.name, key, column, budget=effort.budget, seed=effort.seed, tell=tell
            ),
            effort,
            json_wanted,
        )
    emit(
        {"decisions": [verdict_document(verdict) for verdict in verdicts]},
        json_wanted,
        lambda _: show_verdicts(verdicts),
    )


@click.command("why-not", short_help="Why ROW does not have VALUE.")
@click.argument("row")
@click.argument("value")
@sources
@click.option("--column", metavar="NAME", help="The variable column, where there are several.")
@solving
@json_option
def why_not(
    row: str,
    value: str,
    given: Sources,
    column: str | None,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """Why ROW does not have VALUE: the constraints that forbid it, or which objective gets worse and by how much.

    \b
    Examples:
      rota policy why-not task:7 h3 schema.sql rules.sql --data rows.sql
      rota policy why-not replica:s1,0 h3 --column host --pack datastore --db state.sqlite
    """
    from mgmt.explaining.solutions.decisions import row_named
    from mgmt.explaining.solutions.why import why_not as ask
    from rota.commands.policies.documents import verdict_document
    from rota.commands.policies.report import show_verdict

    with given.workbench() as bench:
        model = bench.model()
        found, key = row_named(model.database.schema, row)
        wanted = None if value.strip().upper() == "NULL" else value.strip()
        verdict = _or_failure(
            lambda tell: ask(
                model, found.name, key, wanted, column, budget=effort.budget, seed=effort.seed, tell=tell
            ),
            effort,
            json_wanted,
        )
    emit(verdict_document(verdict), json_wanted, lambda _: show_verdict(verdict))


@click.command("what-if", short_help="What would change after SQL; nothing does.")
@click.argument("sql")
@sources
@solving
@json_option
def what_if(
    sql: str,
    given: Sources,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """What would change after SQL (INSERT, UPDATE, DELETE); it is run on a private copy.

    Exit status 1 when nothing could be placed then.

    \b
    Examples:
      rota policy what-if "DELETE FROM host WHERE rack = 'r1'" schema.sql rules.sql --data rows.sql
    """
    from mgmt.errors import InfeasibleError
    from mgmt.explaining.solutions.what_if import what_if as ask
    from rota.commands.policies.documents import what_if_document
    from rota.commands.policies.report import in_one_line, show_what_if

    with given.workbench() as bench:
        model = bench.model()
        answer = _or_failure(
            lambda tell: ask(model, sql, budget=effort.budget, seed=effort.seed, tell=tell),
            effort,
            json_wanted,
        )
    emit(what_if_document(answer), json_wanted, lambda _: show_what_if(answer))
    if isinstance(answer.after, InfeasibleError):
        raise ReportedFailure(in_one_line(answer.after))


@click.command(short_help="How many more rows like ROW would fit.")
@click.argument("row")
@sources
@solving
@json_option
def headroom(
    row: str,
    given: Sources,
    effort: Effort,
    json_wanted: bool,
) -> None:
    """How many more rows like ROW (with the rows that belong to it) would fit, and what forbids one more.

    \b
    Examples:
      rota policy headroom task:7 schema.sql rules.sql --data rows.sql
      rota policy headroom segment:s1 --pack datastore --db state.sqlite
    """
    from mgmt.explaining.solutions.decisions import row_named
    from mgmt.explaining.solutions.headroom import headroom as ask
    from rota.commands.policies.documents import headroom_document
    from rota.commands.policies.report import show_headroom

    with given.workbench() as bench:
        model = bench.model()
        found, key = row_named(model.database.schema, row)
        answer = _or_failure(
            lambda _: ask(model, found.name, key, budget=effort.budget, seed=effort.seed), effort, json_wanted
        )
    emit(headroom_document(answer), json_wanted, lambda _: show_headroom(answer))


@click.command(short_help="What differs between two saved plans.")
@click.argument("one", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
@json_option
def diff(one: Path, other: Path, json_wanted: bool) -> None:
    """What differs between two plans, ONE and OTHER: bundles that `rota policy solve --bundle FILE` has saved.

    Rows, rules and objectives may differ, too; nothing is solved.  Exit status 1 when one of them says that nothing
    can be placed.

    \b
    Examples:
      rota policy diff yesterday.zip today.zip
      rota policy diff old-rules.zip new-rules.zip --json | jq '.difference.decisions[]'
    """
    from mgmt.errors import InfeasibleError
    from mgmt.explaining.solutions.difference import diff as compare
    from rota.commands.policies.documents import comparison_document
    from rota.commands.policies.report import in_one_line, show_comparison

    kept = [(str(path), _kept(path)) for path in (one, other)]
    (_, first), (_, second) = kept
    either = first if isinstance(first, InfeasibleError) else second
    if isinstance(first, InfeasibleError) or isinstance(second, InfeasibleError):
        difference = None
    else:
        difference = compare(first, second)
    emit(
        comparison_document(first, second, difference),
        json_wanted,
        lambda _: show_comparison(kept, difference),
    )
    if isinstance(either, InfeasibleError):
        raise ReportedFailure(in_one_line(either))


def _kept(path: Path) -> Solution | InfeasibleError:
    """The outcome in a bundle."""
    from mgmt.errors import InfeasibleError

    bench, bundle = read_bundle(path)
    with bench.problems_shown():
        try:
            return bundle.solution()
        except InfeasibleError as error:
            return error


def _or_failure(ask: Callable[[Callable[[str], None]], Answer], effort: Effort, json_wanted: bool) -> Answer:
    """The answer; if not even today's rows can be placed, the clash is the answer."""
    from mgmt.errors import InfeasibleError
    from rota.commands.policies.documents import infeasible_document
    from rota.commands.policies.report import in_one_line, show_infeasible

    found = effort.answered(ask, "answering", quiet=json_wanted)
    if not isinstance(found, InfeasibleError):
        return found
    emit(infeasible_document(found), json_wanted, lambda _: show_infeasible(found))
    raise ReportedFailure(in_one_line(found))


QUESTIONS = (why, why_not, what_if, diff, headroom)
