"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from agent.api_client import DEFAULT_URL

Command = TypeVar("Command", bound=Callable[..., Any])

AGREED_TIMEOUT = 90.0
"""Seconds for an answer that waits for the controller to solve, or for the others to agree."""


def json_option(command: Command) -> Command:
    return click.option("--json", "json_wanted", is_flag=True, help="One JSON document on standard output.")(
        command
    )


def api_option(command: Command) -> Command:
    return click.option(
        "--api",
        metavar="URL",
        envvar="ROTA_API",
        default=DEFAULT_URL,
        show_default=True,
        help="HTTP interface of any agent of the cluster (or set ROTA_API).",
    )(command)


def watch_option(command: Command) -> Command:
    return click.option("--watch", "watched", is_flag=True, help="Show it again and again, until Ctrl-C.")(
        command
    )
