"""The controller is lost at every moment of a plan; the next one finishes the work.

Every call of the controller to its engine is a place to die: before the call takes effect, and after.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.budget import budgeted
from tests.mgmt.control.harness import Harness, harness, make_hosts, six_hosts

IN_A_REPAIR, IN_A_DRAIN, IN_ANOTHER_REPAIR = 60, 66, 87
"""A few more calls than the controller makes: at the last of them its work is over."""


def die_at(cluster: Harness, name: str, call: int) -> list[bool]:
    """Arrange for the controller's host to die when it makes its ``call``-th call from now."""
    died: list[bool] = []
    left = [call]

    def count() -> None:
        if left[0] == 0 and not died:
            died.append(True)
            cluster.kill(name)
        left[0] -= 1

    cluster.nodes[name].adapter.on_call = count
    return died


def check_all_tried(died: list[bool], call: int, calls: int) -> None:
    assert not died or call < calls - 1, "the controller makes more calls than are tried"


def check_copies(cluster: Harness) -> None:
    """No segment's data went to one host more than twice, whoever began it."""
    size = cluster.engine.bytes_per_segment
    assert {key: sent for key, sent in cluster.engine.copied.items() if sent > 2.001 * size} == {}


async def _follow_up(cluster: Harness, died: list[bool]) -> None:
    if not died:
        await cluster.settled()  # the work was over before it made that many calls
        cluster.kill("n1")
    cluster.remove("n1")
    await cluster.settled()
    cluster.check_placement()
    check_copies(cluster)
    assert cluster.controller is cluster.nodes["n2"].controller


@pytest.mark.parametrize("call", range(IN_A_REPAIR))
async def test_lost_in_a_repair(autojump_clock: object, call: int) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        cluster.engine.rate = 2000.0
        died = die_at(cluster, "n1", call)
        cluster.lose("n5")
        await cluster.until(lambda: bool(died) or cluster.is_settled())
        check_all_tried(died, call, IN_A_REPAIR)
        await _follow_up(cluster, died)


@pytest.mark.parametrize("call", range(IN_A_DRAIN))
async def test_lost_in_a_drain(autojump_clock: object, call: int) -> None:
    """The drain was acknowledged, so it completes."""
    async with harness(make_hosts(9, 3)) as cluster:
        cluster.engine.rate = 2000.0
        await cluster.controller.requests.drain("n4")
        died = die_at(cluster, "n1", call)
        await cluster.until(lambda: bool(died) or cluster.is_settled())
        check_all_tried(died, call, IN_A_DRAIN)
        await _follow_up(cluster, died)
        assert cluster.load("n4") == 0


@pytest.mark.parametrize("call", range(IN_ANOTHER_REPAIR))
async def test_a_plan_that_does_not_need_the_lost_controller_is_resumed(
    autojump_clock: object, call: int
) -> None:
    """The controller's own host holds nothing, so its plan is still right and is gone on with."""
    async with harness() as cluster:
        await cluster.controller.requests.drain("n1")
        await cluster.settled()
        cluster.engine.copied.clear()
        cluster.engine.rate = 2000.0
        died = die_at(cluster, "n1", call)
        cluster.lose("n5")
        await cluster.until(lambda: bool(died) or cluster.is_settled())
        check_all_tried(died, call, IN_ANOTHER_REPAIR)
        in_flight = cluster.engine.intent["plan"]["plan_id"] if died else None
        copied = dict(cluster.engine.copied)
        await _follow_up(cluster, died)
        size = cluster.engine.bytes_per_segment
        assert {key: sent for key, sent in cluster.engine.copied.items() if sent > 1.001 * size} == {}
        if copied and in_flight is not None:
            assert set(copied) <= set(cluster.engine.copied)
            resumed = [
                e
                for name, e in cluster.events
                if name == "n2" and e.kind == "plan" and "(agreed before)" in e.text
            ]
            finished = all(sent > 0.999 * size for sent in copied.values())
            assert resumed or finished


@pytest.mark.parametrize("first", budgeted([*range(0, 60, 12), *range(6, 60, 12), *range(3, 60, 6)], 5))
@pytest.mark.parametrize("second", range(0, 60, 3))
async def test_two_controllers_lost_in_one_drain(autojump_clock: object, first: int, second: int) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        cluster.engine.rate = 2000.0
        await cluster.controller.requests.drain("n9")
        for name, call in (("n1", first), ("n2", second)):
            died = die_at(cluster, name, call)
            await cluster.until(lambda died=died: bool(died) or cluster.is_settled())  # type: ignore[misc]
            if not died:
                cluster.kill(name)
            cluster.remove(name)
        await cluster.settled()
        cluster.check_placement()
        check_copies(cluster)
        assert cluster.load("n9") == 0


async def test_the_founder_brings_the_first_intent_also_when_another_is_the_controller(
    autojump_clock: object,
) -> None:
    """It was evicted before they were agreed, say by a slow disk, and came back as the youngest."""
    async with harness(placed=False) as cluster:
        founder, *others = six_hosts()
        view = [*others, replace(founder, seniority=100)]
        cluster.change({host.name: host for host in view})
        assert cluster.controller is not cluster.nodes[founder.name].controller
        await cluster.settled()
        cluster.check_placement()
