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
from tests.datastore_adapter.harness import Harness

Disturbance = Callable[[Harness, LogAdapter], Awaitable[None]]


def survive(harness: Harness, disturb: Disturbance, *, pause: float = 0.01) -> None:
    """Write, disturb, let all hosts that are there settle, and look at everything."""

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers(pause=pause)
        await harness.runtime.sleep(0.2)
        await disturb(harness, adapter)
        await harness.settle(harness.adapter("last controller"))
        await harness.runtime.sleep(0.2)
        await harness.stop_writers(writers)
        await harness.settle(harness.adapter("checking controller"))
        assert not harness.uncertain
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())
    assert len(harness.acknowledged) > 20


def strike_a_transfer(harness: Harness, strike: Callable[[str, str], None]) -> list[str]:
    """Have `strike(source, destination)` happen at the first chunk that is sent; where it was sent is listed."""
    struck: list[str] = []

    def look(source: str, destination: str, request: Request) -> None:
        if isinstance(request, WriteChunk) and not struck:
            struck.append(destination)
            strike(source, destination)

    harness.on_request = look
    return struck


def test_kill_the_chain_head_and_the_sequencer() -> None:
    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        layout = harness.document.layout
        sequencer = layout.sequencers[0]
        heads = [segment.open_extent.head for segment in layout.segments]
        harness.crash(*sorted({sequencer, next(head for head in heads if head != sequencer)}))

    survive(Harness(6, seed=1), disturb)


def test_kill_write_on_revive_and_heal_back_to_one_segment() -> None:
    """`assert_tidy`: at the end each segment is in one piece."""
    harness = Harness(4, segments=3, seed=11)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        victim = harness.document.layout.segments[0].open_extent.chain[0]
        harness.crash(victim)
        await harness.settle(adapter)
        await harness.runtime.sleep(0.3)
        harness.restart(victim)
        harness.drained = {
            next(host for host in harness.live if host != victim)
        }  # so that it is needed again
        await harness.settle(adapter)
        assert any(victim in segment.open_extent.chain for segment in harness.document.layout.segments)

    survive(harness, disturb)


def test_a_host_several_epochs_behind_returns() -> None:
    harness = Harness(5, segments=4, seed=12)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        harness.crash("n0")  # founder and layout server
        for name in ("n1", "n2"):
            await harness.settle(adapter)
            harness.drained = {name}
        observation = await harness.settle(adapter)
        harness.restart("n0")
        node = harness.cluster.node("n0")
        assert node.document is not None
        assert observation.layout_epoch >= node.document.epoch + 3
        harness.drained = set()
        await harness.settle(adapter)

    survive(harness, disturb)


def test_the_source_of_a_transfer_dies() -> None:
    harness = Harness(5, segments=2, seed=13)

    def strike(source: str, destination: str) -> None:
        assert source in harness.live, "data goes from host to host"
        harness.crash(source)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        await harness.write(60)
        struck = strike_a_transfer(harness, strike)
        harness.crash("n1")
        await harness.settle(adapter)
        assert struck

    survive(harness, disturb)


def test_two_of_three_down_and_back_what_was_blocked_completes_once() -> None:
    """Nothing is acknowledged meanwhile; `Harness.check_everything` finds a record that is there twice."""
    harness = Harness(3, segments=3, seed=14)
    harness.steady = False

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        harness.crash("n1", "n2")
        await harness.runtime.sleep(0.2)  # what was on its way is answered
        before = len(harness.acknowledged)
        await harness.runtime.sleep(3.0)
        assert len(harness.acknowledged) == before
        harness.restart("n1", "n2")

    survive(harness, disturb)


def test_the_majority_is_lost_for_good_and_an_operator_forces_a_layout() -> None:
    """Two of three layout servers, one of them the sequencer; every segment has a copy left."""
    harness = Harness(6, seed=15)
    harness.steady = False

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        lost = harness.document.layout.layout_servers[:2]
        harness.crash(*lost)
        await harness.runtime.sleep(1.0)
        survivor = harness.adapter("survivor")
        await survivor.recover(Fence(harness.view_epoch, harness.document.epoch, "", 0))
        await harness.settle(survivor)
        assert not set(harness.document.layout.layout_servers) & set(lost)

    survive(harness, disturb)


def test_a_second_reset_at_the_same_epoch_does_not_erase() -> None:
    """The request that lets a new replica join comes again, late, when the replica holds records already."""
    harness = Harness(4, segments=2, seed=2)
    joins: list[tuple[str, Join]] = []

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        harness.on_request = lambda source, destination, request: (
            joins.append((destination, request)) if isinstance(request, Join) else None
        )
        harness.crash("n1")
        await harness.settle(adapter)
        await harness.runtime.sleep(0.2)
        harness.on_request = lambda source, destination, request: None
        assert joins
        for host, join in joins:
            before = dict(harness.cluster.node(host).log_unit.stores[join.segment].index)
            await harness.runtime.call(harness.members[host], join, 1.0)
            assert before.keys() <= harness.cluster.node(host).log_unit.stores[join.segment].index.keys()

    survive(harness, disturb)


def test_the_source_of_a_transfer_restarts() -> None:
    harness = Harness(4, segments=2, seed=3)
    harness.steady = False

    def strike(source: str, destination: str) -> None:
        victim = next(host for host in harness.live if host not in (destination, "n1"))
        harness.crash(victim)
        harness.restart(victim)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        await harness.write(60)
        struck = strike_a_transfer(harness, strike)
        harness.crash("n1")
        await harness.settle(adapter)
        assert struck

    survive(harness, disturb)


def test_four_concurrent_removes_then_adds() -> None:
    harness = Harness(8, segments=6, seed=4)
    leaving = ["n1", "n2", "n3", "n4"]

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        controllers = []
        for name in leaving:
            harness.drained.add(name)
            controllers.append(harness.loop.start(harness.settle(harness.adapter(f"removes {name}"))))
            await harness.runtime.sleep(0.02)
        for task in controllers:
            while not task.ended:
                await harness.runtime.sleep(0.02)
            if task.error is not None:
                raise task.error
        assert not any(set(segment.hosts()) & set(leaving) for segment in harness.document.layout.segments)
        for name in leaving:
            harness.drained.discard(name)
            await harness.settle(harness.adapter(f"adds {name}"))

    survive(harness, disturb)


def test_one_link_down_rotating_over_pairs() -> None:
    """Nobody is removed: membership reaches everybody another way."""
    harness = Harness(4, segments=3, seed=5)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        for one, other in combinations(sorted(harness.cluster.hosts), 2):
            harness.cluster.isolate(one, [other])
            await harness.runtime.sleep(0.15)
            harness.cluster.heal()

    survive(harness, disturb)


def test_all_partitioned_then_recovery() -> None:
    harness = Harness(4, segments=3, seed=6)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        names = [*harness.cluster.hosts, "controller", "observer", *(f"writer{index}" for index in range(3))]
        for name in names:
            harness.cluster.isolate(name, [other for other in names if other != name])
        before = len(harness.acknowledged)
        await harness.runtime.sleep(3.0)
        assert len(harness.acknowledged) == before, "nothing is acknowledged that nobody was told"
        harness.cluster.heal()

    survive(harness, disturb)


def test_one_paused_and_one_partitioned() -> None:
    """Both are taken out by the others, and come back with an old idea of the world."""
    harness = Harness(6, segments=4, seed=7)
    harness.steady = False

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        harness.cluster.pause("n1")
        harness.cluster.isolate("n2", [host for host in harness.cluster.hosts if host != "n2"])
        harness.cut_off |= {"n1", "n2"}
        harness.view_epoch += 1
        await harness.settle(adapter)
        await harness.runtime.sleep(0.5)
        harness.cluster.resume("n1")
        harness.reunite()

    survive(harness, disturb)


@pytest.mark.parametrize("moment", [Seal, Join, WriteChunk])
def test_a_host_is_added_during_a_layout_change(moment: type[Request]) -> None:
    harness = Harness(5, segments=4, seed=8)
    harness.drained = {"n4"}
    added: list[str] = []

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        def add(source: str, destination: str, request: Request) -> None:
            if isinstance(request, moment) and not added:
                added.append(source)
                harness.drained.clear()

        harness.on_request = add
        harness.crash("n1")
        await harness.settle(adapter)
        assert added

    survive(harness, disturb)


def test_a_bootstrap_with_another_layout_is_refused_and_changes_nothing() -> None:
    harness = Harness(4, segments=3, seed=16)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        before = harness.document
        for name in harness.live:
            server = harness.cluster.node(name).layout_server
            with pytest.raises(BootstrapRefusedError, match="belongs to cluster c0ffee, not another"):
                server.found("another", name, harness.members[name])
            assert server.found(before.cluster_id, name, harness.members[name]).epoch == before.epoch
        assert harness.document == before

    survive(harness, disturb)


def test_a_host_is_removed_twice() -> None:
    harness = Harness(5, segments=4, seed=9)

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        for controller in ("one", "another"):
            harness.drained.add("n2")
            observation = await harness.settle(harness.adapter(controller))
            assert not any("n2" in segment.hosts() for segment in harness.document.layout.segments)
        epoch = observation.layout_epoch
        assert (await harness.settle(harness.adapter("a third"))).layout_epoch == epoch, "once is enough"

    survive(harness, disturb)


@pytest.mark.slow("a hundred reconfigurations")
def test_the_primary_sequencer_killed_a_hundred_times() -> None:
    """No token is given twice: `Harness.append` refuses a second acknowledgement of one address."""
    harness = Harness(3, segments=1, seed=10)
    harness.steady = False

    async def disturb(harness: Harness, adapter: LogAdapter) -> None:
        for _ in range(100):
            victim = harness.document.layout.sequencers[0]
            harness.crash(victim)
            await harness.settle(adapter)
            assert harness.document.layout.sequencers[0] != victim
            harness.restart(victim)
            await harness.settle(adapter)

    survive(harness, disturb, pause=0.2)
