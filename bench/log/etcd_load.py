"""Three nodes of etcd on loopback, and the same load on them as on the log: puts, and linearizable reads.

Debian's etcd-server as it is installed, with fsync on, on addresses of the benchmark's own; one client process with one
connection to the leader, which spares etcd the way from a follower to it.  The calls are those of etcd's API, once
through a driver that costs next to nothing (`bench.log.grpc_calls`), and once, where it is installed, through grpcio,
which is what etcd's clients in Python stand on.  Each put has a key of its own of eight bytes and a value of the
record's size.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from bench.log.grpc_calls import CallFailedError, GrpcConnection
from bench.log.log_load import Measured
from bench.log.raw_costs import cpu_seconds_of
from membership import Address
from membership.runtime.own_network import OwnNetwork

PROGRAM: Final = "etcd"
ABSENT: Final = "etcd skipped: it is not installed (Debian: etcd-server)"
NO_GRPCIO: Final = "etcd through grpcio skipped: it is not installed (pip install grpcio)"
LEANEST: Final = "etcd"
GRPCIO: Final = "etcd_grpcio"
_PUT: Final = "/etcdserverpb.KV/Put"
_RANGE: Final = "/etcdserverpb.KV/Range"
_STATUS: Final = "/etcdserverpb.Maintenance/Status"
_PATIENCE: Final = 30.0
_PAUSE: Final = 0.1


class Driver(Protocol):
    """Makes calls of ``/service/method``."""

    def load(
        self, method: str, message: Callable[[], bytes], in_flight: int, seconds: float
    ) -> tuple[list[float], float]:
        """Calls for some seconds, `in_flight` at a time; how long each took, and all."""


class EtcdLoad:
    """A client of the leader; `pids`: of all nodes; `numbers`: of the keys, for all clients."""

    def __init__(self, leader: Driver, pids: list[int], numbers: Iterator[int]) -> None:
        self._leader = leader
        self._pids = pids
        self._numbers = numbers
        self._random = random.Random(0)

    def put(self, size: int, in_flight: int, seconds: float) -> Measured:
        """Put values of `size` bytes, so many at a time."""
        value = _field(2, b"x" * size)
        return self._measure(_PUT, lambda: _field(1, _key(next(self._numbers))) + value, in_flight, seconds)

    def read(self, in_flight: int, seconds: float) -> Measured:
        """Read random keys of those that were put; linearizable, which is etcd's default."""
        written = next(self._numbers)
        return self._measure(
            _RANGE, lambda: _field(1, _key(self._random.randrange(written))), in_flight, seconds
        )

    def _measure(self, method: str, message: Callable[[], bytes], in_flight: int, seconds: float) -> Measured:
        cpu = {pid: cpu_seconds_of(pid) for pid in self._pids}
        own = time.process_time()
        latencies, elapsed = self._leader.load(method, message, in_flight, seconds)
        own = time.process_time() - own
        cpu = {pid: cpu_seconds_of(pid) - used for pid, used in cpu.items()}
        return Measured(len(latencies), elapsed, sorted(latencies), own, cpu, {}, {})


@contextmanager
def etcd_cluster(directory: Path, nodes: int) -> Iterator[dict[str, EtcdLoad] | None]:
    """Clients of nodes that have elected a leader, by the driver's name; None where etcd is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        yield None
        return
    with ExitStack() as running:
        network = running.enter_context(closing(OwnNetwork.claim()))
        clients = [network.address(number + 1) for number in range(nodes)]
        peers = [Address(client.host, client.port + 1) for client in clients]
        cluster = ",".join(f"e{number}=http://{peer}" for number, peer in enumerate(peers))
        pids: list[int] = []
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            options = {
                "name": f"e{number}", "data-dir": directory / f"e{number}", "initial-cluster": cluster,
                "listen-client-urls": f"http://{client}",
                "advertise-client-urls": f"http://{client}",
                "listen-peer-urls": f"http://{peer}",
                "initial-advertise-peer-urls": f"http://{peer}",
            }  # fmt: skip
            arguments = [program, *(f"--{name}={value}" for name, value in options.items())]
            quiet = subprocess.DEVNULL
            node = running.enter_context(subprocess.Popen(arguments, stdout=quiet, stderr=quiet))
            running.callback(node.kill)
            pids.append(node.pid)
        leader = _leader([str(client) for client in clients])
        running.callback(leader.close)
        numbers = count()
        loads = {LEANEST: EtcdLoad(leader, pids, numbers)}
        if find_spec("grpc") is not None:
            from bench.log.grpcio_calls import GrpcioChannel

            loads[GRPCIO] = EtcdLoad(
                running.enter_context(closing(GrpcioChannel(leader.address))), pids, numbers
            )
        yield loads


def _leader(addresses: list[str]) -> GrpcConnection:
    """A connection to whoever leads.  Raises TimeoutError when nobody does within `_PATIENCE`."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        for address in addresses:
            try:
                connection = GrpcConnection(address)
                status = _fields(connection.call(_STATUS, b""))
            except (OSError, CallFailedError):
                continue
            header = status.get(1, b"")
            if isinstance(header, bytes) and status.get(4) and status.get(4) == _fields(header).get(2):
                return connection
            connection.close()
        time.sleep(_PAUSE)
    raise TimeoutError(f"etcd elected no leader within {_PATIENCE:g} s")


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes, as Protocol Buffers encode it."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _fields(message: bytes) -> Mapping[int, int | bytes]:
    """The fields of a message that are numbers or bytes; the last of each."""
    found: dict[int, int | bytes] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, kind = divmod(varint(), 8)
        value: int | bytes = varint()
        if kind == 2:
            assert isinstance(value, int)
            end = position + value
            value, position = message[position:end], end
        found[number] = value
    return found
