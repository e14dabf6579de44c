"""The backends by name: what a scenario can run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from chaos.errors import NotRunnableError
from chaos.processes.agents import AgentCluster
from chaos.processes.interruption import terminated_as_interrupted
from chaos.processes.links import Links
from chaos.processes.loopback import LoopbackLinks
from chaos.processes.namespaces import NamespaceLinks
from chaos.recording.cluster_under_test import ClusterUnderTest, StoreUnderTest
from chaos.simulated_cluster.centralised import CentralisedCluster
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulation.network import NetworkSettings
from chaos.slots.agents import AgentSlotsCluster
from chaos.store.agents import AgentStoreCluster
from chaos.store.cluster import StoreCluster
from chaos.store.log_agents import AgentLogCluster
from membership.settings import Settings

BACKENDS = ("sim", "process", "netns")
ENGINES = ("valkey", "redis")
"""Stores whose servers the agents run."""
STORES = ("none", "log", *ENGINES)

_Cluster = TypeVar("_Cluster")
_Agents = TypeVar("_Agents", bound=AgentCluster)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What a cluster under test is made of: so many hosts on that backend."""

    backend: str
    nodes: int
    seed: int
    loss: float
    """The ambient loss, a probability."""
    through_codec: bool = False
    ensemble: int = 0
    """In the centralised mode, with so many voters; on sim only."""
    logs: Path | None = None
    store: str = "none"
    """One of `STORES`."""
    keep_disks: bool = True
    """With a store: whether losses of disks beyond what it makes good by itself are skipped."""

    def simulated(self, kind: Callable[..., _Cluster]) -> _Cluster:
        """Of that kind of simulated cluster."""
        return kind(
            self.nodes,
            seed=self.seed,
            settings=Settings.lan(),
            network=NetworkSettings(loss=self.loss),
            through_codec=self.through_codec,
        )

    def of_agents(self, kind: Callable[..., _Cluster], links: Links) -> _Cluster:
        """Of real agents that reach each other by these links."""
        return kind(self.nodes, links, seed=self.seed, loss=self.loss, logs=self.logs)


@contextmanager
def open_cluster(options: ClusterOptions) -> Iterator[ClusterUnderTest]:
    """A cluster; at the end nothing of it is left, whatever happened.

    Raises NotRunnableError when the machine lacks what the backend needs.
    """
    if options.backend != "sim":
        with _agents(options, partial(AgentCluster, backend=options.backend)) as agents:
            yield agents
    elif options.ensemble:
        yield options.simulated(partial(CentralisedCluster, ensemble=options.ensemble))
    else:
        yield options.simulated(Cluster)


@contextmanager
def open_store_cluster(options: ClusterOptions) -> Iterator[StoreUnderTest]:
    """As `open_cluster`, with a store on every host, on sim and process."""
    if options.backend == "netns":
        raise NotRunnableError("a store does not run on backend netns; use --backend sim or process")
    if options.backend == "process":
        kind: Callable[..., AgentStoreCluster] = AgentLogCluster
        if options.store in ENGINES:
            kind = partial(AgentSlotsCluster, engine=options.store)
        with _agents(options, kind) as agents:
            yield agents
        return
    with closing(options.simulated(partial(StoreCluster, keep_disks=options.keep_disks))) as cluster:
        yield cluster


@contextmanager
def _agents(options: ClusterOptions, kind: Callable[..., _Agents]) -> Iterator[_Agents]:
    with (
        terminated_as_interrupted(),
        closing(LoopbackLinks() if options.backend == "process" else NamespaceLinks()) as links,
        closing(options.of_agents(kind, links)) as agents,
    ):
        yield agents
