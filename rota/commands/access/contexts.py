"""Named contexts: which agent, and how to be let in: ``rota context list|set|use|remove``."""

from __future__ import annotations

from pathlib import Path

import click

from rota.access.names import checked_name
from rota.client.contexts import Contexts, contexts_file, described, load, save
from rota.client.target import Target
from rota.commands.completion import complete_contexts
from rota.commands.options import json_option
from rota.errors import UsageProblem
from rota.terminal.output import emit, table


@click.group(short_help="Named contexts: which agent, and how to be let in.")
def context() -> None:
    """Named contexts: which agent, with which token and authority, so that no command has to say it.

    \b
      rota context set production --api https://a.example:7947 --token-file ~/alice.token --ca-file ~/ca.pem
      rota context use production
      rota members
      rota --context staging members
    They are kept in rota/contexts.toml in the directory for configuration, ~/.config by default.
    """


@context.command("list")
@json_option
def list_contexts(json_wanted: bool) -> None:
    """All contexts; the one in use has a star.

    \b
    Example:
      rota context list
    """
    contexts = load(contexts_file())
    answer = {
        "file": str(contexts_file()),
        "current": contexts.current or None,
        "contexts": {name: described(target) for name, target in contexts.targets.items()},
    }
    rows = [
        (
            "*" if name == contexts.current else "",
            name,
            target.api.replace(",", "\n"),
            target.token_file or "",
            target.ca_file or "",
        )
        for name, target in sorted(contexts.targets.items())
    ]
    emit(answer, json_wanted, lambda _: table(("", "name", "agent", "token", "authority"), rows))


@context.command("set")
@click.argument("name", shell_complete=complete_contexts)
@click.option(
    "--api",
    required=True,
    metavar="URL[,URL...]",
    help="https://HOST:PORT, http://HOST:PORT or unix:/PATH; of several the first that answers is asked.",
)
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Holds the token.")
@click.option("--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Authorities to believe.")
@click.option(
    "--certificate", type=click.Path(path_type=Path), metavar="FILE", help="Certificate and key of yours."
)
@json_option
def set_context(
    name: str,
    api: str,
    token_file: Path | None,
    ca_file: Path | None,
    certificate: Path | None,
    json_wanted: bool,
) -> None:
    """Make or replace the context NAME.  The first one is in use at once.

    \b
    Example:
      rota context set production --api https://a.example:7947 --token-file alice.token --ca-file ca.pem
    """
    try:
        checked_name(name)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    files = [
        None if path is None else path.expanduser().absolute() for path in (token_file, ca_file, certificate)
    ]
    target = Target(api, *files)
    target.where()
    contexts = load(contexts_file())
    _save(
        Contexts({**contexts.targets, name: target}, contexts.current or name), f"{name} is set", json_wanted
    )


@context.command()
@click.argument("name", shell_complete=complete_contexts)
@json_option
def use(name: str, json_wanted: bool) -> None:
    """Have commands use NAME where they are told nothing else.

    \b
    Example:
      rota context use production
    """
    contexts = load(contexts_file())
    contexts.get(name)
    _save(Contexts(contexts.targets, name), f"{name} is in use", json_wanted)


@context.command()
@click.argument("name", shell_complete=complete_contexts)
@json_option
def remove(name: str, json_wanted: bool) -> None:
    """Forget NAME.  If it is in use, none is afterwards.

    \b
    Example:
      rota context remove production
    """
    contexts = load(contexts_file())
    contexts.get(name)
    left = {other: target for other, target in contexts.targets.items() if other != name}
    current = "" if contexts.current == name else contexts.current
    _save(Contexts(left, current), f"{name} is removed", json_wanted)


def _save(contexts: Contexts, said: str, json_wanted: bool) -> None:
    save(contexts_file(), contexts)
    answer = {"current": contexts.current or None, "contexts": sorted(contexts.targets)}
    emit(answer, json_wanted, lambda _: click.echo(said))


COMMANDS = (context,)
