"""What changes in the engine by nobody's plan is told; what the loop, an operator or a view did is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datastore_adapter.interface import (
    Observation,
    Replica,
    ReplicaState,
    Role,
    SegmentObservation,
    ServiceRoles,
    SlotRange,
)
from mgmt.control.drift import differences
from tests.fake_adapter import FakeEngine
from tests.mgmt.control.harness import Harness, harness, make_hosts

KEY = "s00"


def a_copy_loses_data(engine: FakeEngine) -> str:
    copy = engine.segments[KEY][1]
    copy.in_sync, copy.bytes = False, 0.0
    hosts = engine.chain(KEY)
    return f"{KEY}: {', '.join(hosts)} -> {hosts[0]}, {hosts[1]} (syncing), {hosts[2]}"


def the_primary_is_another(engine: FakeEngine) -> str:
    first, second, third = engine.segments[KEY]
    engine.segments[KEY] = [second, first, third]
    engine.epoch += 1
    names = first.host, second.host, third.host
    return (
        f"{KEY}: {', '.join(names)} -> {names[1]}, {names[0]}, {names[2]} (primary {names[0]} -> {names[1]})"
    )


def a_copy_is_gone(engine: FakeEngine) -> str:
    first, second, third = engine.segments[KEY]
    engine.segments[KEY] = [first, second]
    engine.epoch += 1
    return f"{KEY}: {first.host}, {second.host}, {third.host} -> {first.host}, {second.host}"


def the_sequencer_is_another(engine: FakeEngine) -> str:
    before = engine.roles.sequencers[0]
    after = next(host for host in sorted(engine.up) if host != before)
    engine.roles = ServiceRoles(engine.roles.layout_servers, (after,), engine.roles.log_units)
    engine.epoch += 1
    return f"sequencer: {before} -> {after}"


@pytest.mark.parametrize(
    "change", [a_copy_loses_data, the_primary_is_another, a_copy_is_gone, the_sequencer_is_another]
)
async def test_what_the_engine_does_by_itself_is_told_once(
    autojump_clock: object, change: Callable[[FakeEngine], str]
) -> None:
    async with harness() as cluster:
        await cluster.more_rounds()
        words = change(cluster.engine)
        await cluster.until(lambda: bool(cluster.of_kind("drift")))
        await cluster.more_rounds(5)
        await cluster.settled()
        (event,) = cluster.of_kind("drift")
        assert event.data["changes"] == [words]
        assert words in event.text
        assert cluster.controller.statistics()["drifts"] == 1
        cluster.check_placement()


async def _a_drain(cluster: Harness) -> None:
    await cluster.controller.requests.drain("n4")


async def _a_loss(cluster: Harness) -> None:
    cluster.lose("n5")


async def _a_return(cluster: Harness) -> None:
    host = cluster.hosts["n5"]
    cluster.lose("n5")
    await cluster.settled()
    cluster.add(host)


async def _a_pause_in_the_middle(cluster: Harness) -> None:
    await cluster.controller.requests.drain("n4")
    await cluster.until(cluster.copying)
    await cluster.controller.requests.pause()
    await cluster.more_rounds(3)
    await cluster.controller.requests.resume()


async def _an_abort(cluster: Harness) -> None:
    await cluster.controller.requests.drain("n4")
    await cluster.until(cluster.copying)
    await cluster.controller.requests.abort()
    await cluster.more_rounds(3)
    await cluster.controller.requests.undrain("n4")
    await cluster.controller.requests.resume()


@pytest.mark.parametrize("action", [_a_drain, _a_loss, _a_return, _a_pause_in_the_middle, _an_abort])
async def test_what_was_asked_for_or_happened_to_hosts_is_no_drift(
    autojump_clock: object, action: Callable[[Harness], object]
) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        await action(cluster)  # type: ignore[misc]
        await cluster.settled()
        await cluster.more_rounds(3)
        assert cluster.of_kind("drift") == []
        assert cluster.controller.statistics()["drifts"] == 0


def observed(states: dict[str, ReplicaState], slots: tuple[SlotRange, ...]) -> Observation:
    copies = [
        Replica(KEY, host, place, Role.REPLICA if place else Role.PRIMARY, state)
        for place, (host, state) in enumerate(states.items())
    ]
    return Observation(1, "c", (SegmentObservation(KEY, tuple(copies), slots=slots),), ServiceRoles())


@pytest.mark.parametrize("state", [ReplicaState.SYNCING, ReplicaState.STALE])
def test_a_copy_of_slots_may_be_behind_or_silent_for_a_moment(state: ReplicaState) -> None:
    complete = {"n1": ReplicaState.IN_SYNC, "n2": ReplicaState.IN_SYNC}
    fallen = {"n1": ReplicaState.IN_SYNC, "n2": state}
    slots = ((0, 16383),)
    assert differences(observed(complete, slots), observed(fallen, slots)) == []
    assert differences(observed(complete, ()), observed(fallen, ())) == [f"s00: n1, n2 -> n1, n2 ({state})"]
    moved = {"n2": ReplicaState.IN_SYNC, "n1": state}
    assert differences(observed(complete, slots), observed(moved, slots)), (
        "but who leads it is somebody's doing"
    )
