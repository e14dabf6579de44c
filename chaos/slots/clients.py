"""Two foreign clients of a Valkey or Redis Cluster, with a memory: what demo and fault tests check that engine against.

One is the `valkey` package's cluster client, the other the `redis` package's; neither knows of rota.  Each writes one
key after the other and reads random ones back.  A client's own retries are its own business: what counts as an error is
what it raises to its caller.  A key counts as acknowledged once `WAIT 1` says that a replica has it, too; ``verify``
reads all of those at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import trio

from chaos.checkers.read_back import ReadBack

CLIENTS: Final = ("valkey", "redis")
VALUE_SIZE: Final = 64
WAIT_MILLISECONDS: Final = 200
READ_EVERY: Final = 4
"""One read after so many writes."""
PAUSE: Final = 0.001
PAUSE_AFTER_ERROR: Final = 0.05
"""A caller that met an error does not storm."""
SOCKET_TIMEOUT: Final = 1.0
KEYS_AT_ONCE: Final = 500
PATIENCE: Final = 15.0
"""Seconds within which a key must be readable at the end."""


@dataclass(frozen=True, slots=True)
class _Package:
    """A client library, by what is used of it."""

    cluster: Any
    node: Any
    connection_to: str
    """Name of the method that gives the connection to one server."""
    error: type[Exception]


def _package(name: str) -> _Package:
    if name == "valkey":
        import valkey

        cluster: Any = valkey.cluster
        return _Package(
            cluster.ValkeyCluster, cluster.ClusterNode, "get_valkey_connection", valkey.ValkeyError
        )
    import redis

    cluster = redis.cluster
    return _Package(cluster.RedisCluster, cluster.ClusterNode, "get_redis_connection", redis.RedisError)


def connect(package: str, addresses: Sequence[str], password: str = "", user: str = "") -> Any:
    """The cluster client of that package.  Raises the package's errors."""
    library = _package(package)
    return library.cluster(
        startup_nodes=[library.node(*_split(address)) for address in addresses],
        username=user or None,
        password=password or None,
        socket_timeout=SOCKET_TIMEOUT,
        socket_connect_timeout=SOCKET_TIMEOUT,
        decode_responses=True,
    )


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


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


class _Client:
    """One foreign client in a thread of its own."""

    def __init__(
        self, package: str, addresses: Sequence[str], password: str, user: str, pause: float
    ) -> None:
        self.package = package
        self._pause = pause
        self._library = _package(package)
        self._open = partial(connect, package, addresses, password, user)
        self._random = random.Random(package)
        self._stop = threading.Event()
        self.errors = _Errors()
        self.acknowledged: dict[str, str] = {}
        self.acknowledged_at: list[float] = []
        self.reads = 0
        self.wrong_reads = 0
        self._number = 0
        self._thread = threading.Thread(target=self._run, name=f"client {package}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        client: Any = None
        while not self._stop.is_set():
            try:
                if client is None:
                    client = self._open()
                self._write(client)
                if self._number % READ_EVERY == 0:
                    self._read(client)
                self.errors.succeeded()
                self._stop.wait(self._pause)
            except Exception as error:
                # Whatever a client throws at its caller is an error of its caller's request.
                self.errors.failed(error)
                self._stop.wait(PAUSE_AFTER_ERROR)
        if client is not None:
            client.close()

    def _write(self, client: Any) -> None:
        key, value = f"{self.package}:{self._number}", f"{self._number}:".ljust(VALUE_SIZE, "x")
        client.set(key, value)
        self._number += 1
        if _is_replicated(self._library, client, key, value):
            self.acknowledged[key] = value
            self.acknowledged_at.append(time.monotonic())

    def _read(self, client: Any) -> None:
        key = f"{self.package}:{self._random.randrange(self._number)}"
        expected = self.acknowledged.get(key)
        if expected is not None:
            self.reads += 1
            self.wrong_reads += client.get(key) != expected


def _is_replicated(library: _Package, client: Any, key: str, value: str) -> bool:
    """Whether a replica has it, too: written once more, for WAIT is about what its own connection wrote."""
    try:
        server = getattr(client, library.connection_to)(client.get_node_from_key(key))
        pipeline = server.pipeline(transaction=False)
        pipeline.set(key, value)
        pipeline.execute_command("WAIT", 1, WAIT_MILLISECONDS)
        return int(pipeline.execute()[1]) >= 1
    except library.error:
        # It has moved meanwhile, or its server is gone: the client has to find that out at its next request.
        return False


class SlotsWorkload:
    """The clients, on servers' ``host:port``: `start`, `stop`, `read_back`; in trio `open` and `verify`."""

    def __init__(
        self, addresses: Sequence[str], password: str = "", user: str = "", *, pause: float = PAUSE
    ) -> None:
        """``pause``: seconds between two writes of one client."""
        self._open_reader = partial(connect, "valkey", tuple(addresses), password, user)
        self._clients = [_Client(package, addresses, password, user, pause) for package in CLIENTS]
        self._begun_at = time.monotonic()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, addresses: Sequence[str], password: str = "", user: str = ""
    ) -> AsyncIterator[SlotsWorkload]:
        """They run beside ``async with SlotsWorkload.open(addresses) as workload``."""
        workload = cls(addresses, password, user)
        workload.start()
        try:
            yield workload
        finally:
            workload.stop()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(workload.join)

    def start(self) -> None:
        """Each client in a thread of its own, from now on."""
        for client in self._clients:
            client.start()

    @property
    def is_running(self) -> bool:
        """Whether a client is at anything."""
        return any(client.is_running for client in self._clients)

    def join(self) -> None:
        """Wait for the last requests of clients that were told to stop."""
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
    def acknowledged_by_client(self) -> Mapping[str, int]:
        return {client.package: len(client.acknowledged) for client in self._clients}

    @property
    def reads(self) -> int:
        return sum(client.reads for client in self._clients)

    @property
    def wrong_reads(self) -> int:
        """Of acknowledged keys: nothing was there, or something else."""
        return sum(client.wrong_reads for client in self._clients)

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
        return self.longest_pause_since(self._begun_at)

    def longest_pause_since(self, moment: float) -> float:
        """The same from that time of the machine's monotonic clock on."""
        pauses = [0.0]
        for client in self._clients:
            ends = [end for end in list(client.acknowledged_at) if end > moment]
            pauses += [end - begin for begin, end in itertools.pairwise((moment, *ends))]
        return max(pauses)

    async def verify(self) -> ReadBack:
        """Wait for the clients' last requests, then read every acknowledged key back."""
        await trio.to_thread.run_sync(self.join)
        return await trio.to_thread.run_sync(self.read_back)

    def read_back(self) -> ReadBack:
        """Read every acknowledged key, by a client that knows nothing; they have ended."""
        reader = self._open_reader()
        lost = unreadable = 0
        deadline = time.monotonic() + PATIENCE
        try:
            for client in self._clients:
                lost += client.wrong_reads
                for part in _parts(client.acknowledged):
                    found = _read_within(reader, list(part), deadline)
                    unreadable += len(part) if found is None else 0
                    lost += 0 if found is None else sum(found[key] != value for key, value in part.items())
        finally:
            reader.close()
        return ReadBack(self.acknowledged, lost, unreadable)


def _parts(keys: Mapping[str, str]) -> Iterator[dict[str, str]]:
    entries = iter(keys.items())
    while part := dict(itertools.islice(entries, KEYS_AT_ONCE)):
        yield part


def _read_within(client: Any, keys: Sequence[str], deadline: float) -> Mapping[str, object] | None:
    """Key and value; None if they could not be read in time."""
    while True:
        try:
            pipeline = client.pipeline()
            for key in keys:
                pipeline.get(key)
            return dict(zip(keys, pipeline.execute(), strict=True))
        except Exception:
            # Whatever it is, until the deadline it may pass.
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)
