"""Real agents whose disks are emptied, put back from a copy or damaged between power cuts: no write goes silently.

As `tests/datastore_adapter/test_lost_disks.py`, with processes and files, and with the membership.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import trio

from datastore_adapter import LogClient, LogError, TrioRuntime
from rota.local.cluster import ClusterPlan, LocalCluster, LocalClusterError, is_settled, open_local_cluster
from rota.local.workload import Workload

PATIENCE = 60.0
COPIES = 3
NOTHING_HAPPENS = 6.0
"""Seconds in which those that lack something would go on, if they did."""


def together(size: int) -> Callable[[dict[str, dict[str, Any]]], bool]:
    """Everybody is in one view of so many."""
    return lambda answers: all(answer["size"] == size for answer in answers.values())


def settled(size: int) -> Callable[[dict[str, dict[str, Any]]], bool]:
    """Everybody is in one view of so many, and the controller has nothing left to do."""
    return lambda answers: together(size)(answers) and any(map(is_settled, answers.values()))


async def nobody_can_write(cluster: LocalCluster) -> None:
    with trio.move_on_after(NOTHING_HAPPENS):
        async with trio.open_nursery() as nursery:
            runtime = TrioRuntime(nursery)
            client = LogClient(runtime, [str(agent.address) for agent in cluster.live()])
            with contextlib.suppress(LogError):
                await client.append("red", b"too early", timeout=NOTHING_HAPPENS)
                pytest.fail("those that lack what was acknowledged went on without it")
            await trio.sleep(NOTHING_HAPPENS)


async def confirm_the_loss(cluster: LocalCluster) -> None:
    """Two disks of what may be three layout servers: the store waits for an operator, if it does."""
    try:
        await cluster.wait_until_settled(timeout=15.0, what="a plan that needs no operator")
    except LocalClusterError:
        answer = await cluster.live()[0].post("/v1/layout/recover", {"confirmed": True})
        assert answer["recovered"], answer


async def run(
    directory: Path,
    hosts: int,
    dying: tuple[str, ...],
    lost: tuple[str, ...],
    order: tuple[str, ...],
    how: str,
) -> None:
    """`dying` die, the others go on; the power is cut, and those `lost` lose their disks; all start in that order."""
    everybody = {f"n{number + 1}" for number in range(hosts)}
    knowing = everybody.difference(dying, lost)
    async with open_local_cluster(ClusterPlan(directory, nodes=hosts, racks=3, segments=3)) as cluster:
        await cluster.wait_until(settled(hosts), timeout=PATIENCE, what="a placement")
        async with Workload.open([agent.address for agent in cluster.live()]) as workload:
            await workload.more(10, PATIENCE)
            for name in lost:
                shutil.copytree(directory / name, directory / f"copy of {name}")
            for number, name in enumerate(dying, start=1):
                cluster.kill(name)
                await cluster.agents[name].process.wait()
                rest = hosts - number
                # What stood on it has new copies, so that the next one may die; unless too few are left for three.
                there = settled(rest) if rest >= COPIES else together(rest)
                await cluster.wait_until(there, timeout=PATIENCE, what=f"the cluster without {name}")
                await workload.more(10, PATIENCE)
            with workload.held():
                await cluster.kill_all()
                for name in lost:
                    shutil.rmtree(directory / name)
                    if how == "copied":
                        shutil.copytree(directory / f"copy of {name}", directory / name)
                started: set[str] = set()
                for name in order:
                    await cluster.start_one(name)
                    started.add(name)
                    if len(started) > 1 and started.isdisjoint(knowing):
                        await nobody_can_write(cluster)
            await cluster.wait_until(together(hosts), timeout=PATIENCE, what="one view of all")
            if len(lost) > 1:
                await confirm_the_loss(cluster)
            await cluster.wait_until(settled(hosts), timeout=PATIENCE, what="a plan for all")
            await workload.more(10, PATIENCE)
            workload.stop()
            outcome = await workload.verify()
        assert (outcome.lost, outcome.unreadable) == (0, 0)
        if how == "copied":
            events = (await cluster.agents[lost[0]].get("/v1/events", after=0, local=1))["events"]
            assert any(event["kind"] == "lost" for event in events)


@pytest.mark.demo
@pytest.mark.socket
@pytest.mark.parametrize(
    "how", ["emptied", pytest.param("copied", marks=pytest.mark.sweep("real agents once more"))]
)
async def test_a_stale_host_and_one_without_its_disk_wait_for_the_one_that_has_everything(
    tmp_path: Path, how: str
) -> None:
    await run(tmp_path, 3, ("n3",), ("n1",), ("n3", "n1", "n2"), how)


def alike(order: tuple[str, ...]) -> tuple[str, ...]:
    """An order by what its hosts are: those of six that died, that lost their disks and that have everything."""
    return tuple("dead" if name in "n5n6" else "lost" if name in "n1n2" else "whole" for name in order)


ORDERS_OF_SIX = {alike(order): order for order in permutations(f"n{number}" for number in range(1, 7))}


@pytest.mark.demo
@pytest.mark.socket
@pytest.mark.sweep("real agents in every order")
@pytest.mark.parametrize("how", ["emptied", "copied"])
@pytest.mark.parametrize("order", list(permutations(("n1", "n2", "n3"))), ids="-".join)
async def test_three_hosts_in_every_order(tmp_path: Path, order: tuple[str, ...], how: str) -> None:
    await run(tmp_path, 3, ("n3",), ("n1",), order, how)


@pytest.mark.demo
@pytest.mark.socket
@pytest.mark.sweep("real agents in every order")
@pytest.mark.parametrize(
    ("order", "how"),
    [(order, ("emptied", "copied")[number % 2]) for number, order in enumerate(ORDERS_OF_SIX.values())],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
async def test_six_hosts_in_every_order(tmp_path: Path, order: tuple[str, ...], how: str) -> None:
    """Two die one after the other, two lose their disks."""
    await run(tmp_path, 6, ("n6", "n5"), ("n1", "n2"), order, how)


def is_junk(path: str) -> bool:
    return Path(path).read_bytes() == b"junk"


@pytest.mark.demo
@pytest.mark.socket
async def test_a_host_with_a_damaged_file_comes_back_by_itself_and_says_so(tmp_path: Path) -> None:
    """Another host each time: one that dies three times in a row must prove itself for longer than this test waits."""
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=3, racks=3, segments=3)) as cluster:
        await cluster.wait_until(settled(3), timeout=PATIENCE, what="a placement")
        async with Workload.open([agent.address for agent in cluster.live()]) as workload:
            for host, name in (("n2", "last-view"), ("n3", "agent.json"), ("n1", "log/layout/state")):
                cluster.kill(host)
                await cluster.agents[host].process.wait()
                (tmp_path / host / name).write_bytes(b"junk")
                await cluster.start_one(host)
                await cluster.wait_until(settled(3), timeout=PATIENCE, what=f"all together without {name}")
                await workload.more(5, PATIENCE)
                events = (await cluster.agents[host].get("/v1/events", after=0, local=1))["events"]
                (lost,) = [event for event in events if event["kind"] == "lost"]
                assert "damaged" in lost["text"]
                assert is_junk(lost["data"]["set_aside"][0])
            workload.stop()
            outcome = await workload.verify()
        assert (outcome.lost, outcome.unreadable) == (0, 0)
