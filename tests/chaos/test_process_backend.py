"""Scenarios on real agent processes, with faults injected in their transports."""

from __future__ import annotations

import pytest

import chaos
from chaos.slots.outcome import SlotsOutcome
from tests.budget import budgeted

pytestmark = [pytest.mark.socket, pytest.mark.slow("real agents, 15 to 20 s of real time each")]


def test_an_hours_jump_of_a_real_agents_clock_is_no_view_change() -> None:
    report = chaos.run("clock-jump", backend="process", nodes=5, faulty=2, duration=20.0)
    assert report.broken == ()
    assert report.sizes == (5,)
    assert (report.faulty_removed, report.healthy_removed) == (0, 0)


def test_crash_on_real_processes_is_one_view_change() -> None:
    report = chaos.run("crash", backend="process", nodes=8, faulty=2, duration=15.0)
    assert report.broken == ()
    assert report.sizes == (8, 6)
    assert (report.faulty_removed, report.healthy_removed, report.readded) == (2, 0, 0)
    document = report.to_json()
    assert document["backend"] == "process"
    assert document["cpu_seconds"] > 0
    assert document["bytes_per_node"]["mean"] > 0
    assert document["bytes_per_node"]["sent"]["max"] > 0
    seen = {size for _, _, size in report.samples}
    assert seen == {8, 6}
    hurt = {int(name.removeprefix("n")) for name in report.hurt}
    assert all(host not in hurt for seconds, host, _ in report.samples if seconds > 0)


@pytest.mark.parametrize("seed", budgeted(range(1, 6), 1))
def test_any_two_of_nine_real_agents_are_killed_at_once_and_nothing_is_lost(seed: int) -> None:
    """Longer than 10 s: nine agents with solvers, two of which have to be found dead, and all copies made again."""
    report = chaos.run("kill-two", backend="process", nodes=9, seed=seed)
    assert report.broken == ()
    assert report.store is not None
    assert report.store.acknowledged_writes > 100
    assert (report.store.lost_writes, report.store.unreadable_writes) == (0, 0)


@pytest.mark.sweep("the demo kills one, too")
def test_a_killed_sequencer_of_real_agents_loses_nothing() -> None:
    report = chaos.run("kill-sequencer", backend="process", seed=3, duration=20.0)
    assert report.broken == ()
    assert report.store is not None
    assert report.store.acknowledged_writes > 0
    assert report.store.lost_writes == 0


@pytest.mark.sweep("a minute each")
@pytest.mark.parametrize("scenario", ["disk-fails", "disk-slow", "disk-full"])
def test_one_disk_of_five_that_is_not_in_order_holds_nobody_up_for_long(scenario: str) -> None:
    """One sync that fails, one that takes 2 s each time, and a disk that refuses more though it seems to have room."""
    report = chaos.run(scenario, backend="process", nodes=5, seed=2)
    assert report.broken == ()
    assert report.store is not None
    assert report.store.longest_write_pause <= 10.0
    assert report.store.lost_writes == 0


@pytest.mark.engine
def test_a_crash_of_a_host_with_servers_of_valkey_leaves_every_slot_with_one_primary() -> None:
    """Longer than 5 s: eighteen processes, a host that has to be found dead, and every key read back."""
    report = chaos.run("crash", backend="process", store="valkey", duration=15.0)
    assert report.broken == ()
    store = report.store
    assert isinstance(store, SlotsOutcome)
    assert (store.violations, store.lost_writes, store.unreadable_writes) == ((), 0, 0)
    assert store.acknowledged_writes > 100
    assert store.repair_seconds is not None, "what was killed held a copy"
