"""A slow or stuck subscriber, on all three facades: the latest view wins, deltas are merged, memory is bounded,
and the protocol never waits for it."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import membership
from membership import Change, Configuration, Member
from membership.protocol.view.cut import Cut, Removal
from membership.runtime.change_feed import ClusterState, ClusterStatus, Subscription
from tests.membership.facades import FACADES, PATIENCE, Facade

CLUSTER = bytes(range(16))
MEMBERS = 4


def member(number: int, incarnation: int) -> Member:
    return Member(
        f"node-{number}",
        "10.0.0.1",
        1000 + number,
        bytes([number]) + incarnation.to_bytes(8, "big") + bytes(7),
    )


class Churn:
    """Views that follow each other: at every step one of the members leaves or fails, and another comes back."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.view = Configuration.found(member(0, 0), CLUSTER, 3)
        self.view = self.view.apply(Cut.of([member(number, 0) for number in range(1, MEMBERS)]))
        self.state.publish(view=self.view, status=ClusterStatus.MEMBER, quorum=True)
        self.steps = 0

    def step(self, number: int, willing: bool) -> None:
        """The member goes, or comes back if it is gone."""
        self.steps += 1
        gone = self.view.member(f"node-{number}")
        if gone is None:
            self.view = self.view.apply(Cut.of([member(number, self.steps)]))
            self.state.publish(view=self.view)
            return
        self.view = self.view.apply(Cut.of([], [Removal(gone.incarnation, willing)]))
        self.state.publish(view=self.view, left=[gone] if willing else [], failed=[] if willing else [gone])


FEEDS: dict[str, Any] = {
    "trio": membership.ChangeFeed,
    "asyncio": membership.aio.ChangeFeed,
    "threads": membership.blocking.ChangeFeed,
}


@pytest.fixture(params=FEEDS)
def feed_class(request: pytest.FixtureRequest) -> Any:
    return FEEDS[request.param]


def views_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Configuration) for each in gc.get_objects())


@pytest.mark.slow("two thousand views")
def test_a_stuck_subscriber_costs_two_views_however_many_pass(feed_class: type[Subscription]) -> None:
    churn = Churn()
    feed = feed_class(churn.state)
    assert feed.take() is not None
    before = views_alive()
    for step in range(2000):
        churn.step(1 + step // 2 % (MEMBERS - 1), willing=step % 4 == 0)
        assert len(feed._departures) < MEMBERS
    assert views_alive() <= before + 1  # the one told, and the latest
    change = feed.take()
    assert change is not None
    assert change.view is churn.view
    assert {each.name for each in change.updated} == {f"node-{number}" for number in range(1, MEMBERS)}
    assert feed.take() is None


@given(st.lists(st.tuples(st.integers(1, MEMBERS - 1), st.booleans(), st.booleans()), max_size=30))
def test_merged_changes_lead_from_view_to_view_on_every_facade(steps: list[tuple[int, bool, bool]]) -> None:
    """Twin: replaying over a dict what was taken gives the view, whenever the subscriber looks."""
    churn = Churn()
    for kind in FEEDS.values():
        feed: Subscription = kind(churn.state)
        mirror: dict[str, Member] = {}
        for number, willing, looks in [(1, True, True), *steps, (2, False, True)]:
            churn.step(number, willing)
            if looks and (change := feed.take()) is not None:
                replay(mirror, change)
                assert mirror == {each.name: each for each in churn.view.members}


def replay(mirror: dict[str, Member], change: Change) -> None:
    for each in (*change.left, *change.failed):
        del mirror[each.name]
    for each in change.joined:
        assert mirror.setdefault(each.name, each) is each
    for each in change.updated:
        assert mirror[each.name] != each
        mirror[each.name] = each


def test_a_subscription_that_nobody_holds_is_forgotten(feed_class: type[Subscription]) -> None:
    churn = Churn()
    feed = feed_class(churn.state)
    for _ in range(100):
        feed_class(churn.state)
    assert churn.state._present() == [feed]
    assert len(churn.state._subscriptions) == 1


def test_a_thread_that_takes_while_views_pass_misses_nothing() -> None:
    churn = Churn()
    feed = membership.blocking.ChangeFeed(churn.state)
    mirror: dict[str, Member] = {}
    epochs: list[int] = []

    def listen() -> None:
        for change in feed:
            replay(mirror, change)
            epochs.append(change.view.epoch)

    thread = threading.Thread(target=listen)
    thread.start()

    async def publish() -> None:  # a state belongs to a trio run
        for step in range(3000):
            churn.step(1 + step // 2 % (MEMBERS - 1), willing=step % 3 == 0)
        churn.state.end()

    trio.run(publish)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert epochs == sorted(set(epochs))
    assert mirror == {each.name: each for each in churn.view.members}


# With real members


@pytest.mark.socket
@pytest.mark.parametrize("facade", FACADES, ids=str)
def test_while_a_subscriber_is_stuck_views_go_on_and_then_it_gets_one_change(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join(name="ada") as ada:
            stuck = ada.changes()
            await stuck.__anext__()
            async with facade.join(str(ada.me.address), name="ben"):
                for _ in range(5):
                    async with facade.join(str(ada.me.address), name="cleo") as cleo:
                        await cleo.wait_for(lambda view: len(view.members) == 3, PATIENCE)
                    await ada.wait_for(lambda view: len(view.members) == 2, PATIENCE)
                assert ada.view.epoch == 11
                change = await stuck.__anext__()
                assert change.view.epoch == 11
                assert [each.name for each in change.joined] == ["ben"]
                assert change.left == change.failed == change.updated == ()

    facade.run(body)


def test_a_stuck_asyncio_task_does_not_hold_up_another() -> None:
    churn = Churn()

    async def main() -> None:
        stuck, quick = membership.aio.ChangeFeed(churn.state), membership.aio.ChangeFeed(churn.state)
        await stuck.__anext__()
        for step in range(10):
            await quick.__anext__()
            churn.step(1, willing=step % 2 == 0)
        assert (await stuck.__anext__()).previous is not None

    asyncio.run(main(), debug=True)
