"""``rota demo``: the product's promise, shown with real processes on loopback in under a minute.

Join, place by policy, write and read, kill a host, one view change, one repair, every acknowledged write
read back.  Each sentence it prints is something just observed from the agents, never assumed.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import trio

from chaos.slots.clients import CLIENTS, SlotsWorkload
from rota.agent.engine.failover_probe import FailoverProbe
from rota.agent.engine.program import check_library
from rota.agent.settings import COPIES, COPIES_OF_SHARDS, SEGMENTS, SERVERS, SHARDS
from rota.errors import ApiError, Interrupted, LocalClusterError, UsageProblem
from rota.local.cluster import (
    POLL_INTERVAL,
    ClusterPlan,
    LocalCluster,
    check_store,
    is_settled,
    open_local_cluster,
)
from rota.local.fault_targets import choose_fault_target
from rota.local.interruption import until_interrupted
from rota.local.workload import Workload

JOIN_TIMEOUT = 30.0
PLACE_TIMEOUT = 30.0
DETECT_TIMEOUT = 30.0
REPAIR_TIMEOUT = 45.0
PROBE_TIMEOUT = 1.0
DISCREET_INTERVAL = 0.5
"""Seconds between two looks while something is measured."""
# Undisturbed writing before the kill, so that a pause can be told from the norm.
QUIET_WRITING = 3.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    nodes: int = 6
    racks: int = 3
    loss: float = 0.0
    kill: str = "random"
    seed: int | None = None
    keep: bool = False
    store: str = "log"

    @property
    def segments(self) -> int:
        return SEGMENTS if self.store == "log" else SHARDS

    @property
    def replication_factor(self) -> int:
        return COPIES if self.store == "log" else COPIES_OF_SHARDS

    @property
    def unit(self) -> str:
        return "segments" if self.store == "log" else "shards"


@dataclass(slots=True)
class DemoReport:
    """What happened; the field names are the JSON keys."""

    nodes: int
    racks: int
    views: list[dict[str, Any]] = field(default_factory=list)
    victim: str = ""
    victim_roles: list[str] = field(default_factory=list)
    detection_seconds: float | None = None
    repair_seconds: float | None = None
    acknowledged_writes: int = 0
    lost_writes: int = 0
    unreadable_writes: int = 0
    reads: int = 0
    longest_write_pause_seconds: float = 0.0
    rack_violations: int = 0
    under_replicated: int = 0
    moves: int = 0
    total_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.failure()

    def failure(self) -> str:
        """What was broken, in words; empty when nothing was."""
        broken = [
            f"{count} {what}"
            for count, what in (
                (self.lost_writes, "acknowledged writes lost"),
                (self.unreadable_writes, "acknowledged writes unreadable"),
                (self.rack_violations, "rack violations"),
                (self.under_replicated, "under-replicated segments"),
            )
            if count
        ]
        return ", ".join(broken)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class ShardsReport(DemoReport):
    """The same of a cluster of Valkey or Redis.  A write counts as acknowledged once a replica has it, too."""

    failover_seconds: float | None = None
    """From the view change to the first write that the new primary accepted; null if the victim was no primary."""
    client_errors: int = 0
    """What the two clients raised to their callers, after their own retries."""
    client_errors_seconds: float = 0.0


class Narrator:
    """One line per observation, stamped with seconds since the start; silent when only JSON is wanted."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        click.echo(f"{self.seconds:6.2f} s  {text}", err=self._quiet)


def check_options(options: DemoOptions) -> None:
    """Refuse a story that cannot come true: after the kill every copy still needs a rack of its own."""
    smallest_rack = options.nodes // options.racks
    racks_left = options.racks if smallest_rack >= 2 else min(options.racks, options.nodes) - 1
    if racks_left < options.replication_factor:
        raise UsageProblem(
            f"{options.nodes} hosts in {options.racks} racks leave {racks_left} racks when one host is killed, and "
            f"{options.replication_factor} copies need {options.replication_factor}; "
            "take --nodes 6 --racks 3, or more of either"
        )
    room, copies = _room_after_the_kill(options), options.segments * options.replication_factor
    if options.store != "log" and room < copies:
        raise UsageProblem(
            f"{options.nodes} hosts in {options.racks} racks have room for {room} copies when one host is killed, with "
            f"{SERVERS} servers on each host and the copies of a shard apart, and {options.segments} shards x "
            f"{options.replication_factor} copies need {copies}; take --nodes 6, or more"
        )


def _proof(control: Mapping[str, Any]) -> str:
    return "not proven optimal" if control["solve_status"] == "feasible" else "optimal"


def _room_after_the_kill(options: DemoOptions) -> int:
    """How many copies of shards the racks can take, no more than their share of each, if the smallest loses a host."""
    racks = Counter(index % options.racks for index in range(options.nodes))
    racks[min(racks, key=racks.__getitem__)] -= 1
    hosts = [count for count in racks.values() if count]
    share = -(-options.replication_factor // len(hosts))
    return sum(min(SERVERS * count, options.segments * share) for count in hosts)


async def run_demo(options: DemoOptions, json_wanted: bool) -> DemoReport:
    """Tell the story; the report says whether it came true.  Raises :class:`LocalClusterError` when it got stuck."""
    check_options(options)
    check_store(options.store)
    for package in CLIENTS if options.store != "log" else ():
        check_library(package)
    narrator = Narrator(json_wanted)
    with tempfile.TemporaryDirectory(prefix="rota-demo-") as directory:
        plan = ClusterPlan(
            directory=Path(directory),
            nodes=options.nodes,
            racks=options.racks,
            loss=options.loss,
            store=options.store,
        )
        report: DemoReport | None = None
        async with until_interrupted(), open_local_cluster(plan) as cluster:
            story = (_Story if options.store == "log" else _ShardsStory)(options, cluster, narrator)
            report = await story.tell()
            report.total_seconds = round(narrator.seconds, 3)
            if options.keep:
                await _keep(cluster, narrator)
    if report is None:
        raise Interrupted("interrupted before the end; all agents of the demo were stopped")
    return report


async def _keep(cluster: LocalCluster, narrator: Narrator) -> None:
    address = cluster.live()[0].api
    narrator.say(
        f"the cluster stays up; console: http://{address}/  (rota status --api http://{address}); Ctrl-C ends it"
    )
    await trio.sleep_forever()


class _Story:
    def __init__(self, options: DemoOptions, cluster: LocalCluster, narrator: Narrator) -> None:
        self.options = options
        self.cluster = cluster
        self.say = narrator.say
        self.started = time.time()
        self.events: dict[tuple[str, int], dict[str, Any]] = {}
        self.report = self._fresh_report()
        self.epoch = 0

    def _fresh_report(self) -> DemoReport:
        return DemoReport(self.options.nodes, self.options.racks)

    async def tell(self) -> DemoReport:
        await self._members_join()
        await self._place()
        async with await self._open_workload() as workload:
            await self._write_quietly(workload)
            await self._choose_victim()
            await self._lose_the_victim()
            workload.stop()
            await self._read_back(workload)
        await self._collect()
        return self.report

    async def _open_workload(self) -> AbstractAsyncContextManager[Workload | SlotsWorkload]:
        return Workload.open([agent.address for agent in self.cluster.live()])

    async def _choose_victim(self) -> None:
        name, roles = await choose_fault_target(
            self.cluster, self.options.kill, random.Random(self.options.seed)
        )
        self.report.victim, self.report.victim_roles = name, roles
        await self._remember_events()

    async def _lose_the_victim(self) -> None:
        killed_at = self._kill()
        await self._detect(killed_at)
        await self._repair(killed_at)

    async def _members_join(self) -> None:
        nodes = self.options.nodes
        self.say(
            f"{nodes} agent processes in {self.options.racks} racks, {self.options.loss:.0%} packet loss"
        )
        answers = await self.cluster.wait_together(JOIN_TIMEOUT)
        epoch = max(answer["epoch"] for answer in answers.values())
        self.say(f"all {nodes} members agree on view {epoch}")

    async def _place(self) -> None:
        answers = await self.cluster.wait_until_settled(timeout=PLACE_TIMEOUT, what="a complete placement")
        control = self._control(answers)
        self.say(
            f"policies solved ({_proof(control)} in {control['solve_seconds']:.2f} s); "
            f"{self.options.segments} {self.options.unit} x {self.options.replication_factor} replicas placed, "
            f"layout epoch {control['layout_epoch']}"
        )

    async def _write_quietly(self, workload: Workload | SlotsWorkload) -> None:
        await trio.sleep(QUIET_WRITING)
        self.say(
            f"writer and reader run: {workload.acknowledged} writes acknowledged, {workload.reads} reads"
        )

    def _kill(self) -> float:
        name, roles = self.report.victim, self.report.victim_roles
        self.cluster.kill(name)
        self.say(f"KILL -9 {name} ({', '.join(roles) or 'no special role'})")
        return time.monotonic()

    async def _detect(self, killed_at: float) -> None:
        await self._see_removal()
        self._tell_removal(time.monotonic() - killed_at)

    async def _see_removal(self, interval: float = POLL_INTERVAL) -> None:
        expected = self.options.nodes - 1
        answers = await self.cluster.wait_until(
            lambda answers: all(answer["size"] == expected for answer in answers.values()),
            timeout=DETECT_TIMEOUT,
            what=f"the removal of {self.report.victim}",
            interval=interval,
        )
        self.epoch = max(answer["epoch"] for answer in answers.values())

    def _tell_removal(self, seconds: float) -> None:
        self.report.detection_seconds = round(seconds, 3)
        members = self.options.nodes - 1
        self.say(f"one view change: view {self.epoch}, {members} members, {seconds:.2f} s after the kill")

    async def _repair(self, killed_at: float) -> None:
        answers = await self.cluster.wait_until_settled(timeout=REPAIR_TIMEOUT, what="the repair")
        self.report.repair_seconds = round(time.monotonic() - killed_at, 3)
        control = self._control(answers)
        self.say(
            f"re-solved ({_proof(control)}) and re-replicated: layout epoch {control['layout_epoch']}, "
            f"{self.report.repair_seconds:.2f} s after the kill"
        )

    def _control(self, answers: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        control: Mapping[str, Any] = next(a["control"] for a in answers.values() if is_settled(a))
        return control

    async def _read_back(self, workload: Workload | SlotsWorkload) -> None:
        outcome = await workload.verify()
        self.report.acknowledged_writes = outcome.acknowledged
        self.report.lost_writes = outcome.lost
        self.report.unreadable_writes = outcome.unreadable
        self.report.reads = workload.reads
        self.report.longest_write_pause_seconds = round(workload.longest_pause, 3)
        self.say(
            f"{outcome.acknowledged} acknowledged writes read back: {outcome.lost} lost, "
            f"{outcome.unreadable} unreadable; "
            f"longest write pause {workload.longest_pause:.2f} s"
        )

    async def _collect(self) -> None:
        await self._remember_events()
        layout = await self.cluster.live()[0].get("/v1/layout")
        self.report.rack_violations = layout["rack_violations"]
        self.report.under_replicated = layout["under_replicated"]
        views: dict[int, dict[str, Any]] = {}
        for event in sorted(self.events.values(), key=lambda event: event["time"]):
            if event["kind"] == "view":
                data = event["data"]
                seconds = round(event["time"] - self.started, 3)
                views.setdefault(
                    data["epoch"], {"epoch": data["epoch"], "size": data["size"], "seconds": seconds}
                )
            elif event["kind"] == "plan-done":
                self.report.moves += event["data"]["moves"]
        self.report.views = [views[epoch] for epoch in sorted(views)]
        self.say(
            f"{self.report.rack_violations} rack violations, "
            f"{self.report.under_replicated} under-replicated {self.options.unit}"
        )

    async def _remember_events(self) -> None:
        """Events so far of every live agent: those of the victim would be gone with it."""
        for agent in self.cluster.live():
            try:
                answer = await agent.get("/v1/events", local=1)
            except ApiError as error:
                raise LocalClusterError(f"agent {agent.name} does not tell its events: {error}") from error
            for event in answer["events"]:
                self.events[agent.name, event["number"]] = event


class _ShardsStory(_Story):
    """The same with servers of Valkey or Redis, and two foreign clients that know nothing of rota."""

    report: ShardsReport

    def _fresh_report(self) -> ShardsReport:
        return ShardsReport(self.options.nodes, self.options.racks)

    async def _open_workload(self) -> AbstractAsyncContextManager[SlotsWorkload]:
        servers = await self._servers()
        addresses = [address for of_host in servers.values() for address in of_host]
        return SlotsWorkload.open(addresses, self._password())

    def _password(self) -> str:
        return self.cluster.password_file.read_text(encoding="utf-8").strip()

    async def _servers(self) -> dict[str, list[str]]:
        """Per host its servers, as the view says."""
        view = await self.cluster.live()[0].get("/v1/members")
        return {member["name"]: member["tags"]["engine"].split(",") for member in view["members"]}

    async def _lose_the_victim(self) -> None:
        layout = await self.cluster.live()[0].get("/v1/layout")
        of_victim = [
            shard for shard in layout["segments"] if shard["replicas"][0]["host"] == self.report.victim
        ]
        if not of_victim:
            await super()._lose_the_victim()
            return
        servers, shard = await self._servers(), of_victim[0]
        replicas = [address for replica in shard["replicas"][1:] for address in servers[replica["host"]]]
        async with FailoverProbe.open(replicas, shard["slots"], self._password()) as probe:
            await super()._lose_the_victim()
            accepted = await probe.accepted_at(PROBE_TIMEOUT)
        if accepted is not None:
            seconds = accepted - min(self._installed())
            self.report.failover_seconds = round(seconds, 4)
            self.say(
                f"{shard['key']}: its new primary took a write {1000 * seconds:.0f} ms after the view change"
            )

    async def _detect(self, killed_at: float) -> None:
        """By the members' own events: to ask them often would keep this machine from what is to be measured."""
        killed = time.time() - (time.monotonic() - killed_at)
        await self._see_removal(interval=DISCREET_INTERVAL)
        await self._remember_events()
        self._tell_removal(max(self._installed()) - killed)

    def _installed(self) -> list[float]:
        """When each member installed the latest view."""
        views = [event for event in self.events.values() if event["kind"] == "view"]
        epoch = max(event["data"]["epoch"] for event in views)
        return [event["time"] for event in views if event["data"]["epoch"] == epoch]

    async def _read_back(self, workload: Workload | SlotsWorkload) -> None:
        await super()._read_back(workload)
        assert isinstance(workload, SlotsWorkload)
        self.report.client_errors = workload.client_errors
        self.report.client_errors_seconds = round(workload.client_errors_seconds, 3)
        last = f", the last {workload.last_error}" if workload.client_errors else ""
        self.say(
            f"the clients met {workload.client_errors} errors, {workload.client_errors_seconds:.2f} s of them{last}"
        )
