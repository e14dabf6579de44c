"""Load on a replicated log from one client process, and what it took: rates, latencies, CPU, messages, fsyncs.

Tasks that append (or read) one record after the other for some seconds, as many at a time as wanted; the CPU and the
fsyncs of the log's processes are read from outside, before and after.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

import trio

from bench.log.raw_costs import cpu_seconds_of
from bench.percentile import percentile
from datastore_adapter import LogClient, LogSettings, TrioRuntime
from datastore_adapter.log.messages import GetStatus, StatusReply
from membership import Address
from membership.transport import FrameStream, open_service

STREAM: Final = "bench"
CALL_TIMEOUT: Final = 10.0
SYNCS: Final = "storage.syncs"
SYNCED_BYTES: Final = "storage.synced_bytes"


@dataclass(frozen=True, slots=True)
class Host:
    """One process of the log."""

    pid: int
    address: Address


@dataclass(frozen=True, slots=True)
class Measured:
    """What some seconds of load came to."""

    operations: int
    seconds: float
    latencies: list[float]
    """Seconds of each operation, ascending."""
    client_cpu: float
    """Seconds of this process."""
    host_cpu: Mapping[int, float]
    """Seconds by process id."""
    counters: Mapping[str, int]
    """Of the hosts together."""
    messages: Mapping[str, int]
    """Between the client and the hosts: `requests`, `replies`, `request_bytes`, `reply_bytes`."""

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    def latency(self, percent: float) -> float:
        """Seconds within which so many percent of the operations ended."""
        return percentile(self.latencies, percent)

    def per_operation(self, amount: float) -> float:
        return amount / self.operations


class _CountedStream:
    """A stream that counts what passes."""

    def __init__(self, stream: FrameStream, counters: Counter[str]) -> None:
        self._stream = stream
        self._counters = counters
        self.withdraw, self.carry, self.aclose = stream.withdraw, stream.carry, stream.aclose

    @property
    def pending(self) -> int:
        return self._stream.pending

    @pending.setter
    def pending(self, number: int) -> None:
        self._stream.pending = number

    def post(self, payload: bytes) -> None:
        self._counters["requests"] += 1
        self._counters["request_bytes"] += len(payload)
        self._stream.post(payload)

    async def receive(self) -> bytes:
        payload = await self._stream.receive()
        self._counters["replies"] += 1
        self._counters["reply_bytes"] += len(payload)
        return payload


class Load:
    """A client of the log on `hosts`; its connections live in `nursery`."""

    def __init__(self, nursery: trio.Nursery, hosts: list[Host]) -> None:
        self._hosts = hosts
        self._messages: Counter[str] = Counter()
        self._runtime = TrioRuntime(nursery, open_stream=self._open)
        self._client = LogClient(self._runtime, [str(host.address) for host in hosts], LogSettings.local())
        self._random = random.Random(0)

    async def append(self, size: int, in_flight: int, seconds: float) -> tuple[Measured, list[int]]:
        """Append records of `size` bytes, so many at a time; what it took, and the addresses."""
        addresses: list[int] = []
        number = count()

        async def append() -> None:
            head = next(number).to_bytes(8, "big")
            payload = head + b"x" * (size - len(head))
            addresses.append(await self._client.append(STREAM, payload))

        return await self._measure(append, in_flight, seconds), addresses

    async def read(self, addresses: list[int], size: int, in_flight: int, seconds: float) -> Measured:
        """Read random ones of `addresses`, whose records have `size` bytes."""

        async def read() -> None:
            record = await self._client.read(self._random.choice(addresses))
            if record is None or len(record.payload) != size:
                raise RuntimeError("an acknowledged record is not there")

        return await self._measure(read, in_flight, seconds)

    async def _measure(
        self, operation: Callable[[], Awaitable[None]], in_flight: int, seconds: float
    ) -> Measured:
        await operation()  # connections and the layout are there before the clock starts
        latencies: list[float] = []
        before = await self._counters()
        messages = Counter(self._messages)
        host_cpu = {host.pid: cpu_seconds_of(host.pid) for host in self._hosts}
        began, cpu = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(_repeat, operation, began + seconds, latencies)
        elapsed, client_cpu = time.perf_counter() - began, time.process_time() - cpu
        host_cpu = {pid: cpu_seconds_of(pid) - used for pid, used in host_cpu.items()}
        passed = self._messages - messages
        counters = await self._counters()
        counters.subtract(before)
        return Measured(len(latencies), elapsed, sorted(latencies), client_cpu, host_cpu, counters, passed)

    async def _counters(self) -> Counter[str]:
        """The hosts' counters, added up."""
        calls = [
            partial(self._runtime.call, str(host.address), GetStatus(counters=True), CALL_TIMEOUT)
            for host in self._hosts
        ]
        total: Counter[str] = Counter()
        for reply in await self._runtime.gather(calls):
            if not isinstance(reply, StatusReply):
                raise RuntimeError(f"a host did not tell its counters: {reply}")  # noqa: TRY004  # no caller's mistake
            total.update(reply.counters)
        return total

    async def _open(self, address: str) -> _CountedStream:
        return _CountedStream(await open_service(Address.parse(address), "log"), self._messages)


async def _repeat(operation: Callable[[], Awaitable[None]], end: float, latencies: list[float]) -> None:
    while (began := time.perf_counter()) < end:
        await operation()
        latencies.append(time.perf_counter() - began)
