"""Random faults on the simulator with all invariants on, and the search for a small script that fails.

A generator of scripts from seeds, the verdict over one script (`replay`), the loop over many (`fuzz`), and delta
debugging of the first that fails. It proves nothing, and does not judge who deserves removal: only safety, and coming
together once everything is healed.
Source of the shrinking: A. Zeller and R. Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*
(ddmin), 2002.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, cast

from chaos import faults
from chaos.errors import BadArgumentError, InvariantViolation
from chaos.faults import At
from chaos.fuzzing import generator
from chaos.fuzzing.workers import in_order
from chaos.recording.views import View
from chaos.runs.runner import Progress
from chaos.script import Script, format_script, parse
from chaos.simulated_cluster.cluster import Cluster
from chaos.store.cluster import StoreCluster
from chaos.store.requirements import check_installed
from membership.protocol.view.removal_history import longest_test_time
from membership.settings import Settings

_PRESETS: dict[str, Callable[[], Settings]] = {
    "lan": Settings.lan,
    "wan": Settings.wan,
    "local": Settings.local,
}
_QUIET = {"lan": 120.0, "wan": 600.0, "local": 60.0}
"""Seconds within which a cluster must be one again after everything is healed, by preset."""
_SOON = 5.0
_STILL = 3.0
"""Seconds that it must then stay as it is."""
_SHRINKING_RUNS = 150


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one script."""

    script: Script
    broken: str | None
    """What broke, with time and the last events; None is good."""
    stuck: bool
    """What broke is that the cluster did not come together again; otherwise it is an invariant."""
    views: tuple[View, ...]
    quorum_lost_for_good: bool
    """So many members of one view died that nobody may go on: correct, and the end of the run."""
    virtual_seconds: float
    trace_hash: int

    @property
    def ok(self) -> bool:
        """Whether all invariants held and the cluster came together again."""
        return self.broken is None

    def text(self) -> str:
        """For people: the views, and what broke."""
        lines = [
            f"{view.seconds:9.3f}s  epoch {view.epoch}  size {view.size}"
            + "".join(f"  +{name}" for name in view.joined[:12])
            + (" …" if len(view.joined) > 12 else "")
            + "".join(f"  -{name}" for name in view.removed[:12])
            for view in self.views
        ]
        if self.quorum_lost_for_good:
            lines.append("the quorum of the last view is lost for good")
        lines.append("ok" if self.ok else f"BROKEN: {self.broken}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "ok": self.ok,
            "broken": self.broken,
            "seed": self.script.seed,
            "nodes": self.script.nodes,
            "views": [
                {"epoch": view.epoch, "size": view.size, "seconds": round(view.seconds, 3)}
                for view in self.views
            ],
            "quorum_lost_for_good": self.quorum_lost_for_good,
            "virtual_seconds": round(self.virtual_seconds, 3),
            "script": format_script(self.script),
        }


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """What came of many seeds; the loop ends at the first that fails."""

    seeds: int
    """How many were asked for."""
    runs: int
    """How many were run."""
    views: int
    """View changes in all runs."""
    quorums_lost: int
    """Runs that ended with the quorum lost for good."""
    virtual_seconds: float
    cpu_seconds: float
    failing_seed: int | None = None
    broken: str | None = None
    script: Script | None = None
    """A small script that still fails."""

    @property
    def ok(self) -> bool:
        """Whether no seed failed."""
        return self.failing_seed is None

    def to_json(self) -> dict[str, Any]:
        """The report as the JSON document of `rota chaos fuzz --json`."""
        return {
            "ok": self.ok,
            "seeds": self.seeds,
            "runs": self.runs,
            "views": self.views,
            "quorums_lost": self.quorums_lost,
            "virtual_seconds": round(self.virtual_seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "failing_seed": self.failing_seed,
            "broken": self.broken,
            "script": None if self.script is None else format_script(self.script),
        }

    def text(self) -> str:
        """For people: one line, or the failing seed and a script to replay."""
        summary = (
            f"{self.runs} runs, {self.views} view changes, {self.virtual_seconds:.0f} virtual seconds, "
            f"{self.cpu_seconds:.1f} CPU seconds"
        )
        if self.script is None:
            return f"clean: {summary}"
        return (
            f"seed {self.failing_seed} fails after {summary}\n{self.broken}\n\n"
            f"# the smallest script found that still fails; run it with `rota chaos replay FILE`\n"
            f"{format_script(self.script)}"
        )


def replay(script: Script | str) -> Replay:
    """Run a script, heal everything, and check that the cluster is one again. The same script, the same run.

    Raises ScriptError when text can not be read, BadArgumentError when it names hosts that are never started.
    """
    script = parse(script) if isinstance(script, str) else script
    return _run(script, _QUIET[script.settings])


def _run(script: Script, quiet: float) -> Replay:
    _check_hosts(script)
    if script.store:
        check_installed()
    return _run_with_store(script) if script.store else _run_members(script, quiet)


def _run_with_store(script: Script) -> Replay:
    """Clients use the store all the time; in the end every host is started again, and everything is read back."""
    cluster = StoreCluster(
        script.nodes,
        seed=script.seed,
        settings=_PRESETS[script.settings](),
        keep_quorum=script.keep_quorum,
        keep_disks=script.keep_disks,
        copies=script.copies,
        count_bytes=False,
    )
    broken: str | None = None
    stuck = False
    with closing(cluster):
        try:
            cluster.start()
            cluster.watch_quorums()
            cluster.begin_use(script.duration)
            cluster.schedule(script.schedule)
            cluster.run(max(script.duration, *(at.seconds for at in script.schedule), 0.0))
            _heal(cluster)
            cluster.apply(faults.Start(tuple(cluster.hosts)))
            outcome = cluster.conclude(0.0)
        except InvariantViolation as violation:
            broken = str(violation)
        else:
            if missing := outcome.broken(everything=script.keep_disks):
                what = f"seed {script.seed}: it does not hold that {'; '.join(missing)}"
                broken = "\n".join([what, *outcome.findings, *cluster.tale()])
                stuck = not outcome.broken(everything=False)
    return _replay_of(script, cluster, broken, stuck=stuck)


def _run_members(script: Script, quiet: float) -> Replay:
    cluster = Cluster(
        script.nodes,
        seed=script.seed,
        settings=_PRESETS[script.settings](),
        keep_quorum=script.keep_quorum,
        count_bytes=False,
        remember=script.remember,
        expect=script.expect,
    )
    broken, stuck = None, False
    try:
        cluster.start()
        cluster.watch_quorums()
        cluster.schedule(script.schedule)
        cluster.run(max(script.duration, *(at.seconds for at in script.schedule), 0.0))
        _heal(cluster)
        if script.remember:
            cluster.apply(faults.Start(tuple(cluster.hosts)))
        # Whoever failed again and again must prove itself for so long.
        quiet += longest_test_time(cluster.settings)
        settled = _settles(cluster, quiet)
        if not settled and not cluster.strays() and cluster.end_lost_branches():
            settled = _settles(cluster, quiet)
        if not settled and (cluster.remembers or cluster.quorum_alive()):
            broken, stuck = _not_converged(cluster, quiet), True
    except InvariantViolation as violation:
        broken = str(violation)
    return _replay_of(script, cluster, broken, stuck=stuck)


def _replay_of(script: Script, cluster: Cluster, broken: str | None, *, stuck: bool) -> Replay:
    return Replay(
        script=script,
        broken=broken,
        stuck=stuck,
        views=tuple(cluster.views),
        quorum_lost_for_good=broken is None and not cluster.converged(),
        virtual_seconds=cluster.now,
        trace_hash=cluster.simulator.trace_hash,
    )


def _may_come_together(cluster: Cluster) -> bool:
    return cluster.disks is not None or cluster.quorum_alive()


def _settles(cluster: Cluster, quiet: float) -> bool:
    """Whether the cluster is one again within `quiet` seconds, and still is a little later."""
    # Nobody may go on when a majority of one view is dead; waiting longer would change nothing, once the votes
    # that are on their way have arrived.
    cluster.run(cluster.now + _SOON, stop=cluster.converged)
    until = cluster.now + quiet
    # Those that remember may found their cluster anew, whoever has died.
    while _may_come_together(cluster) and cluster.run(until, stop=cluster.converged):
        cluster.run(cluster.now + _STILL)
        if cluster.converged():
            return True
    return False


def fuzz(
    seeds: int,
    *,
    first: int = 0,
    nodes: int | None = None,
    store: bool | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    progress: Progress | None = None,
) -> FuzzReport:
    """Run the random script of each seed from `first` on; stop at the first that fails, and shrink it.

    `nodes`: members at the start, `store`: whether they carry a store (default: the seed decides). `jobs`: processes
    that share the work; the report is the same for any number, but for `cpu_seconds`. `minutes`: begin no further seed
    after so long.
    """
    if seeds < 1:
        raise BadArgumentError(f"at least one seed, not {seeds}")
    if jobs < 1:
        raise BadArgumentError(f"at least one job, not {jobs}")
    if minutes is not None and not minutes > 0:
        raise BadArgumentError(f"more than 0 minutes, not {minutes}")
    if store is not False:
        check_installed()
    views = lost = 0
    virtual = seconds = 0.0
    ends = inf if minutes is None else time.monotonic() + 60 * minutes
    trials = in_order(partial(_try, nodes=nodes, store=store), range(first, first + seeds), jobs)
    with closing(cast("Generator[_Trial]", trials)):
        for done, trial in enumerate(trials, start=1):
            views += trial.views
            lost += trial.quorum_lost_for_good
            virtual += trial.virtual_seconds
            seconds += trial.cpu_seconds
            if progress is not None:
                progress(done / seeds)
            if not trial.ok or time.monotonic() >= ends:
                break
    if trial.ok:
        return FuzzReport(seeds, done, views, lost, virtual, seconds)
    started = time.process_time()
    small = shrink(
        generator.random_script(trial.seed, nodes, store=store), partial(_breaks, stuck=trial.stuck)
    )
    broken = replay(small).broken
    seconds += time.process_time() - started
    return FuzzReport(seeds, done, views, lost, virtual, seconds, trial.seed, broken, small)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a worker tells of one seed."""

    seed: int
    ok: bool
    stuck: bool
    views: int
    quorum_lost_for_good: bool
    virtual_seconds: float
    cpu_seconds: float


def _try(seed: int, nodes: int | None, store: bool | None) -> _Trial:
    started = time.process_time()
    result = replay(generator.random_script(seed, nodes, store=store))
    return _Trial(
        seed=seed,
        ok=result.ok,
        stuck=result.stuck,
        views=len(result.views),
        quorum_lost_for_good=result.quorum_lost_for_good,
        virtual_seconds=result.virtual_seconds,
        cpu_seconds=time.process_time() - started,
    )


def shrink(script: Script, fails: Callable[[Script], bool]) -> Script:
    """A script with few of the faults of `script` for which `fails` still holds, as it does for `script`."""
    runs = 0

    def still(schedule: Sequence[At]) -> bool:
        nonlocal runs
        runs += 1
        return runs <= _SHRINKING_RUNS and fails(replace(script, schedule=tuple(schedule)))

    schedule = list(script.schedule)
    size = max(1, len(schedule) // 2)
    while schedule and runs < _SHRINKING_RUNS:
        before = len(schedule)
        position = 0
        while position < len(schedule):
            rest = schedule[:position] + schedule[position + size :]
            if still(rest):
                schedule = rest
            else:
                position += size
        if size == 1 and len(schedule) == before:
            break
        size = max(1, size // 2)
    return replace(script, schedule=tuple(schedule))


def _breaks(script: Script, stuck: bool) -> bool:
    """Whether it fails in the same way, an invariant or being stuck."""
    try:
        # An invariant that breaks does so while things go wrong, or soon after.
        result = _run(script, _QUIET[script.settings] if stuck else _SOON)
    except BadArgumentError:
        return False  # it lost the start of a host that it still hurts
    return not result.ok and result.stuck == stuck


def _heal(cluster: Cluster) -> None:
    """End every fault that still goes on. The crashed stay crashed."""
    names = tuple(cluster.hosts)
    network = cluster.simulator.network
    network.unblock_all()
    cluster.message_faults.clear()
    for fault in (
        faults.Heal(),
        faults.DropIngress(0.0, names),
        faults.DropEgress(0.0, names),
        faults.Delay(0.0, names),
        faults.Loss(0.0),
        faults.Duplication(0.0),
        faults.Reordering(0.0, 0.0),
        faults.Resume(names),
        faults.ClearDisk(names),
        faults.MendDisk(names),
    ):
        cluster.apply(fault)


def _not_converged(cluster: Cluster, quiet: float) -> str:
    latest = cluster.latest
    running = " ".join(host.name for host in cluster.running())
    view = (
        "no view" if latest is None else f"epoch {latest.epoch} of {' '.join(m.name for m in latest.members)}"
    )
    trace = "\n".join(cluster.trace)
    return (
        f"seed {cluster.simulator.seed}: not one again {quiet:.0f} s after everything was healed; "
        f"running: {running}; latest view: {view}\n{trace}"
    )


def _check_hosts(script: Script) -> None:
    known = {f"n{number}" for number in range(script.nodes)}
    for at in script.schedule:
        fault = at.fault
        if isinstance(fault, faults.Start):
            known.update(fault.hosts)
        unknown = sorted(set(faults.hosts_of(fault)) - known)
        if unknown:
            raise BadArgumentError(
                f"at {at.seconds} s: there is no host {unknown[0]} yet; the script begins with n0 to "
                f"n{script.nodes - 1}, others need `start` first"
            )
