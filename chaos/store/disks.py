"""The disks of hosts that carry a store: the member's files and the log's, lost, copied and restored together.

`DataDirectories` with the log's files beside it, and the bound of what the store makes good by itself. The bound is
drawn from what hosts were told of the layout, of which the cluster itself knows only a part.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from chaos.simulated_cluster.data_directory import ANCHOR, IDENTITY, LAST_VIEW, DataDirectories
from datastore_adapter import EpochDocument, SimulatedCluster
from datastore_adapter.log.layout.document import ExtentState
from membership.files.simulated import SimulatedFiles


class StoreDisks(DataDirectories):
    """Those of the hosts of `log`."""

    def __init__(self, log: SimulatedCluster, rng: random.Random) -> None:
        super().__init__(rng)
        self._log = log
        self._disk_copies: dict[str, SimulatedFiles] = {}
        self.robbed: set[str] = set()
        """Hosts whose stores have lost files."""

    def copy(self, host: str) -> None:
        """As it would be if the power went off now."""
        super().copy(host)
        self._disk_copies[host] = self._log.hosts[host].copy_disk()

    def _restore(self, host: str) -> None:
        super()._restore(host)
        self._log.hosts[host].restore_disk(self._disk_copies[host])

    def _wipe(self, host: str) -> None:
        super()._wipe(host)
        self._log.hosts[host].erase()

    def _files(self, host: str) -> list[str]:
        return [*super()._files(host), *self._log.hosts[host].storage.files()]

    def _remove(self, host: str, file: str) -> None:
        if file in (ANCHOR, IDENTITY, LAST_VIEW):
            super()._remove(host, file)
        else:
            self._log.hosts[host].storage.remove(file)
            self.robbed.add(host)
        if file == ANCHOR:
            self._log.hosts[host].distrust_disk()


def makes_good(documents: Iterable[EpochDocument], lost: frozenset[str]) -> bool:
    """Whether the store makes the loss of these hosts' disks good by itself, whichever of the documents is in force:
    fewer than half of the layout servers are among them, and of no extent all who hold it."""
    return all(_makes_good(document, lost) for document in documents)


def _makes_good(document: EpochDocument, lost: frozenset[str]) -> bool:
    layout = document.layout
    voters_lost = len(lost.intersection(layout.layout_servers))
    extents = (extent for segment in layout.segments for extent in segment.extents)
    return 2 * voters_lost < len(layout.layout_servers) and not any(
        extent.chain and lost.issuperset(extent.chain)
        for extent in extents
        if extent.state is not ExtentState.FORGOTTEN
    )
