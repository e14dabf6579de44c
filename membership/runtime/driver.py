"""The driver: runs one core on a transport, in real time.

One step drains the transport, hands the messages to the core, ticks it, and performs the effects. Around the steps,
the driver resolves the seeds while the core joins, and starts another core after an eviction. It decides nothing
about the protocol. For many members in one process, `shared_loop` takes the same steps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import trio

from membership.address import Address
from membership.errors import EdgeError
from membership.protocol.context.effects import (
    Dropped,
    EdgeFailed,
    EdgeRecovered,
    Effects,
    Event,
    Evicted,
    JoinRefused,
    JoinWaiting,
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
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.messages import (
    ANONYMOUS_MESSAGES,
    DecodeError,
    FullConfiguration,
    Message,
    decode,
    encode,
)
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member, metadata_pairs
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.change_feed import FINAL_STATUSES, ClusterState, ClusterStatus
from membership.runtime.core_factory import CoreFactory, Identity, Mode
from membership.runtime.join_diagnosis import JoinDiagnosis, log, unheard
from membership.runtime.last_view import Remembered
from membership.settings import Settings
from membership.transport.resolve import Resolution, resolve_seeds
from membership.transport.transport import Arrival, Transport
from membership.wire.frames import UNKNOWN_CLUSTER

DATAGRAM_PAYLOAD_LIMIT: Final = 1400
"""Bytes. The core keeps its datagrams below this; should one be longer, it goes by stream."""

SEED_RETRY_FIRST: Final = 2.0
SEED_RETRY_LONGEST: Final = 30.0
"""Seconds between two resolutions of the seeds: doubling between these, each with +-50 % jitter. Silent seeds are
then asked over TCP what they are; when a thousand processes start at once they must have had time to answer."""

REJOIN_LONGEST: Final = 60.0
"""Seconds. A process that is evicted again and again waits longer each time, up to this."""

REJOIN_FORGOTTEN: Final = 300.0
"""Seconds in the view after which an earlier eviction no longer lengthens the next wait."""

_VIEW_SEEDS: Final = 16
"""Members of the last view that serve as further seeds when rejoining."""


def read_message(arrival: Arrival, counters: Counter[str]) -> Message | None:
    """The message that arrived; None, and counted, when it is none or not this sender's to say."""
    try:
        message = decode(arrival.payload)
    except DecodeError:
        counters["messages_dropped_malformed"] += 1
        return None
    is_anonymous = isinstance(message, ANONYMOUS_MESSAGES) or (
        isinstance(message, FullConfiguration) and message.proposed
    )
    if arrival.cluster_id == UNKNOWN_CLUSTER and not is_anonymous:
        counters["messages_dropped_unknown_cluster"] += 1
        return None
    return message


def transmit(transport: Transport, effects: Effects) -> None:
    """Hand everything that is to be sent to the transport."""
    for send in effects.sends:
        payload = encode(send.message)
        if send.reliable or len(payload) > DATAGRAM_PAYLOAD_LIMIT:
            transport.send_frame(payload, send.destinations)
        else:
            transport.send_datagram(payload, send.destinations)


class Driver:
    """Runs one process's membership: keep `run` running; `state` tells how it goes."""

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        *,
        seeds: Sequence[Address],
        settings: Settings,
        rng: random.Random,
        found: bool,
        expect: int,
        cluster_id: bytes | None,
        rejoin: bool,
        remembered: Remembered | None = None,
        has_disk: bool = False,
        mode: Mode = Mode.DECENTRALISED,
        on_event: Callable[[Member, Event], None] | None = None,
        detectors: DetectorFactory | None = None,
        broadcaster: Broadcaster | None = None,
    ) -> None:
        self.transport = transport
        self.state = ClusterState()
        self.diagnosis = JoinDiagnosis()
        self.leave_decided = False
        self.evicted_by_operator = False
        self.refusal: str | None = None
        self.recovery: RecoveryFinished | RecoveryFailed | None = None
        self.on_event: Callable[[Event], None] | None = None
        """Told of each event of the core before it is handled; for measurements."""
        self._factory = CoreFactory(
            transport,
            identity,
            settings=settings,
            rng=rng,
            mode=mode,
            detectors=detectors,
            broadcaster=broadcaster,
        )
        self._seeds = tuple(seeds)
        self._resolved: tuple[Address, ...] = ()
        """The addresses of the seeds, as last resolved."""
        self._rng = rng
        self._founded = remembered is not None and remembered.founded
        self._expect = expect
        self.is_superseded = remembered is not None and remembered.is_copy
        """Whether there have been later views than this process's last one, without it: it was removed, or may have
        been in them before its disk was put back from a copy."""
        self.stable = StableState() if remembered is None else remembered.stable
        """What is saved."""
        self.to_save = self.stable
        """What is to be, `on_saved` is told then; without `has_disk` memory is all there is."""
        self._has_disk = has_disk
        self._rejoin = rejoin
        self._on_event = on_event
        self._evictions = 0
        self._joined_at = 0.0
        self._wake_at = 0.0
        self._restart_at: float | None = None
        self._clock_offset = 0.0
        self._heard = False
        self._cluster_id: bytes | None = None
        self.core = self._factory.make(
            found=found,
            expect=expect,
            cluster_id=cluster_id,
            stable=self.stable,
            is_copy=self.is_superseded,
            has_disk=has_disk,
        )

    @property
    def _last_view(self) -> Configuration | None:
        return self.to_save.view

    @property
    def founded(self) -> bool:
        """Whether this process founded the cluster, in this incarnation or an earlier one."""
        return self._founded or (self._last_view is None and self._founding)

    @property
    def _founding(self) -> bool:
        """Whether the present core founds the cluster, or founds it anew."""
        return isinstance(self.core, Core) and self.core.founded

    @property
    def joining(self) -> bool:
        """Whether this process is on its way into the cluster."""
        return self.state.status in (ClusterStatus.JOINING, ClusterStatus.REJOINING)

    @property
    def wanted_metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata this process wants to have, agreed or not."""
        return self._factory.identity.metadata

    @property
    def leave_bound(self) -> float:
        """Seconds after which a leave is over in any case; the core's own bound and a little more."""
        return self._factory.settings.leave_timeout + 1.0

    async def run(self) -> None:
        """Drive the core, and keep its seeds fresh while it joins; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keep_seeds)
            await self.begin()
            while True:
                await self.transport.wait(self.deadline)
                self.step(trio.current_time())

    # The application's own checks

    def subjects(self) -> tuple[Member, ...]:
        """The members this process observes at present."""
        return () if self._restart_at is not None else self.core.subjects

    def suspicions(self) -> Suspicions | None:
        """Who suspects whom, as far as this process knows; None while it is in no view."""
        return None if self._restart_at is not None else self.core.suspicions(self._now())

    def report_check(self, subject: bytes, healthy: bool, *, certain: bool = False) -> None:
        """The application's check of the member of this incarnation has had a result."""
        if self._restart_at is None:
            now = self._now()
            self._perform(self.core.edge_checked(subject, healthy=healthy, certain=certain, now=now))
            self.transport.wake()

    def edge_failed(self, subject: Member) -> None:
        """The application reports that this member has failed. Raises EdgeError if it is not observed from here."""
        if self._restart_at is not None:
            raise EdgeError("this process is rejoining at present, so it observes nobody")
        self._perform(self.core.edge_failed(subject, self._now()))
        self.transport.wake()

    # The core

    async def begin(self) -> None:
        """Found the cluster or send the first request; afterwards a `step` is due whenever there is a reason."""
        if not self._founding:
            await self._refresh_seeds()
        self._perform(self.core.start(self._now()))

    @property
    def deadline(self) -> float:
        """When the next `step` is due, even if nothing arrives before (trio's clock)."""
        due = self._wake_at if self._restart_at is None else self._restart_at
        return due - self._clock_offset

    def step(self, trio_now: float) -> None:
        """Take in what has arrived, and do what is due; at this time of trio's clock."""
        now = trio_now + self._clock_offset
        for arrival in self.transport.drain():
            self._take(arrival, now)
        if self._restart_at is not None:
            if now >= self._restart_at:
                self._start_again(now)
        elif now >= self._wake_at:
            self._perform(self.core.tick(now))

    def _take(self, arrival: Arrival, now: float) -> None:
        if self._restart_at is not None:
            return  # between two incarnations: this is for the one that is gone
        message = read_message(arrival, self.transport.counters)
        if message is None:
            return
        self._heard = True
        self._perform(self.core.receive(arrival.source, message, now))

    def _perform(self, effects: Effects) -> None:
        # What the core sends next may already need the cluster id it has just learned.
        cluster_id = self.core.cluster_id
        if cluster_id is not self._cluster_id:
            self._cluster_id = cluster_id
            if cluster_id != self.transport.cluster_id:
                self.transport.cluster_id = cluster_id
        transmit(self.transport, effects)
        self._wake_at = effects.wake_at
        for event in effects.events:
            if self._on_event is not None:
                self._on_event(self.core.me, event)
            self._handle(event)

    def _handle(self, event: Event) -> None:
        if self.on_event is not None:
            self.on_event(event)
        match event:
            case ViewChanged():
                self._install(event)
            case StableStateToSave(state):
                if self._last_view is None and state.view is not None:
                    self._founded = self._founding
                self.to_save = state
                if self._has_disk:
                    self.state.publish()  # whoever keeps the last view is woken
                else:
                    self.stable = state
            case Evicted(epoch, by_operator, restarted):
                self._evicted(epoch, by_operator, restarted)
            case Left(decided, superseded):
                self.leave_decided = decided
                self.is_superseded |= superseded
                self.state.publish(status=ClusterStatus.LEFT)
            case QuorumLost():
                log.warning(
                    "no majority within reach: the view stays as it is until one is%s", unheard(event)
                )
                self.state.publish(quorum=False)
            case QuorumRegained():
                log.warning("a majority is within reach again")
                self.state.publish(quorum=True)
            case RecoveryFinished() | RecoveryFailed():
                self.recovery = event
                self.state.publish()
            case JoinRefused(reason, final):
                self.diagnosis.refused(reason)
                if final:
                    self._refused(reason)
            case JoinWaiting(reason):
                self.diagnosis.waiting(reason)
            case Dropped(reason):
                log.warning("dropped what arrived: %s", reason)
            case EdgeFailed(subject):
                log.info("%s does not answer this process's probes", subject)
            case EdgeRecovered(subject):
                log.info("%s answers this process's probes again", subject)

    def _install(self, event: ViewChanged) -> None:
        view = event.configuration
        expected = self.core.gathering if isinstance(self.core, Core) else 0
        if expected:
            # The founder alone is nobody's idea of the cluster: hold it back until the others are in.
            self.diagnosis.waiting(f"{expected} processes, this one included, must meet first")
            return
        self.is_superseded = False
        log.info(
            "view %d: %d members, %d joined, %d replaced, %d updated, %d left, %d evicted, %d failed",
            view.epoch,
            len(view.members),
            len(event.joined),
            len(event.replaced),
            len(event.updated),
            len(event.left),
            len(event.evicted),
            len(event.failed),
        )
        if self.joining:
            self._joined_at = self._now()
            self.state.publish(status=ClusterStatus.MEMBER, quorum=True, view=view)
        else:
            self.state.publish(view=view, left=event.left, evicted=event.evicted, failed=event.failed)

    def on_saved(self, state: StableState) -> None:
        """This is saved."""
        self.stable = state
        if self._restart_at is None and isinstance(self.core, Core):
            self._perform(self.core.saved(state, self._now()))
            self.transport.wake()

    # What the application asks for

    def set_metadata(self, metadata: Mapping[str, str]) -> None:
        """Have new metadata agreed; a later incarnation starts with them. Raises MemberError."""
        effects = self.core.set_metadata(metadata, self._now())
        self._factory.identity = replace(self._factory.identity, metadata=metadata_pairs(metadata))
        self._perform(effects)
        self.transport.wake()

    def evict(self, name: str) -> None:
        """Begin to have a member removed. Raises EvictionError."""
        self._perform(self.core.evict(name, self._now()))
        self.transport.wake()

    def recover(self, survivors: Sequence[str], *, force: bool) -> None:
        """Begin a recovery; `recovery` tells what came of it. Raises RecoveryError."""
        effects = self.core.recover(survivors, self._now(), force=force)
        self.recovery = None
        self._perform(effects)
        self.transport.wake()

    # The clock

    def _now(self) -> float:
        """The time of this process's own clock, in seconds; it is trio's until it jumps."""
        return trio.current_time() + self._clock_offset

    def jump_clock(self, seconds: float) -> None:
        """Set the clock that the core goes by ahead, as no real one does; for chaos runs."""
        self._clock_offset += seconds
        self.transport.wake()

    # Leaving, and being evicted

    def leave(self) -> None:
        """Begin to leave; the status becomes LEFT when it is agreed, or when the core's time is up."""
        if self._restart_at is not None or self.state.status in FINAL_STATUSES:
            self._restart_at = None
            self.state.publish(status=ClusterStatus.LEFT)
            return
        self.state.publish(status=ClusterStatus.LEAVING)
        self._perform(self.core.leave(self._now()))
        if self.core.status is Status.LEFT and self.state.status is not ClusterStatus.LEFT:
            self.state.publish(status=ClusterStatus.LEFT)  # it was rejoining and just stops
        self.transport.wake()

    def _evicted(self, epoch: int, by_operator: bool, restarted: tuple[str, ...] = ()) -> None:
        if self.state.status is ClusterStatus.LEAVING:
            self.state.publish(status=ClusterStatus.LEFT)
            return
        self.is_superseded = not restarted  # else nothing came after that view, and it may be needed again
        self.evicted_by_operator = by_operator
        was_in = self.state.view is not None  # else it was alone, and nobody has put it out
        if by_operator or (was_in and not self._rejoin):
            why = "an operator wants it" if by_operator else "rejoin is off"
            log.warning("evicted from view %d; staying out, as %s", epoch, why)
            self.state.publish(status=ClusterStatus.EVICTED, quorum=False)
            return
        now = self._now()
        if now - self._joined_at > REJOIN_FORGOTTEN:
            self._evictions = 0
        longest = min(REJOIN_LONGEST, 2.0**self._evictions - 1.0)
        self._evictions += 1
        self._restart_at = now + longest * self._rng.uniform(0.5, 1.0)
        names = ", ".join(restarted[:8]) + (" …" if len(restarted) > 8 else "")
        why = f"view {epoch} can have no majority without {names}" if restarted else ""
        log.warning("%s; rejoining in %.1f s", why or f"evicted from view {epoch}", self._restart_at - now)
        self.state.publish(status=ClusterStatus.REJOINING, quorum=False)

    def _refused(self, reason: str) -> None:
        """The cluster does not want this process as it is, and has said so often enough."""
        self.refusal = reason
        if self.state.status is ClusterStatus.REJOINING:
            log.error("not rejoining any more: the cluster refuses this process: %s", reason)
            self.state.publish(status=ClusterStatus.EVICTED)
        else:
            self.state.publish()

    def _start_again(self, now: float) -> None:
        self._restart_at = None
        self._founded = self.founded
        self.core = self._factory.make(
            found=False,
            expect=self._expect if self._last_view is None else 1,
            cluster_id=self.core.cluster_id,
            stable=StableState(
                self._last_view, self.stable.accepted if self.stable.view == self._last_view else ()
            ),
            is_copy=self.is_superseded,
            has_disk=self._has_disk,
        )
        self.core.set_seeds((*self._resolved, *self._view_seeds()))
        self._perform(self.core.start(now))

    def _view_seeds(self) -> tuple[Address, ...]:
        """Some members of the last view: a founder has no other seeds, and seeds may have gone since."""
        view, own = self._last_view, self._factory.identity.address
        others = [] if view is None else [address for address in view.addresses if address != own]
        return tuple(self._rng.sample(others, min(_VIEW_SEEDS, len(others))))

    # Seeds

    async def _refresh_seeds(self) -> Resolution:
        """Resolve the seeds again and hand them to the core, without this process's own address."""
        resolution = await resolve_seeds(self._seeds)
        own = (self._factory.identity.address, self.transport.bound)
        addresses = dict.fromkeys((*resolution.addresses, *self._view_seeds()))
        others = tuple(address for address in addresses if address not in own)
        self._resolved = tuple(address for address in resolution.addresses if address not in own)
        self.core.set_seeds(others)
        return Resolution(others, resolution.problems)

    async def keep_seeds(self) -> None:
        """While joining: resolve again at growing intervals, and say what stands in the way."""
        while True:
            await self.state.wait_until(lambda _: self.joining)
            delay = SEED_RETRY_FIRST
            while self.joining:
                with trio.move_on_after(delay * self._rng.uniform(0.5, 1.5)):
                    await self.state.wait_until(lambda _: not self.joining)
                    break
                delay = min(2 * delay, SEED_RETRY_LONGEST)
                await self.question_seeds()
            self.diagnosis.reset()

    async def question_seeds(self) -> None:
        """Resolve the seeds again, and find out what stands in the way of the join."""
        if self._founding and self.state.view is None:
            return  # a founder that waits for the expected number asks nobody
        resolution = await self._refresh_seeds()
        if self._heard:
            self.diagnosis.heard(resolution.addresses)
        else:
            await self.diagnosis.ask_seeds(self.transport, resolution.addresses, resolution.problems)
        self._heard = False
