"""Backend `netns`: a kernel network namespace for each host, with a switch that drops real packets. Needs root.

Namespaces, one veth pair per host, a bridge in a namespace of its own (the switch), and the packet filter on that
bridge. All of a run is inside its namespaces, so removing these removes everything; the machine's own network is not
touched. Namespaces of runs that were killed are swept when the next run begins.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.errors import BackendError, BadArgumentError, NotRunnableError
from chaos.processes import control_messages as control
from chaos.processes.agent_process import AgentProcess
from chaos.processes.link_state import LinkState
from chaos.processes.packet_filter import rules
from membership.address import Address

_PREFIX = "rota-chaos"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-\d+-\w+")
_TOOLS = {"ip": "iproute2", "nft": "nftables"}
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_PORT = 7946
_TIMEOUT = 60.0

_runs = itertools.count()


class NamespaceLinks:
    """The hosts and the switch of one run."""

    most_hosts = 250

    def __init__(self) -> None:
        self._ip, self._nft = _tools()
        _sweep(self._ip)
        self._run = f"{_PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_runs)}"
        self._made: list[str] = []
        self._hosts: list[str] = []
        self._switch = self._namespace("switch")
        try:
            self._make([self._switch])
            self._batch(
                self._switch, ["link add br0 type bridge stp_state 0 mcast_snooping 0", "link set br0 up"]
            )
        except BaseException:
            self.close()
            raise

    def add(self, number: int) -> None:
        """A namespace with one interface at the switch."""
        if number >= self.most_hosts:
            raise BadArgumentError(
                f"at most {self.most_hosts} hosts, newcomers included, run on this backend; use fewer nodes"
            )
        name = f"n{number}"
        space = self._namespace(name)
        self._make([space])
        self._batch(
            self._switch,
            [
                f"link add {name} type veth peer name eth0 address {_hardware_address(number)} netns {space}",
                # No address of its own, so no chatter of neighbour discovery.
                f"link set {name} addrgenmode none master br0 up",
            ],
        )
        self._batch(
            space,
            [
                "link set lo up",
                f"address add {self.address(number).host}/16 dev eth0",
                "link set eth0 addrgenmode none up",
                # Learned entries of all namespaces and of the machine share one small table; when it is full, packets
                # are lost that no scenario wanted lost, the machine's own too.  Permanent ones do not count.
                *self._neighbors(number),
            ],
        )
        self._hosts.append(name)

    def _neighbors(self, number: int) -> list[str]:
        """A permanent entry for each other host that there may be."""
        return [
            f"neighbor replace {self.address(other).host} lladdr {_hardware_address(other)} dev eth0 nud permanent"
            for other in range(self.most_hosts)
            if other != number
        ]

    def address(self, number: int) -> Address:
        """Addresses that exist in this run's namespaces only."""
        return Address(f"10.77.{(number + 1) >> 8}.{(number + 1) & 255}", _PORT)

    def prefix(self, number: int) -> list[str]:
        """Enter the host's namespace; the process keeps its id."""
        return [self._ip, "netns", "exec", self._namespace(f"n{number}")]

    def apply(self, state: LinkState, agents: Mapping[str, AgentProcess]) -> None:
        """Replace the switch's rules, all at once."""
        self._call([self._ip, "netns", "exec", self._switch, self._nft, "-f", "-"], rules(state, self._hosts))

    def injected(self, state: LinkState, name: str) -> control.Injected:
        """Nothing: the kernel loses packets, and transports do not know."""
        return control.Injected()

    def traffic(self, agent: AgentProcess, sample: control.Sample) -> tuple[int, int]:
        """As the host's interface counted, Ethernet headers included."""
        try:
            text = Path(f"/proc/{agent.pid}/net/dev").read_text()
        except OSError:
            return (0, 0) if agent.traffic is None else agent.traffic[1:]
        fields = text.partition("eth0:")[2].split()
        return int(fields[0]), int(fields[8])

    def close(self) -> None:
        """Remove the namespaces, and with them every interface and rule."""
        made, self._made = self._made, []
        _remove(self._ip, made)

    def _namespace(self, name: str) -> str:
        return f"{self._run}-{name}"

    def _make(self, spaces: Sequence[str]) -> None:
        self._made.extend(spaces)
        for space in spaces:
            self._call([self._ip, "netns", "add", space])

    def _batch(self, space: str, commands: Sequence[str]) -> None:
        self._call([self._ip, "-n", space, "-batch", "-"], "\n".join(commands) + "\n")

    def _call(self, command: Sequence[str], text: str = "") -> None:
        done = _run(command, text)
        if done.returncode:
            raise BackendError(
                f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}; does this kernel have "
                "network namespaces, veth, bridge and nftables for bridges?"
            )


def _run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
        start_new_session=True,
    )


def _hardware_address(number: int) -> str:
    """Of a host's interface: locally administered, and known before the host is there."""
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def _tools() -> tuple[str, str]:
    if os.geteuid() != 0:
        raise NotRunnableError(
            "backend netns makes network namespaces, which needs root; run as root, or use --backend process"
        )
    found = {tool: shutil.which(tool, path=_PATH) for tool in _TOOLS}
    for tool, path in found.items():
        if path is None:
            raise NotRunnableError(
                f"backend netns needs the program {tool}, which is not there; install {_TOOLS[tool]}, "
                "or use --backend process"
            )
    return str(found["ip"]), str(found["nft"])


def _started(pid: int) -> str:
    """When that process started, in the kernel's ticks; with the id it names a process for good. Empty: none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _sweep(ip: str) -> None:
    """Remove what runs that were killed have left."""
    left = []
    for line in _run([ip, "netns", "list"]).stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        match = _NAME.fullmatch(name)
        if match is not None and _started(int(match[1])) != match[2]:
            left.append(name)
    for name in left:
        for pid in _run([ip, "netns", "pids", name]).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    _remove(ip, left)


def _remove(ip: str, names: Sequence[str]) -> None:
    if names:
        # -force: go on with the others when one is gone already.
        _run([ip, "-force", "-batch", "-"], "".join(f"netns delete {name}\n" for name in names))
