"""Independent runs on several processors: one call for each argument, results in order.

A few worker processes, each with its share of the arguments, and the results put in order again. The arguments are
dealt out in turn, which is even enough for random seeds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar, cast

from chaos.errors import ChaosError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_CONTEXT = multiprocessing.get_context("spawn")


class WorkerError(ChaosError, RuntimeError):
    """A worker process ended before its work was done, or its call raised; the message says which."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def in_order(
    call: Callable[[Argument], Result], arguments: Sequence[Argument], jobs: int
) -> Iterator[Result]:
    """`call` of each argument, in order of the arguments, computed by `jobs` processes.

    `call` and its results must be picklable. Close the iterator to end the workers early. Raises WorkerError.
    """
    if jobs <= 1 or len(arguments) <= 1:
        yield from map(call, arguments)
        return
    hands = [arguments[first::jobs] for first in range(min(jobs, len(arguments)))]
    workers = [_Worker(call, hand) for hand in hands]
    try:
        for number in range(len(arguments)):
            yield workers[number % len(hands)].result(workers)
    finally:
        for worker in workers:
            worker.end()


class _Worker(Generic[Argument, Result]):
    def __init__(self, call: Callable[[Argument], Result], arguments: Sequence[Argument]) -> None:
        self._results: Connection
        self._results, other = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_work, args=(call, arguments, other), daemon=True)
        self._process.start()
        other.close()
        self._ready: deque[tuple[bool, Any]] = deque()

    def result(self, workers: Sequence[_Worker[Argument, Result]]) -> Result:
        """This worker's next result; meanwhile the others' are taken in, so that none waits to be heard."""
        while not self._ready:
            waiting = {worker._results: worker for worker in workers if not worker._results.closed}
            for results in wait(list(waiting)):
                waiting[cast(Connection, results)]._take()
        done, value = self._ready.popleft()
        if not done:
            raise WorkerError(value)
        return cast(Result, value)

    def _take(self) -> None:
        try:
            self._ready.append(self._results.recv())
        except EOFError:
            self._results.close()
            self._process.join()
            status = self._process.exitcode
            self._ready.append(
                (False, f"a worker process ended with status {status} before its work was done")
            )

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self._results.close()


def _work(call: Callable[[Any], Any], arguments: Sequence[Any], results: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends its workers
    for argument in arguments:
        try:
            answer = (True, call(argument))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        results.send(answer)
        # What a simulation leaves is full of cycles, and it rests the collector that would find them.
        gc.collect()
