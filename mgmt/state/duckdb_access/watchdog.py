"""A watchdog: one thread that calls back when a deadline has passed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf


class Watchdog:
    """Deadlines of one process.  The thread begins with the first of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deadlines: dict[object, tuple[float, Callable[[], float], Callable[[], None]]] = {}
        """When to look, what is left then, and what to call if nothing is."""
        self._wakes = inf
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, seconds: float, stop: Callable[[], None], *, of_processor: bool = False) -> Iterator[None]:
        """Inside, ``stop`` is called once so many seconds have passed; never after the end.

        ``of_processor``: once this thread has had the processor for so long, however busy the machine is.
        """
        deadline, key = time.monotonic() + seconds, object()
        left = _left_of_processor(seconds) if of_processor else float
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="statement watchdog", daemon=True)
                self._wakes = inf
                self._thread.start()
            self._deadlines[key] = (deadline, left, stop)
            if deadline < self._wakes:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._deadlines.pop(key, None)

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for key, (deadline, left, stop) in list(self._deadlines.items()):
                    if deadline > now:
                        continue
                    if (seconds := left()) > 0:
                        self._deadlines[key] = (now + seconds, left, stop)
                    else:
                        del self._deadlines[key]
                        stop()
                self._wakes = min((deadline for deadline, _, _ in self._deadlines.values()), default=inf)
                self._changed.wait(None if self._wakes == inf else self._wakes - now)


def _left_of_processor(seconds: float) -> Callable[[], float]:
    """A function, for any thread, of the seconds that this one may still have the processor."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    end = time.clock_gettime(clock) + seconds
    return lambda: end - time.clock_gettime(clock)
