"""Slots change hands under traffic: by rota, and by ``redis-cli --cluster reshard``, in turns on the same servers.

Three shards of two servers each, one of them with some keys in its first slots, which go to the second shard and
back; the adapter moves them as the control loop has it do, fenced by the layout servers of three real agents, while
foreign clients in a process of their own read and write these very keys. The plan before (policies, solver) and the
pause between two looks of the control loop, 50 ms, are not in it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import trio

from bench.result import Result, Table
from bench.slots.servers import Server, Servers, installed, running
from bench.slots.traffic import Report, Span, Traffic, keys_in, value_of
from datastore_adapter import LogAdapter, LogSettings, TrioRuntime
from datastore_adapter.interface import (
    Done,
    Fence,
    Observation,
    Placement,
    Running,
    Unreachable,
)
from datastore_adapter.slots import lowering
from datastore_adapter.slots.settings import EngineAccess
from datastore_adapter.slots.slots_adapter import SlotsAdapter
from datastore_adapter.slots.state.slot_ranges import evenly, normalized, without
from rota.local.cluster import ClusterPlan, open_local_cluster

ASKED: Final = {"valkey": "rota at most 0.3 s, no client error", "redis": "rota no slower than redis-cli"}
MOST_SECONDS: Final = 0.3
"""What was asked for with Valkey."""
NODE_TIMEOUT: Final = 15.0
POLL_INTERVAL: Final = 0.005
QUIET: Final = 1.0
"""Seconds of traffic between two moves, and before the first."""
SETTLE_TIMEOUT: Final = 60.0
SHARDS: Final = ("s00", "s01", "s02")
ROTA, TOOL = "rota", "redis-cli"


@dataclass(frozen=True, slots=True)
class Move:
    """One, by one of the two."""

    by: str
    began: float
    seconds: float


@dataclass(frozen=True, slots=True)
class EngineMoves:
    """All of one engine."""

    engine: str
    moves: Sequence[Move]
    report: Report
    quiet: Span
    """Of the second before the first move."""
    missing: int
    """Keys that are not where they should be at the end."""
    load: float
    """Of the machine, the last minute's average when it was over."""

    def seconds(self, by: str) -> list[float]:
        return [move.seconds for move in self.moves if move.by == by]

    def span(self, by: str) -> Span:
        """Of all moves of one of the two together: p99 is the median of theirs."""
        spans = [
            self.report.between(move.began, move.began + move.seconds) for move in self.moves if move.by == by
        ]
        return Span(
            sum(span.requests for span in spans),
            sum(span.errors for span in spans),
            statistics.median(span.p50 for span in spans),
            statistics.median(span.p99 for span in spans),
            max(span.worst for span in spans),
        )


def slots_move(
    engines: Sequence[str], moves: int, slots: int, keys: int, directory: Path | None = None, *, quiet: bool
) -> Result:
    """``moves`` of each of the two on every engine that is installed; ``quiet``: nothing is said on the way."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    found, skipped = installed(engines)
    if shutil.which(TOOL) is None:
        skipped.append(f"{TOOL} skipped: it is not on the PATH; Debian: apt install redis-tools")
    done = [trio.run(_measure, engine, moves, slots, keys, directory, quiet) for engine in found]
    figures = {
        "slots": slots,
        "keys": keys,
        "moves": moves,
        "engines": {each.engine: _figures(each) for each in done},
        "asked": ASKED,
        "skipped": skipped,
    }
    return Result(
        figures,
        [row for each in done for row in _rows(each)],
        "none; in the right column what was asked for",
        ok=bool(done) and not any(each.missing or each.span(ROTA).errors for each in done),
        others=[_table(done)],
        remarks=[
            f"{slots} slots with {keys} keys there and back, {moves} moves by each in turns, medians / worst; two "
            "foreign clients on these keys",
            *skipped,
        ],
    )


def _figures(each: EngineMoves) -> dict[str, Any]:
    by = {
        who: {
            "seconds": round(statistics.median(each.seconds(who)), 4),
            "worst_seconds": round(max(each.seconds(who)), 4),
            "clients": asdict(each.span(who)),
        }
        for who in (ROTA, TOOL)
        if each.seconds(who)
    }
    ratio = None
    if TOOL in by:
        ratio = round(statistics.median(each.seconds(ROTA)) / statistics.median(each.seconds(TOOL)), 3)
    return {
        **{who.replace("-", "_"): figures for who, figures in by.items()},
        "ratio": ratio,
        "quiet_clients": asdict(each.quiet),
        "client_errors": len(each.report.failed_at),
        "last_error": each.report.last_error,
        "missing_keys": each.missing,
        "load": each.load,
    }


def _rows(each: EngineMoves) -> list[tuple[str, str, str]]:
    rows = [
        (
            f"{each.engine}, {who}",
            f"{statistics.median(each.seconds(who)):.3f} / {max(each.seconds(who)):.3f} s",
            ASKED[each.engine] if who == ROTA else "",
        )
        for who in (ROTA, TOOL)
        if each.seconds(who)
    ]
    return [*rows, (f"{each.engine}, keys missing", str(each.missing), "0")]


def _table(done: Sequence[EngineMoves]) -> Table:
    def row(engine: str, when: str, span: Span) -> tuple[str, ...]:
        times = (f"{1000 * seconds:.1f}" for seconds in (span.p50, span.p99, span.worst))
        return (engine, when, str(span.requests), *times, str(span.errors))

    columns = ("clients of", "while", "requests", "p50 ms", "p99 ms", "worst ms", "errors")
    rows = [
        row(each.engine, when, span)
        for each in done
        for when, span in (
            ("nothing moves", each.quiet),
            *((who, each.span(who)) for who in (ROTA, TOOL) if each.seconds(who)),
        )
    ]
    return Table(columns, rows)


async def _measure(
    engine: str, moves: int, slots: int, keys: int, directory: Path | None, quiet: bool
) -> EngineMoves:
    with (
        tempfile.TemporaryDirectory(prefix="rota-slots-move-", dir=directory) as place,
        running(engine, Path(place), len(SHARDS), 2, NODE_TIMEOUT) as servers,
    ):
        names = list(itertools.islice(keys_in(0, slots - 1), keys))
        await trio.to_thread.run_sync(_fill, servers.shards[0][0], names)
        async with _open_mover(servers, Path(place) / "agents") as mover:
            return await _under_traffic(engine, moves, slots, names, servers, mover, quiet)


async def _under_traffic(
    engine: str, moves: int, slots: int, names: Sequence[str], servers: Servers, mover: _Mover, quiet: bool
) -> EngineMoves:
    done: list[Move] = []
    has_tool = shutil.which(TOOL) is not None
    async with Traffic.open(servers.addresses, (0, slots - 1), len(names)) as traffic:
        await trio.sleep(QUIET)
        settled = time.monotonic()
        for number in range(2 * moves):
            # In turns, and both of them there and back, for the two directions need not take the same time.
            by = TOOL if has_tool and number % 4 in {1, 2} else ROTA
            source, target = (0, 1) if number % 2 == 0 else (1, 0)
            await trio.sleep(QUIET)
            began = time.monotonic()
            if by == ROTA:
                await mover.move(slots, source, target)
            else:
                await trio.to_thread.run_sync(_reshard, servers, slots, source, target)
            done.append(Move(by, began, time.monotonic() - began))
            if not quiet:
                print(
                    f"{engine}, {by}: {slots} slots moved in {done[-1].seconds:.3f} s",
                    file=sys.stderr,
                    flush=True,
                )
            await mover.agreed()
        await trio.sleep(QUIET)
        report = await traffic.stop()
    missing = await trio.to_thread.run_sync(_missing, servers.shards[0][0], names)
    return EngineMoves(
        engine, done, report, report.between(settled, settled + QUIET), missing, round(os.getloadavg()[0], 2)
    )


def _fill(server: Server, names: Sequence[str]) -> None:
    pipeline = server.client.pipeline(transaction=False)
    for name in names:
        pipeline.set(name, value_of(name, 0))
    pipeline.execute()


def _missing(server: Server, names: Sequence[str]) -> int:
    pipeline = server.client.pipeline(transaction=False)
    for name in names:
        pipeline.exists(name)
    return sum(answer != 1 for answer in pipeline.execute(raise_on_error=False))


def _reshard(servers: Servers, slots: int, source: int, target: int) -> None:
    """With its own defaults; it takes the lowest slots, which are these."""
    giver, taker = servers.shards[source][0], servers.shards[target][0]
    words = [
        TOOL, "--cluster", "reshard", giver.address, "--cluster-from", giver.node_id, "--cluster-to", taker.node_id,
        "--cluster-slots", str(slots), "--cluster-yes",
    ]  # fmt: skip
    ended = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"{TOOL} failed: {ended.stdout.decode(errors='replace')[-500:]}")


class _LayoutAdapter(LogAdapter):
    """The layout servers of real agents: they are asked whether a fence still holds.

    Their own document is about the agents' log, so the intent for the shards stands here.
    """

    intent: Mapping[str, Any]

    async def observe(self) -> Observation | Unreachable:
        observation = await super().observe()
        if isinstance(observation, Observation):
            return replace(observation, segments=(), intent=self.intent)
        return observation


class _Mover:
    """The adapter, as a controller would use it."""

    def __init__(self, adapter: SlotsAdapter, view_epoch: int) -> None:
        self._adapter = adapter
        self._view_epoch = view_epoch

    async def move(self, slots: int, source: int, target: int) -> None:
        """The lowest slots, from one shard to another; returns when all primaries know."""
        observation = await self._observed()
        held = {segment.key: segment.slots for segment in observation.segments}
        moved = ((0, slots - 1),)
        wanted = {
            **held,
            SHARDS[source]: without(held[SHARDS[source]], moved),
            SHARDS[target]: normalized((*moved, *held[SHARDS[target]])),
        }
        chains = {
            segment.key: tuple(copy.host for copy in segment.replicas) for segment in observation.segments
        }
        (step,) = lowering.lower(observation, Placement(chains, observation.roles, slots=wanted))
        await self._adapter.start(
            step, Fence(self._view_epoch, observation.layout_epoch, "bench", step.number)
        )
        while isinstance(status := await self._adapter.poll(step), Running):  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(POLL_INTERVAL)
        if status != Done():
            raise RuntimeError(f"{step.description}: {status}")

    async def agreed(self) -> None:
        """Until no slot is open, and all servers see the same: the next move starts from there."""
        with trio.fail_after(SETTLE_TIMEOUT):
            while (await self._observed()).notices:  # noqa: ASYNC110 - nor do servers
                await trio.sleep(POLL_INTERVAL)

    async def _observed(self) -> Observation:
        observation = await self._adapter.observe()
        if not isinstance(observation, Observation):
            raise RuntimeError(observation.reason)  # noqa: TRY004 - no caller's mistake
        return observation


@asynccontextmanager
async def _open_mover(servers: Servers, directory: Path) -> AsyncIterator[_Mover]:
    """Three agents keep the fence; as hosts their names stand for the servers'."""
    async with (
        open_local_cluster(ClusterPlan(directory, nodes=3, racks=3)) as cluster,
        trio.open_nursery() as nursery,
    ):
        answers = await cluster.wait_until_settled(timeout=SETTLE_TIMEOUT, what="a placement")
        view_epoch = max(answer["epoch"] for answer in answers.values())
        layout_adapter = _LayoutAdapter(TrioRuntime(nursery), settings=LogSettings.local())
        layout_adapter.intent = {
            "segments": list(SHARDS),
            "slots": {key: [pair] for key, pair in zip(SHARDS, evenly(len(SHARDS)), strict=True)},
        }
        hosts = {agent.name: str(agent.address) for agent in cluster.in_order()}
        # A primary on each host, and the replica of the shard before.
        at = {
            name: [servers.shards[index][0].address, servers.shards[index - 1][1].address]
            for index, name in enumerate(hosts)
        }
        adapter = SlotsAdapter(layout_adapter, at.__getitem__, EngineAccess())
        adapter.set_hosts(view_epoch, hosts)
        try:
            yield _Mover(adapter, view_epoch)
        finally:
            adapter.close()
            nursery.cancel_scope.cancel()
