"""The log's server: the roles of one host behind the "log" service.

The shell around `LogNode`.  Requests are carried out as they come; what has come by then is made durable together,
and while that goes on the next requests gather, so that one fsync serves many.  `membership`'s transport calls
`serve` for every stream opened to the service.  It must not run in the event loop that speaks for the host, which a
disk would hold up (`log.host.log_thread`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import trio

from datastore_adapter.log.errors import ProtocolError, StorageError
from datastore_adapter.log.host.node import LogNode, Part, part_of
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.log_unit.pulling import pull
from datastore_adapter.log.log_unit.unit import Outcome
from datastore_adapter.log.messages import (
    PullChunk,
    Reclaim,
    Refused,
    Reply,
    Request,
    SegmentStatus,
)
from datastore_adapter.log.messages.codec import decode_request, encode_reply
from datastore_adapter.log.runtime.runtime import Runtime
from datastore_adapter.log.runtime.trio_runtime import FrameStream
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_health import CARE_INTERVAL, DiskReport
from datastore_adapter.log.storage.disk_identity import DiskIdentity
from datastore_adapter.log.storage.file_storage import FileStorage
from membership.files import SYSTEM, SystemCalls
from membership.transport import StreamError

log = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"


class ServedStream(FrameStream, Protocol):
    """What is needed of an accepted `membership.transport.FrameStream`."""

    async def flush(self) -> None: ...


class _Answer(NamedTuple):
    """A reply that waits for the disk, and where it goes."""

    reply: Reply
    deliver: Callable[[Reply], None]


class LogServer:
    """The log's roles on one host.  Make one with `open`; hand `serve` to the transport as service "log"."""

    def __init__(self, node: LogNode, storage: FileStorage, lock: int, settings: LogSettings) -> None:
        self._node = node
        self._storage = storage
        self._lock = lock
        self._settings = settings
        self._uncommitted: list[_Answer] = []
        self._commit_wanted = trio.Event()
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
        system: SystemCalls = SYSTEM,
    ) -> LogServer:
        """Recover the roles of host `name` from `data_dir` and run them in `nursery`.

        `is_copy`: the directory is known to be a copy, perhaps an old one; `system`: what files are kept with.  Raises
        StorageError: it cannot be used, or is in use by another process.
        """
        chosen = settings or LogSettings()
        server = await trio.to_thread.run_sync(cls._recover, name, data_dir, chosen, is_copy, system)
        nursery.start_soon(server._run)
        return server

    @classmethod
    def _recover(
        cls, name: str, data_dir: Path, settings: LogSettings, is_copy: bool, system: SystemCalls
    ) -> LogServer:
        storage = FileStorage(data_dir, fsync=settings.fsync, reserve=settings.reserved_bytes, system=system)
        lock = _lock(data_dir / LOCK_FILE)
        try:
            node = LogNode(name, storage, settings, draw=os.urandom, is_copy=is_copy, clock=time.monotonic)
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

    @property
    def disk(self) -> DiskReport:
        """How it is, for any thread."""
        return self._node.disk.report()

    def use(self, runtime: Runtime) -> None:
        """Ask other hosts by `runtime`: a new replica fetches what it lacks.  It must work as long as `serve` does."""
        self._runtime = runtime

    async def found(self, cluster_id: str, address: str) -> EpochDocument:
        """Begin the layout chain of a new cluster with epoch 0 on this host, at ``host:port`` `address`.

        Repeating it, also after a restart, changes nothing.  Raises BootstrapRefusedError when the data
        directory belongs to another cluster, StorageError.
        """
        return self._node.layout_server.found(cluster_id, self.name, address)

    def segments(self) -> tuple[SegmentStatus, ...]:
        """What this host holds, for its own thread."""
        return self._node.log_unit.segments()

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
                    answer = partial(self._answer, stream, request.number, len(frame))
                    refusal = self._node.misdirected(request.to)
                    if refusal is not None:
                        self._counters["server.misdirected"] += 1
                        answer(refusal)
                    else:
                        self._submit(request.request, answer)
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
            stream.post(encode_reply(number, reply, self._node.me))
        except StreamError:
            self._counters["server.replies_too_late"] += 1
        stream.pending -= 1
        self._held -= size
        self._freed.unpark_all()

    def _submit(self, request: Request, deliver: Callable[[Reply], None]) -> None:
        """Carry the request out; the reply follows by `deliver`."""
        if part_of(request) is Part.PULL:
            self._pull(request, deliver)
            return
        outcome = self._carry_out(request)
        if not outcome.needs_commit:
            deliver(outcome.reply)
            return
        self._uncommitted.append(_Answer(outcome.reply, deliver))
        self._commit_wanted.set()

    def _carry_out(self, request: Request) -> Outcome:
        """A defect costs its request an answer of regret, not the agent its life."""
        try:
            return self._node.handle(request)
        except Exception:
            log.exception("%s: a request failed unexpectedly", self.name)
            self._counters["server.defects"] += 1
            return Outcome(Refused("internal", f"{self.name} could not handle the request; see its log"))

    def _pull(self, request: Request, deliver: Callable[[Reply], None]) -> None:
        assert isinstance(request, PullChunk | Reclaim)
        runtime = self._runtime
        if runtime is None:
            deliver(Refused("not_ready", f"{self.name} is not in the cluster yet; retry"))
            return

        async def work() -> None:
            deliver(await pull(runtime, self._settings, self.document, self._ask_unit, request))

        runtime.spawn(work)

    async def _ask_unit(self, change: Request) -> Reply:
        replies: list[Reply] = []
        ended = trio.Event()

        def take(reply: Reply) -> None:
            replies.append(reply)
            ended.set()

        self._submit(change, take)
        await ended.wait()
        return replies[0]

    async def _run(self) -> None:
        """Make durable what waits for it, and then answer; until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_after_disk)
                while True:
                    await self._commit_wanted.wait()
                    self._commit_wanted = trio.Event()
                    held, self._uncommitted = self._uncommitted, []
                    refusal = self._commit()
                    for reply, deliver in held:
                        deliver(refusal or reply)
        finally:
            self._storage.close()
            os.close(self._lock)

    def _commit(self) -> Refused | None:
        was_stopped = bool(self._node.log_unit.failure)
        refusal = self._node.commit()
        if refusal is not None and not was_stopped:
            log.error("%s: the log unit stopped until its disk works: %s", self.name, refusal.message)
        return refusal

    async def _look_after_disk(self) -> None:
        """In a thread of its own, for it waits for the disk; the log goes on meanwhile, as far as it can."""
        while True:
            await trio.sleep(CARE_INTERVAL)
            self._node.disk.look()
            if self._node.disk.needs_care:
                await trio.to_thread.run_sync(self._node.disk.care)
                if self._node.after_care():
                    log.warning("%s: the disk works again, and the log unit too", self.name)


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
