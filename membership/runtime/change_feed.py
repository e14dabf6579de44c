"""The feed of changes: what an application hears of its cluster, merged for subscribers that are slow.

A subscription keeps no queue. While its subscriber is busy, whatever happens is merged into the one change it takes
next: the latest view always wins, and memory is bounded by the size of two views. How a subscriber waits differs
between trio, asyncio and threads; what it is given does not. A subscription may be read in any thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import trio

from membership.errors import MembershipError
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member


class MembershipEndedError(MembershipError):
    """This process's membership is over, so there is nothing to wait for or to ask. The cause is chained
    when it ended by a failure; call `join` again to come back."""


class ClusterStatus(StrEnum):
    """This process's place in its cluster."""

    JOINING = "joining"
    """Not in yet."""
    MEMBER = "member"
    """In."""
    REJOINING = "rejoining"
    """The others evicted this process; it is joining again as a new incarnation."""
    EVICTED = "evicted"
    """The others evicted this process, and it stays out: `rejoin=False`, or an operator wanted it out."""
    LEAVING = "leaving"
    """Leaving, not yet agreed."""
    LEFT = "left"
    """It has left, as it asked to."""


class Departure(StrEnum):
    """How a member went, unless it failed."""

    LEFT = "left"
    EVICTED = "evicted"


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
    """Members that left, as they asked to."""
    evicted: tuple[Member, ...] = ()
    """Removed by an operator's command."""
    failed: tuple[Member, ...] = ()
    """Found faulty and removed by the others; or gone, and how is not known, as this process was itself cut off then
    and has come back, or `rota recover` went on without them."""
    updated: tuple[Member, ...] = ()
    """Same name, another record: a new incarnation (the process was restarted) or other metadata."""
    previous: Configuration | None = None
    """The view of the previous change; None in the first."""


def compare(
    base: Configuration | None,
    view: Configuration,
    departures: Mapping[str, Departure],
    status: ClusterStatus,
    quorum: bool,
) -> Change:
    """The change from `base` to `view`; of the members that are gone, those not in `departures` failed."""
    before = {} if base is None else {member.name: member for member in base.members}
    gone = [member for name, member in before.items() if view.member(name) is None]
    present = [(member, before.get(member.name)) for member in view.members]
    return Change(
        view=view,
        status=status,
        quorum=quorum,
        joined=tuple(member for member, earlier in present if earlier is None),
        left=tuple(member for member in gone if departures.get(member.name) is Departure.LEFT),
        evicted=tuple(member for member in gone if departures.get(member.name) is Departure.EVICTED),
        failed=tuple(member for member in gone if member.name not in departures),
        updated=tuple(member for member, earlier in present if earlier is not None and earlier != member),
        previous=base,
    )


class ClusterState:
    """Latest view, status and quorum of this process: written by the driver, read by subscriptions and waiters."""

    def __init__(self) -> None:
        self.view: Configuration | None = None
        self.status = ClusterStatus.JOINING
        self.quorum = False
        self.ended = False
        self.failure: BaseException | None = None
        self._subscriptions: list[weakref.ref[Subscription]] = []
        self._changed = trio.Event()
        # Held for assignments only, never while a listener's code runs: the protocol does not wait for it.
        self.lock = threading.Lock()

    def publish(
        self,
        *,
        view: Configuration | None = None,
        status: ClusterStatus | None = None,
        quorum: bool | None = None,
        left: Iterable[Member] = (),
        evicted: Iterable[Member] = (),
        failed: Iterable[Member] = (),
    ) -> None:
        """Set what is given and wake whoever waits. `left`, `evicted`, `failed`: who went how in this step."""
        with self.lock:
            self.view = self.view if view is None else view
            self.status = self.status if status is None else status
            self.quorum = self.quorum if quorum is None else quorum
            subscriptions = self._present()
            for subscription in subscriptions:
                subscription.note(left, evicted, failed)
        self._wake(subscriptions)

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing more will be published: who waits is told so. `failure`: what ended it, if it was one."""
        with self.lock:
            self.ended = True
            self.failure = self.failure if failure is None else failure
            subscriptions = self._present()
        self._wake(subscriptions)

    def check(self) -> None:
        """Raises MembershipEndedError when a failure ended this process's membership."""
        if self.failure is not None:
            raise MembershipEndedError(f"membership has failed: {self.failure!r}") from self.failure

    def subscribe(self) -> ChangeFeed:
        """A new feed; it needs no closing, dropping it is enough."""
        return ChangeFeed(self)

    def add(self, subscription: Subscription) -> None:
        """Tell this one too, for as long as somebody holds it."""
        with self.lock:
            self._subscriptions = [weakref.ref(each) for each in (*self._present(), subscription)]

    async def wait_until(self, condition: Callable[[ClusterState], bool]) -> None:
        """Return when `condition` holds."""
        await trio.lowlevel.checkpoint()
        while not condition(self):
            await self._changed.wait()

    def _present(self) -> list[Subscription]:
        """The subscriptions that somebody still holds. With the lock."""
        found = [each for reference in self._subscriptions if (each := reference()) is not None]
        if len(found) < len(self._subscriptions):
            self._subscriptions = [weakref.ref(each) for each in found]
        return found

    def _wake(self, subscriptions: Iterable[Subscription]) -> None:
        for subscription in subscriptions:
            subscription.wake()
        self._changed.set()
        self._changed = trio.Event()


class Subscription:
    """What one listener was told, and what it has missed since; a facade adds how to wait."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._told: tuple[Configuration, ClusterStatus, bool] | None = None
        self._departures: dict[str, Departure] = {}
        state.add(self)

    def wake(self) -> None:
        """There may be something to take. Called in the protocol's thread: must not wait, nor raise."""

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more. Raises MembershipEndedError when a failure is the reason."""
        self._state.check()
        return self._state.ended or self._state.status in FINAL_STATUSES

    def note(self, left: Iterable[Member], evicted: Iterable[Member], failed: Iterable[Member]) -> None:
        """Remember how members of the view told last went, so at most as many as it has. With the lock."""
        if self._told is None:
            return
        base = self._told[0]
        for members, departure in ((left, Departure.LEFT), (evicted, Departure.EVICTED)):
            self._departures.update(
                (member.name, departure) for member in members if base.member(member.name) is not None
            )
        for member in failed:
            self._departures.pop(member.name, None)

    def take(self) -> Change | None:
        """Everything since the last call as one change; None if there is nothing."""
        with self._state.lock:
            view, status, quorum = self._state.view, self._state.status, self._state.quorum
            if view is None or (view, status, quorum) == self._told:
                return None
            base = None if self._told is None else self._told[0]
            self._told = (view, status, quorum)
            departures, self._departures = self._departures, {}
        return compare(base, view, departures, status, quorum)


class ChangeFeed(Subscription):
    """One subscriber's changes: an asynchronous iterator. The first change holds the whole view as joined.

    It ends after the change that tells a final status (LEFT or EVICTED), or with the block of `join`. For
    one task at a time.
    """

    def __init__(self, state: ClusterState) -> None:
        self._news = trio.Event()
        super().__init__(state)

    def wake(self) -> None:
        """As in `Subscription`."""
        self._news.set()

    def __aiter__(self) -> ChangeFeed:
        return self

    async def __anext__(self) -> Change:
        """The next change, as soon as there is one. Raises MembershipEndedError after a failure."""
        await trio.lowlevel.checkpoint()
        while (change := self.take()) is None:
            if self.ended:
                raise StopAsyncIteration
            self._news = trio.Event()
            await self._news.wait()
        return change
