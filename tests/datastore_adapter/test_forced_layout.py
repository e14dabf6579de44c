"""An operator's forced layout: a majority of the layout servers is lost for good."""

from __future__ import annotations

import pytest

from datastore_adapter import LayoutError, ReplicaUnavailableError
from datastore_adapter.interface import Fence, Observation
from datastore_adapter.log.layout.document import encode_document
from datastore_adapter.log.messages import Accept, Install, Request
from datastore_adapter.log.reconfiguration.forced import EPOCHS
from tests.datastore_adapter.harness import Harness


def fence(harness: Harness) -> Fence:
    return Fence(harness.view_epoch, harness.document.epoch, "", 0)


def test_the_log_goes_on_with_the_hosts_that_are_left() -> None:
    """Two of three layout servers, one of them the sequencer; every segment has a copy left."""
    harness = Harness(6, copies=3)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(60)
        assert harness.document.layout.layout_servers == ("n0", "n1", "n2")
        harness.crash("n0", "n1")
        with pytest.raises(AssertionError, match="does not settle"):
            await harness.settle(adapter, limit=8.0)
        adapter = harness.adapter("survivor")
        epoch = (await adapter.recover(fence(harness))).layout_epoch
        assert epoch == EPOCHS
        await harness.settle(adapter)
        await harness.write(60)
        harness.restart("n0", "n1")
        await harness.settle(harness.adapter("later"))
        await harness.check_everything()
        harness.assert_tidy()
        assert {
            host.node.document.epoch
            for host in harness.cluster.hosts.values()
            if host.node and host.node.document
        } == {harness.document.epoch}, "those that came back take the new layout"

    harness.loop.run(story(), timeout=300)


def test_what_was_voted_for_and_perhaps_decided_is_gone_on_with() -> None:
    """A proposer dies with the votes of all in, before anybody is told what was decided."""
    harness = Harness(6, copies=3)
    voted: set[str] = set()

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)

        def cut(source: str, destination: str, request: Request) -> None:
            if isinstance(request, Accept) and source == "dying":
                voted.add(destination)
                harness.cluster.isolate("dying", list(harness.cluster.hosts))

        harness.on_request = cut
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        target = harness.adapter("dying").set_intent(observation.layout_epoch, {"target": 1}, fence(harness))
        task = harness.loop.start(target)
        await harness.runtime.sleep(1.0)
        task.cancel()
        assert voted == {"n0", "n1", "n2"}
        harness.on_request = lambda source, destination, request: None
        harness.crash("n0", "n1")
        assert not harness.document.intent
        await harness.adapter("survivor").recover(fence(harness))
        assert harness.document.intent == {"target": 1}

    harness.loop.run(story(), timeout=300)


def test_it_is_refused_while_the_majority_may_still_go_on() -> None:
    harness = Harness(6, copies=3)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        with pytest.raises(LayoutError, match="nothing is to be recovered"):
            await adapter.recover(fence(harness))
        harness.cluster.crash("n0")
        harness.cluster.crash("n1")
        adapter.set_hosts(
            harness.view_epoch + 1, {name: host.address for name, host in harness.cluster.hosts.items()}
        )
        with pytest.raises(ReplicaUnavailableError, match="n0, n1 did not answer"):
            await adapter.recover(fence(harness))

    harness.loop.run(story(), timeout=300)


def test_one_that_was_interrupted_is_run_again() -> None:
    """One host has the new layout, the others do not: the same command completes it."""
    harness = Harness(6, copies=3)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        harness.crash("n0", "n1")
        told: list[str] = []

        def cut(source: str, destination: str, request: Request) -> None:
            if isinstance(request, Install) and source == "first":
                told.append(destination)
                if len(told) == 5:  # the four that are left have the old one, and one of them the new
                    harness.cluster.isolate("first", list(harness.cluster.hosts))

        harness.on_request = cut
        with pytest.raises(ReplicaUnavailableError):
            await harness.adapter("first").recover(fence(harness))
        assert harness.document.epoch == EPOCHS
        await harness.settle(harness.adapter("second"))
        await harness.write(12)

    harness.loop.run(story(), timeout=300)


def test_accepting_is_over_in_the_old_chain_once_a_host_has_the_new_one() -> None:
    harness = Harness(4, copies=2, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        old = harness.document
        harness.crash("n0", "n1")
        await harness.adapter("survivor").recover(fence(harness))
        for host in ("n2", "n3"):
            request = Accept(old.epoch, 9, 9, encode_document(old))
            reply = await harness.runtime.call(harness.members[host], request, 1.0)
            assert type(reply).__name__ == "WrongEpoch"

    harness.loop.run(story(), timeout=300)
