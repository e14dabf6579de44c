"""Servers of Valkey or Redis Cluster that nobody looks after: made a cluster by the engine's own commands, and killed.

Processes with the configuration that rota gives its own servers, on an address of the benchmark's own, for as long as
it runs. No agent knows of them, so what they do they do by themselves.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from datastore_adapter.slots.state.slot_ranges import SLOTS, evenly
from membership.runtime.own_network import OwnNetwork
from rota.agent.engine.configuration import Ports, ServerOptions, configuration
from rota.agent.engine.program import check_library, find_program
from rota.agent.engine.servers import CONFIGURATION, allocate_ports, start_process
from rota.errors import SettingsError

ENGINES: Final = ("valkey", "redis")
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

    program: Path
    directory: Path
    """With its configuration."""
    host: str
    """Its address."""
    ports: Ports
    client: Any
    """Of this server alone."""
    process: subprocess.Popen[bytes] | None = None
    node_id: str = ""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.ports.clients}"

    def call(self, *words: str | int) -> Any:
        return self.client.execute_command(*words)

    def start(self) -> None:
        """Start it, with what is in its directory; returns before it answers."""
        self.process = start_process(self.program, self.directory)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Servers:
    """Shards, each with its primary first, as they were made."""

    def __init__(self, servers: Sequence[Server], shards: int) -> None:
        self.shards = [list(servers[first::shards]) for first in range(shards)]

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
                    server.call("CLUSTER MEET", other.host, other.ports.clients, other.ports.cluster)
        _wait(lambda: all(self._knows_all(server) for server in self.all), "all servers know each other")
        for (first, last), (primary, *replicas) in zip(evenly(len(self.shards)), self.shards, strict=True):
            primary.call("CLUSTER ADDSLOTSRANGE", first, last)
            for replica in replicas:
                replica.call("CLUSTER REPLICATE", primary.node_id)
        _wait(lambda: all(_serves(server) for server in self.all), "all servers serve")
        replicas = [replica for shard in self.shards for replica in shard[1:]]
        _wait(lambda: all(_is_linked(replica) for replica in replicas), "every replica is in step")

    def restart(self, server: Server) -> None:
        """Start one that was killed; waits until it follows whoever leads its shard now, and has all its data."""
        server.start()
        _wait(lambda: _answers(server), f"{server.address} answers")
        _wait(lambda: all(map(_serves, self.all)), "all servers serve")
        _wait(lambda: _is_linked(server), f"{server.address} is in step")

    def _knows_all(self, server: Server) -> bool:
        return all(other.node_id in server.call("CLUSTER NODES") for other in self.all)


@contextlib.contextmanager
def running(engine: str, directory: Path, shards: int, copies: int, node_timeout: float) -> Iterator[Servers]:
    """A cluster of ``shards`` x ``copies`` servers; at the end none of them is left.

    To be used in the main thread: the system ends the servers with the thread that started them.
    """
    more = directory / "more.conf"
    more.write_text(f"cluster-node-timeout {int(node_timeout * 1000)}\n", encoding="utf-8")
    network = OwnNetwork.claim()
    host, port = network.address(1)
    options = ServerOptions(find_program(engine), host, host, include=more)
    every = [
        _server(directory / str(number + 1), options, ports)
        for number, ports in enumerate(allocate_ports(directory, shards * copies, host, port))
    ]
    try:
        for server in every:
            server.start()
        servers = Servers(every, shards)
        _wait(lambda: all(_answers(server) for server in every), "all servers answer")
        servers.make_cluster()
        yield servers
    finally:
        for server in every:
            server.kill()
            server.client.close()
        network.close()


def _server(place: Path, options: ServerOptions, ports: Ports) -> Server:
    from valkey import Valkey

    place.mkdir()
    (place / CONFIGURATION).write_text(configuration(options, ports, place), encoding="utf-8")
    client = Valkey(options.bind, ports.clients, decode_responses=True, socket_timeout=5.0)
    client.response_callbacks.clear()  # answers as the server gives them
    return Server(options.program, place, options.bind, ports, client)


def _answers(server: Server) -> bool:
    from valkey import ValkeyError

    if server.process is None or server.process.poll() is not None:
        raise RuntimeError(f"the server {server.address} does not run; see {server.directory}")
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
