"""The server processes that an agent runs for its datastore: started, watched, started again when they end.

Each server has a directory of its own, with its configuration, its data and what it knows of its cluster, and keeps its
ports: the other servers find it by them when it comes back.  Without the agent there is no server: the system ends
them with it, however it ends, so that a host is there as a whole or not at all.
What it is not: deciding what the servers hold (`datastore_adapter.slots`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import trio

from agent.errors import AgentError, SettingsError
from membership.durable_file import replace_file

log = logging.getLogger("rota")

FILE: Final = "servers.json"
"""In the engine's directory: the ports of its servers."""
NODE_TIMEOUT: Final = 15.0
"""Seconds after which the servers fail over by themselves.  The agents act after a few hundredths of a second; this is
for the case that no agent is there to do it."""
START_TIMEOUT: Final = 20.0
STOP_TIMEOUT: Final = 5.0
FIRST_BACKOFF: Final = 0.2
LONGEST_BACKOFF: Final = 10.0

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Ports:
    """Of one server: for clients, and for the other servers."""

    clients: int
    cluster: int


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What all servers of one agent have in common."""

    program: Path
    host: str
    """The address that they listen on, without a port."""
    announced: str = ""
    """The host's name in the cluster, which the servers tell each other."""
    rack: str = ""
    user: str = "default"
    password: str = ""
    """Empty: none is asked for, so that they may only listen on loopback."""
    node_timeout: float = NODE_TIMEOUT


class EngineServers:
    """The servers of one host.  ``on_event(kind, text)`` is told of servers that ended and came back."""

    def __init__(
        self,
        directory: Path,
        count: int,
        options: ServerOptions,
        on_event: Callable[[str, str], None] = lambda kind, text: None,
    ) -> None:
        """Raises :class:`SettingsError`: the directory is for another number of servers, or cannot be used."""
        self._directory = directory
        self._options = options
        self._on_event = on_event
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = _remembered(directory, count) or _fresh(directory, count, options.host)

    @property
    def addresses(self) -> tuple[str, ...]:
        """``host:port`` of each, for clients."""
        return tuple(_joined(self._options.host, ports.clients) for ports in self._ports)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run them until cancelled; "started" once all answer.  Raises :class:`AgentError` if one does not start."""
        try:
            async with trio.open_nursery() as nursery:
                async with trio.open_nursery() as starting:
                    for number in range(len(self._ports)):
                        starting.start_soon(self._start, number)
                task_status.started()
                for number in range(len(self._ports)):
                    nursery.start_soon(self._watch, number)
        finally:
            with trio.CancelScope(shield=True):
                await self._stop()

    async def _start(self, number: int) -> None:
        """Start one, and wait until it takes connections."""
        place = self._directory / str(number + 1)
        place.mkdir(parents=True, exist_ok=True)
        configuration = place / "server.conf"
        replace_file(configuration, _configuration(self._options, self._ports[number], place).encode())
        configuration.chmod(0o600)
        with (place / "server.log").open("ab") as output:
            # In this thread, which is the agent's own: the system ends the server with the thread that started it.
            self._processes[number] = subprocess.Popen(
                [str(self._options.program), str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=place,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509 - prctl is safe there
            )
        with trio.move_on_after(START_TIMEOUT):
            while self._processes[number].poll() is None:
                if await _answers(self._options.host, self._ports[number].clients):
                    return
                await trio.sleep(0.02)
        raise AgentError(
            f"server {number + 1} of this host's datastore did not start; its log {place / 'server.log'} ends with: "
            f"{_last_words(place / 'server.log')}"
        )

    async def _watch(self, number: int) -> None:
        """Start it again whenever it has ended, after a growing pause."""
        backoff = FIRST_BACKOFF
        while True:
            status = await trio.to_thread.run_sync(self._processes[number].wait, abandon_on_cancel=True)
            where = _joined(self._options.host, self._ports[number].clients)
            self._on_event("server-ended", f"the server {where} ended with status {status}; it is started again")
            began = trio.current_time()
            await trio.sleep(backoff)
            try:
                await self._start(number)
            except AgentError as error:
                log.warning("%s", error)
                self._processes[number].kill()
            else:
                self._on_event("server-started", f"the server {where} runs again")
            lasted = trio.current_time() - began
            backoff = FIRST_BACKOFF if lasted > LONGEST_BACKOFF else min(2 * backoff, LONGEST_BACKOFF)

    async def _stop(self) -> None:
        """In order, so that what was written is on their disks; who takes too long is killed."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        with trio.move_on_after(STOP_TIMEOUT):
            for process in self._processes.values():
                await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        for process in self._processes.values():
            process.kill()
            process.wait()


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before that
            os._exit(1)

    return prepare


def _configuration(options: ServerOptions, ports: Ports, place: Path) -> str:
    """Each line says what rota promises by it, or needs; everything else is as the server's authors chose it."""
    lines = [
        f"bind {options.host}",
        f"port {ports.clients}",
        f"dir {_quoted(str(place))}",
        "daemonize no",
        "cluster-enabled yes",
        "cluster-config-file nodes.conf",
        f"cluster-port {ports.cluster}",
        f"cluster-node-timeout {int(options.node_timeout * 1000)}",
        # A replica must not move to another shard by itself, whatever its rack.
        "cluster-allow-replica-migration no",
        # One shard that is away must not stop the others.
        "cluster-require-full-coverage no",
        # A server that was started again must not come back empty: its replicas would follow it.
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "repl-diskless-sync-delay 0",
        # A replica that was away for a moment, or follows a new primary, gets what it missed instead of everything.
        "repl-backlog-size 16mb",
    ]
    if options.announced:
        lines.append(f"cluster-announce-hostname {_host_name(options.announced)}")
    if options.rack and "valkey" in options.program.name:
        lines.append(f"availability-zone {_quoted(options.rack)}")
    if options.password:
        lines += [
            f"user default {'on' if options.user == 'default' else 'off'} >{options.password} ~* &* +@all",
            f"primaryauth {_quoted(options.password)}" if "valkey" in options.program.name else "",
        ]
    return "\n".join(line for line in lines if line) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _host_name(name: str) -> str:
    """As far as it is one: letters, digits, dots and dashes."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in ".-") else "-" for sign in name)[:255]


def _remembered(directory: Path, count: int) -> tuple[Ports, ...] | None:
    path = directory / FILE
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        ports = tuple(Ports(int(entry["clients"]), int(entry["cluster"])) for entry in raw["servers"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path}: unreadable ({error}); restore it, or give another --data-dir") from error
    if len(ports) != count:
        raise SettingsError(
            f"engine_servers: this host has {len(ports)} servers in {directory}, not {count}; drain it and give it "
            "another --data-dir, or leave their number as it is"
        )
    return ports


def _fresh(directory: Path, count: int, host: str) -> tuple[Ports, ...]:
    free = _free_ports(host, 2 * count)
    ports = tuple(Ports(*free[2 * number : 2 * number + 2]) for number in range(count))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(
            directory / FILE, json.dumps({"servers": [asdict(entry) for entry in ports]}, indent=2).encode()
        )
    except OSError as error:
        raise SettingsError(f"{directory}: {error.strerror}; give another --data-dir") from error
    return ports


def _free_ports(host: str, count: int) -> Sequence[int]:
    """Held together, so that all are different."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(family)) for _ in range(count)]
        for probe in sockets:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in sockets]


async def _answers(host: str, port: int) -> bool:
    try:
        with trio.move_on_after(1.0):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(b"PING\r\n")
                # An error is an answer, too: it asks for a password, or still loads its data.
                return (await stream.receive_some(16))[:1] in {b"+", b"-"}
    except OSError:
        pass
    return False


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _last_words(path: Path) -> str:
    try:
        return " / ".join(path.read_text(errors="replace").splitlines()[-3:]) or "(nothing)"
    except OSError:
        return "(no log)"
