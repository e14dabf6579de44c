"""Asking about the live cluster's placement: ``rota why``, ``rota why-not``, ``rota what-if``."""

from __future__ import annotations

from typing import Any

import click

from rota.client.target import Target
from rota.commands.completion import complete_hosts, complete_placed, complete_segments
from rota.commands.options import agreed, api_option, json_option
from rota.errors import ReportedFailure
from rota.terminal.output import emit


def _show(answer: dict[str, Any]) -> None:
    for line in answer["lines"]:
        click.echo(line)


@click.command(short_help="Why a segment's copies, or what a host holds, are where they are.")
@click.argument("name", metavar="SEGMENT|HOST", shell_complete=complete_placed)
@api_option
@json_option
def why(name: str, api: Target, json_wanted: bool) -> None:
    """Why the copies of a segment are where they are, or why a host holds what it holds: what forbids everything else,
    or what the next best costs.

    \b
    Examples:
      rota why s03
      rota why n4
    """
    emit(agreed(api, "/v1/why", {"name": name}), json_wanted, _show)


@click.command("why-not", short_help="Why a segment has no copy on a host.")
@click.argument("segment", shell_complete=complete_segments)
@click.argument("host", shell_complete=complete_hosts)
@api_option
@json_option
def why_not(segment: str, host: str, api: Target, json_wanted: bool) -> None:
    """Why SEGMENT has no copy on HOST: the rules that forbid it, or which objective would get worse.

    \b
    Example:
      rota why-not s03 n4
    """
    body = {"segment": segment, "host": host}
    emit(agreed(api, "/v1/why-not", body), json_wanted, _show)


@click.command("what-if", short_help="What would change after SQL; nothing does.")
@click.argument("sql", nargs=-1, required=True)
@api_option
@json_option
def what_if(sql: tuple[str, ...], api: Target, json_wanted: bool) -> None:
    """What would change in the placement after SQL (INSERT, UPDATE, DELETE on the pack's tables); nothing is changed.

    Exit status 1 when there would be no placement.

    \b
    Examples:
      rota what-if "UPDATE host SET alive = FALSE WHERE rack = 'r1'"
      rota what-if "UPDATE segment SET bytes = bytes * 10" "DELETE FROM pin"
    """
    statements = ";\n".join(text.rstrip().rstrip(";") for text in sql)
    answer = agreed(api, "/v1/what-if", {"sql": statements})
    emit(answer, json_wanted, _show)
    if not answer["possible"]:
        raise ReportedFailure("no placement would be possible")


COMMANDS = (why, why_not, what_if)
