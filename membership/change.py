"""Changes: what an application hears of its cluster, merged for those who listen slowly.

What it is: one value per change, and a feed per subscriber that keeps no queue: while a subscriber is
busy, whatever happens is merged into the one change it gets next, so that the latest view always wins
and memory stays bounded by the size of two views.
What it is not: a log of events (see `Cluster.statistics` for counts), nor the views' agreement.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

import trio

from membership.configuration import Configuration
from membership.member import Member


class ClusterStatus(StrEnum):
    """This process's place in its cluster."""

    JOINING = "joining"
    """Not in yet."""
    MEMBER = "member"
    """In."""
    REJOINING = "rejoining"
    """The others evicted this process; it is joining again as a new incarnation."""
    EVICTED = "evicted"
    """The others evicted this process, and it stays out (`rejoin=False`)."""
    LEAVING = "leaving"
    """Leaving, not yet agreed."""
    LEFT = "left"
    """Out, at its own wish."""


FINAL_STATUSES = (ClusterStatus.EVICTED, ClusterStatus.LEFT)


@dataclass(frozen=True, slots=True)
class Change:
    """What is different since the previous change this subscriber was given.

    The members are compared with that previous change's view, however many views lie between.
    """

    view: Configuration
    """The latest view. While the status is not MEMBER it may be out of date."""
    status: ClusterStatus
    """This process's place in the cluster."""
    quorum: bool
    """False while no majority is within reach, so that the view may be out of date."""
    joined: tuple[Member, ...] = ()
    """In the view now, and not before."""
    left: tuple[Member, ...] = ()
    """Gone at their own wish."""
    failed: tuple[Member, ...] = ()
    """Removed by the others."""
    updated: tuple[Member, ...] = ()
    """Same name, another record: a new incarnation (the process was restarted) or other metadata."""
    previous: Configuration | None = None
    """The view of the previous change; None in the first."""


def compare(
    base: Configuration | None,
    view: Configuration,
    left: Collection[str],
    status: ClusterStatus,
    quorum: bool,
) -> Change:
    """The change from `base` to `view`; of the members that are gone, those in `left` went willingly."""
    before = {} if base is None else {member.name: member for member in base.members}
    gone = [member for name, member in before.items() if view.member(name) is None]
    present = [(member, before.get(member.name)) for member in view.members]
    return Change(
        view=view,
        status=status,
        quorum=quorum,
        joined=tuple(member for member, earlier in present if earlier is None),
        left=tuple(member for member in gone if member.name in left),
        failed=tuple(member for member in gone if member.name not in left),
        updated=tuple(member for member, earlier in present if earlier is not None and earlier != member),
        previous=base,
    )


class ClusterState:
    """Latest view, status and quorum of this process: written by the shell, read by feeds and waiters."""

    def __init__(self) -> None:
        self.view: Configuration | None = None
        self.status = ClusterStatus.JOINING
        self.quorum = False
        self._feeds: weakref.WeakSet[ChangeFeed] = weakref.WeakSet()
        self._changed = trio.Event()

    def publish(
        self,
        *,
        view: Configuration | None = None,
        status: ClusterStatus | None = None,
        quorum: bool | None = None,
        left: Iterable[Member] = (),
        failed: Iterable[Member] = (),
    ) -> None:
        """Set what is given and wake whoever waits. `left` and `failed`: who went, and how, in this step."""
        self.view = self.view if view is None else view
        self.status = self.status if status is None else status
        self.quorum = self.quorum if quorum is None else quorum
        for feed in self._feeds:
            feed.notify(left, failed)
        self._changed.set()
        self._changed = trio.Event()

    def subscribe(self) -> ChangeFeed:
        """A new feed; it needs no closing, dropping it is enough."""
        feed = ChangeFeed(self)
        self._feeds.add(feed)
        return feed

    async def wait_until(self, condition: Callable[[ClusterState], bool]) -> None:
        """Return when `condition` holds."""
        await trio.lowlevel.checkpoint()
        while not condition(self):
            await self._changed.wait()


class ChangeFeed:
    """One subscriber's changes: an asynchronous iterator. The first change holds the whole view as joined.

    It ends after the change that tells a final status (LEFT or EVICTED). For one task at a time.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._told: tuple[Configuration, ClusterStatus, bool] | None = None
        self._left: dict[str, None] = {}
        self._news = trio.Event()

    def __aiter__(self) -> ChangeFeed:
        return self

    async def __anext__(self) -> Change:
        """The next change, as soon as there is one."""
        await trio.lowlevel.checkpoint()
        while (change := self._take()) is None:
            if self._state.status in FINAL_STATUSES:
                raise StopAsyncIteration
            self._news = trio.Event()
            await self._news.wait()
        return change

    def notify(self, left: Iterable[Member], failed: Iterable[Member]) -> None:
        """There is news. Remembers how members of the view told last went, so at most as many as it has."""
        if self._told is not None:
            base = self._told[0]
            self._left.update((member.name, None) for member in left if base.member(member.name) is not None)
            for member in failed:
                self._left.pop(member.name, None)
        self._news.set()

    def _take(self) -> Change | None:
        state = self._state
        if state.view is None:
            return None
        now = (state.view, state.status, state.quorum)
        if now == self._told:
            return None
        base = None if self._told is None else self._told[0]
        change = compare(base, state.view, self._left, state.status, state.quorum)
        self._told = now
        self._left = {}
        return change
