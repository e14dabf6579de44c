"""The disks of simulated hosts, and what becomes of them: copied, put back, emptied, or robbed of a file.

Each is a simulated file system with a host's data directory at its root, as an agent keeps it: the same objects read
and write it (`membership.runtime.data_directory`).
"""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Final

from chaos import faults
from chaos.faults import DiskFault, DiskLoss, LoseFile, RestoreDisk, WipeDisk
from membership.files.simulated import Fault as FileFault
from membership.files.simulated import SimulatedFiles, cut_after, fail, first_of
from membership.runtime.data_directory import DataDirectory

ROOT: Final = Path("/")
VERSION: Final = "simulated"


class Disks:
    """Those of all hosts, by name, and the copies that an operator has of them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._disks: dict[str, SimulatedFiles] = {}
        self._copies: dict[str, SimulatedFiles] = {}

    def of(self, host: str) -> SimulatedFiles:
        """The one in this host now."""
        if host not in self._disks:
            self._disks[host] = SimulatedFiles(random.Random(self._rng.getrandbits(64)))
        return self._disks[host]

    def put_in(self, host: str, disk: SimulatedFiles) -> None:
        """This disk instead of the other one."""
        self._disks[host] = disk

    def directory(self, host: str, rings: int) -> DataDirectory:
        """What an agent on this host keeps there."""
        return DataDirectory(ROOT, rings, VERSION, system=self.of(host))

    def copy(self, host: str) -> None:
        """Keep a copy of it as it would be if the power went off now, in place of an earlier one."""
        self._copies[host] = self.of(host).snapshot()

    def hurt(self, host: str, fault: DiskFault) -> None:
        """Let this happen to the disk of a host, whether it runs or not."""
        disk = self.of(host)
        match fault:
            case faults.FillDisk():
                disk.capacity = 0
            case faults.ClearDisk():
                disk.capacity = None
            case faults.ExceedQuota():
                disk.quota = 0
            case faults.SlowDisk(seconds):
                disk.sync_seconds = seconds
            case faults.ShortWrites(probability):
                disk.short_writes = probability
            case faults.FailCall(error, operation):
                _strike(disk, fail(getattr(errno, error), operation))
            case faults.CutPowerAfter(changes):
                _strike(disk, cut_after(changes))
            case faults.MendDisk():
                disk.quota, disk.fault, disk.sync_seconds, disk.short_writes = None, None, 0.0, 0.0

    def lose(self, host: str, fault: DiskLoss) -> str:
        """Do this to the disk of a host that is down; what was done, in words."""
        match fault:
            case RestoreDisk():
                if host not in self._copies:
                    return f"there is no copy of the disk of {host}"
                self.put_in(host, self._copies[host].copy())
                return f"{host} has an old copy of its disk"
            case WipeDisk():
                self.of(host).erase()
                return f"{host} has an empty disk"
            case LoseFile():
                files = self.of(host).files()
                if not files:
                    return f"{host} has no file to lose"
                file = self._rng.choice(files)
                self.of(host).remove(file)
                self.note_loss(host, file)
                return f"{host} has lost {file.lstrip('/')}"

    def note_loss(self, host: str, file: str) -> None:
        """This host has lost this file."""


def _strike(disk: SimulatedFiles, fault: FileFault) -> None:
    disk.fault = fault if disk.fault is None else first_of((disk.fault, fault))
