"""One document for each epoch, in every run of three layout servers up to a bound, and what breaks that is found.

What is explored, and what is left out, says `layout_explorer`.
"""

from __future__ import annotations

import pytest

from datastore_adapter.log.layout.server import LayoutServer
from datastore_adapter.log.messages import HostIdentity
from tests.budget import budgeted
from tests.datastore_adapter.layout_explorer import Bounds, Explored, explore

ADDRESSES = frozenset({"stop", "take over"})
AMNESIA = frozenset({"stop", "start empty"})


def holds(bounds: Bounds, states: int) -> None:
    """Nothing is wrong, and the exploration is as wide as it was."""
    explored = explore(bounds)
    assert explored.two_decided is None
    assert explored.states >= states
    assert explored.decided


def test_one_after_the_other() -> None:
    """Whatever becomes of the first, wherever it stops."""
    holds(Bounds(faults=0, cuts=0), 200)


@pytest.mark.slow("2000 states")
def test_one_in_the_middle_of_the_other() -> None:
    holds(Bounds(faults=0, cuts=0, switches=2), 1500)


@pytest.mark.parametrize(
    "bounds", budgeted([Bounds(faults=2, cuts=0), Bounds(faults=1, cuts=1, kinds=AMNESIA)], 1)
)
def test_servers_that_stop_and_return_emptied_or_at_the_address_of_another(bounds: Bounds) -> None:
    """Or a link is cut, before or after a request has arrived."""
    holds(bounds, 10_000)


def found(explored: Explored, *kinds: str) -> None:
    assert explored.two_decided is not None
    assert {action[0] for action in explored.two_decided} >= set(kinds)


def test_it_finds_one_server_that_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at who is meant, as in version 0.1: one that has the address of another votes as both."""
    monkeypatch.setattr(HostIdentity, "is_meant_by", lambda self, meant: True)
    found(explore(Bounds(faults=2, cuts=0, kinds=ADDRESSES)), "take over")


def test_it_finds_a_server_that_forgot_its_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the disk: one that comes back empty votes again."""
    monkeypatch.setattr(
        HostIdentity, "is_meant_by", lambda self, meant: meant is None or meant.host == self.host
    )
    vote = LayoutServer._no_vote

    def whatever_the_disk(server: LayoutServer, epoch: int) -> object:
        if server.document is not None:
            monkeypatch.setattr(server, "_disk", server.document.disks[server._name])
        return vote(server, epoch)

    monkeypatch.setattr(LayoutServer, "_no_vote", whatever_the_disk)
    found(explore(Bounds(faults=2, cuts=0, kinds=AMNESIA)), "start empty")
