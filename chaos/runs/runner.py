"""Run a scenario: start a cluster, let it stand, let the faults happen, record, check.

`run`, the function behind `rota chaos run`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from chaos.checkers.store_outcome import StoreOutcome
from chaos.errors import BadArgumentError, InvariantViolation, NotRunnableError, UnknownBackendError
from chaos.faults import DiskLoss, spans
from chaos.recording.cluster_under_test import SAMPLES, ClusterUnderTest, StoreUnderTest
from chaos.runs.backends import BACKENDS, ENGINES, STORES, ClusterOptions, open_cluster, open_store_cluster
from chaos.runs.report import Report
from chaos.scenarios import (
    Outcome,
    Plan,
    Scenario,
    ScenarioContext,
    find_scenario,
    scenarios_with_servers,
    with_lost_disks,
)
from chaos.simulated_cluster.centralised import CentralisedCluster
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulated_cluster.fast_forward import FastForward
from chaos.simulation.event_queue import TICKS_PER_SECOND
from chaos.store.requirements import check_installed
from membership.settings import Settings

Progress = Callable[[float], None]
"""Told now and then which share, 0 to 1, of the work is done."""

_SPREAD = 1.0
"""Seconds within which all nodes start."""
_STANDING = 15.0
"""Seconds of quiet before the first fault: all members rest by then, as they nearly always do
(`membership.Settings.idle_probes`)."""
_STANDING_IN_USE = 3.0
"""Seconds between the first request of the clients of a store and the first fault."""
_AFTERWARDS = 5.0
"""Seconds the record of `bootstrap` goes on when all are in: long enough to see a false removal."""
_STARTING = 120.0
"""Seconds after which a cluster that has not come together is given up."""
_TICK = 1 / TICKS_PER_SECOND
"""Virtual time stands on whole ticks, so a time in between may never be reached exactly."""
_MOST_NODES = 20_000
_NODES, _NODES_WITH_STORE = 50, 6
DISKS = ("none", "one", "any")
_PLACING = 120.0
"""Seconds after which a store that has not placed everything is given up."""


def run(
    scenario: str,
    *,
    backend: str = "sim",
    nodes: int | None = None,
    faulty: int | None = None,
    seed: int = 0,
    loss: float | None = None,
    duration: float | None = None,
    store: str | None = None,
    disks: str | None = None,
    through_codec: bool = False,
    ensemble: int = 0,
    logs: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run `scenario` on `nodes` hosts (default: 50, with a store 6), `faulty` of them hurt, and report.

    `backend`: sim (virtual time), process (real agents on loopback) or netns (real agents, a network namespace
    each; root). On sim the same arguments give the same report (but for `cpu_seconds`); on real agents the seed
    only decides who is hurt and when. `loss` is the ambient loss, a probability (default, also for 0: the
    scenario's). `duration` is in the backend's seconds. With `through_codec` every simulated message is encoded
    and decoded. `ensemble`: so many voters record the membership (the centralised mode; 0: all members agree among
    themselves); on sim only. `store`: what the hosts carry, with clients that use it: "log", the replicated log, on sim
    and process; "valkey" or "redis", of which each agent runs two servers, on process; or "none" (default: the log if
    the scenario needs a store). `disks`: with a store, a share of the hosts that come back have an emptied disk, an old
    copy of it, or one file less: "one" at a time, which the log makes good by itself (its default); "any", and then
    nothing is promised but that whatever is missing is said (sim only); or "none". `logs`: a folder for the
    logs of real agents. Raises a ChaosError when the arguments make no sense or the machine lacks what the backend
    needs; a broken promise is no exception, it is in the report.
    """
    found = find_scenario(scenario)
    _check_backend(backend)
    store = _checked_store(found, store, backend, ensemble)
    disks = _checked_disks(disks, store, backend)
    if ensemble and backend != "sim":
        raise NotRunnableError(
            f"the centralised mode does not run on backend {backend} yet; use --backend sim"
        )
    has_store = store != "none"
    if has_store and found.with_store is not None:
        found = found.with_store
    nodes = nodes if nodes is not None else _NODES_WITH_STORE if has_store else _NODES
    faulty = found.faulty(nodes) if faulty is None else faulty
    duration = max(found.duration, found.least_duration(faulty)) if duration is None else duration
    loss = loss or found.loss
    _check(found, nodes, faulty, loss, duration)
    options = ClusterOptions(backend, nodes, seed, loss, through_codec, ensemble, logs, store, disks != "any")
    if has_store:
        with open_store_cluster(options) as hosts:
            return _Run(found, hosts, backend, nodes, faulty, seed, duration, progress, hosts, disks).report()
    with open_cluster(options) as cluster:
        return _Run(found, cluster, backend, nodes, faulty, seed, duration, progress).report()


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        cluster: ClusterUnderTest,
        backend: str,
        nodes: int,
        faulty: int,
        seed: int,
        duration: float,
        progress: Progress | None,
        store: StoreUnderTest | None = None,
        disks: str = "none",
    ) -> None:
        self.scenario = scenario
        self.backend = backend
        self.nodes = nodes
        self.faulty = faulty
        self.seed = seed
        self.duration = duration
        self.progress = progress
        self.settings = Settings.lan()
        self.cluster = cluster
        self.store = store
        self.disks = disks
        self.store_outcome: StoreOutcome | None = None
        # Only the simulator's time can be leapt over, and only where all members are alike.
        self.leaps: FastForward | None = None
        if scenario.leaps and isinstance(cluster, Cluster) and not isinstance(cluster, CentralisedCluster):
            self.leaps = FastForward(cluster, random.Random(seed))
        self.plan = Plan(())
        self.began = 0.0
        self.first_view = 0

    def report(self) -> Report:
        broken: tuple[str, ...] = ()
        try:
            self._bring_up()
            if self.scenario.plan is None:
                self._watch(self.duration, stop_when_converged=True)
            elif not self._everybody_in():
                broken = (f"the nodes did not come together within {_STARTING:.0f} s",)
            elif not self._use_store():
                broken = (f"the store did not place everything within {_PLACING:.0f} s",)
            else:
                self._inject_faults(self.scenario.plan)
                if self.store is not None:
                    self.store_outcome = self.store.conclude(self.began)
        except InvariantViolation as violation:
            broken = (str(violation),)
        outcome = self._outcome(not broken)
        broken = broken or self._broken(outcome)
        return self._write(outcome, broken)

    def _bring_up(self) -> None:
        cluster, interval = self.cluster, max(1.0, self.duration / SAMPLES)
        cluster.start(_SPREAD)
        if self.scenario.plan is None:
            cluster.begin_record(interval)
        elif cluster.run(_STARTING, stop=self._everybody_in):
            cluster.begin_record(interval)
            if self.store is None or self.scenario.waits_for_placement:
                cluster.run(cluster.now + (_STANDING if self.store is None else _STANDING_IN_USE))

    def _use_store(self) -> bool:
        """Clients begin, before or after everything is placed; whether they can."""
        cluster, store = self.cluster, self.store
        if store is None:
            return True
        if not self.scenario.waits_for_placement:
            store.begin_use(self.duration)
            return store.placing() or cluster.run(cluster.now + _PLACING, stop=store.placing)
        if not (store.placed() or cluster.run(cluster.now + _PLACING, stop=store.placed)):
            return False
        store.begin_use(self.duration)
        cluster.run(cluster.now + _STANDING_IN_USE)
        return True

    def _broken(self, outcome: Outcome) -> tuple[str, ...]:
        """The promises that were not kept. Where any disks are lost, only the store's safety is promised."""
        own = () if self.disks == "any" else self.scenario.promises
        broken = [promise.sentence for promise in own if not promise.holds(outcome)]
        if self.store_outcome is not None:
            broken += self.store_outcome.broken(everything=self.disks != "any")
        return tuple(broken)

    def _inject_faults(self, plan: Callable[[ScenarioContext], Plan]) -> None:
        cluster = self.cluster
        assert cluster.latest is not None
        stage = ScenarioContext(
            configuration=cluster.latest,
            nodes=self.nodes,
            faulty=self.faulty,
            duration=self.duration,
            settings=self.settings,
            rng=random.Random(self.seed),
            roles=None if self.store is None else self.store.roles(),
        )
        self.plan = self._with_lost_disks(plan(stage))
        self.began = cluster.now
        self.first_view = len(cluster.views)
        cluster.schedule(self.plan.schedule, offset=self.began)
        self._watch(self.duration)

    def _with_lost_disks(self, planned: Plan) -> Plan:
        if self.disks == "none" or any(isinstance(at.fault, DiskLoss) for at in planned.schedule):
            return planned
        rng = random.Random(f"{self.seed} disks")
        return replace(planned, schedule=with_lost_disks(planned.schedule, planned.faulty, rng))

    def _watch(self, duration: float, *, stop_when_converged: bool = False) -> None:
        cluster = self.cluster
        end = cluster.now + duration
        while end - cluster.now > _TICK:
            until = min(end, cluster.now + max(1.0, duration / 100))
            if stop_when_converged and cluster.run(until, stop=self._everybody_in):
                end, stop_when_converged = min(end, cluster.now + _AFTERWARDS), False
            elif self.leaps is not None:
                self.leaps.run(until)
            else:
                cluster.run(until)
            if self.progress is not None:
                self.progress(1 - max(0.0, end - cluster.now) / duration)

    def _everybody_in(self) -> bool:
        latest = self.cluster.latest
        return latest is not None and len(latest) == self.nodes and self.cluster.converged()

    def _outcome(self, unbroken: bool) -> Outcome:
        cluster = self.cluster
        views = cluster.views
        first = views[self.first_view - 1].size if self.first_view else None
        return Outcome(
            nodes=self.nodes,
            faulty=self.plan.faulty,
            first_size=first,
            views=tuple(
                replace(view, seconds=view.seconds - self.began) for view in views[self.first_view :]
            ),
            agreement=unbroken and cluster.agreed(),
            converged=unbroken and cluster.converged(),
            notices=tuple(
                replace(notice, seconds=notice.seconds - self.began)
                for notice in cluster.quorum_notices
                if notice.seconds >= self.began
            ),
            settings=self.settings,
            store=self.store_outcome,
            schedule=self.plan.schedule,
        )

    def _write(self, outcome: Outcome, broken: tuple[str, ...]) -> Report:
        traffic = self.cluster.traffic
        hurt = set(outcome.faulty)
        detection = next((view.seconds for view in outcome.views if hurt.intersection(view.removed)), None)
        settled = outcome.agreement and outcome.views
        settle = self.cluster.last_installation - self.began if settled else None
        return Report(
            scenario=self.scenario.name,
            backend=self.backend,
            nodes=self.nodes,
            faulty=len(outcome.faulty),
            seed=self.seed,
            duration=self.duration,
            views=outcome.views,
            sizes=outcome.sizes,
            faulty_removed=len(outcome.faulty_removed),
            healthy_removed=len(outcome.healthy_removed),
            readded=len(outcome.readded),
            agreement=outcome.agreement,
            detection_seconds=None if detection is None else round(detection, 3),
            settle_seconds=None if settle is None else round(settle, 3),
            received=traffic.received(),
            sent=traffic.sent(),
            cpu_seconds=self.cluster.cpu_seconds,
            broken=broken,
            hurt=outcome.faulty,
            spans=spans(self.plan.schedule, self.duration),
            samples=self.cluster.sizes.since(self.began),
            store=self.store_outcome,
            story=tuple(
                (seconds - self.began, text) for seconds, text in (self.store.story if self.store else ())
            ),
        )


def _check_backend(backend: str) -> None:
    if backend not in BACKENDS:
        raise UnknownBackendError(f"no backend {backend!r}: there are {', '.join(BACKENDS)}")


def _checked_store(scenario: Scenario, store: str | None, backend: str, ensemble: int) -> str:
    """Which store; the scenario's own where none was asked for."""
    if store is None:
        store = "log" if scenario.needs_store else "none"
    if store not in STORES:
        raise BadArgumentError(f"a store is one of {', '.join(STORES)}, not {store!r}")
    if store != "none":
        check_installed()
    if scenario.needs_store and store == "none":
        raise BadArgumentError(f"{scenario.name} shows nothing without a store; leave --no-store away")
    if ensemble and store != "none":
        raise NotRunnableError("in the centralised mode no store runs; leave --ensemble or --store away")
    if store not in ENGINES:
        return store
    if backend != "process":
        raise NotRunnableError(f"servers of {store} do not run on backend {backend}; use --backend process")
    if not (scenario.with_store or scenario).runs_with_servers:
        raise NotRunnableError(
            f"the faults of {scenario.name} do not reach servers of {store}; these do: "
            f"{', '.join(scenarios_with_servers())}"
        )
    return store


def _checked_disks(disks: str | None, store: str, backend: str) -> str:
    if disks is None:
        return "none" if store in ENGINES else "one"
    if disks not in DISKS:
        raise BadArgumentError(f"disks are lost as one of {', '.join(DISKS)}, not {disks!r}")
    if disks != "none" and store in ENGINES:
        raise NotRunnableError(f"disks of servers of {store} are not lost yet; leave --disks away")
    if disks == "any" and backend != "sim":
        raise NotRunnableError(
            f"any disks are not lost on backend {backend}; use --backend sim, or --disks one"
        )
    return disks


def _check(scenario: Scenario, nodes: int, faulty: int, loss: float, duration: float) -> None:
    if not scenario.minimum_nodes <= nodes <= _MOST_NODES:
        raise BadArgumentError(
            f"{scenario.name} needs {scenario.minimum_nodes} to {_MOST_NODES} nodes, not {nodes}"
        )
    if not 0 <= loss < 1:
        raise BadArgumentError(f"loss is a probability from 0 to below 1, not {loss}")
    if not 0 < duration < math.inf:
        raise BadArgumentError(f"a duration is more than 0 seconds and finite, not {duration}")
    if not 0 <= faulty <= nodes:
        raise BadArgumentError(f"{faulty} of {nodes} nodes can not be faulty")
    if duration < (least := scenario.least_duration(faulty)):
        raise BadArgumentError(
            f"{scenario.name} with {faulty} faulty shows nothing in {duration:g} seconds; "
            f"use --duration {least:g} or more"
        )
    if scenario.needs_quorum and 2 * (nodes - faulty) <= nodes:
        raise BadArgumentError(
            f"with {faulty} of {nodes} nodes faulty no majority is left to agree on anything; use fewer"
        )
