"""When a member sends its own alerts: what happens together is reported together, nothing waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.address import Address
from membership.protocol.context.loop_lag import LoopLag
from membership.protocol.cut_detection.alert_batch import AlertBatch
from membership.protocol.view.member import Member
from membership.settings import Settings

SETTINGS = Settings()
JOINERS = [
    Member.create(f"n{i}", Address("10.0.0.1", 1000 + i), i.to_bytes(16, "big"), {}) for i in range(150)
]


def flushed_at(members: int, arrivals: list[float]) -> list[tuple[float, int]]:
    """When batches of joins were sent, and how many were in each, with a member that is never late."""
    batch = AlertBatch(SETTINGS, members, LoopLag())
    flushes: list[tuple[float, int]] = []

    def flush(until: float) -> None:
        while batch.deadline <= until:
            now = batch.deadline
            flushes.append((now, len(batch.take_due(now))))

    for number, now in enumerate(arrivals):
        flush(now)
        batch.add_join(JOINERS[number], 1, now)
    flush(arrivals[-1] + 10.0)
    return flushes


@pytest.mark.parametrize(
    ("members", "cap"),
    [(16, 4 * SETTINGS.join_batch_cap), (200, SETTINGS.join_batch_cap)],
    ids=["a wave", "a few"],
)
def test_a_wave_larger_than_the_cluster_is_awaited_four_times_as_long(members: int, cap: float) -> None:
    steady = [number * 0.02 for number in range(150)]
    first, _ = flushed_at(members, steady)[0]
    assert first == pytest.approx(cap)


def test_a_wave_that_ends_is_not_awaited() -> None:
    (only,) = flushed_at(16, [number * 0.001 for number in range(150)])
    assert only == (pytest.approx(0.149 + SETTINGS.join_batch_quiet), 150)


@given(
    members=st.integers(2, 60),
    gaps=st.lists(st.floats(min_value=0.0, max_value=0.3), min_size=1, max_size=80),
)
def test_every_joiner_is_reported_once_and_within_the_cap(members: int, gaps: list[float]) -> None:
    arrivals: list[float] = []
    for gap in gaps:
        arrivals.append((arrivals[-1] if arrivals else 0.0) + gap)
    flushes = flushed_at(members, arrivals)
    assert sum(count for _, count in flushes) == len(arrivals)
    reported = 0
    for now, count in flushes:
        oldest, newest = arrivals[reported], arrivals[reported + count - 1]
        longest = 4 if count > members else 1
        assert (
            newest
            <= now
            <= min(newest + SETTINGS.join_batch_quiet, oldest + longest * SETTINGS.join_batch_cap) + 1e-9
        )
        reported += count
