"""A host whose disk is full: it is read from, gets no more, is relieved of its copies, and used again with room."""

from __future__ import annotations

import errno

import pytest

from datastore_adapter import LogSettings, OutcomeUnknownError
from datastore_adapter.interface import DiskState, Done, Observation
from datastore_adapter.log.storage.disk_health import CARE_INTERVAL
from datastore_adapter.log.storage.file_storage import RESERVED_SHARE
from tests.datastore_adapter.harness import Harness

SETTINGS = LogSettings(call_timeout=0.3, max_payload=2000, append_timeout=3.0, backoff_limit=0.1)


def fill(harness: Harness, name: str, left: int = 0) -> None:
    """No more room for records on the disk of a host, but some that is kept back."""
    disk = harness.cluster.hosts[name].storage
    used = disk.used + left
    disk.capacity = used + used // (RESERVED_SHARE - 1)


def no_room_for_segments(operation: str, path: str) -> int | None:
    return errno.ENOSPC if operation == "pwrite" and "/unit/s" in path else None


@pytest.mark.parametrize("role", [0, 1, 2])
def test_appends_go_on_elsewhere_and_nothing_is_lost(role: int) -> None:
    """The host is the head, in the middle, or the tail of a chain; three of six are enough without it."""
    harness = Harness(6, segments=3, seed=role, settings=SETTINGS)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(30)
        name = harness.document.layout.segments[0].open_extent.chain[role]
        fill(harness, name, left=500)
        writers = harness.start_writers(pause=0.01)
        await harness.runtime.sleep(0.5)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert observation.relieved == {name}
        assert name in observation.room
        await harness.settle(adapter)
        await harness.runtime.sleep(0.5)
        await harness.stop_writers(writers)
        assert not harness.uncertain
        await harness.check_everything()
        assert not any(name in segment.hosts() for segment in harness.document.layout.segments)

        harness.cluster.hosts[name].storage.capacity = None
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert not observation.disks

    harness.loop.run(story())


@pytest.mark.parametrize("seed", [0, 300])
def test_a_disk_that_has_not_even_room_to_be_settled_is_left_behind(seed: int) -> None:
    """What is kept back was used up: the new epoch could not be activated with it, and goes on without it."""
    harness = Harness(6, segments=3, seed=seed, settings=SETTINGS)
    harness.steady = False  # copies are given up, and made again

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(30)
        name = harness.document.layout.segments[0].open_extent.chain[2]
        writers = harness.start_writers(8, pause=0.001)
        await harness.runtime.sleep(0.2)
        fill(harness, name)
        harness.cluster.hosts[name].storage.fault = no_room_for_segments
        await harness.runtime.sleep(0.2)
        await harness.settle(adapter)
        await harness.runtime.sleep(0.3)
        await harness.stop_writers(writers)
        assert not harness.uncertain
        await harness.check_everything()
        assert not any(name in segment.hosts() for segment in harness.document.layout.segments)

    harness.loop.run(story())


@pytest.mark.parametrize("role", [0, 1, 2])
def test_a_disk_that_takes_nothing_at_all_is_left_by_one_step_and_not_used_again(role: int) -> None:
    """Not a byte can be written, so that the host can neither be sealed nor settled: the others do without it.

    It is still asked how its disk is when it holds nothing any more: else it would be given copies that it cannot take.
    """
    harness = Harness(6, segments=3, seed=role, settings=SETTINGS)
    harness.steady = False  # its copies are given up, and made again

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(30)
        name = harness.document.layout.segments[0].open_extent.chain[role]
        writers = harness.start_writers(pause=0.01)
        await harness.runtime.sleep(0.2)
        harness.cluster.hosts[name].storage.capacity = 0
        await harness.runtime.sleep(0.2)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        graph = adapter.lower(observation, harness.target(observation))
        statuses = await harness.execute(adapter, graph, observation)
        assert statuses[0] == Done()
        await harness.settle(adapter)
        observation = await harness.settle(adapter)
        assert observation.relieved == {name}
        assert not any(name in segment.hosts() for segment in harness.document.layout.segments)
        await harness.stop_writers(writers)
        await harness.write(12)
        harness.cluster.hosts[name].storage.capacity = None
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert not observation.disks
        await harness.check_everything()

    harness.loop.run(story())


def test_without_another_host_the_error_says_why() -> None:
    harness = Harness(3, segments=1, settings=SETTINGS)

    async def story() -> None:
        await harness.settle(harness.adapter())
        await harness.write(3)
        fill(harness, "n1")
        client = harness.client()
        harness.attempted.add(b"one too many")  # it stands at the head, and may get on
        with pytest.raises(OutcomeUnknownError, match=r"n1 refused \(full\): .*free some"):
            await client.append("red", b"one too many")
        for address in range(3):
            assert await client.read(address) is not None
        harness.cluster.hosts["n1"].storage.capacity = None
        await harness.write(3)
        await harness.check_everything()

    harness.loop.run(story())


def test_a_host_whose_quota_refused_a_sync_says_that_it_serves_nothing() -> None:
    """What the disk holds is not known then, so that the log unit is stopped, and not only full."""
    harness = Harness(3, segments=1, settings=SETTINGS)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(3)
        disk = harness.cluster.hosts["n1"].storage
        disk.fault = lambda operation, path: errno.EDQUOT if operation in ("fsync", "fdatasync") else None
        await harness.write(1)
        assert harness.uncertain
        assert harness.cluster.node("n1").log_unit.failure
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert observation.disks["n1"].state is DiskState.FAILED
        assert "durable" in observation.disks["n1"].reason
        disk.fault = None
        await harness.runtime.sleep(3 * CARE_INTERVAL)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert not observation.disks
        await harness.check_everything()

    harness.loop.run(story())
