"""A host whose disk is full, has failed or is slow is relieved as if it were drained, although no operator asked for
it, stays a member, and is used again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from datastore_adapter.interface import DiskState, DiskTrouble, Placement
from mgmt.control.decision import relieved
from mgmt.placement.fallback_placement import available_placement
from mgmt.placement.placement_rows import build_state
from mgmt.plans.plan import make_plan
from mgmt.plans.safety import WaveLimits
from tests.mgmt.control.harness import harness, pack_solver
from tests.mgmt.control.situations import intent_of, observation_of, view_of

FULL = DiskTrouble(DiskState.FULL, "it takes no more records")


@pytest.mark.slow("the pack is solved at each step")
async def test_a_full_host_is_emptied_and_filled_again(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver) as cluster:
        engine = cluster.engine
        assert cluster.load("n5")
        engine.disks = {"n5": FULL}
        await cluster.until(lambda: cluster.load("n5") == 0)
        await cluster.settled()
        cluster.check_placement()
        assert "disk-full" in cluster.kinds()
        assert cluster.controller.status()["full"] == ["n5"]
        assert cluster.controller.status()["drains"] == {}
        lines = [line for event in cluster.of_kind("plan") for line in event.data["lines"]]
        assert any("the disk of n5 is full" in line for line in lines)
        engine.disks = {}
        await cluster.until(lambda: cluster.load("n5") > 0, within=600)
        assert "disk-room" in cluster.kinds()


async def test_a_host_whose_disk_has_failed_is_named_and_relieved(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver) as cluster:
        engine = cluster.engine
        engine.disks = {"n5": DiskTrouble(DiskState.FAILED, "cannot make it durable: Input/output error")}
        await cluster.until(lambda: cluster.load("n5") == 0)
        await cluster.settled()
        cluster.check_placement()
        event, *_ = cluster.of_kind("disk-failed")  # who stands by tells it, too
        assert event.data == {
            "host": "n5",
            "state": "failed",
            "reason": "cannot make it durable: Input/output error",
            "relieved": True,
        }
        assert "n5" in event.text
        (disk,) = cluster.controller.status()["disks"]
        assert disk == dict(event.data)
        engine.disks = {}
        await cluster.until(lambda: cluster.load("n5") > 0, within=600)
        assert "disk-ok" in cluster.kinds()


async def test_a_disk_that_is_far_slower_than_its_peers_is_relieved_within_seconds(
    autojump_clock: object,
) -> None:
    async with harness(make_solver=pack_solver) as cluster:
        engine = cluster.engine
        hosts = cluster.nodes
        engine.sync_seconds = dict.fromkeys(hosts, 0.002)
        await cluster.more_rounds(2)
        engine.sync_seconds = {**engine.sync_seconds, "n5": 2.0}
        began = trio.current_time()
        await cluster.until(lambda: cluster.load("n5") == 0)
        assert trio.current_time() - began < 25
        await cluster.settled()
        event, *_ = cluster.of_kind("disk-slow")
        assert event.data["host"] == "n5"
        assert event.data["reason"] == "a sync takes 2 s there, and 0.002 s on other hosts"
        engine.sync_seconds = dict.fromkeys(hosts, 0.002)
        await cluster.until(lambda: cluster.load("n5") > 0, within=600)
        assert "disk-ok" in cluster.kinds()


async def test_a_new_controller_gives_nothing_to_a_slow_disk_that_the_last_one_relieved(
    autojump_clock: object,
) -> None:
    async with harness(make_solver=pack_solver) as cluster:
        cluster.engine.sync_seconds = {**dict.fromkeys(cluster.nodes, 0.002), "n5": 2.0}
        await cluster.until(lambda: cluster.load("n5") == 0)
        await cluster.settled()
        cluster.lose("n1")
        with trio.move_on_after(30) as watched:
            await cluster.until(lambda: cluster.load("n5") > 0)
        assert watched.cancelled_caught
        await cluster.settled()


def test_without_another_place_the_others_go_on_with_fewer_copies() -> None:
    """One bad disk never stops the store: as with a lost host, what is left of a chain takes the records."""
    view = view_of("n1", "n2", "n3")
    observation = observation_of({"a": "n1 n2 n3", "b": "n2 n3 n1"})
    failed = replace(observation, disks={"n1": DiskTrouble(DiskState.FAILED, "it is worn out")})
    placement = available_placement(view, failed, ("n1",))
    assert placement.segments == {"a": ("n2", "n3"), "b": ("n2", "n3")}
    assert placement.roles.sequencers[0] != "n1"
    many = replace(failed, disks={"n1": replace(FULL, is_relieved=False)})
    assert available_placement(view, many).segments == {"a": ("n1", "n2", "n3"), "b": ("n2", "n3", "n1")}


def test_a_disk_in_trouble_leaves_all_chains_in_the_first_wave() -> None:
    """Whatever is copied after it: writers wait for that disk in every chain that names it."""
    view = view_of("n1", "n2", "n3", "n4")
    observation = observation_of(dict.fromkeys("abc", "n1 n2 n3"))
    failed = replace(observation, disks={"n1": DiskTrouble(DiskState.SLOW, "a sync takes 2 s")})
    target = Placement(dict.fromkeys("abc", ("n2", "n3", "n4")), observation.roles)
    intent = relieved(intent_of(["a", "b", "c"]), failed)
    plan = make_plan(view, failed, intent, target, plan_id="p", limits=WaveLimits(moves_per_host=1))
    assert len(plan.waves) == 3
    for wave in plan.waves:
        assert all("n1" not in chain for chain in wave.segments.values())


def test_what_a_disk_still_takes_bounds_what_its_host_gets() -> None:
    view, intent = view_of("n1", "n2", "n3"), intent_of(["a"])
    observation = observation_of({"a": "n1 n2"})
    full = replace(observation, disks={"n1": FULL}, room={"n1": 1024})
    rows = {row.name: row for row in build_state(view, full, relieved(intent, full)).hosts}
    assert rows["n1"].capacity_bytes == observation.segments[0].bytes + 1024
    assert rows["n2"].capacity_bytes == view.by_name["n2"].capacity_bytes
    assert {name for name, row in rows.items() if row.drained} == {"n1"}
