"""The embedded store's log: ``rota log append``, ``rota log read``, ``rota log tail`` and ``rota log forget``."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.completion import complete_hosts, complete_streams
from rota.commands.options import agreed, api_option, json_option
from rota.errors import ReportedFailure, UsageProblem
from rota.http.limits import LARGEST_RECORD, STREAM_NAME
from rota.terminal.output import emit, printable, table, write_bytes

RAW = "--raw prints it"
FOLLOWING = 7 * 24 * 3600.0
"""Seconds without a record after which following a stream ends."""


@click.group(short_help="The replicated log: append to streams, read, follow.")
def log() -> None:
    """The replicated log: append to streams, read them back, follow them.

    \b
    Examples:
      rota log append greetings "hello"
      rota log read greetings
      rota log tail greetings --follow
    """


@log.command("list", short_help="The streams and maps there are.")
@api_option
@json_option
def list_streams(api: Target, json_wanted: bool) -> None:
    """The streams and maps that the log holds records of, by name.

    \b
    Examples:
      rota log list
      rota log list --json | jq -r '.streams[].name'
    """
    emit(ApiClient(api, timeout=60.0).get("/v1/streams", names=1), json_wanted, _show_streams)


def _show_streams(answer: dict[str, Any]) -> None:
    rows = [("stream", each["name"]) for each in answer["streams"]]
    rows += [("map", each["name"]) for each in answer["maps"]]
    table(("what", "name"), rows) if rows else click.echo("the log holds no records", err=True)
    if left_off := answer.get("left_off"):
        click.echo(f"and {left_off} more", err=True)


@log.command(short_help="Append a record to STREAM; prints its address.")
@click.argument("stream", shell_complete=complete_streams)
@click.argument("text", required=False)
@api_option
@json_option
def append(stream: str, text: str | None, api: Target, json_wanted: bool) -> None:
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


@log.command(short_help="The records of STREAM, oldest first.")
@click.argument("stream", shell_complete=complete_streams)
@click.option("--address", type=click.IntRange(min=0), help="Read one address of the log.")
@click.option("--start", type=click.IntRange(min=0), help="Read from this address of the log on.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The newest N records; with --start the first N.",
)
@click.option("--raw", is_flag=True, help="The payloads as they are, one after the other, and nothing else.")
@api_option
@json_option
def read(
    stream: str, address: int | None, start: int | None, limit: int, raw: bool, api: Target, json_wanted: bool
) -> None:
    """The records of STREAM, oldest first; exit status 1 if --address holds none of them.

    \b
    Examples:
      rota log read greetings --limit 5
      rota log read greetings --start 1200 --limit 50
      rota log read backups --address 1200 --raw > backup.tar
    """
    if address is not None and start is not None:
        raise UsageProblem("--address reads one record, --start those from there on; give one of them")
    path, client = f"/v1/log/{_checked(stream)}", ApiClient(api, timeout=60.0)
    answer = client.get(path, address=address, start=start, limit=limit)
    found = answer["records"]
    while start is not None and answer.get("more"):  # an agent of 0.1 has it all in one answer
        answer = client.get(path, start=found[-1]["address"] + 1, limit=limit - len(found))
        found += answer["records"]
    answer["records"] = found
    _note_if_more(answer)
    if raw:
        for record in answer["records"]:
            write_bytes(bytes.fromhex(record["hex"]))
    elif json_wanted or answer["records"] or address is None:
        emit(answer, json_wanted, _show_records)
    if address is not None and not answer["records"]:
        raise ReportedFailure(f"address {address} holds no record of stream {stream}")


@log.command()
@click.argument("stream", shell_complete=complete_streams)
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), default=10, show_default=True, help="The newest N records."
)
@click.option("--follow", "-f", is_flag=True, help="Go on as records are appended, until Ctrl-C.")
@click.option("--raw", is_flag=True, help="The payloads as they are, one after the other, and nothing else.")
@api_option
@json_option
def tail(stream: str, limit: int, follow: bool, raw: bool, api: Target, json_wanted: bool) -> None:
    """The newest records of STREAM, oldest first.  With --follow --json: one JSON object a line.

    \b
    Examples:
      rota log tail greetings --follow
      rota log tail greetings -n 1 --raw
    """
    path = f"/v1/log/{_checked(stream)}"
    answer = ApiClient(api, timeout=60.0).get(path, limit=limit)
    _note_if_more(answer)
    if json_wanted and not follow:
        emit(answer, json_wanted, _show_records)
        return
    for record in answer["records"]:
        _show(record, raw, json_wanted)
    if not follow:
        _note_if_none(answer)
        return
    start = answer["records"][-1]["address"] + 1 if answer["records"] else None
    for record in ApiClient(api, timeout=FOLLOWING).follow(path, start=start):
        _show(record, raw, json_wanted)


@log.command(short_help="Declare lost what only HOSTS hold that never come back.")
@click.argument("hosts", nargs=-1, required=True, shell_complete=complete_hosts)
@click.option("--yes", is_flag=True, help="Do it; without, only what would be lost is told.")
@api_option
@json_option
def forget(hosts: tuple[str, ...], yes: bool, api: Target, json_wanted: bool) -> None:
    """Declare lost what only HOSTS hold: they never come back with their data directories.

    No program can know that; you can. Reads of what is lost fail for good, streams and maps go on without it, and a
    log that waits for these hosts waits no longer. If one comes back after all, it joins with nothing. Without
    --yes nothing is changed, and the exit status is 1 if something would be lost.

    \b
    Examples:
      rota log forget n4 n5
      rota log forget n4 n5 --yes
    """
    request = {"hosts": list(hosts), "confirmed": yes}
    answer = agreed(api, "/v1/forget", request)
    emit(answer, json_wanted, _show_losses)
    if not yes and answer["lost"]:
        raise ReportedFailure("nothing was changed; with --yes this is declared lost")


def _show_losses(answer: dict[str, Any]) -> None:
    names = ", ".join(answer["hosts"])
    if not answer["lost"]:
        click.echo(f"nothing is on {names} only")
    for loss in answer["lost"]:
        what = (
            "what was written last"
            if loss["start"] is None
            else f"addresses {loss['start']} to {loss['end'] - 1}"
        )
        holders = ", ".join(loss["hosts"]) or "no host any more"
        click.echo(f"{loss['segment']}, {what}: {'was' if answer['forgotten'] else 'is'} on {holders}")
    if answer["forgotten"]:
        click.echo(f"{names}: declared lost")


def _show(record: dict[str, Any], raw: bool, json_wanted: bool) -> None:
    if json_wanted:
        click.echo(json.dumps(record))
    elif raw:
        write_bytes(bytes.fromhex(record["hex"]))
    else:
        click.echo(f"{record['address']:>8}  {printable(bytes.fromhex(record['hex']), RAW)}")


def _show_records(answer: dict[str, Any]) -> None:
    for record in answer["records"]:
        _show(record, raw=False, json_wanted=False)
    _note_if_none(answer)


def _note_if_more(answer: dict[str, Any]) -> None:
    if answer.get("more"):
        number = len(answer["records"])
        click.echo(
            f"the newest {number}: one answer has no more of such long records; --start reads from an address on",
            err=True,
        )


def _note_if_none(answer: dict[str, Any]) -> None:
    if not answer["records"]:
        click.echo(f"no record of stream {answer['stream']} there", err=True)


COMMANDS = (log,)
