"""A member dies and another process has its address: that one gets nothing, and counts for nothing, in its name.

An address says where, never who. Votes, acknowledgements and alerts name incarnations and views, so that most of this
is a matter of course; here are the stories.
"""

from __future__ import annotations

import random

import pytest
from trio.testing import MockClock

import membership
from chaos import NetworkSettings
from membership.protocol.view.view_difference import ViewChanged
from membership.transport import ForeignClusterError, FrameStream, OtherMemberError
from tests.membership.test_cluster import SETTINGS, address, running
from tests.membership.test_power_cut import cut_power, start
from tests.membership.test_power_cut import running as remembering

SEEDS = range(4)


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("hosts", [(5, 6), (4, 5, 6)])
@pytest.mark.parametrize("seed", SEEDS)
def test_members_that_come_back_at_each_others_addresses_are_replaced_at_once(
    cluster, hosts, loss: float, seed: int
) -> None:
    """Each has the name of one member and the address of another, and each has answered for the other's death."""
    world = cluster(8, seed=seed, network=NetworkSettings(loss=loss))
    world.boot()
    world.run(2.0)
    cut_power(world, hosts)
    world.run(1.0)
    world.exchange_addresses(hosts)
    began = world.now
    start(world, hosts, spread=0.0)
    assert world.run(8.0 if loss else 1.5, lambda: world.together(8))
    names = {member.name: member.address for member in world.cores[0].configuration.members}
    assert {f"n{number}": world.address(number) for number in hosts}.items() <= names.items()
    told = [event for _, name, event in world.seen(ViewChanged, began) if name == "h0"]
    came = {member.name for event in told for member in (*event.replaced, *(event.joined if loss else ()))}
    assert came == {f"n{number}" for number in hosts}
    assert not any(event.failed for event in told)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_after_a_power_cut_all_come_back_at_each_others_addresses(cluster, count: int, seed: int) -> None:
    world = remembering(cluster, count, seed)
    before = world.cores[0].configuration
    cut_power(world)
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    world.exchange_addresses(numbers)
    start(world, range(count))
    assert world.run(40.0, lambda: world.together(count))
    assert world.cores[0].configuration.cluster_id == before.cluster_id
    assert sum(core.founded for core in world.cores) == 1


async def test_a_process_of_another_cluster_does_not_keep_a_dead_member_in(autojump_clock: MockClock) -> None:
    """Its address answers; it is found dead as soon as one whose address is silent."""
    seconds = []
    for with_stranger in (False, True):
        async with running() as hosts:
            members = await hosts.bootstrap(5)
            members[4].crash()
            await members[4].stopped.wait()
            stranger = hosts.start(5, seeds=[], rng=random.Random(99)) if with_stranger else None
            seconds.append(await hosts.until(lambda: {host.size for host in members[:4]} == {4}))  # noqa: B023
            if stranger is not None:
                here, there = members[0].cluster, stranger.cluster
                assert here is not None
                assert there is not None
                assert stranger.size == 1
                assert there.statistics()["datagrams_dropped_foreign_cluster"]
                with pytest.raises(ForeignClusterError):
                    await here.transport.open_service(address(5), "membership")
    assert abs(seconds[0] - seconds[1]) <= 2 * SETTINGS.probe_interval


async def test_a_stream_for_a_member_is_refused_by_its_successor(autojump_clock: MockClock) -> None:
    heard: list[bytes] = []

    async def listen(stream: FrameStream) -> None:
        heard.extend([frame async for frame in stream])

    async with running() as hosts:
        members = await hosts.bootstrap(3, services={"listen": listen})
        here, there = members[0].cluster, members[2].cluster
        assert here is not None
        assert there is not None
        before = there.me
        members[2].crash()
        await members[2].stopped.wait()
        again = hosts.start(3, services={"listen": listen}, rng=random.Random(33))
        await hosts.until(lambda: again.cluster is not None and again.size == 3)
        assert again.cluster is not None
        now = again.cluster.me
        assert (now.address, now.name) == (before.address, before.name)
        with pytest.raises(OtherMemberError, match="another process answers at"):
            await here.transport.open_service(
                before.address, "listen", incarnation=before.incarnation, early_frames=[b"for the dead one"]
            )
        assert again.cluster.statistics()["streams_refused_other_member"] == 1
        async with await here.transport.open_service(
            now.address, "listen", incarnation=now.incarnation, early_frames=[b"for this one"]
        ):
            pass
        await hosts.until(lambda: bool(heard))
        assert heard == [b"for this one"]


async def test_a_process_that_rejoins_is_another_member(autojump_clock: MockClock) -> None:
    """It has forgotten what it was asked before."""
    async with running() as hosts:
        members = await hosts.bootstrap(3)
        here, there = members[0].cluster, members[2].cluster
        assert here is not None
        assert there is not None
        before = there.me
        there.transport.fault_injector.faults = membership.Faults(egress_loss=1.0)
        await hosts.until(lambda: members[0].size == 2)
        there.transport.fault_injector.faults = membership.Faults()
        await hosts.until(lambda: {member.size for member in members} == {3}, timeout=120.0)
        with pytest.raises(OtherMemberError):
            await here.transport.open_service(before.address, "membership", incarnation=before.incarnation)
        stream = await here.transport.open_service(
            before.address, "membership", incarnation=there.me.incarnation
        )
        await stream.aclose()
