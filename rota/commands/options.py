"""Options that many commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from rota.client.api_client import ApiClient
from rota.client.contexts import FILES, contexts_file, load, local_agents
from rota.client.target import Target
from rota.terminal.progress import waiting

Command = TypeVar("Command", bound=Callable[..., Any])

TARGET_OPTIONS = ("api", *FILES, "context")
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


def target_options(command: Command) -> Command:
    """The options alone, for the group and for each command."""
    for option in reversed(
        (
            click.option(
                "--api",
                metavar="URL",
                help="HTTP interface of any agent of the cluster: http://HOST:PORT, https://HOST:PORT or "
                "unix:/PATH; several with commas between: the first that answers is asked. "
                "[default: ROTA_API, the context in use, the agents of `rota up`, http://127.0.0.1:7947]",
            ),
            click.option(
                "--token-file",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Holds the token to be let in with (or set ROTA_TOKEN_FILE).",
            ),
            click.option(
                "--ca-file",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="TLS: authorities to believe instead of the system's (or set ROTA_CA_FILE).",
            ),
            click.option(
                "--certificate",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="TLS: certificate and key of yours, where the agent asks for one.",
            ),
            click.option("--context", metavar="NAME", help="Use this one; see `rota context`."),
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

    ``own``: the agent of this host, for a command that asks none but that; the context in use is not.
    Raises :class:`UsageProblem`.
    """
    group = click.get_current_context().find_root().params
    asked = {name: given[name] if given[name] is not None else group.get(name) for name in TARGET_OPTIONS}
    files: dict[str, Any] = {name: asked[name] for name in FILES if asked[name] is not None}
    if asked["api"] is None and (asked["context"] or (own is None and "ROTA_API" not in os.environ)):
        contexts = load(contexts_file())
        name = asked["context"] or contexts.current
        if name:
            return replace(contexts.get(name), **files)
    for name in ("token_file", "ca_file"):
        if path := os.environ.get(f"ROTA_{name.upper()}"):
            files.setdefault(name, Path(path))
    return Target(asked["api"] or os.environ.get("ROTA_API") or own or local_agents(), **files)
