"""The backends by name: what a scenario can run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from membership.settings import Settings

from .agents import AgentWorld
from .centralised import CentralisedCluster
from .cluster import Cluster
from .errors import NotRunnableError
from .interruption import terminated_as_interrupted
from .links import Links
from .loopback import LoopbackLinks
from .namespaces import NamespaceLinks
from .network import NetworkSettings
from .store.agents import AgentStoreWorld
from .store.cluster import StoreCluster
from .world import StoreWorld, World

BACKENDS = ("sim", "process", "netns")


@contextmanager
def open_world(
    backend: str,
    nodes: int,
    *,
    seed: int,
    loss: float,
    rejoin: bool,
    through_codec: bool = False,
    ensemble: int = 0,
    logs: Path | None = None,
) -> Iterator[World]:
    """A world of `nodes` hosts on that backend; at the end nothing of it is left, whatever happened.

    `ensemble`: in the centralised mode, with so many voters; on sim only.

    Raises NotRunnableError when the machine lacks what the backend needs.
    """
    if ensemble:
        yield CentralisedCluster(
            nodes,
            ensemble=ensemble,
            seed=seed,
            settings=Settings.lan(),
            network=NetworkSettings(loss=loss),
            rejoin=rejoin,
            through_codec=through_codec,
        )
        return
    if backend == "sim":
        yield Cluster(
            nodes,
            seed=seed,
            settings=Settings.lan(),
            network=NetworkSettings(loss=loss),
            rejoin=rejoin,
            through_codec=through_codec,
        )
        return
    with terminated_as_interrupted():
        links: Links = LoopbackLinks() if backend == "process" else NamespaceLinks()
        try:
            world = AgentWorld(nodes, links, backend=backend, seed=seed, loss=loss, rejoin=rejoin, logs=logs)
            try:
                yield world
            finally:
                world.close()
        finally:
            links.close()


@contextmanager
def open_store_world(
    backend: str,
    nodes: int,
    *,
    seed: int,
    loss: float,
    rejoin: bool,
    through_codec: bool = False,
    logs: Path | None = None,
) -> Iterator[StoreWorld]:
    """As `open_world`, with a store on every host, on sim and process."""
    if backend == "netns":
        raise NotRunnableError("a store does not run on backend netns; use --backend sim or process")
    if backend == "process":
        with terminated_as_interrupted():
            links = LoopbackLinks()
            agents = AgentStoreWorld(nodes, links, seed=seed, loss=loss, rejoin=rejoin, logs=logs)
            try:
                yield agents
            finally:
                agents.close()
                links.close()
        return
    world = StoreCluster(
        nodes,
        seed=seed,
        settings=Settings.lan(),
        network=NetworkSettings(loss=loss),
        rejoin=rejoin,
        through_codec=through_codec,
    )
    try:
        yield world
    finally:
        world.close()
