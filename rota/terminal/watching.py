"""``--watch``: what a command reports, again and again: in place on a terminal, elsewhere whenever it has changed."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import click

from rota.errors import ApiError

INTERVAL = 1.0


def watch(look: Callable[[], Any], render: Callable[[Any], None], *, json_wanted: bool) -> NoReturn:
    """Until Ctrl-C.  With JSON: one document a line.  An agent that does not answer is told, and asked again."""
    if json_wanted:
        _on_change(lambda: json.dumps(look(), default=str))
    elif sys.stdout.isatty():
        _in_place(lambda: _text(look, render))
    else:
        _on_change(lambda: _text(look, render))


def _text(look: Callable[[], Any], render: Callable[[Any], None]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            render(look())
        except ApiError as error:
            return f"{error}\n"
    return printed.getvalue()


def _on_change(text: Callable[[], str]) -> NoReturn:
    before = None
    while True:
        try:
            now = text()
        except ApiError as error:
            now = json.dumps({"error": str(error), "code": error.code})
        if now != before:
            click.echo(now)
            before = now
        time.sleep(INTERVAL)


def _in_place(text: Callable[[], str]) -> NoReturn:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            live.update(Text(text().rstrip("\n")), refresh=True)
            time.sleep(INTERVAL)
