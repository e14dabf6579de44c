"""What a command prints: tables and sentences for people, one JSON document for programs.

With ``--json`` standard output carries exactly one JSON document; progress and remarks go to standard error.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

WIDEST: Final = 10_000
"""Columns where nobody says how many there are: a program that reads on wants all of it."""
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
BETWEEN: Final = 3
"""Columns that a table has for each of its own, besides its cells."""


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, default=str)


def emit(value: Any, json_wanted: bool, render: Callable[[Any], None]) -> None:
    """Print ``value`` as JSON, or let ``render`` show it to a person."""
    if json_wanted:
        click.echo(as_json(value))
    else:
        render(value)


def away_text(segment: str, away: Mapping[str, Any]) -> str:
    """Records that cannot be read, and what would help."""
    what = f"{segment}, addresses {away['start']} to {away['end'] - 1}"
    if not away["hosts"]:
        return f"{what}: its last hosts came back without it"
    return f"{what}: only on {', '.join(away['hosts'])}, which are away; start one of them"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, wide: bool = False) -> None:
    """A plain table, as wide as its cells; unless ``wide`` at most as the terminal, with further lines in its cells."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        view.add_column(column, overflow="fold")
    for row in rows:
        view.add_row(*(Text(str(cell)) for cell in row))
    console = Console(width=WIDEST if wide else width())
    with console.capture() as printed:
        console.print(view)
    for line in printed.get().strip("\n").splitlines():
        if line.strip():
            click.echo(line.rstrip())


def width() -> int:
    """Columns of the terminal, or of ``COLUMNS``; where there is neither, as many as it takes."""
    return shutil.get_terminal_size((WIDEST, 0)).columns


def room_for_last(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """What is left of the terminal for the last column of a table."""
    widest = [max(map(len, map(str, cells))) for cells in zip(columns, *rows, strict=True)]
    return width() - sum(widest[:-1]) - BETWEEN * len(widest)


def field(name: str, value: object, beside: int = 14) -> None:
    """A value after its name, further lines of it below; a line that nobody's terminal bounds is not broken."""
    begin, columns = f"{name:<{beside}}", shutil.get_terminal_size((0, 0)).columns
    if columns <= beside:
        click.echo(f"{begin}{value}")
        return
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", NO_BREAK), str(value))
    lines = textwrap.fill(
        whole,
        columns,
        initial_indent=begin,
        subsequent_indent=" " * beside,
        replace_whitespace=False,
        break_on_hyphens=False,  # names and options have them
        break_long_words=False,
    )
    click.echo(lines.replace(NO_BREAK, " "))


def shortened(text: str, most: int) -> str:
    """No longer than that, in whole words if one fits; that it was longer is seen."""
    if len(text) <= most:
        return text
    words = text[: most - 1].rpartition(" ")[0]
    return f"{words} …" if words else text[: most - 1] + "…"


def write_bytes(content: bytes) -> None:
    """Bytes as they are, at once."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def printable(content: bytes, remedy: str) -> str:
    """Text as it is, its further lines indented; anything a terminal could mistake for orders is only named.

    ``remedy``: what prints it nevertheless.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"<binary, {len(content)} bytes; {remedy}>"
    if not all(character.isprintable() or character in "\n\t" for character in text):
        return f"<control characters, {len(content)} bytes; {remedy}>"
    return text.rstrip("\n").replace("\n", "\n          ")


def short_id(text: str) -> str:
    """Ids are 128 bits; eight digits are enough to compare by eye."""
    return text[:8]


def ago(moment: float) -> str:
    """A time in Unix seconds, as long ago as it is by this machine's clock."""
    seconds = max(0.0, time.time() - moment)
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
