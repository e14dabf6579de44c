"""A host whose disk is full is relieved as if it were drained, although no operator asked for it, and used again."""

from __future__ import annotations

from dataclasses import replace

from datastore_adapter.interface import DiskState, DiskTrouble
from mgmt.control.decision import relieved
from mgmt.placement.placement_rows import build_state
from tests.mgmt.control.harness import harness, pack_solver
from tests.mgmt.control.situations import intent_of, observation_of, view_of

FULL = DiskTrouble(DiskState.FULL, "it takes no more records")


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


def test_what_a_disk_still_takes_bounds_what_its_host_gets() -> None:
    view, intent = view_of("n1", "n2", "n3"), intent_of(["a"])
    observation = observation_of({"a": "n1 n2"})
    full = replace(observation, disks={"n1": FULL}, room={"n1": 1024})
    rows = {row.name: row for row in build_state(view, full, relieved(intent, full)).hosts}
    assert rows["n1"].capacity_bytes == observation.segments[0].bytes + 1024
    assert rows["n2"].capacity_bytes == view.by_name["n2"].capacity_bytes
    assert {name for name, row in rows.items() if row.drained} == {"n1"}
