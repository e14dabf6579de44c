"""How long a crash, a join and a leave take with each preset of the settings: the table of `docs/embedding.md`.

Ten members on the simulator, whose packets take as long as the preset is meant for. One dies, a new one joins, one
leaves; each time until all members have the next view.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.result import Result
from chaos import Cluster, NetworkSettings
from chaos.faults import Crash, Leave, Start
from membership import Settings

NODES: Final = 10
NETWORKS: Final[Mapping[str, tuple[Settings, NetworkSettings]]] = {
    "local": (Settings.local(), NetworkSettings(minimum_delay=0.0001, maximum_delay=0.0005)),
    "lan": (Settings.lan(), NetworkSettings()),
    "wan": (Settings.wan(), NetworkSettings(minimum_delay=0.02, maximum_delay=0.15)),
}
EVENTS: Final = ("crash", "join", "leave")
CALM: Final = 15.0
"""Probe intervals before each event: all members rest by then."""
PATIENCE: Final = 300.0


def presets(seeds: Sequence[int], names: Sequence[str] = tuple(NETWORKS)) -> Result:
    """Medians of the seconds, for each preset and event."""
    runs = {name: [_run(name, seed) for seed in seeds] for name in names}
    medians = {
        name: {event: statistics.median(run[event] for run in runs[name]) for event in EVENTS}
        for name in names
    }
    worst = {name: {event: max(run[event] for run in runs[name]) for event in EVENTS} for name in names}
    rows = [
        (f"{name}: {event}", f"{medians[name][event]:.2f} s, worst {worst[name][event]:.2f} s", "-")
        for name in names
        for event in EVENTS
    ]
    return Result({"medians": medians, "worst": worst, "runs": len(seeds)}, rows, "nobody")


def _run(name: str, seed: int) -> dict[str, float]:
    settings, network = NETWORKS[name]
    cluster = Cluster(NODES, seed=seed, settings=settings, network=network)
    cluster.start()

    def until(condition: Callable[[], bool]) -> float:
        """Seconds until all members of the latest view have one that meets the condition; then it is calm again."""
        began = cluster.now
        met = cluster.run(began + PATIENCE, stop=lambda: cluster.agreed() and condition())
        assert met, f"{name}, seed {seed}: no view met the condition"
        took = cluster.last_installation - began
        cluster.run(cluster.now + CALM * settings.probe_interval)
        return took

    def size() -> int:
        return len(cluster.latest) if cluster.latest is not None else 0

    until(lambda: size() == NODES)
    victim, leaver = sorted(cluster.hosts)[3:5]
    cluster.apply(Crash((victim,)))
    crash = until(lambda: size() == NODES - 1)
    cluster.apply(Start((f"n{NODES}",)))
    join = until(lambda: size() == NODES)
    cluster.apply(Leave((leaver,)))
    leave = until(lambda: size() == NODES - 1)
    cluster.close()
    return {"crash": crash, "join": join, "leave": leave}
