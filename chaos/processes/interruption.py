"""SIGTERM ends a run of real agents as Ctrl-C does: everything is taken down first.

A signal handler for the length of a block, where there may be one. After SIGKILL agents notice by themselves that the
run is gone, and namespaces are swept at the next run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit (in the main thread; elsewhere nothing changes)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
