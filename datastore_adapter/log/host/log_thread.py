"""The log's server in an event loop of its own, which has a thread of its own.

What an agent runs.  A write to a disk holds up the loop it is called in, and handing each to a thread costs more than
the write: two threads that wait for each other, and for Python's lock, at every request.  So the whole server has a
thread, from the socket to the disk and back, and a disk that stalls stalls the log and nothing else: the agent's own
loop goes on speaking for the host.  Connections are accepted and greeted in the agent's loop, and then handed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio

from datastore_adapter.log.errors import StorageError
from datastore_adapter.log.host.server import LogServer
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.messages import SegmentStatus
from datastore_adapter.log.runtime.trio_runtime import Opener, TrioRuntime
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_health import DiskReport
from datastore_adapter.log.storage.disk_identity import DiskIdentity
from membership.files import SYSTEM, SystemCalls
from membership.transport import FrameStream

_OpenServer: TypeAlias = Callable[[trio.Nursery], Awaitable[LogServer]]


class LogThread:
    """A `LogServer` to be used from another event loop.  Make one with `open`; hand `serve` to the transport."""

    _server: LogServer
    _token: trio.lowlevel.TrioToken
    _nursery: trio.Nursery
    """The last two of the thread's own loop."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._failure: StorageError | None = None
        """Why the server could not be opened."""
        self._handed_over: set[trio.Event] = set()
        """For each stream in the thread, what tells that it has ended."""

    @classmethod
    async def open(
        cls,
        name: str,
        data_dir: Path,
        nursery: trio.Nursery,
        settings: LogSettings | None = None,
        *,
        is_copy: bool = False,
        system: SystemCalls = SYSTEM,
    ) -> LogThread:
        """As `LogServer.open`; the thread runs as long as `nursery`."""
        thread = cls()
        await nursery.start(
            thread._run,
            lambda own: LogServer.open(name, data_dir, own, settings, is_copy=is_copy, system=system),
        )
        if thread._failure is not None:
            raise thread._failure
        return thread

    async def _run(
        self, open_server: _OpenServer, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        opened = trio.Event()
        work = partial(
            self._work, open_server, partial(trio.lowlevel.current_trio_token().run_sync_soon, opened.set)
        )
        # With the same clock, for who has waited longest is judged over the streams of both loops.
        loop = partial(trio.run, work, clock=trio.lowlevel.current_clock())
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(trio.to_thread.run_sync, loop, limiter=trio.CapacityLimiter(1)))
                with trio.CancelScope(shield=True):
                    await opened.wait()
                task_status.started()
                if self._failure is None:
                    try:
                        await trio.sleep_forever()
                    finally:
                        self._soon(self._scope.cancel)
        finally:
            for ended in self._handed_over:
                ended.set()

    async def _work(self, open_server: _OpenServer, opened: Callable[[], object]) -> None:
        """In the thread."""
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                try:
                    self._server = await open_server(self._nursery)
                except StorageError as error:
                    self._failure = error
                finally:
                    opened()

    def _soon(self, act: Callable[[], object]) -> None:
        """Do this in the thread's loop, unless that has ended."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(act)

    @property
    def document(self) -> EpochDocument | None:
        """The latest epoch document this host knows."""
        return self._server.document

    @property
    def identity(self) -> DiskIdentity:
        """Of the disk, and what was lost of what it held."""
        return self._server.identity

    @property
    def disk(self) -> DiskReport:
        """How it is; the thread is not asked, for it may be waiting for just that."""
        return self._server.disk

    def statistics(self) -> dict[str, int]:
        """Counters of the roles and of the connections."""
        return self._server.statistics()

    async def segments(self) -> tuple[SegmentStatus, ...]:
        """What this host holds, told between two requests; it waits for a disk that stalls."""
        told: list[tuple[SegmentStatus, ...]] = []
        home, answered = trio.lowlevel.current_trio_token(), trio.Event()

        def tell() -> None:
            told.append(self._server.segments())
            with suppress(trio.RunFinishedError):
                home.run_sync_soon(answered.set)

        self._soon(tell)
        await answered.wait()
        return told[0]

    def use(self, open_stream: Opener) -> None:
        """Ask other hosts through such streams, which are opened in the thread."""
        self._soon(lambda: self._server.use(TrioRuntime(self._nursery, open_stream=open_stream)))

    async def found(self, cluster_id: str, address: str) -> EpochDocument:
        """As `LogServer.found`."""
        found = partial(self._server.found, cluster_id, address)
        return await trio.to_thread.run_sync(partial(trio.from_thread.run, found, trio_token=self._token))

    async def serve(self, stream: FrameStream) -> None:
        """Answer the requests of one stream until it ends."""
        home, ended, scope = trio.lowlevel.current_trio_token(), trio.Event(), trio.CancelScope()
        failures: list[Exception] = []
        take = stream.hand_over()

        async def work() -> None:
            try:
                with scope:
                    async with take() as successor:
                        await self._server.serve(successor)
            except Exception as failure:  # ends its stream, and is told there, but not the thread
                failures.append(failure)
            finally:
                home.run_sync_soon(ended.set)

        def begin() -> None:
            with suppress(RuntimeError):  # the thread is about to end, and closes all streams
                self._nursery.start_soon(work)

        self._handed_over.add(ended)
        try:
            self._token.run_sync_soon(begin)
            await ended.wait()
        except trio.RunFinishedError:
            return
        except trio.Cancelled:
            self._soon(scope.cancel)
            with trio.CancelScope(shield=True):
                await ended.wait()
            raise
        finally:
            self._handed_over.discard(ended)
        if failures:
            raise failures[0]
