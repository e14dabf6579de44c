"""The embedded store's maps: ``rota map get``, ``set``, ``delete`` and ``ls``."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import click

from datastore_adapter.log.maps.settings import MapSettings
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.completion import complete_maps
from rota.commands.options import api_option, json_option
from rota.errors import AgentError, UsageProblem
from rota.http.limits import STREAM_NAME
from rota.terminal.output import emit, printable, write_bytes

map_option = click.option(
    "--map",
    "name",
    default="default",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_maps,
    help="Which map.",
)
LARGEST_VALUE = MapSettings().max_value
LARGEST_KEY = MapSettings().max_key


class NotThereError(AgentError):
    """A map does not hold the key, or holds something else than expected."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@click.group(name="map", short_help="Maps: keys and values that the whole cluster shares.")
def map_group() -> None:
    """Maps: keys and values that the whole cluster shares, kept in the replicated log.

    A read sees every write that was acknowledged before it, whichever agent is asked.

    \b
    Examples:
      rota map set colour green
      rota map get colour
      rota map ls
    """


@map_group.command()
@click.argument("key")
@map_option
@api_option
@json_option
def get(key: str, name: str, api: Target, json_wanted: bool) -> None:
    """Print the value of KEY as it is; exit status 1 if there is none.

    \b
    Examples:
      rota map get colour
      rota map get logo --map assets > logo.png
    """
    answer = _ask(api, name, "get", key)
    if not answer["done"]:
        raise NotThereError(f"map {name} has no key {key!r}; `rota map ls` shows what it has", "not_found")
    if json_wanted:
        emit(answer, json_wanted, lambda value: None)
        return
    value = bytes.fromhex(answer["entry"]["hex"])
    write_bytes(value)
    if sys.stdout.isatty() and not value.endswith(b"\n"):
        click.echo()


@map_group.command(name="set", short_help="Set KEY to VALUE, or to standard input.")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--if", "expected", metavar="VALUE", help="Only if the key holds this value.")
@click.option("--if-absent", is_flag=True, help="Only if there is no such key.")
@map_option
@api_option
@json_option
def set_(
    key: str,
    value: str | None,
    expected: str | None,
    if_absent: bool,
    name: str,
    api: Target,
    json_wanted: bool,
) -> None:
    """Set KEY to VALUE, or to standard input; exit status 1 if a condition does not hold.

    \b
    Examples:
      rota map set colour blue
      rota map set colour red --if blue
      rota map set logo --map assets < logo.png
    """
    if expected is not None and if_absent:
        raise UsageProblem("--if and --if-absent exclude each other; give one of them")
    content = os.fsencode(value) if value is not None else sys.stdin.buffer.read(LARGEST_VALUE + 1)
    if len(content) > LARGEST_VALUE:
        raise UsageProblem(f"the value is larger than {LARGEST_VALUE} bytes; split it over several keys")
    if expected is None and not if_absent:
        answer = _ask(api, name, "set", key, value=content)
    else:
        before = None if expected is None else os.fsencode(expected)
        answer = _ask(api, name, "replace", key, value=content, expected=before)
        if not answer["done"]:
            raise NotThereError(f"map {name}: {key!r} holds something else; nothing was changed", "mismatch")
    emit(answer, json_wanted, lambda value: None)


@map_group.command()
@click.argument("key")
@map_option
@api_option
@json_option
def delete(key: str, name: str, api: Target, json_wanted: bool) -> None:
    """Delete KEY; exit status 1 if it is not there.

    \b
    Examples:
      rota map delete colour
    """
    answer = _ask(api, name, "delete", key)
    if not answer["done"]:
        raise NotThereError(f"map {name} has no key {key!r}; nothing was changed", "not_found")
    emit(answer, json_wanted, lambda value: None)


@map_group.command()
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The first N keys.")
@map_option
@api_option
@json_option
def ls(limit: int, name: str, api: Target, json_wanted: bool) -> None:
    """The keys of a map and their values, in order of key.

    \b
    Examples:
      rota map ls
      rota map ls --json | jq -r '.entries[].key'
    """
    path, client = f"/v1/map/{_checked(name)}", ApiClient(api, timeout=60.0)
    answer = client.get(path, limit=limit)
    found = further = answer["entries"]
    while further and len(found) < min(limit, answer["keys"]):  # one answer has 16 MiB of values at most
        further = client.get(path, limit=limit - len(found), after=found[-1]["key"])["entries"]
        found += further
    emit(answer, json_wanted, _show_entries)


def _checked(name: str) -> str:
    if not STREAM_NAME.fullmatch(name):
        raise UsageProblem(
            f"{name!r} is no map: a name is 1 to 64 letters, digits, dots, dashes or underscores"
        )
    return name


def _ask(api: Target, name: str, action: str, key: str, **values: bytes | None) -> Any:
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        raise UsageProblem(f"the key {key!r} is no UTF-8 text; values may be any bytes, keys not") from None
    if not 1 <= length <= LARGEST_KEY:
        raise UsageProblem(f"a key has 1 to {LARGEST_KEY} bytes, not {length}")
    body = {"action": action, "key": key}
    for field, value in values.items():
        if value is not None:
            body[field] = base64.b64encode(value).decode()
    return ApiClient(api, timeout=60.0).post(f"/v1/map/{_checked(name)}", body)


def _show_entries(answer: dict[str, Any]) -> None:
    width = max((len(entry["key"]) for entry in answer["entries"]), default=0)
    for entry in answer["entries"]:
        key = printable(entry["key"].encode(), "--json prints it")
        click.echo(f"{key:<{width}}  {printable(bytes.fromhex(entry['hex']), 'get prints it')}")
    more = answer["keys"] - len(answer["entries"])
    if more:
        click.echo(f"and {more} more; --limit shows more of them", err=True)
    if not answer["keys"]:
        click.echo(f"map {answer['map']} is empty", err=True)


COMMANDS = (map_group,)
