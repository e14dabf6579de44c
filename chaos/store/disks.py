"""The disks of hosts that carry a store: the member's files and the log's on one, and what may be lost of them.

The bound of what the store makes good by itself is drawn from what hosts were told of the layout, of which the cluster
itself knows only a part.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from chaos.simulated_cluster.disks import Disks
from datastore_adapter import EpochDocument, SimulatedCluster
from datastore_adapter.log.layout.document import ExtentState
from membership.files.simulated import SimulatedFiles
from membership.runtime.data_directory import LOG


class StoreDisks(Disks):
    """Those of the hosts of `log`."""

    def __init__(self, log: SimulatedCluster, rng: random.Random) -> None:
        super().__init__(rng)
        self._log = log
        self.robbed: set[str] = set()
        """Hosts whose stores have lost files."""

    def of(self, host: str) -> SimulatedFiles:
        return self._log.hosts[host].storage

    def put_in(self, host: str, disk: SimulatedFiles) -> None:
        self._log.hosts[host].storage = disk

    def note_loss(self, host: str, file: str) -> None:
        if file.startswith(f"/{LOG}/"):
            self.robbed.add(host)


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
