"""The embedded store: ``rota log append`` and ``rota log read``."""

from __future__ import annotations

import sys
from typing import Any

import click

from agent.api_client import ApiClient
from agent.commands.options import api_option, json_option
from agent.output import emit


@click.group()
def log() -> None:
    """The replicated log: append to streams, read them back."""


@log.command()
@click.argument("stream")
@click.argument("text", required=False)
@api_option
@json_option
def append(stream: str, text: str | None, api: str, json_wanted: bool) -> None:
    """Append TEXT (or standard input) to STREAM; prints the record's address in the log.

    \b
    Examples:
      rota log append greetings "hello"
      echo hello | rota log append greetings
    """
    payload = text.encode() if text is not None else sys.stdin.buffer.read()
    answer = ApiClient(api, timeout=60.0).post(f"/v1/log/{stream}", payload)
    emit(answer, json_wanted, lambda value: click.echo(value["address"]))


@log.command()
@click.argument("stream")
@click.option("--address", type=click.IntRange(min=0), help="Read one address of the log.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The newest N records."
)
@api_option
@json_option
def read(stream: str, address: int | None, limit: int, api: str, json_wanted: bool) -> None:
    """The records of STREAM, oldest first."""
    answer = ApiClient(api, timeout=60.0).get(f"/v1/log/{stream}", address=address, limit=limit)
    emit(answer, json_wanted, _show_records)


def _show_records(answer: dict[str, Any]) -> None:
    for record in answer["records"]:
        click.echo(f"{record['address']:>8}  {record['text']}")


COMMANDS = (log,)
