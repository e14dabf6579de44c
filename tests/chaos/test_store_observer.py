"""What is made of the agents' answers: who is settled, what is broken, how many plans there were in each view."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.store import observer
from chaos.store.observer import Observer

RACKS = {"n0": "r1", "n1": "r2", "n2": "r3", "n3": "r1"}


def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"number": number, "time": 100.0 + number, "kind": kind, "text": f"{kind} {data}", "data": data}


def layout(epoch: int, *chains: tuple[str, ...]) -> dict[str, Any]:
    return {
        "layout_epoch": epoch,
        "segments": [
            {"replicas": [{"host": host, "state": "in_sync"} for host in chain]} for chain in chains
        ],
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], dict[str, Any]]:
    """What each agent answers; who is not in it is silent."""
    given: dict[tuple[str, str], dict[str, Any]] = {}
    monkeypatch.setattr(observer, "_get", lambda api, path: given.get((api, path)))
    return given


def test_the_controller_s_word_is_taken_and_each_plan_belongs_to_its_view(
    answers: dict[tuple[str, str], dict[str, Any]],
) -> None:
    rounds = []
    watching = Observer(rounds.append)
    for name in RACKS:
        watching.ask(name, name)
    standby = {"settled": True, "view_epoch": 9}
    answers["n0", "/v1/status"] = {"name": "n0", "controller": "n1", "control": standby}
    acting = {"settled": True, "view_epoch": 4}
    answers["n1", "/v1/status"] = {"name": "n1", "controller": "n1", "control": acting}
    answers["n1", "/v1/layout"] = layout(7, ("n0", "n1", "n2"), ("n0", "n3", "n2"))
    happened = [
        event(1, "view", epoch=3),
        event(2, "plan", agreed_as="p1"),
        event(3, "step-started"),
        event(4, "view", epoch=4),
        event(5, "plan", agreed_as="p2"),
        event(6, "plan", agreed_as="p2"),
        event(7, "plan", agreed_as="p3"),
    ]
    answers["n1", "/v1/events?local=1"] = {"events": happened}
    assert not watching.placing
    watching.look()
    watching.look()
    assert watching.placing
    assert rounds == [watching, watching]
    assert watching.settled(4)
    assert not watching.settled(9), "only the controller's word counts"
    assert watching.controller == "n1"
    assert watching.plans() == {3: 1, 4: 2}
    assert watching.broken_segments(RACKS, 3) == 1, "the second has two copies in one rack"
    assert watching.broken_segments({**RACKS, "n4": "r2"}, 3) == 1
    del answers["n1", "/v1/status"]
    watching.look()
    assert not watching.settled(4), "who is silent says nothing"
    assert next(text for _, text in watching.story) == happened[0]["text"]
