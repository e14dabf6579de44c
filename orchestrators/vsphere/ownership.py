"""Who looks after a cluster: rota does nothing where DRS does it by itself, unless it is told to."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrators.vsphere.errors import DrsIsMasterError
from orchestrators.vsphere.inventory import Cluster

AUTOMATIC = "fullyAutomated"


def is_automatic(cluster: Cluster) -> bool:
    """Whether DRS moves machines by itself."""
    return cluster.drs == AUTOMATIC


def require_single_master(clusters: Iterable[Cluster], *, beside_drs: bool) -> None:
    """Raises DrsIsMasterError for the first cluster that DRS looks after."""
    for cluster in clusters:
        if is_automatic(cluster) and not beside_drs:
            raise DrsIsMasterError(
                f"DRS of cluster {cluster.name} is fully automatic: two masters would undo each other's moves; "
                "set DRS to manual, or say --beside-drs"
            )
