"""Fast-forward: weeks of a quiet cluster in seconds, with the chance losses of every probe in them.

A way to run a cluster that leaps over the time in which all members only probe each other. The rounds of probes
within a leap are drawn at random on every edge (`membership.protocol.monitoring.simulation_fast_forward`), and it ends
before the first round that could make any member accuse another; from there on every packet is simulated again. It has
no model of its own: whether the cluster is quiet is asked of the cores, the loss of a link is the network's, and the
state of an edge changes by the same code as ever.

Why nothing is lost by it: while no link changes, no host comes or goes and nothing is reported, all that differs
between one second and the next are the outcomes of probes, which are independent. So putting n rounds in before
the one under way, on every edge, and turning the clock on by n probe intervals leaves the cluster as n intervals
would have. A leap ends where the past of an edge says so, never its future, so what follows is as random as ever.
What is repeated besides (digests to random members, the counting of neighbours) has no memory that outlives a few
seconds. In a leap every edge is probed in every round, as if nobody rested (`membership.protocol.monitoring.monitor`):
there are more chances of an accusation than there would be, never fewer. A cluster is left alone for as long as
anything younger could matter (`_STILL`).
"""

from __future__ import annotations

import random

from chaos.simulated_cluster.cluster import Cluster
from chaos.simulated_cluster.faults import core_on
from chaos.simulation.event_queue import TICKS_PER_SECOND
from chaos.simulation.network import Network
from membership.protocol.monitoring.simulation_fast_forward import FastForwardEdge

_STILL = 15.0
"""Seconds without a new view before a leap: joiners' requests and help for laggards are over by then."""
_TICK = 1 / TICKS_PER_SECOND
"""Virtual time stands on whole ticks, so a time in between may never be reached exactly."""
_LOOK_EVERY = 5
"""Probe intervals between two looks whether a leap is possible."""
_LEAST_LEAP, _LONGEST_LEAP = 10, 50_000
"""Rounds: what is not worth it, and what is drawn at a time."""


class FastForward:
    """Runs a cluster; `leapt` is how many seconds of it were not simulated packet by packet."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._random = rng
        self._interval = cluster.settings.probe_interval
        self.leapt = 0.0

    def run(self, until: float) -> None:
        """Run up to virtual time `until` (seconds). Raises InvariantViolation."""
        cluster = self._cluster
        while until - cluster.now > _TICK:
            rounds = int((min(until, cluster.simulator.next_call_at) - cluster.now) / self._interval) - 1
            if rounds >= _LEAST_LEAP and (edges := self._fast_forward_edges()) is not None:
                passed = self._pass(edges, min(rounds, _LONGEST_LEAP))
                cluster.skip(passed * self._interval)
                self.leapt += passed * self._interval
                if passed in (rounds, _LONGEST_LEAP):
                    continue
            cluster.run(min(until, cluster.now + _LOOK_EVERY * self._interval))

    def _fast_forward_edges(self) -> list[tuple[FastForwardEdge, float]] | None:
        """Every edge of the cluster and the loss of one attempt on it; None when something goes on."""
        cluster, simulator = self._cluster, self._cluster.simulator
        latest = cluster.latest
        if latest is None or not cluster.converged() or cluster.now - cluster.last_installation < _STILL:
            return None
        if simulator.before_send is not None:
            return None
        if not simulator.network.steady_within(cluster.settings.probe_retransmit / 2):
            return None
        members = {host.address: host.index for host in cluster.hosts.values()}
        found = []
        for host in cluster.running():
            edges = None if host.paused else core_on(host).fast_forward_edges()
            if edges is None:
                return None
            for edge in edges:
                loss = _attempt_loss(simulator.network, host.index, members[edge.edge.subject.address])
                found.append((edge, loss))
        return found

    def _pass(self, edges: list[tuple[FastForwardEdge, float]], rounds: int) -> int:
        """Let up to so many rounds pass in all edges alike; how many, until the first of them is on the brink."""
        seeds = [self._random.getrandbits(64) for _ in edges]
        before = [edge.snapshot() for edge, _ in edges]
        last = rounds
        for (edge, loss), seed in zip(edges, seeds, strict=True):
            last = min(last, edge.pass_rounds(last, loss, random.Random(seed)))
        if last < rounds:
            # Some edges went too far; the same draws bring them to where the first one had to stop.
            for (edge, loss), seed, state in zip(edges, seeds, before, strict=True):
                edge.restore(state)
                edge.pass_rounds(last, loss, random.Random(seed))
        return last


def _attempt_loss(network: Network, observer: int, subject: int) -> float:
    return 1 - (1 - network.loss(observer, subject)) * (1 - network.loss(subject, observer))
