"""One real agent process: started, signalled, watched, and what it cost.

A child process of the chaos run and its end of the control channel.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections import defaultdict
from pathlib import Path

from chaos.processes import control_messages as control
from membership.protocol.view.member import Member

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_LAST_LINES = 5


class AgentProcess:
    """A process of `rota agent` on the host of that name. At most one per host at a time."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.lines = control.Lines()
        self.connection: socket.socket | None = None
        """Its end of the control channel, once it has called; whoever reads from it closes it."""
        self.begun = False
        """Whether it was told to join."""
        self.may_end = False
        """Whether it is no surprise when it ends."""
        self.me: Member | None = None
        """The incarnation that reported last; None before its first view and after its eviction."""
        self.traffic: tuple[float, int, int] | None = None
        """The last sample: seconds, bytes received, bytes sent."""
        self._log = log
        self._cpu_seconds = 0.0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                # Ctrl-C is for the chaos run, which ends its agents itself.
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, or is stopped."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def cpu_seconds(self) -> float:
        """User and system time it has used; when it is gone, as of the last time it was looked at."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return self._cpu_seconds
        self._cpu_seconds = max(self._cpu_seconds, (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS)
        return self._cpu_seconds

    def send(self, order: control.Order) -> None:
        """Tell it something; one that is gone does not hear it."""
        if self.connection is not None:
            try:
                self.connection.sendall(control.encode(order))
            except OSError:
                self.connection = None

    def signal(self, number: int) -> None:
        """Send it a signal; no effect when it is gone."""
        if self.alive:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Stop it, and all that it has started: its host stands still as a whole."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """All of them go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        self.signal(number)
        for pid in self.started():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def started(self) -> list[int]:
        """The processes that it has started, those that these have started, and so on."""
        children = defaultdict(list)
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parent = int(entry.read_text().rpartition(")")[2].split()[1])
                children[parent].append(int(entry.parent.name))
        found = [self.pid] if self.alive else []
        for pid in found:
            found += children[pid]
        return found[1:]

    def kill(self) -> None:
        """SIGKILL, which ends a stopped process too, and wait for its end."""
        self.may_end = True
        _ = self.cpu_seconds
        self.signal(signal.SIGKILL)
        self._process.wait()
        self.connection = None

    def last_lines(self) -> str:
        """The end of its log."""
        try:
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        except OSError:
            return "(no log)"


def wait_until_ended(pids: list[int], seconds: float) -> None:
    """Processes that are about to end, and are nobody's children here."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            finally:
                os.close(descriptor)


def _environment() -> dict[str, str]:
    """The agents run the very code that this process runs."""
    root = str(Path(__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
