"""The server processes that an agent runs for its datastore: started, watched, started again when they end.

Each server has a directory of its own, with its configuration, its data and what it knows of its cluster, and keeps its
ports: the other servers find it by them when it comes back.  Without the agent there is no server: the system ends
them with it, however it ends, so that a host is there as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import trio

from membership import Address
from membership.files import replace_file
from rota.agent.engine.configuration import NODE_TIMEOUT, Ports, ServerOptions, configuration
from rota.errors import AgentError, SettingsError

log = logging.getLogger("rota")

FILE: Final = "servers.json"
"""In the engine's directory: the ports of its servers."""
CONFIGURATION: Final = "server.conf"
"""In the directory of each of them; and its log."""
LOG: Final = "server.log"
NODES: Final = "nodes.conf"
"""What it knows of its cluster; it writes that as soon as it has begun."""
START_TIMEOUT: Final = 20.0
STOP_TIMEOUT: Final = 5.0
FIRST_BACKOFF: Final = 0.2
LONGEST_BACKOFF: Final = 10.0
SILENCE: Final = NODE_TIMEOUT
"""Seconds without an answer after which a server is killed.  The other servers take it for dead by then, too; shorter,
and a command that holds it up for long ends it."""
PROBES: Final = 5
"""Within ``SILENCE``.  Counted, so that an agent that was itself stopped does not hold its pause against the server."""
LOOK_AGAIN: Final = 0.5
"""Seconds, whether a server that had to wait may be started."""
LOWEST_PORT, HIGHEST_PORT = 16384, 32768
PORT_OFFSET: Final = 1000
"""From the agent's port to that of its first server."""

_PR_SET_PDEATHSIG: Final = 1
# Looked up now: between fork and exec nothing may be loaded.
_prctl: Final = ctypes.CDLL(None).prctl


async def at_once(address: str) -> bool:
    """Nothing is in the way of an empty server."""
    return True


class EngineServers:
    """The servers of one host.

    ``on_event(kind, text)`` is told of servers that ended and came back; ``may_start(address)`` says whether an empty
    one may be started there now.
    """

    def __init__(
        self,
        directory: Path,
        ports: Sequence[Ports],
        options: ServerOptions,
        on_event: Callable[[str, str], None] = lambda kind, text: None,
        silence: float = SILENCE,
        may_start: Callable[[str], Awaitable[bool]] = at_once,
    ) -> None:
        self._directory = directory
        self._ports = tuple(ports)
        self._options = options
        self._on_event = on_event
        self._silence = silence
        self._may_start = may_start
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.restarts = 0

    @property
    def running(self) -> int:
        """How many of them run now."""
        return sum(process.poll() is None for process in self._processes.values())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run them until cancelled; "started" once all answer, but for those that have to wait.

        Raises :class:`AgentError` if one does not start.
        """
        try:
            async with trio.open_nursery() as nursery:
                async with trio.open_nursery() as starting:
                    for number in range(len(self._ports)):
                        starting.start_soon(nursery.start, self._keep, number)
                task_status.started()
        finally:
            with trio.CancelScope(shield=True):
                await self._stop()

    async def _keep(
        self, number: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Have one run.  Nobody waits for one that has to wait: it may take the control loop to end that."""
        is_held = False
        while is_empty(self._directory, number) and not await self._may_start(str(self._where(number))):
            if not is_held:
                is_held = True
                task_status.started()
            await trio.sleep(LOOK_AGAIN)
        await self._start(number)
        if not is_held:
            task_status.started()
        await self._watch(number)

    def _where(self, number: int) -> Address:
        return Address(self._options.announced, self._ports[number].clients)

    def _within(self, number: int) -> Address:
        """Where it is reached from this host."""
        bind = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._options.bind, self._options.bind)
        return Address(bind, self._ports[number].clients)

    async def _start(self, number: int) -> None:
        """Start one, and wait until it takes connections."""
        place = _place(self._directory, number)
        try:
            self._spawn(number, place)
        except OSError as error:
            raise AgentError(
                f"server {number + 1} of this host's datastore cannot be started: {error.filename or place}: "
                f"{error.strerror}"
            ) from error
        with trio.move_on_after(START_TIMEOUT):
            while self._processes[number].poll() is None:
                if await _answers(self._within(number), 1.0):
                    return
                await trio.sleep(0.02)
        raise AgentError(
            f"server {number + 1} of this host's datastore did not start at {self._where(number)}; its log "
            f"{place / LOG} ends with: {_last_lines(place / LOG)}"
        )

    def _spawn(self, number: int, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        content = configuration(self._options, self._ports[number], place)
        replace_file(place / CONFIGURATION, content.encode(), 0o600)  # there is a password in it
        # In this thread, which is the agent's own.
        self._processes[number] = start_process(self._options.program, place)

    async def _watch(self, number: int) -> None:
        """Start it again whenever it has ended, after a pause that grows while it does not last."""
        backoff = FIRST_BACKOFF
        while True:
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_if_silent, number)
                status = await _ended(self._processes[number])
                nursery.cancel_scope.cancel()
            if trio.current_time() - began > LONGEST_BACKOFF:
                backoff = FIRST_BACKOFF
            text = f"the server {self._where(number)} ended with status {status}; it is started again in {backoff:g} s"
            self._on_event("server-ended", text)
            await trio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)
            try:
                await self._start(number)
            except AgentError as error:
                log.warning("%s", error)
                self._processes[number].kill()
            else:
                self.restarts += 1
                self._on_event("server-started", f"the server {self._where(number)} runs again")

    async def _end_if_silent(self, number: int) -> None:
        """Kill it when it runs and answers nobody, as a server does that is caught in a loop."""
        interval = self._silence / PROBES
        missed = 0
        while missed < PROBES:
            began = trio.current_time()
            missed = 0 if await _answers(self._within(number), interval) else missed + 1
            await trio.sleep_until(began + interval)
        self._on_event(
            "server-silent",
            f"the server {self._where(number)} runs and has not answered for {self._silence:g} s; it is killed",
        )
        self._processes[number].kill()

    async def _stop(self) -> None:
        """In order, so that what was written is on their disks; who takes too long is killed."""
        for process in self._processes.values():
            process.terminate()
        with trio.move_on_after(STOP_TIMEOUT):
            for process in self._processes.values():
                await _ended(process)
        for process in self._processes.values():
            process.kill()
            process.wait()


def is_empty(directory: Path, number: int) -> bool:
    """Whether that server of this directory has nothing there yet, or nothing any more."""
    return not (_place(directory, number) / NODES).exists()


def _place(directory: Path, number: int) -> Path:
    return directory / str(number + 1)


def allocate_ports(directory: Path, count: int, host: str, agent_port: int) -> tuple[Ports, ...]:
    """Those of an earlier run in this directory; for a new one 1000 above the agent's, or free ones where that is 0.

    Raises :class:`SettingsError`: the directory is for another number of servers, or cannot be used.
    """
    remembered = _remembered(directory, count)
    if remembered is not None:
        return remembered
    if agent_port:
        first = agent_port + PORT_OFFSET
        if first + 2 * count > 1 << 16:
            raise SettingsError(
                f"listen: from port {agent_port} on there is no room for the ports of this host's servers, which are "
                f"{PORT_OFFSET} above it; take a lower one"
            )
        numbers: Sequence[int] = range(first, first + 2 * count)
    else:
        numbers = _reserve_ports(host, 2 * count)
    ports = tuple(Ports(*numbers[2 * number : 2 * number + 2]) for number in range(count))
    document = json.dumps({"servers": [asdict(entry) for entry in ports]}, indent=2)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(directory / FILE, document.encode())
    except OSError as error:
        raise SettingsError(f"{directory}: {error.strerror}; give another --data-dir") from error
    return ports


def _remembered(directory: Path, count: int) -> tuple[Ports, ...] | None:
    path = directory / FILE
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        ports = tuple(Ports(int(entry["clients"]), int(entry["cluster"])) for entry in raw["servers"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{path}: unreadable ({error}); restore it, or give another --data-dir"
        ) from error
    if len(ports) != count:
        raise SettingsError(
            f"engine_servers: this host has {len(ports)} servers in {directory}, not {count}; drain it and give it "
            "another --data-dir, or leave their number as it is"
        )
    return ports


def _reserve_ports(host: str, count: int) -> Sequence[int]:
    """Below those that the system hands out to connections: one of those might have it while the server is away.

    They stay this process's until it ends: nobody else is given them before the servers have been started, which is
    once the agent is a member, nor while one is away.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports: list[int] = []
    while len(ports) < count:
        port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
        with contextlib.suppress(OSError), socket.socket(family) as reserved:
            reserved.bind((host, port))  # refused while anybody has the port, or has reserved it like this
            # From now on a server may have it besides: it sets this as well, and nobody listens here.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.detach()
            ports.append(port)
    return ports


def start_process(program: Path, place: Path) -> subprocess.Popen[bytes]:
    """A server with the configuration in ``place``, where its log goes too; the system ends it with this thread."""
    with (place / LOG).open("ab") as output:
        return subprocess.Popen(
            [str(program), str((place / CONFIGURATION).absolute())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=place,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before that
            os._exit(1)

    return prepare


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for its end; the status."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


async def _answers(where: Address, timeout: float) -> bool:
    try:
        with trio.move_on_after(timeout):
            async with await trio.open_tcp_stream(*where) as stream:
                await stream.send_all(b"PING\r\n")
                # An error is an answer, too: it asks for a password, or still loads its data.
                return (await stream.receive_some(16))[:1] in {b"+", b"-"}
    except OSError:
        pass
    return False


def _last_lines(path: Path) -> str:
    try:
        return " / ".join(path.read_text(errors="replace").splitlines()[-3:]) or "(nothing)"
    except OSError:
        return "(no log)"
