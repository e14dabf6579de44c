"""Whole clusters of the log's state machines in virtual time: nothing acknowledged is ever lost."""

from __future__ import annotations

import random

import pytest

from datastore_adapter.interface import Observation
from datastore_adapter.log.messages import Request
from tests.budget import budgeted
from tests.datastore_adapter.harness import Harness


def run_story(harness: Harness, faults: int = 0) -> None:
    """Place, write, let `faults` hosts die at random moments, repair, check."""
    rng = random.Random(harness.cluster.random.getrandbits(32))

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers()
        for _ in range(faults):
            await harness.runtime.sleep(rng.uniform(0.05, 0.5))
            harness.crash(rng.choice(harness.live))
            await harness.settle(adapter)
        await harness.runtime.sleep(0.2)
        await harness.stop_writers(writers)
        await harness.check_everything()
        assert not harness.uncertain
        harness.assert_tidy()

    harness.loop.run(story())
    assert len(harness.acknowledged) > 10


def test_an_undisturbed_cluster_settles_in_one_epoch_and_stays_settled() -> None:
    harness = Harness()

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        assert observation.layout_epoch == 1
        await harness.write(50)
        for _ in range(20):
            again = await adapter.observe()
            assert isinstance(again, Observation)
            assert not adapter.lower(again, harness.target(again)).steps
            assert not again.unfinished
        assert again.layout_epoch == 1
        await harness.check_everything()

    harness.loop.run(story())


@pytest.mark.parametrize("seed", budgeted(range(5), 1, in_test=2))
def test_three_hosts_die_one_after_the_other(seed: int) -> None:
    run_story(Harness(seed=seed), faults=3)


@pytest.mark.parametrize("seed", budgeted(range(100), 20))
def test_three_hosts_die_one_after_the_other_many_seeds(seed: int) -> None:
    run_story(Harness(seed=1000 + seed), faults=3)


@pytest.mark.parametrize("role", ["head", "tail", "sequencer", "layout server", "founder"])
def test_any_role_may_die_under_load(role: str) -> None:
    harness = Harness(seed=3)

    def victim() -> str:
        layout = harness.document.layout
        chain = layout.segments[0].open_extent.chain
        return {
            "head": chain[0],
            "tail": chain[-1],
            "sequencer": layout.sequencers[0],
            "layout server": layout.layout_servers[-1],
            "founder": "n0",
        }[role]

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers(5, pause=0.001)
        await harness.runtime.sleep(0.3)
        harness.crash(victim())
        await harness.settle(adapter)
        await harness.runtime.sleep(0.3)
        await harness.stop_writers(writers)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_copies_that_a_cluster_grows_into() -> None:
    """1 -> 3 hosts: a single copy becomes three, live."""
    harness = Harness(3, copies=3, segments=4)
    harness.drained = {"n1", "n2"}

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers()
        await harness.runtime.sleep(0.3)
        assert harness.document.layout.segments[0].open_extent.chain == ("n0",)
        harness.drained.clear()
        await harness.settle(adapter)
        await harness.runtime.sleep(0.2)
        await harness.stop_writers(writers)
        await harness.check_everything()
        harness.assert_tidy()
        assert set(harness.document.layout.layout_servers) == {"n0", "n1", "n2"}

    harness.loop.run(story())


def crash_on(harness: Harness, name: str, kind: type[Request], after: int = 0) -> None:
    """Crash `name` when it is about to handle the request after `after` others of this kind."""
    seen = 0

    def hook(source: str, destination: str, request: Request) -> None:
        nonlocal seen
        if destination == name and isinstance(request, kind) and name in harness.cluster.addresses:
            seen += 1
            if seen > after:
                harness.crash(name)

    harness.on_request = hook
