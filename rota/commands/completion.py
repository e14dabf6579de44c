"""What the shell completes besides commands and options: names that a cluster, a pack or a file of the user's has.

An agent is asked as the command itself would ask it, for a short while: where none answers, nothing is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from rota.client.api_client import ApiClient
from rota.client.contexts import TARGET_OPTIONS, contexts_file, load, target_of

PATIENCE: Final = 1.5
"""Seconds for an agent's answer; whoever pressed the key is waiting."""

Named = Callable[[click.Context], Iterable[str]]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(named: Named) -> Completer:
    """Completes the names that this function finds."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            names = sorted(set(named(context)))
        except Exception:  # whatever it is, a traceback would stand in the line that is being typed
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def _answer(context: click.Context, path: str, **query: int) -> Any:
    given = {name: context.params.get(name) for name in TARGET_OPTIONS}
    target = target_of(given, context.find_root().params)
    return ApiClient(target, timeout=PATIENCE).get(path, **query)


def _hosts(context: click.Context) -> Iterable[str]:
    return [member["name"] for member in _answer(context, "/v1/members")["members"]]


def _segments(context: click.Context) -> Iterable[str]:
    return [segment["key"] for segment in _answer(context, "/v1/layout")["segments"]]


def _placed(context: click.Context) -> Iterable[str]:
    return [*_segments(context), *_hosts(context)]


def _streams(context: click.Context) -> Iterable[str]:
    return [stream["name"] for stream in _answer(context, "/v1/streams", names=1)["streams"]]


def _maps(context: click.Context) -> Iterable[str]:
    return [found["name"] for found in _answer(context, "/v1/streams", names=1)["maps"]]


def _contexts(_: click.Context) -> Iterable[str]:
    return load(contexts_file()).targets


def _packs(_: click.Context) -> Iterable[str]:
    from mgmt.language.policy_packs import pack_names

    return pack_names()


def _scenarios(_: click.Context) -> Iterable[str]:
    from chaos.scenarios import list_scenarios

    return list_scenarios()


complete_hosts = _completer(_hosts)
complete_segments = _completer(_segments)
complete_placed = _completer(_placed)
complete_streams = _completer(_streams)
complete_maps = _completer(_maps)
complete_contexts = _completer(_contexts)
complete_packs = _completer(_packs)
complete_scenarios = _completer(_scenarios)


@click.command(short_help="Have the shell complete commands, options and names.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what has SHELL complete rota's commands and options, and the names of hosts, segments, streams, maps,
    contexts, packs and scenarios.

    \b
    Examples:
      rota completion bash > ~/.local/share/bash-completion/completions/rota
      rota completion zsh > ~/.zfunc/_rota          # with fpath+=~/.zfunc before compinit
      rota completion fish > ~/.config/fish/completions/rota.fish
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows the three"
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "rota", "_ROTA_COMPLETE").source())


COMMANDS = (completion,)
