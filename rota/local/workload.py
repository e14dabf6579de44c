"""A writer and a reader on the log, with a memory: what the demo and the fault tests check the store against.

The writer appends one record after the other and remembers every acknowledged address with the payload; the
reader reads random ones all the while.  ``verify`` reads every acknowledged record back at the end: one that
is not there, or is another, is *lost*; one that cannot be read within a bound is *unreadable*.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import trio

from chaos.checkers.read_back import ReadBack
from datastore_adapter import LogClient, LogError, LogUnavailableError, Record, TrioRuntime
from membership import Address

STREAM = "demo"
PAYLOAD_SIZE = 256
READ_PAUSE = 0.005
VERIFY_READERS = 8
READ_TIMEOUT = 15.0


def payload_of(number: int) -> bytes:
    """Distinct and recognisable for each number."""
    head = f"record {number} ".encode()
    return head + hashlib.shake_128(head).digest(PAYLOAD_SIZE - len(head))


class Workload:
    """Runs in the background of ``async with Workload.open(addresses) as workload``."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._random = random.Random(0)
        self._written: dict[int, int] = {}  # address -> number of the record
        self._addresses: list[int] = []
        self._acknowledged_at: list[float] = []  # monotonic seconds
        self._stopped = False
        self._going = trio.Event()
        self._going.set()
        self._writer_done = trio.Event()
        self.reads = 0
        self.wrong_reads = 0
        self._begun_at = time.monotonic()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, agents: Sequence[Address]) -> AsyncIterator[Workload]:
        async with trio.open_nursery() as nursery:
            workload = cls(LogClient(TrioRuntime(nursery), [str(address) for address in agents]))
            nursery.start_soon(workload._write)
            nursery.start_soon(workload._read)
            yield workload
            nursery.cancel_scope.cancel()

    @property
    def acknowledged(self) -> int:
        return len(self._addresses)

    @property
    def longest_pause(self) -> float:
        """Seconds, from one acknowledgement to the next."""
        return self.longest_pause_ended_after(self._begun_at)[0]

    def longest_pause_ended_after(self, moment: float) -> tuple[float, float]:
        """Of the pauses that ended after `moment`, the longest: its seconds, and when it ended (monotonic seconds)."""
        ends = self._acknowledged_at
        pauses = zip((self._begun_at, *ends), ends, strict=False)
        return max(((end - begin, end) for begin, end in pauses if end > moment), default=(0.0, moment))

    async def more(self, count: int, timeout: float) -> None:
        """Wait until so many more are acknowledged.  Raises trio.TooSlowError."""
        wanted = self.acknowledged + count
        with trio.fail_after(timeout):
            while self.acknowledged < wanted:  # noqa: ASYNC110 - what the writer counts has no event
                await trio.sleep(0.05)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within it the writer begins no further record."""
        self._going = trio.Event()
        try:
            yield
        finally:
            self._going.set()

    def stop(self) -> None:
        """The writer ends after the record it is at."""
        self._stopped = True

    async def _write(self) -> None:
        number = 0
        while not self._stopped:
            await self._going.wait()
            address = await self._client.append(STREAM, payload_of(number))
            self._acknowledged_at.append(time.monotonic())
            if address in self._written:
                raise AssertionError(f"address {address} was acknowledged twice")
            self._written[address] = number
            self._addresses.append(address)
            number += 1
        self._writer_done.set()

    async def _read(self) -> None:
        while True:
            await trio.sleep(READ_PAUSE)
            if not self._addresses:
                continue
            address = self._random.choice(self._addresses)
            # The reader rides out a failure like the writer; what matters is that it never reads wrong data.
            with contextlib.suppress(LogError):
                record = await self._client.read(address)
                self.reads += 1
                if not self._is_right(address, record):
                    self.wrong_reads += 1

    def _is_right(self, address: int, record: Record | None) -> bool:
        """A filled hole (None) where a write was acknowledged is as bad as another record."""
        return record is not None and record.payload == payload_of(self._written[address])

    async def verify(self) -> ReadBack:
        """Wait for the writer's last record, then read every acknowledged one back."""
        await self._writer_done.wait()
        return await self.read_back()

    async def read_back(self) -> ReadBack:
        """Read every record back that is acknowledged by now; more may be written meanwhile."""
        lost = unreadable = 0
        addresses = list(self._addresses)
        todo = iter(addresses)

        async def check() -> None:
            nonlocal lost, unreadable
            for address in todo:
                try:
                    record = await self._client.read(address, timeout=READ_TIMEOUT)
                except LogUnavailableError:
                    unreadable += 1
                except LogError:
                    lost += 1  # unwritten, trimmed, or damaged on every replica
                else:
                    lost += not self._is_right(address, record)

        async with trio.open_nursery() as nursery:
            for _ in range(VERIFY_READERS):
                nursery.start_soon(check)
        return ReadBack(len(addresses), lost + self.wrong_reads, unreadable)
