"""The event log: numbering and bound."""

from __future__ import annotations

from rota.services.event_log import EventLog


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
