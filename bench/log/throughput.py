"""Appends and reads per second on the replicated log, with fsync on, beside what the system takes for the same
fsyncs and messages, and beside etcd.

Real agent processes on this machine, three replicas of each record, and one client process; for each size of record
and number of appends in flight the rates, latencies, and CPU microseconds of each process.  Then the same load on
three nodes of etcd (`bench.log.etcd_load`), case by case in turn, so that both meet the machine in the same state.
It is no limit of the protocol: client and agents share the machine's cores.  Nor are an append and a put the same: the
log's client waits for three copies, one after the other, etcd for two of three; a put also changes a tree.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from bench.log.etcd_load import ABSENT, GRPCIO, LEANEST, NO_GRPCIO, EtcdLoad, etcd_cluster
from bench.log.log_load import SYNCED_BYTES, SYNCS, Host, Load, Measured
from bench.log.raw_costs import RawCost, fsync_cost, round_trip_cost
from bench.result import Result, Table
from rota.local.cluster import ClusterPlan, LocalCluster, is_settled, open_local_cluster

REPLICAS: Final = 3
SETTLE_TIMEOUT: Final = 60.0
RAW_PIECES: Final = 300
_CLIENTS: Final = {LEANEST: "etcd, leanest client", GRPCIO: "etcd, grpcio"}
_EXPLAINED: Final = (
    "beside etcd: of each store operations per second, their times, and CPU of all processes for each"
)
WANTED_RATE: Final = 5000
"""Appends/s of 256 bytes that were asked for."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The same load on etcd."""

    puts: Measured
    reads: Measured

    def figures(self) -> dict[str, Any]:
        return {
            "puts_per_second": round(self.puts.rate),
            "put_ms": _percentiles(self.puts),
            "cpu_us_per_put": _micros(_cpu(self.puts)),
            "reads_per_second": round(self.reads.rate),
            "read_ms": _percentiles(self.reads),
            "cpu_us_per_read": _micros(_cpu(self.reads)),
        }


@dataclass(frozen=True, slots=True)
class Case:
    """One size of record and number of operations in flight, measured."""

    size: int
    in_flight: int
    appends: Measured
    reads: Measured
    fsync: RawCost
    round_trip: RawCost
    beside: Mapping[str, Beside] = field(default_factory=dict)
    """By the driver of etcd's client."""

    @property
    def fsyncs(self) -> float:
        """Per append, on all hosts together."""
        return self.appends.per_operation(self.appends.counters[SYNCS])

    @property
    def requests(self) -> float:
        """Per append."""
        return self.appends.per_operation(self.appends.messages["requests"])

    @property
    def raw(self) -> RawCost:
        """What the system takes for the fsyncs and messages of one append, one after the other."""
        return RawCost(
            self.fsyncs * self.fsync.seconds + self.requests * self.round_trip.seconds,
            self.fsyncs * self.fsync.cpu_seconds + self.requests * self.round_trip.cpu_seconds,
        )

    @property
    def cpu(self) -> float:
        """CPU seconds of one append, in all processes."""
        return _cpu(self.appends)

    def figures(self) -> dict[str, Any]:
        hosts = sorted(map(self.appends.per_operation, self.appends.host_cpu.values()))
        return {
            "record_bytes": self.size,
            "in_flight": self.in_flight,
            "appends_per_second": round(self.appends.rate),
            "append_ms": _percentiles(self.appends),
            "reads_per_second": round(self.reads.rate),
            "read_ms": _percentiles(self.reads),
            "client_cpu_us_per_append": _micros(self.appends.per_operation(self.appends.client_cpu)),
            "agent_cpu_us_per_append": [_micros(seconds) for seconds in hosts],
            "fsyncs_per_append": round(self.fsyncs, 4),
            "requests_per_append": round(self.requests, 4),
            "raw_us_per_fsync": _micros(self.fsync.seconds),
            "raw_us_per_round_trip": _micros(self.round_trip.seconds),
            "us_per_append": _micros(1 / self.appends.rate),
            "cpu_us_per_append": _micros(self.cpu),
            "raw_us_per_append": _micros(self.raw.seconds),
            "raw_cpu_us_per_append": _micros(self.raw.cpu_seconds),
            "cpu_us_per_read": _micros(_cpu(self.reads)),
            "etcd": None,
            **{name: beside.figures() for name, beside in self.beside.items()},
        }


def log_throughput(
    sizes: Sequence[int],
    in_flight: Sequence[int],
    seconds: float,
    segments: int,
    *,
    beside_etcd: bool = False,
) -> Result:
    """All cases on one cluster of three agents; `beside_etcd`: and on three nodes of etcd, where that is installed."""
    with ExitStack() as running:
        etcd: dict[str, EtcdLoad] | None = None
        if beside_etcd:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="rota-etcd-")))
            etcd = running.enter_context(etcd_cluster(folder, REPLICAS))
        cases = trio.run(_measure, sizes, in_flight, seconds, segments, etcd)
    figures = [case.figures() for case in cases]
    best = max((case.appends.rate for case in cases if case.size == 256), default=0.0)
    return Result(
        {
            "segments": segments,
            "replicas": REPLICAS,
            "wanted_appends_per_second": WANTED_RATE,
            "cases": figures,
        },
        [("appends/s of 256 bytes, best case", f"{best:.0f}", f"{WANTED_RATE} asked for")] if best else [],
        "none for this machine; raw: the same number and sizes of fsyncs and round trips over loopback, measured in "
        "the same run in plain blocking processes, one after the other",
        others=[
            _rates(figures),
            _costs(figures),
            *([_beside(figures, list(etcd))] if etcd is not None else []),
        ],
        remarks=[
            f"{REPLICAS} agents, {segments} segments, {REPLICAS} replicas each, fsync on, {seconds:g} s for each case; "
            "agents and client share the machine",
            *([_EXPLAINED] if etcd is not None else []),
            *([ABSENT] if beside_etcd and etcd is None else []),
            *([NO_GRPCIO] if etcd is not None and GRPCIO not in etcd else []),
        ],
    )


async def _measure(
    sizes: Sequence[int],
    in_flight: Sequence[int],
    seconds: float,
    segments: int,
    etcd: Mapping[str, EtcdLoad] | None,
) -> list[Case]:
    with tempfile.TemporaryDirectory(prefix="rota-log-throughput-") as name:
        directory = Path(name)
        plan = ClusterPlan(directory, nodes=REPLICAS, racks=REPLICAS, segments=segments)
        async with open_local_cluster(plan) as cluster:
            await _settled(cluster)
            hosts = [Host(agent.process.pid, agent.address) for agent in cluster.live()]
            async with trio.open_nursery() as nursery:
                load = Load(nursery, hosts)
                await load.append(min(sizes), max(in_flight), min(1.0, seconds))  # warm up
                for client in (etcd or {}).values():
                    client.put(min(sizes), max(in_flight), min(1.0, seconds))
                cases = [
                    await _case(load, size, number, seconds, directory, etcd or {})
                    for size in sizes
                    for number in in_flight
                ]
                nursery.cancel_scope.cancel()
            return cases


async def _settled(cluster: LocalCluster) -> None:
    def done(answers: Mapping[str, Mapping[str, Any]]) -> bool:
        everybody = all(answer["size"] == REPLICAS for answer in answers.values())
        return everybody and any(is_settled(answer) for answer in answers.values())

    await cluster.wait_until(done, timeout=SETTLE_TIMEOUT, what="a complete placement")


async def _case(
    load: Load, size: int, in_flight: int, seconds: float, directory: Path, etcd: Mapping[str, EtcdLoad]
) -> Case:
    appends, addresses = await load.append(size, in_flight, seconds)
    reads = await load.read(addresses, size, in_flight, min(seconds, 2.0))
    synced = appends.counters[SYNCED_BYTES] // max(1, appends.counters[SYNCS])
    requests = max(1, appends.messages["requests"])
    fsync = fsync_cost(RAW_PIECES, max(1, synced), directory)
    round_trip = round_trip_cost(
        RAW_PIECES,
        max(1, appends.messages["request_bytes"] // requests),
        max(1, appends.messages["reply_bytes"] // requests),
    )
    beside = {
        name: Beside(client.put(size, in_flight, seconds), client.read(in_flight, min(seconds, 2.0)))
        for name, client in etcd.items()
    }
    return Case(size, in_flight, appends, reads, fsync, round_trip, beside)


def _rates(figures: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("bytes", "in flight", "appends/s", "ms p50 / p99 / max", "reads/s", "ms p50 / p99 / max")
    rows = [
        (
            str(case["record_bytes"]),
            str(case["in_flight"]),
            str(case["appends_per_second"]),
            " / ".join(map(str, case["append_ms"].values())),
            str(case["reads_per_second"]),
            " / ".join(map(str, case["read_ms"].values())),
        )
        for case in figures
    ]
    return Table(columns, rows)


def _costs(figures: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        "bytes", "in flight", "us per append", "raw", "CPU us", "raw", "client", "agents", "fsyncs", "requests",
    )  # fmt: skip
    rows = [
        (
            str(case["record_bytes"]),
            str(case["in_flight"]),
            str(case["us_per_append"]),
            str(case["raw_us_per_append"]),
            str(case["cpu_us_per_append"]),
            str(case["raw_cpu_us_per_append"]),
            str(case["client_cpu_us_per_append"]),
            " ".join(map(str, case["agent_cpu_us_per_append"])),
            str(case["fsyncs_per_append"]),
            str(case["requests_per_append"]),
        )
        for case in figures
    ]
    return Table(columns, rows)


def _beside(figures: Sequence[Mapping[str, Any]], clients: Sequence[str]) -> Table:
    """`clients`: the names of those of etcd, by their drivers."""
    stores = (*(_CLIENTS[name] for name in clients), "rota")
    columns = (
        "bytes", "in flight", "", *(column for store in stores for column in (store, "ms p50 / p99", "CPU us")), "raw",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for case in figures:
        for what, theirs in (("append", "put"), ("read", "read")):
            rows.append(
                (
                    str(case["record_bytes"]),
                    str(case["in_flight"]),
                    what,
                    *(cell for name in clients for cell in _outline(case[name], theirs)),
                    *_outline(case, what),
                    str(case["raw_cpu_us_per_append"]) if what == "append" else "",
                )
            )
    return Table(columns, rows)


def _outline(figures: Mapping[str, Any], what: str) -> tuple[str, str, str]:
    times = figures[f"{what}_ms"]
    rate, cpu = figures[f"{what}s_per_second"], figures[f"cpu_us_per_{what}"]
    return str(rate), f"{times['p50']} / {times['p99']}", str(cpu)


def _cpu(measured: Measured) -> float:
    """CPU seconds of one operation, in all processes."""
    return measured.per_operation(measured.client_cpu + sum(measured.host_cpu.values()))


def _percentiles(measured: Measured) -> dict[str, float]:
    return {
        name: round(1000 * measured.latency(percent), 2)
        for name, percent in (("p50", 50), ("p99", 99), ("max", 100))
    }


def _micros(seconds: float) -> float:
    return round(1e6 * seconds, 1)
