"""Membership on the simulator: the agents' own protocol objects in virtual time, one process, one core.

Seconds here are virtual, so they compare protocols, not machines; CPU seconds are of this process for all members
together.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from bench.members.alerts import alerts_complete, observers_of
from bench.members.run import DETECTION, Run
from chaos import Cluster, Host, NetworkSettings
from chaos.faults import Crash
from chaos.simulated_cluster.faults import core_on
from membership.protocol.context.effects import Accused
from membership.protocol.messages import encode

SPREAD: Final = 1.0
"""Virtual seconds within which all members start."""
STANDING: Final = 15.0
"""Virtual seconds of quiet before the crash: all members rest by then (see `Settings.idle_probes`)."""
WATCHED: Final = 30.0
"""Virtual seconds the cluster is watched after the crash, for view changes that should not be."""
PATIENCE: Final = 120.0


class Alert(NamedTuple):
    """A member has reported another; and what all members had sent until then."""

    seconds: float
    observer: str
    subject: str
    messages: int
    bytes: int


class Counted:
    """A simulated cluster with meters."""

    def __init__(self, nodes: int, seed: int, loss: float, codec: bool) -> None:
        # The last run's cluster is full of cycles, and the simulator rests the collector that would have found them.
        gc.collect()
        self.nodes = nodes
        self.cluster = Cluster(nodes, seed=seed, network=NetworkSettings(loss=loss), through_codec=codec)
        self.started: list[float] = []
        self.messages = 0
        """Sent for other ends than failure detection, one for each destination."""
        self.bytes = 0
        self.detection = 0
        """Probes and their answers sent."""
        self.alerts: list[Alert] = []
        simulator = self.cluster.simulator
        for host in self.cluster.hosts.values():
            self._note_start(host)
        simulator.before_send = self._count
        self._handle_events = simulator.on_events
        simulator.on_events = self._listen

    def _note_start(self, host: Host) -> None:
        make = host.factory

        def noted(generation: int, rng: random.Random) -> Any:
            self.started.append(self.cluster.now)
            return make(generation, rng)

        host.factory = noted

    def _count(self, _: Host, destinations: Sequence[Hashable], message: Any) -> Sequence[Hashable]:
        if isinstance(message, DETECTION):
            self.detection += len(destinations)
        else:
            self.messages += len(destinations)
            self.bytes += len(destinations) * len(encode(message))
        return destinations

    def _listen(self, host: Host, events: Sequence[Any]) -> None:
        for event in events:
            if isinstance(event, Accused):
                now = self.cluster.now
                self.alerts.append(Alert(now, host.name, event.subject.name, self.messages, self.bytes))
        assert self._handle_events is not None
        self._handle_events(host, events)

    def come_together(self) -> bool:
        """Start everybody; whether all met in one view."""
        self.cluster.start(SPREAD)
        return self.cluster.run(PATIENCE, stop=lambda: self.agreed_on(self.nodes))

    def agreed_on(self, size: int) -> bool:
        """Whether `size` running members, and nobody else, stand in one view of that size."""
        latest = self.cluster.latest
        return latest is not None and len(latest) == size and self.cluster.converged()

    def classic_rounds(self) -> int:
        """Fallbacks from the fast round, of all members together."""
        cores = [core_on(host) for host in self.cluster.running()]
        return sum(core.statistics().get("classic rounds started", 0) for core in cores)

    def reset(self) -> None:
        """Set the meters to zero."""
        self.messages = self.bytes = self.detection = 0
        self.alerts.clear()
        for host in self.cluster.hosts.values():
            host.received_bytes = host.sent_bytes = 0


def bootstrap(nodes: int, seed: int, *, loss: float, codec: bool) -> Run:
    """All members start within one virtual second."""
    began = time.process_time()
    counted = Counted(nodes, seed, loss, codec)
    ok = counted.come_together()
    cluster = counted.cluster
    last_start = max(counted.started)
    return Run(
        seed=seed,
        nodes=nodes,
        ok=ok,
        seconds=cluster.now - last_start if ok else None,
        cpu_seconds=time.process_time() - began,
        unique_sizes=len({view.size for view in cluster.views}),
        messages_per_node=(counted.messages + counted.detection) / nodes,
        bytes_per_node=sum(host.sent_bytes for host in cluster.hosts.values()) / nodes,
        max_rss=_max_rss(),
        more={
            "seconds_from_first_start": round(cluster.now, 3) if ok else None,
            "classic_rounds": counted.classic_rounds(),
        },
    )


def crash(nodes: int, faulty: int, seed: int, *, loss: float, codec: bool) -> Run:
    """``faulty`` members stop at once."""
    counted = Counted(nodes, seed, loss, codec)
    cluster = counted.cluster
    ok = counted.come_together()
    cluster.run(cluster.now + STANDING)
    before = cluster.latest
    assert before is not None
    survivors = nodes - faulty
    victims = random.Random(seed).sample(sorted(cluster.hosts), faulty)
    views, classic_rounds = len(cluster.views), counted.classic_rounds()
    counted.reset()
    cluster.simulator.sample_traffic()
    crashed, began = cluster.now, time.process_time()
    cluster.apply(Crash(tuple(victims)))
    ok = ok and cluster.run(crashed + PATIENCE, stop=lambda: counted.agreed_on(survivors))
    cpu_seconds, settled = time.process_time() - began, cluster.last_installation
    messages, sent, detection = counted.messages, counted.bytes, counted.detection
    alerts = alerts_complete(observers_of(before, victims), counted.alerts, cluster.settings.high_watermark)
    after_alerts = settled - alerts.seconds if ok and alerts is not None else None
    if cluster.now < crashed + WATCHED:
        cluster.run(crashed + WATCHED)
    received, transmitted = cluster.simulator.traffic.received(), cluster.simulator.traffic.sent()
    removed = {name for view in cluster.views[views:] for name in view.removed}
    return Run(
        seed=seed,
        nodes=nodes,
        ok=ok and removed == set(victims),
        seconds=settled - crashed if ok else None,
        cpu_seconds=cpu_seconds,
        unique_sizes=len({view.size for view in cluster.views[views:]} | {nodes}),
        messages_per_node=messages / survivors,
        bytes_per_node=sent / survivors,
        max_rss=_max_rss(),
        more={
            "faulty": faulty,
            "view_changes": len(cluster.views) - views,
            "seconds_after_alerts": None if after_alerts is None else round(after_alerts, 3),
            "messages_after_alerts": None
            if alerts is None
            else round((messages - alerts.messages) / survivors, 1),
            "bytes_after_alerts": None if alerts is None else round((sent - alerts.bytes) / survivors),
            "probes_per_node": round(detection / survivors, 1),
            "healthy_removed": len(removed - set(victims)),
            "classic_rounds": counted.classic_rounds() - classic_rounds,
            "received_kb_per_second": {"mean": received.mean, "p99": received.p99, "max": received.max},
            "sent_kb_per_second": {"mean": transmitted.mean, "p99": transmitted.p99, "max": transmitted.max},
        },
    )


def _max_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
