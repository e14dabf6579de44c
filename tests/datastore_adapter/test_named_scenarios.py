"""Stories that a replicated log must survive, by name: a live writer, all data equal and readable at the end.

Others of the list are told where their mechanism is: copies that a cluster grows into, any role that dies
(`test_cluster`); partial seals, concurrent heals (`test_reconfigure`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import combinations

import pytest

from datastore_adapter import LogAdapter
from datastore_adapter.interface import Fence
from datastore_adapter.log.errors import BootstrapRefusedError
from datastore_adapter.log.messages import Join, Request, Seal, WriteChunk
from tests.datastore_adapter.world import World

Disturbance = Callable[[World, LogAdapter], Awaitable[None]]


def survive(world: World, disturb: Disturbance, *, pause: float = 0.01) -> None:
    """Write, disturb, let all hosts that are there settle, and look at everything."""

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        writers = world.start_writers(pause=pause)
        await world.runtime.sleep(0.2)
        await disturb(world, adapter)
        await world.settle(world.adapter("last controller"))
        await world.runtime.sleep(0.2)
        await world.stop_writers(writers)
        await world.settle(world.adapter("checking controller"))
        assert not world.uncertain
        await world.check_everything()
        world.assert_tidy()

    world.loop.run(story())
    assert len(world.acknowledged) > 20


def strike_a_transfer(world: World, strike: Callable[[str, str], None]) -> list[str]:
    """Have `strike(source, destination)` happen at the first chunk that is sent; where it was sent is listed."""
    struck: list[str] = []

    def look(source: str, destination: str, request: Request) -> None:
        if isinstance(request, WriteChunk) and not struck:
            struck.append(destination)
            strike(source, destination)

    world.on_request = look
    return struck


def test_kill_the_chain_head_and_the_sequencer() -> None:
    async def disturb(world: World, adapter: LogAdapter) -> None:
        layout = world.document.layout
        sequencer = layout.sequencers[0]
        heads = [segment.open_extent.head for segment in layout.segments]
        world.crash(*sorted({sequencer, next(head for head in heads if head != sequencer)}))

    survive(World(6, seed=1), disturb)


def test_kill_write_on_revive_and_heal_back_to_one_segment() -> None:
    """`assert_tidy`: at the end each segment is in one piece."""
    world = World(4, segments=3, seed=11)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        victim = world.document.layout.segments[0].open_extent.chain[0]
        world.crash(victim)
        await world.settle(adapter)
        await world.runtime.sleep(0.3)
        world.restart(victim)
        world.drained = {next(host for host in world.live if host != victim)}  # so that it is needed again
        await world.settle(adapter)
        assert any(victim in segment.open_extent.chain for segment in world.document.layout.segments)

    survive(world, disturb)


def test_a_host_several_epochs_behind_returns() -> None:
    world = World(5, segments=4, seed=12)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        world.crash("n0")  # founder and layout server
        for name in ("n1", "n2"):
            await world.settle(adapter)
            world.drained = {name}
        observation = await world.settle(adapter)
        world.restart("n0")
        node = world.cluster.node("n0")
        assert node.document is not None
        assert observation.layout_epoch >= node.document.epoch + 3
        world.drained = set()
        await world.settle(adapter)

    survive(world, disturb)


def test_the_source_of_a_transfer_dies() -> None:
    world = World(5, segments=2, seed=13)

    def strike(source: str, destination: str) -> None:
        assert source in world.live, "data goes from host to host"
        world.crash(source)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        await world.write(60)
        struck = strike_a_transfer(world, strike)
        world.crash("n1")
        await world.settle(adapter)
        assert struck

    survive(world, disturb)


def test_two_of_three_down_and_back_what_was_blocked_completes_once() -> None:
    """Nothing is acknowledged meanwhile; `World.check_everything` finds a record that is there twice."""
    world = World(3, segments=3, seed=14)
    world.steady = False

    async def disturb(world: World, adapter: LogAdapter) -> None:
        world.crash("n1", "n2")
        await world.runtime.sleep(0.2)  # what was on its way is answered
        before = len(world.acknowledged)
        await world.runtime.sleep(3.0)
        assert len(world.acknowledged) == before
        world.restart("n1", "n2")

    survive(world, disturb)


def test_the_majority_is_lost_for_good_and_an_operator_forces_a_layout() -> None:
    """Two of three layout servers, one of them the sequencer; every segment has a copy left."""
    world = World(6, seed=15)
    world.steady = False

    async def disturb(world: World, adapter: LogAdapter) -> None:
        lost = world.document.layout.layout_servers[:2]
        world.crash(*lost)
        await world.runtime.sleep(1.0)
        survivor = world.adapter("survivor")
        await survivor.recover(Fence(world.view_epoch, world.document.epoch, "", 0))
        await world.settle(survivor)
        assert not set(world.document.layout.layout_servers) & set(lost)

    survive(world, disturb)


def test_a_second_reset_at_the_same_epoch_does_not_erase() -> None:
    """The request that lets a new replica join comes again, late, when the replica holds records already."""
    world = World(4, segments=2, seed=2)
    joins: list[tuple[str, Join]] = []

    async def disturb(world: World, adapter: LogAdapter) -> None:
        world.on_request = lambda source, destination, request: (
            joins.append((destination, request)) if isinstance(request, Join) else None
        )
        world.crash("n1")
        await world.settle(adapter)
        await world.runtime.sleep(0.2)
        world.on_request = lambda source, destination, request: None
        assert joins
        for host, join in joins:
            before = dict(world.cluster.node(host).log_unit.stores[join.segment].index)
            await world.runtime.call(world.members[host], join, 1.0)
            assert before.keys() <= world.cluster.node(host).log_unit.stores[join.segment].index.keys()

    survive(world, disturb)


def test_the_source_of_a_transfer_restarts() -> None:
    world = World(4, segments=2, seed=3)
    world.steady = False

    def strike(source: str, destination: str) -> None:
        victim = next(host for host in world.live if host not in (destination, "n1"))
        world.crash(victim)
        world.restart(victim)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        await world.write(60)
        struck = strike_a_transfer(world, strike)
        world.crash("n1")
        await world.settle(adapter)
        assert struck

    survive(world, disturb)


def test_four_concurrent_removes_then_adds() -> None:
    world = World(8, segments=6, seed=4)
    leaving = ["n1", "n2", "n3", "n4"]

    async def disturb(world: World, adapter: LogAdapter) -> None:
        controllers = []
        for name in leaving:
            world.drained.add(name)
            controllers.append(world.loop.start(world.settle(world.adapter(f"removes {name}"))))
            await world.runtime.sleep(0.02)
        for task in controllers:
            while not task.ended:
                await world.runtime.sleep(0.02)
            if task.error is not None:
                raise task.error
        assert not any(set(segment.hosts()) & set(leaving) for segment in world.document.layout.segments)
        for name in leaving:
            world.drained.discard(name)
            await world.settle(world.adapter(f"adds {name}"))

    survive(world, disturb)


def test_one_link_down_rotating_over_pairs() -> None:
    """Nobody is removed: membership reaches everybody another way."""
    world = World(4, segments=3, seed=5)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        for one, other in combinations(sorted(world.cluster.hosts), 2):
            world.cluster.isolate(one, [other])
            await world.runtime.sleep(0.15)
            world.cluster.heal()

    survive(world, disturb)


def test_all_partitioned_then_recovery() -> None:
    world = World(4, segments=3, seed=6)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        names = [*world.cluster.hosts, "controller", "observer", *(f"writer{index}" for index in range(3))]
        for name in names:
            world.cluster.isolate(name, [other for other in names if other != name])
        before = len(world.acknowledged)
        await world.runtime.sleep(3.0)
        assert len(world.acknowledged) == before, "nothing is acknowledged that nobody was told"
        world.cluster.heal()

    survive(world, disturb)


def test_one_paused_and_one_partitioned() -> None:
    """Both are taken out by the others, and come back with an old idea of the world."""
    world = World(6, segments=4, seed=7)
    world.steady = False

    async def disturb(world: World, adapter: LogAdapter) -> None:
        world.cluster.pause("n1")
        world.cluster.isolate("n2", [host for host in world.cluster.hosts if host != "n2"])
        world.cut_off |= {"n1", "n2"}
        world.view_epoch += 1
        await world.settle(adapter)
        await world.runtime.sleep(0.5)
        world.cluster.resume("n1")
        world.reunite()

    survive(world, disturb)


@pytest.mark.parametrize("moment", [Seal, Join, WriteChunk])
def test_a_host_is_added_during_a_layout_change(moment: type[Request]) -> None:
    world = World(5, segments=4, seed=8)
    world.drained = {"n4"}
    added: list[str] = []

    async def disturb(world: World, adapter: LogAdapter) -> None:
        def add(source: str, destination: str, request: Request) -> None:
            if isinstance(request, moment) and not added:
                added.append(source)
                world.drained.clear()

        world.on_request = add
        world.crash("n1")
        await world.settle(adapter)
        assert added

    survive(world, disturb)


def test_a_bootstrap_with_another_layout_is_refused_and_changes_nothing() -> None:
    world = World(4, segments=3, seed=16)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        before = world.document
        for name in world.live:
            server = world.cluster.node(name).layout_server
            with pytest.raises(BootstrapRefusedError, match="belongs to cluster c0ffee, not another"):
                server.found("another", name, world.members[name])
            assert server.found(before.cluster_id, name, world.members[name]).epoch == before.epoch
        assert world.document == before

    survive(world, disturb)


def test_a_host_is_removed_twice() -> None:
    world = World(5, segments=4, seed=9)

    async def disturb(world: World, adapter: LogAdapter) -> None:
        for controller in ("one", "another"):
            world.drained.add("n2")
            observation = await world.settle(world.adapter(controller))
            assert not any("n2" in segment.hosts() for segment in world.document.layout.segments)
        epoch = observation.layout_epoch
        assert (await world.settle(world.adapter("a third"))).layout_epoch == epoch, "once is enough"

    survive(world, disturb)


def test_the_primary_sequencer_killed_a_hundred_times() -> None:
    """No token is given twice: `World.append` refuses a second acknowledgement of one address."""
    world = World(3, segments=1, seed=10)
    world.steady = False

    async def disturb(world: World, adapter: LogAdapter) -> None:
        for _ in range(100):
            victim = world.document.layout.sequencers[0]
            world.crash(victim)
            await world.settle(adapter)
            assert world.document.layout.sequencers[0] != victim
            world.restart(victim)
            await world.settle(adapter)

    survive(world, disturb, pause=0.2)
