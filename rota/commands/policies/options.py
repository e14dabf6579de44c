"""What the commands ``rota policy ...`` are given, as objects: what to work on, and how much work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mgmt.state.memory_limits import MEMORY
from rota.agent.settings import memory_size
from rota.commands.completion import complete_packs
from rota.commands.policies.workbench import Workbench, open_workbench
from rota.errors import UsageProblem
from rota.terminal.progress import waiting

if TYPE_CHECKING:
    from mgmt.errors import InfeasibleError

Answer = TypeVar("Answer")
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Sources:
    """Files, a pack, rows and a state database, as named on the command line; the time, as it is written there.

    ``memory``: bytes to solve in.
    """

    files: Sequence[Path]
    pack: str | None
    data: Sequence[Path]
    db: str | None
    now: str | None = None
    memory: int = MEMORY

    def __bool__(self) -> bool:
        """Whether anything was named."""
        return bool(self.files or self.pack or self.data or self.db or self.now)

    @contextmanager
    def workbench(self) -> Iterator[Workbench]:
        """All of it, read; inside, errors of policies are shown with their line."""
        with (
            open_workbench(self.files, self.pack, self.data, self.db, self.memory) as bench,
            bench.problems_shown(),
        ):
            if self.now is not None and bench.state is not None:
                bench.state = bench.state.at(_moment(self.now))
            yield bench


def _memory(_: click.Context, __: click.Parameter, value: str) -> int:
    try:
        return memory_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _moment(now: str) -> datetime:
    from mgmt.errors import DataError
    from mgmt.state.date_texts import HINT, read

    try:
        return read(now).replace(tzinfo=UTC)
    except DataError as error:
        raise UsageProblem(f"--now {now!r} is no time; {HINT}") from error


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to solve, the seed of the search, and the time in Unix seconds (None: the present)."""

    budget: float
    seed: int
    now: float | None = None

    def answered(
        self, ask: Callable[[Callable[[str], None]], Answer], what: str, *, quiet: bool
    ) -> Answer | InfeasibleError:
        """What ``ask`` finds, which is given a function that tells people who wait what is being done.

        If nothing can be placed, the error, with what would help as far as it is found in the time that is left.
        """
        from mgmt.errors import InfeasibleError

        deadline = time.monotonic() + self.budget
        with waiting(f"{what}, {self.budget:g} s at most", quiet) as tell:
            try:
                return ask(tell)
            except InfeasibleError as error:
                tell("looking for what would help")
                error.relaxations_within(deadline - time.monotonic())
                return error


def sources(command: Command) -> Command:
    """What every command here works on, as its parameter ``given``."""

    @wraps(command)
    def called(
        *,
        files: Sequence[Path],
        pack: str | None,
        data: Sequence[Path],
        db: str | None,
        now: str | None,
        memory: int,
        **others: Any,
    ) -> None:
        command(given=Sources(files, pack, data, db, now, memory), **others)

    return _with_options(
        called,
        click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path)),
        click.option(
            "--pack",
            metavar="NAME",
            shell_complete=complete_packs,
            help="An installed policy pack; `rota policy list` names them.",
        ),
        click.option(
            "--data",
            metavar="FILE",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Rows of a table: FILE.csv, .parquet or .json, named as its file or as in NAME=FILE, or a pipe "
            "(NAME=/dev/stdin); those of several in an SQLite or DuckDB file, in .sql with INSERT statements, or in "
            ".json with {table: [{column: value}]}.",
        ),
        click.option(
            "--db",
            metavar="URL",
            help="A database with the rows: postgresql://user@host/database, an SQLite file, or a state database of "
            "rota's; it is only read. Tables that it does not have count as empty.",
        ),
        click.option(
            "--now",
            metavar="TIME",
            help="The time for policies that ask for it, in UTC: '2026-11-23 07:40:00'.  Default: the present.",
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            default="1G",
            show_default=True,
            callback=_memory,
            help="What rows and statements may take, and as much for a model.",
        ),
    )


def solving(command: Command) -> Command:
    """How to solve, as the parameter ``effort``."""

    @wraps(command)
    def called(*, budget: float, seed: int, **others: Any) -> None:
        command(effort=Effort(budget, seed), **others)

    return _with_options(
        called,
        click.option(
            "--budget",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="Time for the answer.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the search."
        ),
    )


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
