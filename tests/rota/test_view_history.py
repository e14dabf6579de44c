"""The timeline: gathered from the members, of many only from some, and no member can spoil it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rota.errors import ApiError
from rota.services.asking_members import ANSWER_TIMEOUT, KEPT, chosen
from rota.services.event_log import EventLog
from rota.services.view_history import MEMBERS_ASKED, ViewHistory, checked_views, own_views


@dataclass(frozen=True)
class Named:
    name: str


def view(epoch: int, time: float = 1.0) -> dict[str, Any]:
    return {"time": time, "epoch": epoch, "id": f"{epoch:032x}", "size": 3}


def cluster_of(*names: str) -> Any:
    members = [Named(name) for name in names]
    return SimpleNamespace(view=SimpleMembers(members))


class SimpleMembers(SimpleNamespace):
    def __init__(self, members: list[Named]) -> None:
        super().__init__(members=members, id=b"view")

    def __len__(self) -> int:
        return len(self.members)


def log() -> EventLog:
    events = EventLog(clock=lambda: 5.0)
    events.add("plan", "not a view")
    events.add("view", "view 2", {**view(2), "joined": ["n1"]})
    return events


def test_own_views_are_those_of_the_event_log() -> None:
    assert own_views(log()) == [view(2, 5.0)]


async def test_everybody_is_asked_and_silence_is_no_error(autojump_clock: MockClock) -> None:
    async def ask(member: Any) -> dict[str, Any]:
        if member.name == "n3":
            await trio.sleep_forever()
        if member.name == "n4":
            raise ApiError("gone", code="unreachable")
        if member.name == "n5":
            return {"views": [{"epoch": "1"}]}
        return {"views": [view(2, 6.0)]}

    began = trio.current_time()
    told = await ViewHistory("n1", log()).gather(cluster_of("n1", "n2", "n3", "n4", "n5"), ask)
    assert trio.current_time() - began == pytest.approx(ANSWER_TIMEOUT)
    assert told == {
        "size": 5,
        "asked": 5,
        "silent": ["n3", "n4", "n5"],
        "members": {"n1": [view(2, 5.0)], "n2": [view(2, 6.0)]},
    }


async def test_several_consoles_cost_no_more_than_one(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    async def ask(member: Any) -> dict[str, Any]:
        asked.append(member.name)
        await trio.sleep(0.1)
        return {"views": []}

    history = ViewHistory("n1", log())
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(history.gather, cluster_of("n1", "n2"), ask)
    assert asked == ["n2"]
    await trio.sleep(KEPT)
    await history.gather(cluster_of("n1", "n2"), ask)
    assert asked == ["n2", "n2"]


def test_of_many_some_are_asked_evenly_chosen_and_the_same_ones_each_time() -> None:
    members: list[Any] = [Named(f"n{index}") for index in range(1000)]
    some = chosen(members, MEMBERS_ASKED - 1)
    assert len(some) == len(set(some)) == MEMBERS_ASKED - 1
    assert some == chosen(members, MEMBERS_ASKED - 1)
    assert members.index(some[-1]) > 980
    assert chosen(members[:5], MEMBERS_ASKED - 1) == members[:5]


@pytest.mark.parametrize("answer", [None, {}, "views", [1], [{**view(1), "epoch": "1"}], [{"epoch": 1}]])
def test_an_answer_that_is_none(answer: Any) -> None:
    with pytest.raises(ApiError):
        checked_views(answer)


def test_an_answer_is_bounded() -> None:
    assert len(checked_views([view(epoch) for epoch in range(5000)])) == 200
    assert len(checked_views([{**view(1), "id": "x" * 9999}])[0]["id"]) == 64
