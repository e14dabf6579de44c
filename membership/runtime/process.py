"""One process's membership, from its first core to its last: a state machine without clock, socket or task.

A core is one incarnation. When the others evict it, or when what it took part in founding comes to nothing, the next
one starts with another core. What outlives a core is here: the last view, whether it is known not to be the last any
more, and what is to be on disk. `driver` runs it in real time; the simulator runs the same object in virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from membership.address import Address
from membership.ensemble.client import Client
from membership.errors import EdgeError
from membership.protocol.context.effects import (
    Effects,
    Event,
    Evicted,
    JoinRefused,
    Left,
    QuorumLost,
    QuorumRegained,
    RecoveryFailed,
    RecoveryFinished,
    StableStateToSave,
)
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.core.suspicions import Suspicions
from membership.protocol.messages import Message
from membership.protocol.view.member import Member, metadata_pairs
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.change_feed import FINAL_STATUSES, ClusterState, ClusterStatus
from membership.runtime.core_factory import CoreFactory
from membership.runtime.last_view import Remembered

REJOIN_LONGEST: Final = 60.0
"""Seconds. A process that is evicted again and again waits longer each time, up to this."""

REJOIN_FORGOTTEN: Final = 300.0
"""Seconds in the view after which an earlier eviction no longer lengthens the next wait."""

SAVE_RETRY_FIRST: Final = 0.1
SAVE_RETRY_LONGEST: Final = 5.0
"""Seconds until what could not be saved is tried again: doubling between these."""

_VIEW_SEEDS: Final = 16
"""Members of the last view that serve as further seeds when rejoining."""


class MemberProcess:
    """The membership of one process; `state` tells how it goes, to whoever runs it and to applications.

    `start` once, then `receive` and `tick`; each call returns what is to be done, and when `tick` is due. After one
    with events, whatever is `to_save` is to be saved, and `on_saved` or `on_save_failed` to be called. Times are
    seconds of one clock.

    `remembered`: what an earlier process left on this disk; `saved`: what the file says, None if there is none yet (it
    is another one where a copy was put back). `has_disk`: there is to be such a file; otherwise memory is all there is.
    The other arguments are those of `membership.join`.
    """

    def __init__(
        self,
        factory: CoreFactory,
        *,
        found: bool,
        expect: int,
        cluster_id: bytes | None,
        rejoin: bool,
        remembered: Remembered | None,
        saved: Remembered | None,
        has_disk: bool,
        rng: random.Random,
    ) -> None:
        self.state = ClusterState()
        self.leave_decided = False
        self.evicted_by_operator = False
        self.refusal: str | None = None
        self.recovery: RecoveryFinished | RecoveryFailed | None = None
        self.restart_at: float | None = None
        """When the next incarnation starts; None while one is there."""
        self.save_failure = ""
        """Why the disk did not take what was to be saved last; empty when it did."""
        self.save_pause = 0.0
        """Seconds until what could not be saved is to be tried again."""
        self._factory = factory
        self._rejoin = rejoin
        self._has_disk = has_disk
        self._rng = rng
        self._seeds: tuple[Address, ...] = ()
        self._founded = remembered is not None and remembered.founded
        self._was_in = remembered is not None and remembered.view is not None
        """Whether this process, or an earlier one here, was in a view."""
        self._last_view = None if remembered is None else remembered.view
        """The last one that was shown, whether it is to be remembered or not: its members know where the others are."""
        self._expect = expect
        self.is_superseded = remembered is not None and remembered.is_copy
        """Whether there may have been later views than this process's last one of which its disk says nothing: others
        recovered without it, or that disk was put back from a copy."""
        self._durable = StableState() if remembered is None else remembered.stable
        """What is known to be on disk."""
        self._stable = self._found = self._durable
        """What is to be there."""
        self._saved = saved
        self._evictions = 0
        self._joined_at = 0.0
        self._wake_at = 0.0
        self.core = self._make_core(found=found, expect=expect, cluster_id=cluster_id)

    def _make_core(self, *, found: bool, expect: int, cluster_id: bytes | None) -> Core | Client:
        return self._factory.make(
            found=found,
            expect=expect,
            cluster_id=cluster_id,
            stable=StableState(
                self._stable.view, self._durable.accepted if self._durable.view is self._stable.view else ()
            ),
            is_copy=self.is_superseded,
            has_disk=self._has_disk,
            is_new=not self._evictions,
        )

    # What it looks like

    @property
    def founded(self) -> bool:
        """Whether this process founded the cluster, in this incarnation or an earlier one."""
        return self._founded or (not self._was_in and self.founding)

    @property
    def founding(self) -> bool:
        """Whether the present core founds the cluster, or founds it anew."""
        return isinstance(self.core, Core) and self.core.founded

    @property
    def joining(self) -> bool:
        """Whether this process is on its way into the cluster."""
        return self.state.status in (ClusterStatus.JOINING, ClusterStatus.REJOINING)

    @property
    def subjects(self) -> tuple[Member, ...]:
        """The members this process observes at present."""
        return () if self.restart_at is not None else self.core.subjects

    def suspicions(self, now: float) -> Suspicions | None:
        """Who suspects whom, as far as this process knows; None while it is in no view."""
        return None if self.restart_at is not None else self.core.suspicions(now)

    # Inputs

    def set_seeds(self, seeds: Sequence[Address]) -> tuple[Address, ...]:
        """Whom to ask, as resolved by now; with some members of the last view: a founder has no other seeds, and
        seeds may have gone since. Whom the core asks."""
        self._seeds = tuple(seeds)
        addresses = dict.fromkeys((*self._seeds, *self._view_seeds()))
        addresses.pop(self._factory.identity.address, None)
        self.core.set_seeds(tuple(addresses))
        return tuple(addresses)

    def _view_seeds(self) -> tuple[Address, ...]:
        view, own = self._last_view, self._factory.identity.address
        others = [] if view is None else [address for address in view.addresses if address != own]
        return tuple(self._rng.sample(others, min(_VIEW_SEEDS, len(others))))

    def start(self, now: float) -> Effects:
        """Found the cluster, or send the first request."""
        return self._after(self.core.start(now), now)

    def receive(self, source: Address, message: Message, now: float) -> Effects:
        """A message arrived; between two incarnations it is for the one that is gone."""
        if self.restart_at is not None:
            return self.idle()
        return self._after(self.core.receive(source, message, now), now)

    def tick(self, now: float) -> Effects:
        """Time has passed."""
        if self.restart_at is None:
            return self._after(self.core.tick(now), now)
        return self._start_again(now) if now >= self.restart_at else self.idle()

    def edge_checked(self, subject: bytes, *, healthy: bool, certain: bool, now: float) -> Effects:
        """The application's check of the member of this incarnation has had a result."""
        if self.restart_at is not None:
            return self.idle()
        return self._after(self.core.edge_checked(subject, healthy=healthy, certain=certain, now=now), now)

    def edge_failed(self, subject: Member, now: float) -> Effects:
        """The application reports that this member has failed. Raises EdgeError if it is not observed from here."""
        if self.restart_at is not None:
            raise EdgeError("this process is rejoining at present, so it observes nobody")
        return self._after(self.core.edge_failed(subject, now), now)

    @property
    def wanted_metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata this process wants to have, agreed or not."""
        return self._factory.identity.metadata

    def set_metadata(self, metadata: Mapping[str, str], now: float) -> Effects:
        """Have new metadata agreed; a later incarnation starts with them. Raises MemberError."""
        effects = self.core.set_metadata(metadata, now)
        self._factory.identity = replace(self._factory.identity, metadata=metadata_pairs(metadata))
        return self._after(effects, now)

    def evict(self, name: str, now: float) -> Effects:
        """Begin to have a member removed. Raises EvictionError."""
        return self._after(self.core.evict(name, now), now)

    def recover(self, survivors: Sequence[str], now: float, *, force: bool) -> Effects:
        """Begin a recovery; `recovery` tells what came of it. Raises RecoveryError."""
        effects = self.core.recover(survivors, now, force=force)
        self.recovery = None
        return self._after(effects, now)

    def leave(self, now: float) -> Effects:
        """Begin to leave; the status becomes LEFT when it is agreed, or when the core's time is up."""
        if self.restart_at is not None or self.state.status in FINAL_STATUSES:
            self.restart_at = None
            self.state.publish(status=ClusterStatus.LEFT)
            return self.idle()
        self.state.publish(status=ClusterStatus.LEAVING)
        effects = self._after(self.core.leave(now), now)
        if self.core.status is Status.LEFT and self.state.status is not ClusterStatus.LEFT:
            self.state.publish(status=ClusterStatus.LEFT)  # it was rejoining and just stops
        return effects

    # The disk

    @property
    def to_save(self) -> Remembered | None:
        """What is to be on disk and is not yet; None: nothing."""
        if not self._has_disk or (self._saved is None and self._stable is self._found):
            return None
        wanted = Remembered(self._stable, self.founded, self.is_superseded)
        return None if wanted == self._saved else wanted

    def on_saved(self, memory: Remembered, now: float) -> Effects:
        """This, which was to be saved, is durable."""
        self._saved = memory
        self.save_failure, self.save_pause = "", 0.0
        self.state.publish()
        self._durable = memory.stable
        if self.restart_at is not None or not isinstance(self.core, Core):
            return self.idle()
        return self._after(self.core.saved(memory.stable, now), now)

    def on_save_failed(self, reason: str) -> Effects:
        """The disk did not take it; to be tried again after `save_pause`."""
        self.save_failure = reason
        self.save_pause = min(max(SAVE_RETRY_FIRST, 2 * self.save_pause), SAVE_RETRY_LONGEST)
        return self.idle()

    # What the core says

    def idle(self) -> Effects:
        """Nothing to be done before the next `tick`."""
        return Effects((), (), self._wake_at if self.restart_at is None else self.restart_at)

    def _after(self, effects: Effects, now: float) -> Effects:
        """Take note of what happened; the effects, with those of what that leads to."""
        self._wake_at = effects.wake_at
        for event in effects.events:
            self._handle(event, now)
        if self.restart_at is not None:
            effects = Effects(effects.sends, effects.events, self.restart_at)
        return effects

    def _handle(self, event: Event, now: float) -> None:
        match event:
            case ViewChanged():
                self._install(event, now)
            case StableStateToSave(state):
                self._stable = state
                if self._has_disk:
                    self.state.publish()  # whoever saves is woken
                else:
                    self._durable = state
            case Evicted(_, by_operator, _, superseded):
                self._evicted(by_operator=by_operator, is_superseded=superseded, now=now)
            case Left(decided, superseded):
                self.leave_decided = decided
                self.is_superseded |= superseded
                self.state.publish(status=ClusterStatus.LEFT)
            case QuorumLost():
                self.state.publish(quorum=False)
            case QuorumRegained():
                self.state.publish(quorum=True)
            case RecoveryFinished() | RecoveryFailed():
                self.recovery = event
                self.state.publish()
            case JoinRefused(reason, True):
                self._refused(reason)

    def _install(self, event: ViewChanged, now: float) -> None:
        view = event.configuration
        if isinstance(self.core, Core) and self.core.gathering:
            # The founder alone is nobody's idea of the cluster: it is held back until the others are in.
            return
        if not self._was_in:
            self._founded, self._was_in = self.founding, True
        self._last_view, self.is_superseded = view, False
        if self.joining:
            self._joined_at = now
            self.state.publish(status=ClusterStatus.MEMBER, quorum=True, view=view)
        else:
            self.state.publish(view=view, left=event.left, evicted=event.evicted, failed=event.failed)

    def _evicted(self, *, by_operator: bool, is_superseded: bool, now: float) -> None:
        if self.state.status is ClusterStatus.LEAVING:
            self.state.publish(status=ClusterStatus.LEFT)
            return
        # What is known not to be the last view stays so, whatever comes to nothing on the way back.
        self.is_superseded |= is_superseded
        self.evicted_by_operator = by_operator
        was_in = self.state.view is not None  # else it was alone, and nobody has put it out
        if by_operator or (was_in and not self._rejoin):
            self.state.publish(status=ClusterStatus.EVICTED, quorum=False)
            return
        if now - self._joined_at > REJOIN_FORGOTTEN:
            self._evictions = 0
        longest = min(REJOIN_LONGEST, 2.0**self._evictions - 1.0)
        self._evictions += 1
        self.restart_at = now + longest * self._rng.uniform(0.5, 1.0)
        self.state.publish(status=ClusterStatus.REJOINING, quorum=False)

    def _refused(self, reason: str) -> None:
        """The cluster does not want this process as it is, and has said so often enough."""
        self.refusal = reason
        if self.state.status is ClusterStatus.REJOINING:
            self.state.publish(status=ClusterStatus.EVICTED)
        else:
            self.state.publish()

    def _start_again(self, now: float) -> Effects:
        self.restart_at = None
        self._founded = self.founded
        expect = 1 if self._was_in else self._expect
        self.core = self._make_core(found=False, expect=expect, cluster_id=self.core.cluster_id)
        self.set_seeds(self._seeds)
        return self._after(self.core.start(now), now)
