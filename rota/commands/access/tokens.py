"""Who may ask an agent for what: ``rota tokens list|add|remove``.  They change a file; no agent is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rota.access.names import checked_name
from rota.access.roles import ROLES
from rota.access.tokens import Token, TokenError, digest_of, new_token, read_tokens, write_tokens
from rota.commands.options import json_option
from rota.errors import AgentError, UsageProblem
from rota.terminal.output import emit, table

DEFAULT_FILE = Path("/etc/rota/tokens")


@click.group(short_help="Who may ask an agent for what, from elsewhere.")
def tokens() -> None:
    """Who may ask an agent for what, when its HTTP interface can be reached from elsewhere.

    \b
    The role `read` sees everything, `operate` may change everything.  The file holds hashes, no tokens. Examples:
      rota tokens add alice --role operate --output alice.token
      rota tokens add prometheus --role read --output prometheus.token
      rota agent --api 0.0.0.0:7947 --api-tokens /etc/rota/tokens ...
    Copy the file to every host, and send agents that run SIGHUP.
    """


def file_option(command: Any) -> Any:
    return click.option(
        "--file",
        type=click.Path(path_type=Path),
        default=DEFAULT_FILE,
        envvar="ROTA_TOKENS",
        show_default=True,
        help="The tokens file (or set ROTA_TOKENS).",
    )(command)


@tokens.command("list")
@file_option
@json_option
def list_tokens(file: Path, json_wanted: bool) -> None:
    """Names and roles.

    \b
    Example:
      rota tokens list
    """
    found = [{"name": token.name, "role": token.role} for token in read_tokens(file)]
    emit(
        {"file": str(file), "tokens": found},
        json_wanted,
        lambda _: table(("name", "role"), [(each["name"], each["role"]) for each in found]),
    )


@tokens.command(short_help="Make a token for NAME; the file keeps its hash.")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="`read` sees everything, `operate` may change everything.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the token there, mode 0600."
)
@file_option
@json_option
def add(name: str, role: str, output: Path | None, file: Path, json_wanted: bool) -> None:
    """Make a token for NAME and print it, this once; the file keeps only its hash.

    \b
    Example:
      rota tokens add alice --role operate --output alice.token
    """
    try:
        checked_name(name)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    present = read_tokens(file) if file.exists() else ()
    if any(token.name == name for token in present):
        raise TokenError(f"{file}: {name} is there already; `rota tokens remove {name}` first")
    text = new_token()
    if output is not None:
        _write_secret(output, text)
    write_tokens(file, [*present, Token(name, role, digest_of(text))])
    answer: dict[str, Any] = {"name": name, "role": role, "file": str(file)}
    if output is None:
        emit({**answer, "token": text}, json_wanted, lambda _: click.echo(text))
    else:
        emit(
            {**answer, "output": str(output)}, json_wanted, lambda _: click.echo(f"the token is in {output}")
        )


def _write_secret(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise AgentError(f"{path}: cannot be made: {error.strerror}; name another file") from error
    with os.fdopen(descriptor, "w") as output:
        output.write(f"{text}\n")


@tokens.command()
@click.argument("name")
@file_option
@json_option
def remove(name: str, file: Path, json_wanted: bool) -> None:
    """Take the token of NAME away.  Agents that run hear of it by SIGHUP; sessions opened with it end then.

    \b
    Example:
      rota tokens remove alice
    """
    present = read_tokens(file)
    kept = [token for token in present if token.name != name]
    if len(kept) == len(present):
        raise TokenError(f"{file}: there is no {name}; `rota tokens list` shows who is there")
    write_tokens(file, kept)
    emit(
        {"name": name, "file": str(file)}, json_wanted, lambda _: click.echo(f"{name} is removed from {file}")
    )


COMMANDS = (tokens,)
