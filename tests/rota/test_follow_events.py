"""Following the events goes on when another agent becomes the controller, without repeating anything."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

from trio.testing import MockClock

from rota.agent.node_api import NodeApi
from rota.services.event_log import EventLog
from rota.services.former_members import FormerMembers
from rota.services.host_monitor import HostMonitor
from rota.services.key_service import KeyService


class TwoControllers(NodeApi):
    """n1 tells of two events, then is gone; n2 has its own numbers and an older history of its own."""

    def __init__(self, tmp_path: Path) -> None:
        keys, former = KeyService("n9", None), FormerMembers(tmp_path / "former")
        super().__init__("n9", EventLog(), keys, former, HostMonitor(tmp_path))
        self.asked = 0

    async def events(self, after: int) -> dict[str, Any]:
        self.asked += 1
        name = "n1" if self.asked <= 2 else "n2"
        history = {"n1": [(1, 10.0), (2, 11.0)], "n2": [(1, 9.0), (2, 12.0), (3, 13.0)]}[name]
        events = [{"number": number, "time": time, "by": name} for number, time in history if number > after]
        return {"agent": name, "events": events}


async def test_a_follower_is_told_everything_once(autojump_clock: MockClock, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    async with aclosing(TwoControllers(tmp_path).follow(0)) as events:
        async for event in events:
            seen.append((event["by"], event["number"]))
            if len(seen) == 4:
                break
    assert seen == [("n1", 1), ("n1", 2), ("n2", 2), ("n2", 3)]
