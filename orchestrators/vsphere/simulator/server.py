"""Building and starting the simulated vCenter (``main.go``)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from random import Random
from typing import Self

import msgspec
import trio
from pyVmomi import vim

from orchestrators.vsphere.connection import Address, Connection, Credentials
from orchestrators.vsphere.errors import SimulatorError

_SOURCES = ("main.go", "go.mod", "go.sum")
_USER, _PASSWORD = "rota@vsphere.local", "simulated"


def binary() -> Path:
    """The program, built if it is not there yet: minutes the first time.

    Raises SimulatorError where there is no Go, or the build fails.
    """
    folder = files("orchestrators.vsphere.simulator")
    texts = {name: (folder / name).read_bytes() for name in _SOURCES}
    digest = hashlib.sha256(b"".join(texts.values())).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rota" / "vsphere"
    program = cache / f"vcenter-{digest}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise SimulatorError(
            "the simulated vCenter is built with Go, which is not installed: see https://go.dev"
        )
    cache.mkdir(parents=True, exist_ok=True)
    being_built = cache / f"{program.name}.{os.getpid()}"
    with ExitStack() as stack:
        source = stack.enter_context(as_file(folder))
        command = ["nice", "-n", "19", "go", "build", "-trimpath", "-o", str(being_built), "."]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()
        raise SimulatorError(
            f"the simulated vCenter cannot be built: {reason[-1] if reason else 'go failed'}"
        )
    being_built.replace(program)
    return program


class HostSize(msgspec.Struct, frozen=True):
    """A host; its name is ``esx00`` and so on."""

    cores: int = 32
    mhz: int = 2500
    memory: int = 512 * 1024


class Load(msgspec.Struct, frozen=True, rename="lower"):
    """A machine; its name is ``vm0000`` and so on.  ``host`` is a number."""

    host: int
    cpu: int
    memory: int
    cpu_reservation: int = msgspec.field(default=0, name="cpuReservation")
    memory_reservation: int = msgspec.field(default=0, name="memoryReservation")


class Description(msgspec.Struct, frozen=True):
    """What is simulated."""

    hosts: tuple[HostSize, ...]
    machines: tuple[Load, ...]
    fails: tuple[str, ...] = ()
    """Machines whose moves fail."""
    hangs: tuple[str, ...] = ()
    """Machines whose moves never end."""
    delay: int = 0
    """Milliseconds that a move takes."""
    drs: str = "manual"
    user: str = _USER
    password: str = _PASSWORD


def skewed(hosts: int, machines: int, seed: int = 0, delay: int = 0) -> Description:
    """Hosts that are used between a fifth and nine tenths: some of them run far more machines than others."""
    draw = Random(seed)
    size = HostSize()
    weights = [draw.uniform(1, 4) for _ in range(hosts)]
    places = draw.choices(range(hosts), weights, k=machines)
    raw = [draw.lognormvariate(0, 0.8) for _ in range(machines)]
    most = max(sum(r for r, place in zip(raw, places, strict=True) if place == host) for host in range(hosts))
    scale = 0.9 * size.cores * size.mhz / most
    per_host = max(places.count(host) for host in range(hosts))
    memory = int(0.8 * size.memory / per_host)
    loads = [
        Load(place, max(1, int(r * scale)), draw.randint(memory // 2, memory))
        for r, place in zip(raw, places, strict=True)
    ]
    return Description(tuple(size for _ in range(hosts)), tuple(loads), delay=delay)


@dataclass(slots=True)
class SimulatedVCenter:
    """``with SimulatedVCenter(skewed(4, 40)) as vcenter``: a process that serves on loopback until the end."""

    description: Description
    listen: str = "127.0.0.1:0"
    address: Address = field(init=False)
    credentials: Credentials = field(init=False)
    _process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        program = binary()
        self._process = subprocess.Popen(
            [program, "-listen", self.listen],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(self.description).decode())
        self._process.stdin.close()
        words = self._process.stdout.readline().split()
        if len(words) != 2:
            self.__exit__()
            raise SimulatorError("the simulated vCenter did not start")
        self.address = Address.parsed(words[0], Path(words[1]))
        self.credentials = Credentials(self.description.user, self.description.password)
        if self.description.drs != "fullyAutomated":
            trio.run(self._configure, vim.cluster.DrsConfigInfo(defaultVmBehavior=self.description.drs))
        return self

    async def _configure(self, drs: vim.cluster.DrsConfigInfo) -> None:
        """Clusters of the simulator are fully automatic at first."""
        connection = Connection(self.address, self.credentials)
        await connection.connect()
        content = connection.content
        view = content.viewManager.CreateContainerView(content.rootFolder, [vim.ClusterComputeResource], True)
        for cluster in view.view:
            spec = vim.cluster.ConfigSpecEx(drsConfig=drs)
            await connection.call(cluster.ReconfigureComputeResource_Task, spec, True)
        await connection.close()

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if hasattr(self, "address") and self.address.ca_file is not None:
            self.address.ca_file.unlink(missing_ok=True)

    def wait(self) -> None:
        """Until it ends by itself."""
        self._process.wait()
