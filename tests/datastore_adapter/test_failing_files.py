"""Files that misbehave: the power goes between any two calls, one call fails, writes are short, syncs are slow."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from datastore_adapter import LogSettings, StorageError
from membership.files.simulated import PowerCut, cut_after, fail
from tests.budget import budgeted
from tests.datastore_adapter.harness import Harness

SETTINGS = LogSettings(call_timeout=0.3, append_timeout=10.0, backoff_limit=0.1, segment_file_bytes=2000)
VICTIM = "n1"


def restart_until_it_runs(harness: Harness) -> None:
    """As whatever supervises agents does."""
    while VICTIM not in harness.live:
        harness.cluster.crash(VICTIM)
        with suppress(StorageError, PowerCut):
            harness.restart(VICTIM)


@pytest.mark.parametrize("changes", budgeted(range(0, 400, 5), 12, in_test=2))
def test_the_power_goes_between_any_two_calls(changes: int) -> None:
    """And goes again as the host starts: nothing acknowledged is lost, and everything goes on."""
    harness = Harness(3, segments=2, seed=changes, settings=SETTINGS)
    harness.steady = False
    disk = harness.cluster.hosts[VICTIM].storage
    rng = random.Random(changes)

    async def story() -> None:
        adapter = harness.adapter()
        disk.fault = cut_after(changes)
        writers = None
        for _ in range(6):
            control = harness.loop.start(harness.settle(adapter, limit=1e9))
            await harness.runtime.sleep(0.3)
            if writers is None and control.ended:
                writers = harness.start_writers(2, pause=0.01)
            await harness.runtime.sleep(1.0)
            control.cancel()
            if VICTIM not in harness.live:
                disk.fault = cut_after(rng.randint(0, 30))
                with suppress(PowerCut):
                    harness.restart(VICTIM)
        disk.fault = None
        restart_until_it_runs(harness)
        await harness.settle(adapter)
        await harness.stop_writers(writers or [])
        await harness.write(6)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


@pytest.mark.parametrize("seed", budgeted(range(40), 6, in_test=2))
def test_short_writes_and_slow_syncs_lose_nothing(seed: int) -> None:
    harness = Harness(3, segments=2, seed=seed, settings=SETTINGS)
    disk = harness.cluster.hosts[VICTIM].storage

    async def story() -> None:
        adapter = harness.adapter()
        disk.short_writes, disk.sync_seconds = 0.5, 0.02
        await harness.settle(adapter)
        writers = harness.start_writers(2)
        began = harness.runtime.now()
        await harness.runtime.sleep(2.0)
        await harness.stop_writers(writers)
        assert disk.busy_seconds > 0.5
        assert 10 < len(harness.acknowledged) < 2 * (harness.runtime.now() - began) / 0.02
        harness.crash(VICTIM)
        harness.restart(VICTIM)
        await harness.settle(adapter)
        await harness.check_everything()

    harness.loop.run(story())


@pytest.mark.parametrize("operation", ["fdatasync", "fsync", "pwrite", "create", "open", "pread", "replace"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_one_call_that_fails_loses_nothing_over_a_loss_of_power(operation: str, error: int) -> None:
    harness = Harness(3, segments=2, seed=error, settings=SETTINGS)
    harness.steady = False
    disk = harness.cluster.hosts[VICTIM].storage

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers(2)
        await harness.runtime.sleep(0.2)
        disk.fault = fail(error, operation)
        await harness.runtime.sleep(0.5)
        harness.crash(VICTIM)
        restart_until_it_runs(harness)
        await harness.settle(adapter)
        await harness.stop_writers(writers)
        await harness.write(6)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())
