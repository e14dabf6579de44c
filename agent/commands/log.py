"""The embedded store: ``rota log append`` and ``rota log read``."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from agent.api_client import LARGEST_RECORD, STREAM_NAME, ApiClient
from agent.commands.options import api_option, json_option
from agent.errors import UsageProblem
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

    A record has at most 1 MiB; a stream's name 1 to 64 letters, digits, dots, dashes or underscores.

    \b
    Examples:
      rota log append greetings "hello"
      echo hello | rota log append greetings
    """
    payload = os.fsencode(text) if text is not None else sys.stdin.buffer.read(LARGEST_RECORD + 1)
    if len(payload) > LARGEST_RECORD:
        raise UsageProblem(f"the record is larger than {LARGEST_RECORD} bytes; split it over several")
    answer = ApiClient(api, timeout=60.0).post(f"/v1/log/{_checked(stream)}", payload)
    emit(answer, json_wanted, lambda value: click.echo(value["address"]))


def _checked(stream: str) -> str:
    if not STREAM_NAME.fullmatch(stream):
        raise UsageProblem(
            f"{stream!r} is no stream: a name is 1 to 64 letters, digits, dots, dashes or underscores"
        )
    return stream


@log.command()
@click.argument("stream")
@click.option("--address", type=click.IntRange(min=0), help="Read one address of the log.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The newest N records."
)
@click.option("--raw", is_flag=True, help="The payloads as they are, one after the other, and nothing else.")
@api_option
@json_option
def read(stream: str, address: int | None, limit: int, raw: bool, api: str, json_wanted: bool) -> None:
    """The records of STREAM, oldest first."""
    answer = ApiClient(api, timeout=60.0).get(f"/v1/log/{_checked(stream)}", address=address, limit=limit)
    if raw:
        for record in answer["records"]:
            sys.stdout.buffer.write(bytes.fromhex(record["hex"]))
        return
    emit(answer, json_wanted, _show_records)


def _show_records(answer: dict[str, Any]) -> None:
    for record in answer["records"]:
        click.echo(f"{record['address']:>8}  {_printable(bytes.fromhex(record['hex']))}")
    if not answer["records"]:
        click.echo(f"no record of stream {answer['stream']} there", err=True)


def _printable(payload: bytes) -> str:
    """Text as it is, its further lines indented; anything a terminal could mistake for orders is only named."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"<binary, {len(payload)} bytes; --raw prints it>"
    if not all(character.isprintable() or character in "\n\t" for character in text):
        return f"<control characters, {len(payload)} bytes; --raw prints it>"
    return text.rstrip("\n").replace("\n", "\n          ")


COMMANDS = (log,)
