"""The log's server: the roles of one host behind the "log" service.

What it is: the shell around `LogNode`.  Disk work happens in a thread per role, one request at a time;
while one batch of log unit requests is made durable the next one gathers, so that one fsync serves many.
What it is not: a listener; `membership`'s transport calls `serve` for every stream opened to the service.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

import trio

from datastore_adapter.log.errors import LogError, ProtocolError, StorageError
from datastore_adapter.log.host.codec import decode_request, encode_reply
from datastore_adapter.log.host.node import LogNode, Part, part_of
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.log_unit.pulling import pull
from datastore_adapter.log.log_unit.unit import Outcome
from datastore_adapter.log.messages import (
    Done,
    FinishBootstrap,
    GetStatus,
    Installed,
    PullChunk,
    Reclaim,
    Refused,
    Reply,
    Request,
    SealTokens,
)
from datastore_adapter.log.runtime.runtime import Runtime
from datastore_adapter.log.runtime.trio_runtime import FrameStream
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_identity import DiskIdentity
from datastore_adapter.log.storage.file_storage import FileStorage
from membership.transport import StreamError

log = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"


class ServedStream(FrameStream, Protocol):
    """What is needed of an accepted `membership.transport.FrameStream`."""

    async def flush(self) -> None: ...


class _Job(NamedTuple):
    """One request for a role, and where its reply goes."""

    run: Callable[[], Outcome]
    deliver: Callable[[Reply], None]


class LogServer:
    """The log's roles on one host.  Make one with `open`; hand `serve` to the transport as service "log"."""

    def __init__(self, node: LogNode, storage: FileStorage, lock: int, settings: LogSettings) -> None:
        self._node = node
        self._storage = storage
        self._lock = lock
        self._settings = settings
        self._unit = _Worker(self._run_unit_batch)
        self._layout = _Worker(self._run_layout_batch, self._after_layout_batch)
        self._bootstrapping = trio.Lock()
        self._held = 0
        """Bytes of the requests under way."""
        self._freed = trio.lowlevel.ParkingLot()
        self._counters: Counter[str] = Counter()
        self._runtime: Runtime | None = None

    @classmethod
    async def open(
        cls,
        name: str,
        data_dir: Path,
        nursery: trio.Nursery,
        settings: LogSettings | None = None,
        *,
        is_copy: bool = False,
    ) -> LogServer:
        """Recover the roles of host `name` from `data_dir` and run them in `nursery`.

        `is_copy`: the directory is known to be a copy, perhaps an old one.  Raises StorageError: it cannot be used, or
        is in use by another process.
        """
        chosen = settings or LogSettings()
        server = await trio.to_thread.run_sync(cls._recover, name, data_dir, chosen, is_copy)
        nursery.start_soon(server._run)
        return server

    @classmethod
    def _recover(cls, name: str, data_dir: Path, settings: LogSettings, is_copy: bool) -> LogServer:
        storage = FileStorage(data_dir, fsync=settings.fsync, reserve=settings.reserved_bytes)
        lock = _lock(data_dir / LOCK_FILE)
        try:
            node = LogNode(name, storage, settings, draw=os.urandom, is_copy=is_copy)
            return cls(node, storage, lock, settings)
        except BaseException:
            os.close(lock)
            storage.close()
            raise

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def document(self) -> EpochDocument | None:
        """The latest epoch document this host knows."""
        return self._node.document

    @property
    def identity(self) -> DiskIdentity:
        """Of the disk, and what was lost of what it held."""
        return self._node.identity

    def use(self, runtime: Runtime) -> None:
        """Ask other hosts by `runtime`: a new replica fetches what it lacks.  It must work as long as `serve` does."""
        self._runtime = runtime

    async def found(self, cluster_id: str, address: str) -> EpochDocument:
        """Begin the layout chain of a new cluster with epoch 0 on this host, at ``host:port`` `address`.

        Repeating it, also after a restart, changes nothing.  Raises BootstrapRefusedError when the data
        directory belongs to another cluster, StorageError.
        """
        outcome: list[EpochDocument | LogError] = []
        ended = trio.Event()

        def run() -> Outcome:
            try:
                outcome.append(self._node.layout_server.found(cluster_id, self.name, address))
            except LogError as error:
                outcome.append(error)
            return Outcome(Done())

        self._layout.add(_Job(run, lambda reply: ended.set()))  # in the layout server's turn
        await ended.wait()
        if isinstance(outcome[0], LogError):
            raise outcome[0]
        return outcome[0]

    def statistics(self) -> dict[str, int]:
        """Counters of the roles and of the connections."""
        return dict(sorted({**self._node.statistics(), **self._counters}.items()))

    async def serve(self, stream: ServedStream) -> None:
        """Answer the requests of one stream until it ends."""
        self._counters["server.connections"] += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry, stream)
            try:
                while True:
                    frame = await stream.receive()
                    request = decode_request(frame)
                    await self._admit(stream, len(frame))
                    await self._submit(
                        request.request, partial(self._answer, stream, request.number, len(frame))
                    )
                    await stream.flush()  # a peer that does not take its replies is not read from
            except StreamError:
                pass
            except ProtocolError as error:
                self._counters["server.malformed"] += 1
                log.info("%s: a peer was disconnected: %s", self.name, error)
            nursery.cancel_scope.cancel()

    async def _carry(self, stream: ServedStream) -> None:
        with suppress(StreamError):  # `serve` meets it too
            await stream.carry()

    async def _admit(self, stream: ServedStream, size: int) -> None:
        """Wait until there is room for a request of `size` bytes."""
        while stream.pending >= self._settings.in_flight or (
            self._held and self._held + size > self._settings.in_flight_bytes
        ):
            await self._freed.park()
        stream.pending += 1
        self._held += size

    def _answer(self, stream: ServedStream, number: int, size: int, reply: Reply) -> None:
        try:
            stream.post(encode_reply(number, reply))
        except StreamError:
            self._counters["server.replies_too_late"] += 1
        stream.pending -= 1
        self._held -= size
        self._freed.unpark_all()

    async def _submit(self, request: Request, deliver: Callable[[Reply], None]) -> None:
        """Give the request to its role; the reply follows by `deliver`."""
        node = self._node
        match part_of(request):
            case Part.LOG_UNIT:
                self._unit.add(_Job(partial(node.log_unit.handle, request), deliver))
            case Part.LAYOUT_SERVER:
                self._layout.add(_Job(lambda: Outcome(node.layout_server.handle(request)), deliver))
            case Part.STATUS:
                # In the log unit's turn, since it walks the unit's tables.
                assert isinstance(request, GetStatus)
                self._unit.add(_Job(lambda: Outcome(node.status(request)), deliver))
            case Part.PULL:
                assert isinstance(request, PullChunk | Reclaim)
                if self._runtime is None:
                    deliver(Refused("not_ready", f"{self.name} is not in the cluster yet; retry"))
                else:
                    self._runtime.spawn(partial(self._pull, self._runtime, request, deliver))
            case Part.SEQUENCER:
                deliver(await self._sequencer(request))

    async def _pull(
        self, runtime: Runtime, request: PullChunk | Reclaim, deliver: Callable[[Reply], None]
    ) -> None:
        async def ask_unit(change: Request) -> Reply:
            replies: list[Reply] = []
            ended = trio.Event()

            def take(reply: Reply) -> None:
                replies.append(reply)
                ended.set()

            self._unit.add(_Job(partial(self._node.log_unit.handle, change), take))
            await ended.wait()
            return replies[0]

        deliver(await pull(runtime, self._settings, self.document, ask_unit, request))

    async def _sequencer(self, request: Request) -> Reply:
        """Tokens are handed out in memory; only the end of a bootstrap, and of an epoch, writes to the disk."""
        if isinstance(request, FinishBootstrap | SealTokens):
            async with self._bootstrapping:
                return await trio.to_thread.run_sync(self._node.sequencer.handle, request)
        if self._bootstrapping.locked():
            async with self._bootstrapping:
                pass
        return self._node.sequencer.handle(request)

    # workers

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._unit.run)
                nursery.start_soon(self._layout.run)
        finally:
            self._storage.close()
            os.close(self._lock)

    def _run_unit_batch(self, jobs: list[_Job]) -> list[Reply]:
        outcomes = [self._carry_out(job) for job in jobs]
        if any(outcome.needs_commit for outcome in outcomes):
            try:
                self._node.log_unit.commit()
            except StorageError as error:
                log.error("%s: the log unit stopped: %s", self.name, error)  # noqa: TRY400  # no traceback wanted
                refusal = Refused("storage", str(error))
                return [refusal if outcome.needs_commit else outcome.reply for outcome in outcomes]
        return [outcome.reply for outcome in outcomes]

    def _run_layout_batch(self, jobs: list[_Job]) -> list[Reply]:
        return [self._carry_out(job).reply for job in jobs]

    def _carry_out(self, job: _Job) -> Outcome:
        """One job; a defect costs its request an answer of regret, not the agent its life."""
        try:
            return job.run()
        except Exception:
            log.exception("%s: a request failed unexpectedly", self.name)
            self._counters["server.defects"] += 1
            return Outcome(Refused("internal", f"{self.name} could not handle the request; see its log"))

    def _after_layout_batch(self, replies: list[Reply]) -> None:
        """The log unit learns of a newer document, in its own turn."""
        for reply in replies:
            if isinstance(reply, Installed | Refused):
                self._unit.add(_Job(partial(self._tell_unit, Outcome(reply)), lambda reply: None))
                return

    def _tell_unit(self, outcome: Outcome) -> Outcome:
        self._node.after_layout_change(outcome)
        return Outcome(Done())


class _Worker:
    """Runs jobs of one role in a thread of its own, one batch after the other."""

    def __init__(
        self,
        run_batch: Callable[[list[_Job]], list[Reply]],
        after: Callable[[list[Reply]], None] = lambda replies: None,
    ) -> None:
        """`run_batch` runs in the thread, `after` then in the event loop."""
        self._run_batch = run_batch
        self._after = after
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def add(self, job: _Job) -> None:
        self._jobs.put(job)

    async def run(self) -> None:
        """Work until it is cancelled, and the batch under way has ended."""
        token, limiter = trio.lowlevel.current_trio_token(), trio.CapacityLimiter(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, self._work, token, limiter=limiter))
            try:
                await trio.sleep_forever()
            finally:
                self._jobs.put(None)

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        while True:
            jobs = [self._jobs.get()]
            while not self._jobs.empty():
                jobs.append(self._jobs.get())
            batch = [job for job in jobs if job is not None]
            if len(batch) < len(jobs):
                return
            token.run_sync_soon(self._deliver, batch, self._run_batch(batch))

    def _deliver(self, jobs: list[_Job], replies: list[Reply]) -> None:
        self._after(replies)
        for job, reply in zip(jobs, replies, strict=True):
            job.deliver(reply)


def _lock(path: Path) -> int:
    """Take the directory for this process.  Raises StorageError when another has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}; check the data directory") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StorageError(
            f"{path.parent} is in use by another process; stop it, or use another data directory"
        ) from None
    return descriptor
