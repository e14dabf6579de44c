"""Progress of long work: a bar on a terminal, a line now and then elsewhere, always on standard error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

LINE_EVERY = 0.25
LONG = 2.0
"""Seconds: what takes longer says what it is at."""


class Progress:
    """``with Progress("200 seeds") as progress: progress.share(0.5)``; quiet elsewhere when JSON is wanted."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        self._title = title
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet and not self._terminal
        self._next_line = LINE_EVERY
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=1.0)
        return self

    def share(self, done: float, words: str = "") -> None:
        """How much is done, 0 to 1, and what to say beside it."""
        title = f"{self._title}: {words}" if words else self._title
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=title)
        elif not self._quiet and done >= self._next_line:
            print(f"{self._title}: {done:.0%}{', ' if words else ''}{words}", file=sys.stderr, flush=True)
            self._next_line = done + LINE_EVERY

    def say(self, text: str) -> None:
        """A line of its own, where there is no bar."""
        if self._bar is None and not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def waiting(what: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """On a terminal, says what is waited for if that takes long, until it is there; elsewhere nothing.

    The function it gives says what is being done meanwhile.  ``quiet``: nothing at all, as where JSON is wanted.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what)
    timer = threading.Timer(LONG, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda doing: bar.update(task, description=f"{what}: {doing}")
    finally:
        timer.cancel()
        timer.join()  # it may be starting it just now
        bar.stop()
