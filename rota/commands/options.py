"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from rota.client.api_client import ApiClient
from rota.client.contexts import TARGET_OPTIONS, target_of
from rota.client.target import Target
from rota.commands.completion import complete_contexts
from rota.terminal.progress import waiting

Command = TypeVar("Command", bound=Callable[..., Any])

AGREED_TIMEOUT = 90.0
"""Seconds for an answer that waits for the controller to solve, or for the others to agree."""


def json_option(command: Command) -> Command:
    return click.option("--json", "json_wanted", is_flag=True, help="One JSON document on standard output.")(
        command
    )


def watch_option(command: Command) -> Command:
    return click.option("--watch", "watched", is_flag=True, help="Show it again and again, until Ctrl-C.")(
        command
    )


def api_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--api`` and what goes with it; the command gets one :class:`Target`, ``api``."""

    @wraps(command)
    def with_target(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in TARGET_OPTIONS}
        return command(*arguments, api=chosen_target(given), **options)

    return target_options(with_target)


class ConnectionOption(click.Option):
    """One of those by which a command reaches an agent.  All of them are in ``rota help connection``, and so in no help
    of a command."""

    def get_help_record(self, ctx: click.Context) -> None:
        return None


def target_options(command: Command) -> Command:
    """The options alone, for the group and for each command."""
    for option in reversed(
        (
            click.option(
                "--api",
                cls=ConnectionOption,
                metavar="URL",
                help="HTTP interface of any agent of the cluster: http://HOST:PORT, https://HOST:PORT or "
                "unix:/PATH; several with commas between: the first that answers is asked.",
            ),
            click.option(
                "--token-file",
                cls=ConnectionOption,
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Holds the token to be let in with (or set ROTA_TOKEN_FILE).",
            ),
            click.option(
                "--ca-file",
                cls=ConnectionOption,
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="TLS: authorities to believe instead of the system's (or set ROTA_CA_FILE).",
            ),
            click.option(
                "--certificate",
                cls=ConnectionOption,
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="TLS: certificate and key of yours, where the agent asks for one.",
            ),
            click.option(
                "--context",
                cls=ConnectionOption,
                metavar="NAME",
                shell_complete=complete_contexts,
                help="The address and files of this context; see `rota context`.",
            ),
        )
    ):
        command = option(command)
    return command


def agreed(api: Target, path: str, body: Mapping[str, Any]) -> Any:
    """What the agent answers to something that the controller solves, or the others agree on."""
    with waiting("waiting for the controller, and the others"):
        return ApiClient(api, timeout=AGREED_TIMEOUT).post(path, body)


def chosen_target(given: Mapping[str, Any], own: str | None = None) -> Target:
    """From a command's options, those of the group before it, the environment, the contexts.

    Raises :class:`UsageProblem`.
    """
    return target_of(given, click.get_current_context().find_root().params, own)
