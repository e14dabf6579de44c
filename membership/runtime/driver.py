"""The driver: runs one process's membership on a transport, a clock and a disk, in real time.

One step drains the transport, hands the messages to the process's state machine (`process`), ticks it, and performs
the effects. Around the steps, the driver resolves the seeds while the process joins, and saves what is to be saved. It
decides nothing. For many members in one process, `shared_loop` takes the same steps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from membership.address import Address
from membership.ensemble.client import Client
from membership.protocol.context.effects import (
    Dropped,
    EdgeFailed,
    EdgeRecovered,
    Effects,
    Event,
    Evicted,
    JoinRefused,
    JoinWaiting,
    QuorumLost,
    QuorumRegained,
)
from membership.protocol.core import Core
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
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.change_feed import ClusterStatus
from membership.runtime.core_factory import CoreFactory, Identity, Mode
from membership.runtime.join_diagnosis import JoinDiagnosis, unheard
from membership.runtime.last_view import LastView, LastViewError, Remembered
from membership.runtime.member_log import MemberLog
from membership.runtime.process import MemberProcess
from membership.runtime.transport_setup import new_signer
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


# Members that live in one event loop share their configurations, by far the largest thing each holds.
_CACHE: trio.lowlevel.RunVar[ConfigurationCache] = trio.lowlevel.RunVar("membership configurations")


def _shared_cache() -> ConfigurationCache:
    try:
        return _CACHE.get()
    except LookupError:
        _CACHE.set(ConfigurationCache())
        return _CACHE.get()


class Driver:
    """Runs one process's membership in real time: keep `run` running; `state` tells how it goes."""

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
        last_view: LastView | None = None,
        mode: Mode = Mode.DECENTRALISED,
        on_event: Callable[[Member, Event], None] | None = None,
        detectors: DetectorFactory | None = None,
        broadcaster: Broadcaster | None = None,
    ) -> None:
        self.transport = transport
        self.log = MemberLog(identity.name)
        self.diagnosis = JoinDiagnosis(self.log)
        self.on_event: Callable[[Event], None] | None = None
        """Told of each event of the core; for measurements."""
        self._settings = settings
        self._seeds = tuple(seeds)
        self._rng = rng
        self._on_event = on_event
        self._last_view = last_view
        self._tried_to_save = trio.Event()
        self._wake_at = 0.0
        self._clock_offset = 0.0
        self._heard = False
        self._cluster_id: bytes | None = None
        factory = CoreFactory(
            identity,
            settings=settings,
            rng=rng,
            cache=_shared_cache(),
            mode=mode,
            new_signer=partial(new_signer, transport),
            detectors=detectors,
            broadcaster=broadcaster,
        )
        self.process = MemberProcess(
            factory,
            found=found,
            expect=expect,
            cluster_id=cluster_id,
            rejoin=rejoin,
            remembered=remembered,
            saved=None if last_view is None else last_view.saved,
            has_disk=last_view is not None,
            rng=rng,
        )
        self.state = self.process.state
        transport.incarnation = self.core.me.incarnation

    @property
    def core(self) -> Core | Client:
        """The present incarnation's."""
        return self.process.core

    @property
    def leave_bound(self) -> float:
        """Seconds after which a leave is over in any case; the core's own bound and a little more."""
        return self._settings.leave_timeout + 1.0

    async def run(self) -> None:
        """Drive the core, keep its seeds fresh while it joins, and save its views; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keep_seeds)
            if self._last_view is not None:
                nursery.start_soon(self._keep_view, self._last_view)
            await self.begin()
            while True:
                await self.transport.wait(self.deadline)
                self.step(trio.current_time())

    # The core

    async def begin(self) -> None:
        """Found the cluster or send the first request; afterwards a `step` is due whenever there is a reason."""
        if not self.process.founding:
            await self._refresh_seeds()
        self._perform(self.process.start(self._now()))

    @property
    def deadline(self) -> float:
        """When the next `step` is due, even if nothing arrives before (trio's clock)."""
        return self._wake_at - self._clock_offset

    def step(self, trio_now: float) -> None:
        """Take in what has arrived, and do what is due; at this time of trio's clock."""
        now = trio_now + self._clock_offset
        for arrival in self.transport.drain():
            message = read_message(arrival, self.transport.counters)
            if message is not None:
                self._heard = True
                self._perform(self.process.receive(arrival.source, message, now))
        if now >= self._wake_at:
            self._perform(self.process.tick(now))

    def _perform(self, effects: Effects) -> None:
        # What the core sends next may already need the cluster id it has just learned.
        cluster_id = self.core.cluster_id
        if cluster_id is not self._cluster_id:
            self._cluster_id = cluster_id
            if cluster_id != self.transport.cluster_id:
                self.transport.cluster_id = cluster_id
        if (incarnation := self.core.me.incarnation) is not self.transport.incarnation:
            self.transport.incarnation = incarnation
        transmit(self.transport, effects)
        self._wake_at = effects.wake_at
        for event in effects.events:
            if self._on_event is not None:
                self._on_event(self.core.me, event)
            if self.on_event is not None:
                self.on_event(event)
            self._tell(event)

    def _command(self, effects: Effects) -> None:
        """What comes of a command, given from outside the loop that waits for the transport."""
        self._perform(effects)
        self.transport.wake()

    def _tell(self, event: Event) -> None:
        """Tell people, by the log and by what is known of a join."""
        match event:
            case ViewChanged():
                self._tell_view(event)
            case Evicted():
                self._tell_eviction(event)
            case QuorumLost():
                self.log.warning(
                    "no majority within reach: the view stays as it is until one is%s", unheard(event)
                )
            case QuorumRegained():
                self.log.warning("a majority is within reach again")
            case JoinRefused(reason, final):
                self.diagnosis.refused(reason)
                if final and self.state.status is ClusterStatus.EVICTED:
                    self.log.error("not rejoining any more: the cluster refuses this process: %s", reason)
            case JoinWaiting(reason):
                self.diagnosis.waiting(reason)
            case Dropped(reason):
                self.log.warning("dropped what arrived: %s", reason)
            case EdgeFailed(subject):
                self.log.info("%s does not answer this process's probes", subject)
            case EdgeRecovered(subject):
                self.log.info("%s answers this process's probes again", subject)

    def _tell_view(self, event: ViewChanged) -> None:
        view = event.configuration
        if isinstance(self.core, Core) and (expected := self.core.gathering):
            self.diagnosis.waiting(f"{expected} processes, this one included, must meet first")
            return
        self.log.info(
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

    def _tell_eviction(self, event: Evicted) -> None:
        at = self.process.restart_at
        if self.state.status is ClusterStatus.LEFT:
            return
        if at is None:
            why = "an operator wants it" if event.by_operator else "rejoin is off"
            self.log.warning("evicted from view %d; staying out, as %s", event.epoch, why)
            return
        restarted = event.restarted
        names = ", ".join(restarted[:8]) + (" …" if len(restarted) > 8 else "")
        why = f"view {event.epoch} can have no majority without {names}" if restarted else ""
        self.log.warning(
            "%s; rejoining in %.1f s", why or f"evicted from view {event.epoch}", at - self._now()
        )

    # The disk

    async def _keep_view(self, file: LastView) -> None:
        """Save whatever is to be saved, or the latest of it while the disk is busy; until cancelled.

        Also that a view is not the last one any more, once this process was removed: that is mostly how it ends.
        """
        process = self.process
        try:
            while True:
                await self.state.wait_until(lambda _: process.to_save is not None)
                await self._try_to_save(file)
                await trio.sleep(process.save_pause)
        finally:
            with trio.CancelScope(shield=True):
                await self._try_to_save(file)

    async def _try_to_save(self, file: LastView) -> None:
        memory = self.process.to_save
        if memory is None:
            return
        try:
            await trio.to_thread.run_sync(file.save, memory)
        except LastViewError as error:
            self.process.on_save_failed(str(error))
            self.log.warning("%s; trying again in %.1f s", error, self.process.save_pause)
        else:
            self._command(self.process.on_saved(memory, self._now()))
            await self._complete(file)
        if self.state.view is not None:
            self._tried_to_save.set()

    async def _complete(self, file: LastView) -> None:
        try:
            await trio.to_thread.run_sync(file.complete)
        except LastViewError as error:
            self.log.warning("only one copy of the last view could be written: %s", error)

    async def wait_until_saved(self) -> None:
        """Wait until the first view is saved, or could not be; at once without a disk."""
        if self._last_view is not None:
            await self._tried_to_save.wait()

    # What the application asks for

    def subjects(self) -> tuple[Member, ...]:
        """The members this process observes at present."""
        return self.process.subjects

    def suspicions(self) -> Suspicions | None:
        """Who suspects whom, as far as this process knows; None while it is in no view."""
        return self.process.suspicions(self._now())

    def report_check(self, subject: bytes, healthy: bool, *, certain: bool = False) -> None:
        """The application's check of the member of this incarnation has had a result."""
        now = self._now()
        self._command(self.process.edge_checked(subject, healthy=healthy, certain=certain, now=now))

    def edge_failed(self, subject: Member) -> None:
        """The application reports that this member has failed. Raises EdgeError if it is not observed from here."""
        self._command(self.process.edge_failed(subject, self._now()))

    def set_metadata(self, metadata: Mapping[str, str]) -> None:
        """Have new metadata agreed; a later incarnation starts with them. Raises MemberError."""
        self._command(self.process.set_metadata(metadata, self._now()))

    def evict(self, name: str) -> None:
        """Begin to have a member removed. Raises EvictionError."""
        self._command(self.process.evict(name, self._now()))

    def recover(self, survivors: Sequence[str], *, force: bool) -> None:
        """Begin a recovery; `process.recovery` tells what came of it. Raises RecoveryError."""
        self._command(self.process.recover(survivors, self._now(), force=force))

    def leave(self) -> None:
        """Begin to leave; the status becomes LEFT when it is agreed, or when the core's time is up."""
        self._command(self.process.leave(self._now()))

    # The clock

    def _now(self) -> float:
        """The time of this process's own clock, in seconds; it is trio's until it jumps."""
        return trio.current_time() + self._clock_offset

    def jump_clock(self, seconds: float) -> None:
        """Set the clock that the core goes by ahead, as no real one does; for chaos runs."""
        self._clock_offset += seconds
        self.transport.wake()

    # Seeds

    async def _refresh_seeds(self) -> Resolution:
        """Resolve the seeds again and hand them to the core, without this process's own address."""
        resolution = await resolve_seeds(self._seeds)
        bound = self.transport.bound
        others = self.process.set_seeds([address for address in resolution.addresses if address != bound])
        return Resolution(others, resolution.problems)

    async def keep_seeds(self) -> None:
        """While joining: resolve again at growing intervals, and say what stands in the way."""
        process = self.process
        while True:
            await self.state.wait_until(lambda _: process.joining)
            delay = SEED_RETRY_FIRST
            while process.joining:
                with trio.move_on_after(delay * self._rng.uniform(0.5, 1.5)):
                    await self.state.wait_until(lambda _: not process.joining)
                    break
                delay = min(2 * delay, SEED_RETRY_LONGEST)
                await self.question_seeds()
            self.diagnosis.reset()

    async def question_seeds(self) -> None:
        """Resolve the seeds again, and find out what stands in the way of the join."""
        if self.process.founding and self.state.view is None:
            return  # a founder that waits for the expected number asks nobody
        resolution = await self._refresh_seeds()
        if self._heard:
            self.diagnosis.heard(resolution.addresses)
        else:
            await self.diagnosis.ask_seeds(self.transport, resolution.addresses, resolution.problems)
        self._heard = False
