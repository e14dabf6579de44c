"""Changes: a slow subscriber gets everything that matters in one piece, and memory stays bounded."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.runtime.change_feed import Change, ChangeFeed, ClusterState, ClusterStatus

CLUSTER = bytes(range(16))


def member(number: int, incarnation: int = 0) -> Member:
    return Member(f"node-{number}", "10.0.0.1", 1000 + number, bytes([number, incarnation]) + bytes(14))


class Script:
    """A cluster whose views the test decides, and the names it should contain."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.view = Configuration.found(member(0), CLUSTER, 3)
        self.state.publish(view=self.view, status=ClusterStatus.MEMBER, quorum=True)

    def present(self, number: int) -> Member | None:
        return self.view.member(f"node-{number}")

    def step(
        self,
        joins: tuple[Member, ...] = (),
        left: tuple[int, ...] = (),
        failed: tuple[int, ...] = (),
        evicted: tuple[int, ...] = (),
    ) -> None:
        gone_left = tuple(self.view.members[self._index(number)] for number in left)
        gone_failed = tuple(self.view.members[self._index(number)] for number in failed)
        gone_evicted = tuple(self.view.members[self._index(number)] for number in evicted)
        self.view = self.view.apply(make_cut(joins, gone_left, (*gone_failed, *gone_evicted)))
        self.state.publish(view=self.view, left=gone_left, failed=gone_failed, evicted=gone_evicted)

    def _index(self, number: int) -> int:
        index = self.view.index_of(f"node-{number}")
        assert index is not None
        return index


def make_cut(joins: tuple[Member, ...], left: tuple[Member, ...], failed: tuple[Member, ...]) -> Cut:
    return Cut.of(
        joins,
        [Removal(gone.incarnation, True) for gone in left] + [Removal(gone.incarnation) for gone in failed],
    )


def names(members: tuple[Member, ...]) -> list[str]:
    return sorted(each.name for each in members)


async def take(feed: ChangeFeed) -> Change:
    with trio.fail_after(1):
        return await feed.__anext__()


async def test_the_first_change_is_the_whole_view() -> None:
    script = Script()
    script.step(joins=(member(1), member(2)))
    change = await take(script.state.subscribe())
    assert names(change.joined) == ["node-0", "node-1", "node-2"]
    assert change.view is script.view
    assert change.previous is None
    assert change.quorum


async def test_each_view_change_is_one_change() -> None:
    script = Script()
    feed = script.state.subscribe()
    await take(feed)
    script.step(joins=(member(1), member(2), member(3)))
    assert names((await take(feed)).joined) == ["node-1", "node-2", "node-3"]
    script.step(left=(1,), failed=(2,))
    change = await take(feed)
    assert (names(change.left), names(change.failed)) == (["node-1"], ["node-2"])
    assert change.previous is not None
    assert len(change.previous.members) == 4


async def test_what_a_slow_subscriber_missed_is_merged() -> None:
    script = Script()
    script.step(joins=(member(1), member(2), member(3)))
    feed = script.state.subscribe()
    await take(feed)
    script.step(joins=(member(4),), left=(1,))
    script.step(joins=(member(5),), failed=(4,))
    script.step(joins=(member(2, incarnation=1),), failed=(2,))
    change = await take(feed)
    assert change.view is script.view
    assert names(change.joined) == ["node-5"]
    assert names(change.left) == ["node-1"]
    assert change.failed == ()
    assert change.updated == (member(2, incarnation=1),)


async def test_b20_evicted_is_neither_left_nor_failed() -> None:
    script = Script()
    script.step(joins=(member(1), member(2), member(3)))
    feed = script.state.subscribe()
    await take(feed)
    script.step(left=(1,), failed=(2,), evicted=(3,))
    change = await take(feed)
    assert [names(change.left), names(change.failed), names(change.evicted)] == [
        ["node-1"],
        ["node-2"],
        ["node-3"],
    ]


async def test_one_who_left_came_back_and_failed_has_failed() -> None:
    script = Script()
    script.step(joins=(member(1),))
    feed = script.state.subscribe()
    await take(feed)
    script.step(left=(1,))
    script.step(joins=(member(1, incarnation=1),))
    script.step(failed=(1,))
    change = await take(feed)
    assert (names(change.left), names(change.failed)) == ([], ["node-1"])


async def test_losing_and_regaining_the_quorum_is_told_unless_nobody_looked() -> None:
    script = Script()
    feed = script.state.subscribe()
    await take(feed)
    script.state.publish(quorum=False)
    change = await take(feed)
    assert not change.quorum
    assert change.joined == change.failed == ()
    script.state.publish(quorum=True)
    script.state.publish(quorum=False)
    with trio.move_on_after(0.01) as nothing_new:
        await feed.__anext__()
    assert nothing_new.cancelled_caught


@pytest.mark.parametrize("status", [ClusterStatus.LEFT, ClusterStatus.EVICTED])
async def test_the_iteration_ends_after_the_final_status(status: ClusterStatus) -> None:
    script = Script()
    seen: list[ClusterStatus] = []

    async def listen() -> None:
        async for change in script.state.subscribe():
            seen.append(change.status)  # noqa: PERF401 - a comprehension would show nothing while it runs

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        script.state.publish(status=status)
    assert seen == [ClusterStatus.MEMBER, status]


async def test_a_dropped_feed_is_forgotten() -> None:
    script = Script()
    feed = script.state.subscribe()
    assert len(script.state._present()) == 1
    del feed
    assert script.state._present() == []


@given(st.data())
def test_merged_deltas_lead_from_one_view_to_the_next(data: st.DataObject) -> None:
    """Twin: replaying every change over a dict gives the view, whenever the subscriber looks."""

    async def play() -> None:
        script = Script()
        feed = script.state.subscribe()
        mirror: dict[str, Member] = {}
        incarnation = 0
        for _ in range(data.draw(st.integers(1, 12))):
            numbers = range(1, 6)
            inside = [number for number in numbers if script.present(number) is not None]
            joining = data.draw(st.lists(st.sampled_from(numbers), unique=True, max_size=3))
            gone = [number for number in inside if number in joining or data.draw(st.booleans())]
            willing = tuple(number for number in gone if data.draw(st.booleans()))
            incarnation += 1
            joins = tuple(member(number, incarnation) for number in joining)
            if not joins and not gone:
                continue
            script.step(joins, willing, tuple(number for number in gone if number not in willing))
            assert len(feed._departures) <= 6
            if data.draw(st.booleans()):
                replay(mirror, await take(feed))
                assert mirror == {each.name: each for each in script.view.members}

    trio.run(play)


def replay(mirror: dict[str, Member], change: Change) -> None:
    for each in (*change.left, *change.failed):
        del mirror[each.name]
    for each in change.joined:
        assert each.name not in mirror
        mirror[each.name] = each
    for each in change.updated:
        assert each.name in mirror
        mirror[each.name] = each
