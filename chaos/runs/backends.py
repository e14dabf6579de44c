"""The backends by name: what a scenario can run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from chaos.errors import NotRunnableError
from chaos.processes.agents import AgentWorld
from chaos.processes.interruption import terminated_as_interrupted
from chaos.processes.links import Links
from chaos.processes.loopback import LoopbackLinks
from chaos.processes.namespaces import NamespaceLinks
from chaos.recording.cluster_under_test import StoreWorld, World
from chaos.simulated_cluster.centralised import CentralisedCluster
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulation.network import NetworkSettings
from chaos.slots.agents import AgentSlotsWorld
from chaos.store.agents import AgentStoreWorld
from chaos.store.cluster import StoreCluster
from chaos.store.log_agents import AgentLogWorld
from membership.settings import Settings

BACKENDS = ("sim", "process", "netns")
ENGINES = ("valkey", "redis")
"""Stores whose servers the agents run."""
STORES = ("none", "log", *ENGINES)

_World = TypeVar("_World")
_Agents = TypeVar("_Agents", bound=AgentWorld)


@dataclass(frozen=True, slots=True)
class Hosting:
    """What a world is made of: so many hosts on that backend."""

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

    def simulated(self, kind: Callable[..., _World]) -> _World:
        """Of that kind of simulated cluster."""
        return kind(
            self.nodes,
            seed=self.seed,
            settings=Settings.lan(),
            network=NetworkSettings(loss=self.loss),
            through_codec=self.through_codec,
        )

    def of_agents(self, kind: Callable[..., _World], links: Links) -> _World:
        """Of real agents that reach each other by these links."""
        return kind(self.nodes, links, seed=self.seed, loss=self.loss, logs=self.logs)


@contextmanager
def open_world(hosting: Hosting) -> Iterator[World]:
    """A world; at the end nothing of it is left, whatever happened.

    Raises NotRunnableError when the machine lacks what the backend needs.
    """
    if hosting.backend != "sim":
        with _agents(hosting, partial(AgentWorld, backend=hosting.backend)) as agents:
            yield agents
    elif hosting.ensemble:
        yield hosting.simulated(partial(CentralisedCluster, ensemble=hosting.ensemble))
    else:
        yield hosting.simulated(Cluster)


@contextmanager
def open_store_world(hosting: Hosting) -> Iterator[StoreWorld]:
    """As `open_world`, with a store on every host, on sim and process."""
    if hosting.backend == "netns":
        raise NotRunnableError("a store does not run on backend netns; use --backend sim or process")
    if hosting.backend == "process":
        kind: Callable[..., AgentStoreWorld] = AgentLogWorld
        if hosting.store in ENGINES:
            kind = partial(AgentSlotsWorld, engine=hosting.store)
        with _agents(hosting, kind) as agents:
            yield agents
        return
    with closing(hosting.simulated(partial(StoreCluster, keep_disks=hosting.keep_disks))) as cluster:
        yield cluster


@contextmanager
def _agents(hosting: Hosting, kind: Callable[..., _Agents]) -> Iterator[_Agents]:
    with (
        terminated_as_interrupted(),
        closing(LoopbackLinks() if hosting.backend == "process" else NamespaceLinks()) as links,
        closing(hosting.of_agents(kind, links)) as agents,
    ):
        yield agents
