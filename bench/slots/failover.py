"""A primary of Valkey or Redis Cluster is killed: how long until another server takes the writes of its shard.

Three shards of two servers under two foreign clients, on the one side in the hands of rota's agents, whose host with
a primary is killed, on the other left to themselves, with a short node timeout and with the usual one.  The first
write that is accepted is looked for by a process of its own, alike on both sides.  Clients may take longer until they
are content again; they have time-outs and pauses of their own.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import trio

from bench.result import Result, Table
from bench.slots.servers import Servers, installed, running
from chaos.slots.clients import SlotsWorkload
from datastore_adapter.slots.state.slot_ranges import evenly
from rota.agent.engine.failover_probe import FailoverProbe
from rota.local.cluster import ClusterPlan, LocalCluster, open_local_cluster
from rota.local.fault_targets import choose_fault_target

SHARDS: Final = 3
COPIES: Final = 2
QUIET_WRITING: Final = 2.0
"""Seconds of undisturbed writing before a kill: samples are taken, and the clients run."""
SETTLE_TIMEOUT: Final = 90.0
WITHIN: Final = 60.0
"""Seconds above the node timeout after which a fail-over counts as not having happened."""
ASKED: Final = 0.1
"""Seconds from the view change to the first write, the median of rota's kills."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One.  Seconds."""

    whole_seconds: float
    """From the kill to the first write that the new primary accepts."""
    client_errors: int
    client_errors_seconds: float
    lost_writes: int
    """Of those that a replica had when they were acknowledged; also those that cannot be read."""
    detection_seconds: float | None = None
    """Of that, to the view without the host, at the first member that had it."""
    failover_seconds: float | None = None
    """Of that, the rest."""
    look_seconds: float | None = None
    """Of that, until the controller began with the fail-over: it had the view, and looked at all servers."""


@dataclass(frozen=True, slots=True)
class Side:
    """All kills under one name."""

    engine: str
    name: str
    kills: Sequence[Kill]
    load: float
    """Of the machine, the last minute's average when they were over."""

    def values(self, what: str) -> list[float]:
        return [value for kill in self.kills if (value := getattr(kill, what)) is not None]


def slots_failover(
    engines: Sequence[str],
    kills: int,
    own_kills: int,
    node_timeouts: Sequence[float],
    nodes: int = 6,
    racks: int = 3,
    preset: str = "local",
    directory: Path | None = None,
    *,
    quiet: bool = False,
) -> Result:
    """``kills`` by rota, and ``own_kills`` with each node timeout; ``quiet``: nothing is said on the way."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    found, skipped = installed(engines)
    say = _silent if quiet else _say
    sides: list[Side] = []
    for engine in found:
        sides.append(trio.run(_by_rota, engine, kills, nodes, racks, preset, directory, say))
        sides += [
            trio.run(_by_itself, engine, own_kills, node_timeout, directory, say)
            for node_timeout in node_timeouts
        ]
    lost = sum(kill.lost_writes for side in sides for kill in side.kills)
    figures = {
        "nodes": nodes,
        "preset": preset,
        "engines": {engine: _figures([side for side in sides if side.engine == engine]) for engine in found},
        "lost_writes": lost,
        "asked": {"failover_seconds": ASKED},
        "skipped": skipped,
    }
    return Result(
        figures,
        [_row(side) for side in sides],
        "none; in the right column what was asked for",
        ok=bool(found) and not lost,
        others=[_table(sides)],
        remarks=[
            "seconds to the first write that another server accepts, medians / worst; rota's from the view change, "
            "the others' from the kill",
            f"rota: {nodes} agents in {racks} racks, preset {preset}; all: {SHARDS} shards of {COPIES} servers, "
            f"{QUIET_WRITING:g} s of writing before each kill",
            *skipped,
        ],
    )


# showing


def _figures(sides: Sequence[Side]) -> dict[str, Any]:
    rota = statistics.median(sides[0].values("whole_seconds"))
    return {
        side.name: {
            **{
                what: {"median": round(statistics.median(values), 4), "worst": round(max(values), 4)}
                for what in Kill.__dataclass_fields__
                if (values := side.values(what))
            },
            "of_rota": round(statistics.median(side.values("whole_seconds")) / rota, 2),
            "load": side.load,
            "kills": [asdict(kill) for kill in side.kills],
        }
        for side in sides
    }


def _row(side: Side) -> tuple[str, str, str]:
    what, asked = "whole_seconds", ""
    if side.values("failover_seconds"):
        what, asked = "failover_seconds", f"median at most {ASKED:g}"
    return f"{side.engine}, {side.name}, {len(side.kills)} kills", _pair(side.values(what)), asked


def _table(sides: Sequence[Side]) -> Table:
    whats = ("whole_seconds", "detection_seconds", "failover_seconds", "look_seconds", "client_errors")
    columns = (
        "fail-over by",
        "from the kill",
        "view",
        "view to write",
        "of that, look",
        "client errors",
        "lost",
        "load",
    )
    rows = [
        (
            f"{side.engine}, {side.name}",
            *(_pair(values) if (values := side.values(what)) else "" for what in whats),
            str(sum(kill.lost_writes for kill in side.kills)),
            f"{side.load:g}",
        )
        for side in sides
    ]
    return Table(columns, rows)


def _pair(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} / {max(values):.3g}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    pass


# by rota


async def _by_rota(
    engine: str, kills: int, nodes: int, racks: int, preset: str, directory: Path | None, say: Any
) -> Side:
    done: list[Kill] = []
    with tempfile.TemporaryDirectory(prefix="rota-slots-failover-", dir=directory) as place:
        plan = ClusterPlan(
            Path(place),
            nodes=nodes,
            racks=racks,
            preset=preset,
            store=engine,
            segments=SHARDS,
            replication_factor=COPIES,
        )
        async with open_local_cluster(plan) as cluster:
            for number in range(kills):
                await _settled(cluster, nodes)
                done.append(await _kill_host(cluster, random.Random(number)))
                say(f"{engine}, rota: {done[-1].failover_seconds:.3f} s after the view change")
    return Side(engine, "rota", done, round(os.getloadavg()[0], 2))


async def _kill_host(cluster: LocalCluster, chance: random.Random) -> Kill:
    """Kill a host with a primary, and start it again when its loss is made up for."""
    password = cluster.password_file.read_text(encoding="utf-8").strip()
    first = cluster.live()[0]
    view = await first.get("/v1/members")
    servers = {member["name"]: member["tags"]["engine"].split(",") for member in view["members"]}
    addresses = [address for of_host in servers.values() for address in of_host]
    async with SlotsWorkload.open(addresses, password) as workload:
        await trio.sleep(QUIET_WRITING)
        victim, _ = await choose_fault_target(cluster, "head", chance)
        layout = await first.get("/v1/layout")
        shard = next(shard for shard in layout["segments"] if shard["replicas"][0]["host"] == victim)
        replicas = [address for replica in shard["replicas"][1:] for address in servers[replica["host"]]]
        async with FailoverProbe.open(replicas, shard["slots"], password) as probe:
            killed = time.time()
            cluster.kill(victim)
            accepted = await probe.accepted_at(WITHIN)
        await _settled(cluster, cluster.plan.nodes - 1)
        workload.stop()
        outcome = await workload.verify()
    if accepted is None:
        raise RuntimeError(f"no fail-over of {shard['key']} within {WITHIN:g} s")
    events = await _events(cluster, killed)
    installed_at = min(event["time"] for event in events if event["kind"] == "view")
    begun_at = min(
        event["time"]
        for event in events
        if event["kind"] == "step-started" and event["data"]["kind"] == "failover"
    )
    await cluster.start_one(victim)
    return Kill(
        accepted - killed,
        workload.client_errors,
        workload.client_errors_seconds,
        outcome.lost + outcome.unreadable,
        installed_at - killed,
        accepted - installed_at,
        begun_at - installed_at,
    )


async def _settled(cluster: LocalCluster, size: int) -> None:
    await cluster.wait_until_settled(
        timeout=SETTLE_TIMEOUT,
        what=f"a complete placement on {size} hosts",
        size=size,
        # To ask them often would keep this machine from what is measured.
        interval=0.5,
    )


async def _events(cluster: LocalCluster, since: float) -> list[dict[str, Any]]:
    """Of all live agents after ``since`` (Unix seconds)."""
    events: list[dict[str, Any]] = []
    for agent in cluster.live():
        answer = await agent.get("/v1/events", local=1)
        events += [event for event in answer["events"] if event["time"] >= since]
    return events


# by itself


async def _by_itself(engine: str, kills: int, node_timeout: float, directory: Path | None, say: Any) -> Side:
    done: list[Kill] = []
    name = f"by itself, node timeout {node_timeout:g} s"
    with (
        tempfile.TemporaryDirectory(prefix="rota-slots-failover-", dir=directory) as place,
        running(engine, Path(place), SHARDS, COPIES, node_timeout) as servers,
    ):
        for number in range(kills):
            done.append(await _kill_server(servers, number % SHARDS, node_timeout))
            say(f"{engine}, {name}: {done[-1].whole_seconds:.3f} s after the kill")
    return Side(engine, name, done, round(os.getloadavg()[0], 2))


async def _kill_server(servers: Servers, index: int, node_timeout: float) -> Kill:
    """Kill the primary of a shard, and start it again when the other server of the shard leads it."""
    primary, replica = servers.shards[index]
    async with SlotsWorkload.open(servers.addresses) as workload:
        await trio.sleep(QUIET_WRITING)
        async with FailoverProbe.open([replica.address], [evenly(SHARDS)[index]]) as probe:
            killed = time.time()
            primary.kill()
            accepted = await probe.accepted_at(node_timeout + WITHIN)
        await trio.sleep(QUIET_WRITING)
        workload.stop()
        outcome = await workload.verify()
    if accepted is None:
        raise RuntimeError(f"{replica.address} did not take over within {node_timeout + WITHIN:g} s")
    servers.restart(primary)
    servers.shards[index].reverse()
    return Kill(
        accepted - killed,
        workload.client_errors,
        workload.client_errors_seconds,
        outcome.lost + outcome.unreadable,
    )
