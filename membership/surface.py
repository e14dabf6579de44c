"""What an application can ask of a cluster or an ensemble, under the same names in every facade.

What never waits is written here once, for trio (`membership.Cluster`), asyncio (`membership.aio.Cluster`) and
threads (`membership.blocking.Cluster`); likewise for `Ensemble`. What waits (`changes`, `wait_for`, `leave` and the
other commands) has the same name and arguments in each facade, awaited or blocking.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from membership.ensemble.voter import Voter
from membership.errors import MembershipError
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member
from membership.runtime.change_feed import ChangeFeed, ClusterState, ClusterStatus, MembershipEndedError
from membership.runtime.driver import Driver
from membership.transport.transport import Transport
from membership.wire.key_ring import KeyRing

_OBSERVING = (ClusterStatus.MEMBER, ClusterStatus.LEAVING)


class WaitTimeoutError(MembershipError, TimeoutError):
    """`wait_for` saw no view that met the condition in time. The view may still come to: wait again."""


class Surface:
    """What any facade can tell. Each raises MembershipEndedError once this process's part has failed."""

    def __init__(self, state: ClusterState) -> None:
        self._published = state

    @property
    def _state(self) -> ClusterState:
        self._published.check()
        return self._published


class ClusterSurface(Surface):
    """Readings of a member."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.state)
        self._driver = driver

    @property
    def view(self) -> Configuration:
        """The latest view this process knows: epoch, id, members in canonical order.

        While `status` is not MEMBER it may be out of date; the epoch is the fencing token.
        """
        view = self._state.view
        assert view is not None, "a Cluster exists only once there is a view"
        return view

    @property
    def me(self) -> Member:
        """This process as the others see it. The incarnation changes when it rejoins after an eviction."""
        self._published.check()
        me: Member = self._driver.core.me
        return me

    @property
    def subjects(self) -> tuple[Member, ...]:
        """The members this process observes at present; none while it is no member."""
        return self._driver.subjects() if self._state.status in _OBSERVING else ()

    @property
    def status(self) -> ClusterStatus:
        """This process's place in the cluster."""
        return self._state.status

    @property
    def quorum(self) -> bool:
        """False while no majority is within reach: then the view may be out of date and cannot change."""
        return self._state.quorum

    @property
    def founded(self) -> bool:
        """Whether this process founded the cluster, now or in an earlier incarnation: it was told to, or was chosen."""
        return self._driver.process.founded

    @property
    def refusal(self) -> str | None:
        """Why the cluster refused to let this process in again, if it did so for good."""
        return self._driver.process.refusal

    @property
    def evicted_by_operator(self) -> bool:
        """Whether it was an operator's command that evicted this process last, rather than a failure."""
        return self._driver.process.evicted_by_operator

    @property
    def cluster_id(self) -> bytes:
        """The cluster's identity, 16 bytes, drawn by its founder."""
        return self.view.cluster_id

    @property
    def keys(self) -> KeyRing | None:
        """The keys of this process, to be changed at run time; None when nothing is encrypted."""
        return self._driver.transport.protection.ring


class EnsembleSurface(Surface):
    """Readings of a voter."""

    def __init__(self, voter: Voter, transport: Transport, state: ClusterState) -> None:
        super().__init__(state)
        self._voter = voter
        self._transport = transport

    @property
    def me(self) -> Member:
        """This process, as the ensemble's other members know it."""
        return self._voter.me

    @property
    def electorate(self) -> tuple[Member, ...]:
        """The members of the ensemble; empty until all of them have met for the first time."""
        return self._voter.electorate

    @property
    def view(self) -> Configuration | None:
        """The cluster's latest view here; None until the ensemble has formed. At first it is empty."""
        return self._state.view

    @property
    def quorum(self) -> bool:
        """Whether a majority of the ensemble is within reach."""
        return self._state.quorum

    @property
    def cluster_id(self) -> bytes | None:
        """The identity of the cluster this ensemble records, 16 bytes; None until the ensemble has formed."""
        return self._voter.cluster_id

    @property
    def keys(self) -> KeyRing | None:
        """The keys of this process, to be changed at run time; None when nothing is encrypted."""
        return self._transport.protection.ring


def timed_out(seconds: float, view: Configuration | None) -> WaitTimeoutError:
    """What `wait_for` raises when its time is up."""
    latest = "there is none yet"
    if view is not None:
        latest = f"the latest is epoch {view.epoch} of {len(view.members)} members"
    return WaitTimeoutError(f"no view met the condition within {seconds:g} s; {latest}")


class TrioSurface(Surface):
    """What waits, in a trio task."""

    def changes(self) -> ChangeFeed:
        """Every change from here on, the first with the whole present view as joined.

        A subscriber that is busy loses no fact: what happens meanwhile is merged into its next change.
        The iteration ends when this process has left, or was evicted and stays out, and with the block.
        """
        return self._state.subscribe()

    async def wait_for(
        self, condition: Callable[[Configuration], bool], timeout: float | None = None
    ) -> Configuration:
        """The first view from here on, the present one included, that meets `condition`.

        timeout: seconds after which a WaitTimeoutError is raised; None waits for ever. Raises
        MembershipEndedError when no view will come any more: this process leaves or stays out, or the block ends.
        """
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            async for change in self.changes():
                if condition(change.view):
                    return change.view
            raise MembershipEndedError("this process is no member any more; no further view will come")
        assert timeout is not None
        raise timed_out(timeout, self._state.view)
