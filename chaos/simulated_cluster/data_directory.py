"""What a member keeps on its host's disk, and what becomes of it when the disk is lost, restored or robbed of a file.

The simulator's counterpart of an agent's data directory, as far as the membership goes: the cluster's id, the last
view, and whether the directory is known to be a copy (`rota.agent.data_directory`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from chaos.faults import DiskLoss, LoseFile, RestoreDisk, WipeDisk
from membership.protocol.view.configuration import Configuration

ANCHOR = "anchor"
IDENTITY = "agent.json"
LAST_VIEW = "last-view"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """One member's; an empty one by default."""

    cluster_id: bytes | None = None
    """In `agent.json`."""
    last_view: Configuration | None = None
    founded: bool = False
    """Whether a process here founded the cluster; it stands with the last view."""
    is_superseded: bool = False
    """The process here was told that it was removed from that view."""
    accepted: tuple[Configuration, ...] = ()
    """Proposed views that stand with the last view."""
    is_copy: bool = False
    """It was put back from a copy, or has lost the anchor that tells it from one."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that are there and tell something."""
        if self.cluster_id is None and self.last_view is None:
            return ()
        names = {
            ANCHOR: not self.is_copy,
            IDENTITY: self.cluster_id is not None,
            LAST_VIEW: self.last_view is not None,
        }
        return tuple(name for name, is_there in names.items() if is_there)

    def without(self, file: str) -> DataDirectory:
        """When this file is gone."""
        if file == ANCHOR:
            return replace(self, is_copy=True)
        if file == IDENTITY:
            return replace(self, cluster_id=None)
        return replace(self, last_view=None, founded=False, is_superseded=False, accepted=())

    def copied(self) -> DataDirectory:
        """A copy of it."""
        return replace(self, is_copy=bool(self.files))


class DataDirectories:
    """The data directories of all hosts, by name, and the copies that an operator has of them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._kept: dict[str, DataDirectory] = {}
        self._copies: dict[str, DataDirectory] = {}

    def of(self, host: str) -> DataDirectory:
        """What a process on this host finds when it starts."""
        return self._kept.get(host, DataDirectory())

    def keep(self, host: str, directory: DataDirectory) -> None:
        """The process on this host writes."""
        self._kept[host] = directory

    def copy(self, host: str) -> None:
        """Keep a copy of this one, in place of an earlier one."""
        self._copies[host] = self.of(host).copied()

    def lose(self, host: str, fault: DiskLoss) -> str:
        """Do this to the directory of a host that is down; what was done, in words."""
        match fault:
            case RestoreDisk():
                if host not in self._copies:
                    return f"there is no copy of the disk of {host}"
                self._restore(host)
                return f"{host} has an old copy of its disk"
            case WipeDisk():
                self._wipe(host)
                return f"{host} has an empty disk"
            case LoseFile():
                files = self._files(host)
                if not files:
                    return f"{host} has no file to lose"
                file = self._rng.choice(files)
                self._remove(host, file)
                return f"{host} has lost {file}"

    def _restore(self, host: str) -> None:
        self._kept[host] = self._copies[host]

    def _wipe(self, host: str) -> None:
        self._kept.pop(host, None)

    def _files(self, host: str) -> list[str]:
        return list(self.of(host).files)

    def _remove(self, host: str, file: str) -> None:
        self._kept[host] = self.of(host).without(file)
