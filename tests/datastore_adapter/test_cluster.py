"""Whole clusters of the log's state machines in virtual time: nothing acknowledged is ever lost."""

from __future__ import annotations

import random

import pytest

from datastore_adapter.interface import Observation
from datastore_adapter.log.messages import Request
from tests.budget import budgeted
from tests.datastore_adapter.world import World


def run_story(world: World, faults: int = 0) -> None:
    """Place, write, let `faults` hosts die at random moments, repair, check."""
    rng = random.Random(world.cluster.random.getrandbits(32))

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        writers = world.start_writers()
        for _ in range(faults):
            await world.runtime.sleep(rng.uniform(0.05, 0.5))
            world.crash(rng.choice(world.live))
            await world.settle(adapter)
        await world.runtime.sleep(0.2)
        await world.stop_writers(writers)
        await world.check_everything()
        assert not world.uncertain
        world.assert_tidy()

    world.loop.run(story())
    assert len(world.acknowledged) > 10


def test_an_undisturbed_cluster_settles_in_one_epoch_and_stays_settled() -> None:
    world = World()

    async def story() -> None:
        adapter = world.adapter()
        observation = await world.settle(adapter)
        assert observation.layout_epoch == 1
        await world.write(50)
        for _ in range(20):
            again = await adapter.observe()
            assert isinstance(again, Observation)
            assert not adapter.lower(again, world.target(again)).steps
            assert not again.unfinished
        assert again.layout_epoch == 1
        await world.check_everything()

    world.loop.run(story())


@pytest.mark.parametrize("seed", range(5))
def test_three_hosts_die_one_after_the_other(seed: int) -> None:
    run_story(World(seed=seed), faults=3)


@pytest.mark.parametrize("seed", budgeted(range(100), 20))
def test_three_hosts_die_one_after_the_other_many_seeds(seed: int) -> None:
    run_story(World(seed=1000 + seed), faults=3)


@pytest.mark.parametrize("role", ["head", "tail", "sequencer", "layout server", "founder"])
def test_any_role_may_die_under_load(role: str) -> None:
    world = World(seed=3)

    def victim() -> str:
        layout = world.document.layout
        chain = layout.segments[0].open_extent.chain
        return {
            "head": chain[0],
            "tail": chain[-1],
            "sequencer": layout.sequencers[0],
            "layout server": layout.layout_servers[-1],
            "founder": "n0",
        }[role]

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        writers = world.start_writers(5, pause=0.001)
        await world.runtime.sleep(0.3)
        world.crash(victim())
        await world.settle(adapter)
        await world.runtime.sleep(0.3)
        await world.stop_writers(writers)
        await world.check_everything()
        world.assert_tidy()

    world.loop.run(story())


def test_copies_that_a_cluster_grows_into() -> None:
    """1 -> 3 hosts: a single copy becomes three, live."""
    world = World(3, copies=3, segments=4)
    world.drained = {"n1", "n2"}

    async def story() -> None:
        adapter = world.adapter()
        await world.settle(adapter)
        writers = world.start_writers()
        await world.runtime.sleep(0.3)
        assert world.document.layout.segments[0].open_extent.chain == ("n0",)
        world.drained.clear()
        await world.settle(adapter)
        await world.runtime.sleep(0.2)
        await world.stop_writers(writers)
        await world.check_everything()
        world.assert_tidy()
        assert set(world.document.layout.layout_servers) == {"n0", "n1", "n2"}

    world.loop.run(story())


def crash_on(world: World, name: str, kind: type[Request], after: int = 0) -> None:
    """Crash `name` when it is about to handle the request after `after` others of this kind."""
    seen = 0

    def hook(source: str, destination: str, request: Request) -> None:
        nonlocal seen
        if destination == name and isinstance(request, kind) and name in world.cluster.addresses:
            seen += 1
            if seen > after:
                world.crash(name)

    world.on_request = hook
