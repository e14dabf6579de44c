"""An operator's forced layout: a majority of the layout servers is lost for good."""

from __future__ import annotations

import pytest

from datastore_adapter import LayoutError, ReplicaUnavailableError
from datastore_adapter.interface import Fence, Observation
from datastore_adapter.log.layout.document import encode_document
from datastore_adapter.log.messages import Accept, Install, Request
from datastore_adapter.log.reconfiguration.forced import EPOCHS
from tests.datastore_adapter.world import World


def fence(world: World) -> Fence:
    return Fence(world.view_epoch, world.document.epoch, "", 0)


def test_the_log_goes_on_with_the_hosts_that_are_left() -> None:
    """Two of three layout servers, one of them the sequencer; every segment has a copy left."""
    world = World(6, copies=3)

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        await world.write(60)
        assert world.document.layout.layout_servers == ("n0", "n1", "n2")
        world.crash("n0", "n1")
        with pytest.raises(AssertionError, match="does not settle"):
            await world.settle(adapter, limit=8.0)
        adapter = world.adapter("survivor")
        epoch = (await adapter.recover(fence(world))).layout_epoch
        assert epoch == EPOCHS
        await world.settle(adapter)
        await world.write(60)
        world.restart("n0", "n1")
        await world.settle(world.adapter("later"))
        await world.check_everything()
        world.assert_tidy()
        assert {
            host.node.document.epoch
            for host in world.cluster.hosts.values()
            if host.node and host.node.document
        } == {world.document.epoch}, "those that came back take the new layout"

    world.loop.run(story(), timeout=300)


def test_what_was_voted_for_and_perhaps_decided_is_gone_on_with() -> None:
    """A proposer dies with the votes of all in, before anybody is told what was decided."""
    world = World(6, copies=3)
    voted: set[str] = set()

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)

        def cut(source: str, destination: str, request: Request) -> None:
            if isinstance(request, Accept) and source == "dying":
                voted.add(destination)
                world.cluster.isolate("dying", list(world.cluster.hosts))

        world.on_request = cut
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        wish = world.adapter("dying").set_intent(observation.layout_epoch, {"wish": 1}, fence(world))
        task = world.loop.start(wish)
        await world.runtime.sleep(1.0)
        task.cancel()
        assert voted == {"n0", "n1", "n2"}
        world.on_request = lambda source, destination, request: None
        world.crash("n0", "n1")
        assert not world.document.intent
        await world.adapter("survivor").recover(fence(world))
        assert world.document.intent == {"wish": 1}

    world.loop.run(story(), timeout=300)


def test_it_is_refused_while_the_majority_may_still_go_on() -> None:
    world = World(6, copies=3)

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        with pytest.raises(LayoutError, match="nothing is to be recovered"):
            await adapter.recover(fence(world))
        world.cluster.crash("n0")
        world.cluster.crash("n1")
        adapter.set_hosts(
            world.view_epoch + 1, {name: host.address for name, host in world.cluster.hosts.items()}
        )
        with pytest.raises(ReplicaUnavailableError, match="n0, n1 did not answer"):
            await adapter.recover(fence(world))

    world.loop.run(story(), timeout=300)


def test_one_that_was_interrupted_is_run_again() -> None:
    """One host has the new layout, the others do not: the same command completes it."""
    world = World(6, copies=3)

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        world.crash("n0", "n1")
        told: list[str] = []

        def cut(source: str, destination: str, request: Request) -> None:
            if isinstance(request, Install) and source == "first":
                told.append(destination)
                if len(told) == 5:  # the four that are left have the old one, and one of them the new
                    world.cluster.isolate("first", list(world.cluster.hosts))

        world.on_request = cut
        with pytest.raises(ReplicaUnavailableError):
            await world.adapter("first").recover(fence(world))
        assert world.document.epoch == EPOCHS
        await world.settle(world.adapter("second"))
        await world.write(12)

    world.loop.run(story(), timeout=300)


def test_accepting_is_over_in_the_old_chain_once_a_host_has_the_new_one() -> None:
    world = World(4, copies=2, segments=2)

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        old = world.document
        world.crash("n0", "n1")
        await world.adapter("survivor").recover(fence(world))
        for host in ("n2", "n3"):
            request = Accept(old.epoch, 9, 9, encode_document(old))
            reply = await world.runtime.call(world.members[host], request, 1.0)
            assert type(reply).__name__ == "WrongEpoch"

    world.loop.run(story(), timeout=300)
