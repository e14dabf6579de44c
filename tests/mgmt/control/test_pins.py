"""Pins, decided by the datastore pack: a copy goes where it is pinned and stays, or the pin is refused by name."""

from __future__ import annotations

import pytest

from mgmt.errors import DrainRefusedError, RefusedError, UnknownHostError, UnknownSegmentError
from mgmt.placement.placement_rows import PinRow, build_state
from tests.mgmt.control.harness import harness, pack_solver
from tests.mgmt.control.situations import intent_of, observation_of, view_of


@pytest.mark.slow("the pack is solved at each step")
async def test_a_copy_is_moved_where_it_is_pinned_and_stays(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver, segments=6) as cluster:
        requests, engine = cluster.controller.requests, cluster.engine
        segment = next(key for key in engine.segments if "n1" not in engine.chain(key))
        await requests.pin(segment, "n1")
        await cluster.until(lambda: "n1" in engine.chain(segment))
        await cluster.settled()
        cluster.check_placement()
        moved = cluster.of_kind("plan")[-1]
        assert any(line.startswith(segment) and "pinned to n1" in line for line in moved.data["lines"])
        assert cluster.controller.status()["pins"] == [{"segment": segment, "host": "n1"}]

        with pytest.raises(DrainRefusedError, match="pinned_copies"):
            await requests.drain("n1")
        with pytest.raises(RefusedError, match=r"pinning .* would break .*one_replica_per_rack"):
            await requests.pin(segment, "n4")  # of the same rack
        with pytest.raises(UnknownSegmentError, match="s77"):
            await requests.pin("s77", "n1")
        with pytest.raises(UnknownHostError):
            await requests.pin(segment, "n77")

        await requests.unpin(segment, "n1")
        await requests.drain("n1")
        await cluster.until(lambda: cluster.load("n1") == 0)
        await cluster.settled()


@pytest.mark.slow("the pack is solved at each step")
async def test_a_pin_to_a_host_that_is_lost_rests(autojump_clock: object) -> None:
    async with harness(make_solver=pack_solver) as cluster:
        segment = next(key for key in cluster.engine.segments if "n5" in cluster.engine.chain(key))
        await cluster.controller.requests.pin(segment, "n5")
        n5 = cluster.hosts["n5"]
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        cluster.add(n5)
        await cluster.until(lambda: "n5" in cluster.engine.chain(segment), within=600)


@pytest.mark.parametrize(
    ("chain", "pins", "slots"),
    [
        ("n1 n2 n3", ["n2"], {1}),  # the copy that is there
        ("n1 n2 n3", ["n4"], {0}),  # the copy of that rack
        ("n1 n8! n3", ["n5"], {1}),  # of a host that is gone
        ("n1 n2 n3", ["n4", "n1"], {0, 1}),  # not the copy that another pin holds
        ("n1 n2 n3", ["n9"], set()),  # nobody of that name is there
    ],
)
def test_which_copy_a_pin_is_about(chain: str, pins: list[str], slots: set[int]) -> None:
    intent = intent_of(["a"])
    for host in pins:
        intent = intent.with_pin("a", host)
    state = build_state(view_of("n1", "n2", "n3", "n4", "n5"), observation_of({"a": chain}), intent)
    assert {pin.slot for pin in state.pins} == slots
    if "n1" in pins:
        assert PinRow("a", 0, "n1") in state.pins
