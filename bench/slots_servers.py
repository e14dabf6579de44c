"""Servers of Valkey or Redis Cluster that nobody looks after: made a cluster by the engine's own commands, and killed.

What it is: processes with the configuration that rota gives its own servers, on free ports of loopback, for as long
as the benchmark runs.
What it is not: rota; no agent knows of them, so that what they do they do by themselves.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.engine.configuration import Ports, ServerOptions, configuration
from agent.engine.program import check_library, find_program
from agent.engine.servers import allocate_ports, die_with_parent
from agent.errors import SettingsError

ENGINES: Final = ("valkey", "redis")
SLOTS: Final = 16384
BIND: Final = "127.0.0.1"
PATIENCE: Final = 60.0
"""Seconds after which what was waited for counts as never coming."""


def installed(engines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that can be measured here, and why each of the others cannot."""
    found: list[str] = []
    skipped: list[str] = []
    for engine in engines:
        try:
            check_library()
            check_library("redis")
            find_program(engine)
        except SettingsError as error:
            skipped.append(f"{engine} skipped: {error}")
        else:
            found.append(engine)
    return found, skipped


@dataclass(eq=False)
class Server:
    """One process."""

    ports: Ports
    process: subprocess.Popen[bytes]
    client: Any
    """Of this server alone."""
    node_id: str = ""

    @property
    def address(self) -> str:
        return f"{BIND}:{self.ports.clients}"

    def call(self, *words: str | int) -> Any:
        return self.client.execute_command(*words)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Servers:
    """Shards, each with its primary first, as they were made."""

    def __init__(self, servers: Sequence[Server], shards: int) -> None:
        self.shards = [servers[first::shards] for first in range(shards)]

    @property
    def all(self) -> list[Server]:
        return [server for shard in self.shards for server in shard]

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.all]

    def make_cluster(self) -> None:
        """Slots are shared out evenly, in order; waits until all serve and every replica has its data."""
        for epoch, server in enumerate(self.all, 1):
            server.node_id = server.call("CLUSTER MYID")
            server.call("CLUSTER SET-CONFIG-EPOCH", epoch)
        for server in self.all:
            for other in self.all:
                if other is not server:
                    server.call("CLUSTER MEET", BIND, other.ports.clients, other.ports.cluster)
        _wait(lambda: all(self._knows_all(server) for server in self.all), "all servers know each other")
        for (first, last), (primary, *replicas) in zip(evenly(len(self.shards)), self.shards, strict=True):
            primary.call("CLUSTER ADDSLOTSRANGE", first, last)
            for replica in replicas:
                replica.call("CLUSTER REPLICATE", primary.node_id)
        _wait(lambda: all(_serves(server) for server in self.all), "all servers serve")
        replicas = [replica for shard in self.shards for replica in shard[1:]]
        _wait(lambda: all(_is_linked(replica) for replica in replicas), "every replica is in step")

    def _knows_all(self, server: Server) -> bool:
        return all(other.node_id in server.call("CLUSTER NODES") for other in self.all)


def evenly(shards: int) -> list[tuple[int, int]]:
    """First and last slot of each shard."""
    bounds = [SLOTS * number // shards for number in range(shards + 1)]
    return [(first, end - 1) for first, end in zip(bounds, bounds[1:], strict=False)]


@contextlib.contextmanager
def running(engine: str, directory: Path, shards: int, copies: int, node_timeout: float) -> Iterator[Servers]:
    """A cluster of ``shards`` x ``copies`` servers; at the end none of them is left.

    To be used in the main thread: the system ends the servers with the thread that started them.
    """
    more = directory / "more.conf"
    more.write_text(f"cluster-node-timeout {int(node_timeout * 1000)}\n", encoding="utf-8")
    options = ServerOptions(find_program(engine), BIND, BIND, include=more)
    started: list[Server] = []
    try:
        for number, ports in enumerate(allocate_ports(directory, shards * copies, BIND, 0)):
            started.append(_start(directory / str(number + 1), options, ports))
        servers = Servers(started, shards)
        _wait(lambda: all(_answers(server) for server in started), "all servers answer")
        servers.make_cluster()
        yield servers
    finally:
        for server in started:
            server.kill()
            server.client.close()


def _start(place: Path, options: ServerOptions, ports: Ports) -> Server:
    from valkey import Valkey

    place.mkdir()
    path = place / "server.conf"
    path.write_text(configuration(options, ports, place), encoding="utf-8")
    with (place / "server.log").open("wb") as output:
        process = subprocess.Popen(
            [str(options.program), str(path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=place,
            start_new_session=True,
            preexec_fn=die_with_parent(os.getpid()),
        )
    client = Valkey(BIND, ports.clients, decode_responses=True, socket_timeout=5.0)
    client.response_callbacks.clear()  # answers as the server gives them
    return Server(ports, process, client)


def _answers(server: Server) -> bool:
    from valkey import ValkeyError

    if server.process.poll() is not None:
        raise RuntimeError(f"the server {server.address} ended with status {server.process.returncode}")
    try:
        return bool(server.call("PING"))
    except ValkeyError:
        return False


def _serves(server: Server) -> bool:
    info = str(server.call("CLUSTER INFO"))
    return "cluster_state:ok" in info and f"cluster_slots_ok:{SLOTS}" in info


def _is_linked(server: Server) -> bool:
    return "master_link_status:up" in str(server.call("INFO", "replication"))


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(0.02)
