"""The event log: numbering, bound, following."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from agent.event_log import EventLog


def log_with(count: int, kept: int = 10) -> EventLog:
    log = EventLog(kept, clock=lambda: 5.0)
    for number in range(count):
        log.add("view", f"event {number}")
    return log


async def test_events_are_numbered_from_one() -> None:
    assert [event["number"] for event in log_with(3).after(0)] == [1, 2, 3]
    assert log_with(3).after(2)[0]["text"] == "event 2"


async def test_only_the_last_are_kept() -> None:
    assert [event["number"] for event in log_with(5, kept=2).after(0)] == [4, 5]


async def test_a_follower_gets_old_and_new_events() -> None:
    log = log_with(1)
    seen: list[int] = []

    async def follow() -> None:
        async for event in log.follow(0):
            seen.append(event["number"])  # noqa: PERF401 - the loop never ends

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        assert seen == [1]
        log.add("plan", "made")
        log.add("plan", "done")
        await wait_all_tasks_blocked()
        assert seen == [1, 2, 3]
        nursery.cancel_scope.cancel()
