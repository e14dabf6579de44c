"""The clients of real agents: `Clients` on trio, in a thread beside the run that hurts the agents.

A thread that runs them, told when to stop and when to read everything back.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

import trio

from chaos.checkers.history import Record
from chaos.store.clients import Clients
from datastore_adapter import LogClient, LogSettings, TrioRuntime


class Application:
    """`begin`, then `stop`, then `read_back`, each once; what it saw is in `record` when it has `ended`."""

    def __init__(self, *, seed: int, pause: float) -> None:
        self.record = Record()
        self.stopped = True
        """Whether no client is at anything."""
        self.ended = False
        """Whether everything was read back, or could not be."""
        self.failure: BaseException | None = None
        self._seed = seed
        self._pause = pause
        self._stop, self._read, self._close = trio.Event(), trio.Event(), trio.Event()
        self._begun = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._offset = 0.0
        self._thread: threading.Thread | None = None

    def begin(self, addresses: Sequence[str]) -> None:
        """Use the store at these agents."""
        self.stopped = False
        self._thread = threading.Thread(target=self._run, args=(addresses,), name="clients", daemon=True)
        self._thread.start()
        self._begun.wait()

    def stop(self) -> None:
        """Each client ends after the call it is at."""
        self._tell(self._stop)

    def read_back(self) -> None:
        """Read the whole log and the whole map into the record."""
        self._tell(self._read)

    def close(self) -> None:
        """End at once."""
        self._tell(self._close)
        if self._thread is not None:
            self._thread.join(10.0)

    def _tell(self, event: trio.Event) -> None:
        if self._token is not None and not self.ended:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(event.set)

    def time_of(self, monotonic: float) -> float:
        """A time of the machine's monotonic clock in the record's time."""
        return monotonic - self._offset

    def _run(self, addresses: Sequence[str]) -> None:
        try:
            trio.run(self._main, addresses)
        except BaseException as error:
            self.failure = error  # the run that started this thread judges
        self.stopped = self.ended = True
        self._begun.set()

    async def _main(self, addresses: Sequence[str]) -> None:
        self._offset = time.monotonic() - trio.current_time()
        self._token = trio.lowlevel.current_trio_token()
        self._begun.set()
        async with trio.open_nursery() as nursery:
            runtime = TrioRuntime(nursery)
            clients = Clients(
                lambda name: LogClient(runtime, addresses, LogSettings.lan()),
                seed=self._seed,
                pause=self._pause,
            )
            self.record = clients.record
            nursery.start_soon(self._end_when_closed, nursery.cancel_scope)
            nursery.start_soon(self._stop_clients, clients)
            await clients.use()
            self.stopped = True
            await self._read.wait()
            await clients.read_back()
            nursery.cancel_scope.cancel()

    async def _stop_clients(self, clients: Clients) -> None:
        await self._stop.wait()
        clients.stop()

    async def _end_when_closed(self, scope: trio.CancelScope) -> None:
        await self._close.wait()
        scope.cancel()
