"""Two foreign clients of a Valkey or Redis Cluster, with a memory: what demo and fault tests check that engine against.

One is the `valkey` package's cluster client, the other the `redis` package's; neither knows of rota. Each writes one key
after the other, reads random ones back, and remembers a key as acknowledged once `WAIT 1` says that a replica has
it, too. ``verify`` reads all of those at the end. A client's own retries are its own business: what counts as an error
is what it raises to its caller.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from agent.errors import SettingsError
from agent.workload import Outcome

VALUE_SIZE: Final = 64
WAIT_MILLISECONDS: Final = 200
READ_EVERY: Final = 4
"""One read after so many writes."""
PAUSE: Final = 0.001
SOCKET_TIMEOUT: Final = 1.0
PATIENCE: Final = 15.0
"""Seconds within which a key must be readable at the end."""


@dataclass(slots=True)
class _Errors:
    """What one client raised to its caller."""

    count: int = 0
    seconds: float = 0.0
    """In all, from the first of a series to the next success."""
    last: str = ""
    _since: float | None = field(default=None)

    def failed(self, error: Exception) -> None:
        self.count += 1
        self.last = f"{type(error).__name__}: {error}"
        if self._since is None:
            self._since = time.monotonic()

    def succeeded(self) -> None:
        if self._since is not None:
            self.seconds += time.monotonic() - self._since
            self._since = None


def connect_valkey(addresses: Sequence[str], password: str = "") -> Any:
    """The `valkey` package's cluster client."""
    try:
        from valkey.cluster import ClusterNode, ValkeyCluster
    except ImportError:
        raise SettingsError("the package valkey is not installed; pip install 'rota[valkey]'") from None
    nodes = [ClusterNode(*_split(address)) for address in addresses]
    options = {"socket_timeout": SOCKET_TIMEOUT, "socket_connect_timeout": SOCKET_TIMEOUT, "decode_responses": True}
    return ValkeyCluster(startup_nodes=nodes, password=password or None, **options)


def connect_redis(addresses: Sequence[str], password: str = "") -> Any:
    """The `redis` package's cluster client."""
    try:
        from redis.cluster import ClusterNode, RedisCluster
    except ImportError:
        raise SettingsError("the package redis is not installed; pip install 'rota[valkey]'") from None
    nodes = [ClusterNode(*_split(address)) for address in addresses]
    options = {"socket_timeout": SOCKET_TIMEOUT, "socket_connect_timeout": SOCKET_TIMEOUT, "decode_responses": True}
    return RedisCluster(startup_nodes=nodes, password=password or None, **options)


CLIENTS: Final[dict[str, Callable[[Sequence[str], str], Any]]] = {
    "valkey": connect_valkey,
    "redis": connect_redis,
}


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class _Client:
    """One foreign client in a thread of its own."""

    def __init__(self, name: str, addresses: Sequence[str], password: str) -> None:
        self.name = name
        self._addresses = addresses
        self._password = password
        self._random = random.Random(name)
        self._stop = threading.Event()
        self.errors = _Errors()
        self.acknowledged: dict[str, str] = {}
        self.acknowledged_at: list[float] = []
        self.reads = 0
        self.wrong_reads = 0
        self._number = 0
        self._thread = threading.Thread(target=self._run, name=f"client {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        client: Any = None
        while not self._stop.is_set():
            try:
                if client is None:
                    client = CLIENTS[self.name](self._addresses, self._password)
                self._write(client)
                if self._number % READ_EVERY == 0:
                    self._read(client)
                self.errors.succeeded()
            except Exception as error:
                # Whatever a client throws at its caller is an error of its caller's request.
                self.errors.failed(error)
            self._stop.wait(PAUSE)
        if client is not None:
            client.close()

    def _write(self, client: Any) -> None:
        key, value = f"{self.name}:{self._number}", f"{self._number}:".ljust(VALUE_SIZE, "x")
        client.set(key, value)
        node = client.get_node_from_key(key)
        # Its pool hands out the connection that was put back last: the one that wrote, in this only thread.
        copies = client.get_redis_connection(node).execute_command("WAIT", 1, WAIT_MILLISECONDS)
        self._number += 1
        if int(copies) >= 1:
            self.acknowledged[key] = value
            self.acknowledged_at.append(time.monotonic())

    def _read(self, client: Any) -> None:
        if not self.acknowledged:
            return
        key = f"{self.name}:{self._random.randrange(self._number)}"
        expected = self.acknowledged.get(key)
        if expected is not None:
            self.reads += 1
            self.wrong_reads += client.get(key) != expected


class SlotsWorkload:
    """Runs beside ``async with SlotsWorkload.open(addresses) as workload``; ``addresses`` are servers' ``host:port``."""

    def __init__(self, addresses: Sequence[str], password: str = "") -> None:
        self._addresses = tuple(addresses)
        self._password = password
        self._clients = [_Client(name, addresses, password) for name in CLIENTS]
        self._begun_at = time.monotonic()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, addresses: Sequence[str], password: str = "") -> AsyncIterator[SlotsWorkload]:
        workload = cls(addresses, password)
        for client in workload._clients:
            client.start()
        try:
            yield workload
        finally:
            workload.stop()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(workload._join)

    def _join(self) -> None:
        for client in self._clients:
            client.join()

    def stop(self) -> None:
        """Each client ends after the request it is at."""
        for client in self._clients:
            client.stop()

    @property
    def acknowledged(self) -> int:
        """Keys that a replica had, too, when they were acknowledged."""
        return sum(len(client.acknowledged) for client in self._clients)

    @property
    def reads(self) -> int:
        return sum(client.reads for client in self._clients)

    @property
    def client_errors(self) -> int:
        return sum(client.errors.count for client in self._clients)

    @property
    def client_errors_seconds(self) -> float:
        """Of the client that had the most."""
        return max(client.errors.seconds for client in self._clients)

    @property
    def last_error(self) -> str:
        return next((client.errors.last for client in self._clients if client.errors.last), "")

    @property
    def longest_pause(self) -> float:
        """Seconds from one acknowledgement to the next, of the client that waited longest."""
        pauses = [0.0]
        for client in self._clients:
            ends = list(client.acknowledged_at)
            pauses += [end - begin for begin, end in zip((self._begun_at, *ends), ends, strict=False)]
        return max(pauses)

    async def verify(self) -> Outcome:
        """Wait for the clients' last requests, then read every acknowledged key back."""
        await trio.to_thread.run_sync(self._join)
        return await trio.to_thread.run_sync(self._read_back)

    def _read_back(self) -> Outcome:
        reader = connect_valkey(self._addresses, self._password)
        lost = unreadable = 0
        deadline = time.monotonic() + PATIENCE
        try:
            for client in self._clients:
                for key, value in client.acknowledged.items():
                    found = _read_within(reader, key, deadline)
                    unreadable += isinstance(found, Exception)
                    lost += not isinstance(found, Exception) and found != value
                lost += client.wrong_reads
        finally:
            reader.close()
        return Outcome(self.acknowledged, lost, unreadable)


def _read_within(client: Any, key: str, deadline: float) -> object:
    """The value, or the last error if it could not be read in time."""
    while True:
        try:
            return client.get(key)
        except Exception as error:
            if time.monotonic() >= deadline:
                return error
            time.sleep(0.05)
