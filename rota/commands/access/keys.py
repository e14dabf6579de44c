"""The keys that packets are encrypted with: ``rota keys list|install|use|remove|generate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from membership import Key, KeyRingError
from membership.wire.key_ring import read_key_file, write_key_file
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.options import api_option, json_option
from rota.errors import AgentError, ReportedFailure, UsageProblem
from rota.terminal.output import as_json, emit, table


@click.group()
def keys() -> None:
    """The keys that packets are encrypted with.

    \b
    For example, to change the key of a cluster without losing a packet:
      rota keys generate new.key
      rota keys install new.key      every host opens what is under it
      rota keys use ID               every host seals with it
      rota keys remove OLD-ID        no host accepts the old one any more
    Each step goes to all members, says how each of them took it, and may be repeated.
    """


force_option = click.option("--force", is_flag=True, help="Even if it cuts hosts off.")


@keys.command("list")
@api_option
@json_option
def list_keys(api: Target, json_wanted: bool) -> None:
    """Which host holds which keys, by id; the secrets are never shown.

    \b
    Example:
      rota keys list --json | jq '.agreed'
    """
    _report(ApiClient(api, timeout=60.0).get("/v1/keys"), json_wanted)


@keys.command(short_help="Have every host open what is under a new key.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@api_option
@json_option
def install(file: Path, api: Target, json_wanted: bool) -> None:
    """Have every host open what is under the first key of FILE ("-": standard input).

    \b
    Example:
      rota keys install new.key
    """
    _change(api, json_wanted, {"action": "install", "key": _read(file).text})


@keys.command()
@click.argument("key_id", metavar="ID")
@force_option
@api_option
@json_option
def use(key_id: str, force: bool, api: Target, json_wanted: bool) -> None:
    """Have every host seal with the installed key ID.

    \b
    Example:
      rota keys use 71c3a0f2
    """
    _change(api, json_wanted, {"action": "use", "id": key_id, "force": force})


@keys.command()
@click.argument("key_id", metavar="ID")
@force_option
@api_option
@json_option
def remove(key_id: str, force: bool, api: Target, json_wanted: bool) -> None:
    """Have every host refuse whatever is under the key ID from now on.

    \b
    Example:
      rota keys remove 5b09dd41
    """
    _change(api, json_wanted, {"action": "remove", "id": key_id, "force": force})


@keys.command(short_help="A new random key; no agent is needed.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@json_option
def generate(file: Path | None, json_wanted: bool) -> None:
    """A new random key, into FILE that only you can read, or on standard output.  No agent is needed.

    \b
    Examples:
      rota keys generate /etc/rota/keys
      rota keys generate --json
    """
    key = Key.generate()
    if file is not None:
        try:
            write_key_file(file, [key], overwrite=False)
        except KeyRingError as error:
            raise AgentError(str(error)) from error
    answer = {"id": key.id, "file": None if file is None else str(file)}
    if file is None:
        emit({**answer, "key": key.text}, json_wanted, lambda _: click.echo(key.text))
    else:
        emit(answer, json_wanted, lambda _: click.echo(f"key {key.id} is in {file}"))


def _read(file: Path) -> Key:
    try:
        if str(file) == "-":
            return Key.parse(sys.stdin.readline(1000))
        return read_key_file(file)[0]
    except KeyRingError as error:
        raise UsageProblem(str(error)) from error


def _change(api: Target, json_wanted: bool, body: dict[str, Any]) -> None:
    answer = ApiClient(api, timeout=60.0).post("/v1/keys", body)
    _report(answer, json_wanted)


def _report(answer: dict[str, Any], json_wanted: bool) -> None:
    failed = [name for name, host in answer["hosts"].items() if "error" in host]
    if json_wanted:
        click.echo(as_json(answer))
    else:
        table(
            ("host", "in use", "installed"),
            [
                (name, host.get("primary", "?"), " ".join(host.get("installed", ())) or host.get("error"))
                for name, host in answer["hosts"].items()
            ],
        )
        held = [host for host in answer["hosts"].values() if "error" in host or host.get("changed", True)]
        if answer["action"] == "remove" and not held:
            click.echo("no host held this key, and nothing was changed")
        click.echo("all hosts agree" if answer["agreed"] else "the hosts do NOT agree")
    if failed:
        count = f"{len(failed)} of {len(answer['hosts'])} hosts"
        raise ReportedFailure(f"{count} did not do it ({', '.join(failed[:5])}); repeat it when they answer")


COMMANDS = (keys,)
