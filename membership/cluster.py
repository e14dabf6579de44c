"""The interface for trio: be a member of a cluster for as long as a block of code runs.

`join` gives a `Cluster`. Everything runs in the caller's event loop, in tasks that end with the block. The
facades for asyncio (`aio`) and threads (`blocking`) wrap this one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import trio

from membership.address import Address
from membership.errors import EvictionError, MembershipError, RecoveryError
from membership.protocol.context.effects import Event, RecoveryFailed, RecoveryFinished
from membership.protocol.context.refusals import public_name
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core.suspicions import Suspicions
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member, metadata_pairs
from membership.runtime.application_checks import ApplicationCheck, Check, CheckRunner
from membership.runtime.change_feed import FINAL_STATUSES, ClusterStatus, MembershipEndedError
from membership.runtime.core_factory import Identity, Mode
from membership.runtime.data_directory import recall
from membership.runtime.driver import Driver
from membership.runtime.event_loops.task_scope import run_scope
from membership.runtime.event_loops.trio_block import trio_block
from membership.runtime.join_diagnosis import JoinRefusedError
from membership.runtime.last_view import LastView, LastViewError, Remembered
from membership.runtime.transport_setup import open_transport
from membership.settings import Settings
from membership.surface import ClusterSurface, TrioSurface
from membership.transport.endpoint import Network
from membership.transport.faults import FaultInjector, Faults
from membership.transport.resolve import resolve_seeds
from membership.transport.services import Handler
from membership.transport.transport import Transport
from membership.wire.frames import UNKNOWN_CLUSTER
from membership.wire.key_ring import KeyRing

log = logging.getLogger("membership")


class JoinArgumentError(MembershipError, ValueError):
    """The arguments of `join` contradict each other; nothing was started."""


Detector: TypeAlias = DetectorFactory | ApplicationCheck | Check | None
"""What `join` takes as a detector."""


class Cluster(TrioSurface, ClusterSurface):
    """This process's membership. Made by `join`; valid within its block."""

    @property
    def transport(self) -> Transport:
        """The process's address on the network: register services of your own, open those of others.

        Only here: a service's handler is a trio function.
        """
        return self._driver.transport

    async def leave(self) -> bool:
        """Leave, and wait until the others have agreed on it, at most `Settings.leave_timeout` seconds.

        True when it was agreed: everybody sees `left`, not `failed`. The last member of a centralised cluster stays
        in its view, so nothing is agreed. The transport stays open until the
        block ends. Leaving twice is leaving once.
        """
        state = self._state
        if state.status is not ClusterStatus.LEAVING and state.status not in FINAL_STATUSES:
            self._driver.leave()
        await state.wait_until(lambda state: state.ended or state.status in FINAL_STATUSES)
        return self._driver.process.leave_decided

    async def set_metadata(self, metadata: Mapping[str, str]) -> None:
        """Replace this process's metadata, and wait until a view has them: for ever without a majority.

        Of several calls the last one counts; the earlier ones return when it is agreed. Cancelling the wait
        does not take the request back. Raises MemberError when the member's record would not fit 1000 bytes, and
        MembershipEndedError when this process leaves or stays out before.
        """
        self._driver.set_metadata(metadata)
        await self._state.wait_until(
            lambda state: (
                state.ended
                or state.status in FINAL_STATUSES
                or (
                    self.me.metadata == self._driver.process.wanted_metadata
                    and state.status is ClusterStatus.MEMBER
                )
            )
        )
        if self.me.metadata != self._driver.process.wanted_metadata:
            raise MembershipEndedError("this process is no member any more: its metadata were not agreed")

    async def evict(self, name: str) -> int:
        """Have the member of this name removed, healthy or not, and return the first epoch without it.

        The others are told that it was `evicted`; the process itself stays out until it is started again.
        Raises EvictionError if there is no such member, if it is this process, or if no majority agreed
        within `Settings.leave_timeout`.
        """
        member = self.view.member(name)
        self._driver.evict(name)
        assert member is not None, "the core has refused it otherwise"
        with trio.move_on_after(self._driver.leave_bound):
            await self._state.wait_until(
                lambda state: member not in self.view or state.ended or state.status in FINAL_STATUSES
            )
        if member in self.view:
            raise EvictionError(
                f"{name!r} was not evicted: no majority of the {len(self.view)} members agreed in time"
                + ("" if self.quorum else "; if it is lost for good, recover from the survivors")
            )
        return self.view.epoch

    async def edge_failed(self, member: Member) -> None:
        """Report, once, that a member which this process observes (`subjects`) has failed, as the application knows.

        It counts like a failed probe's report, at once and for certain, for `Settings.report_lifetime` seconds
        and whatever the probes say; then it is withdrawn. It is one observer's word: the member is removed if
        enough other observers find it failed too, and stays otherwise. Raises EdgeError about a member that this
        process does not observe: nobody else may say so (`evict` is the operator's command).
        """
        self._driver.edge_failed(member)
        await trio.lowlevel.checkpoint()

    async def recover(self, survivors: Sequence[str], *, force: bool = False) -> Configuration:
        """For an operator: the majority is lost for good, begin a new chain of views from the survivors.

        survivors: names or addresses of members of the last view, this process among them; everybody else
            is out, and told so when it returns. It may join again as a new incarnation.
        force: even though a survivor has a majority within reach.

        A process that waits for others after a power cut (see `on_waiting` of `join`) goes on with those named, all of
        which wait for it: an operator's word that nobody else comes back with what it knows.

        Returns the new chain's first view once all survivors stand in it; its epoch is above any that the
        old chain can reach. Raises RecoveryError with the reason when a survivor refuses or is silent.
        """
        waits = self._state.view is None
        self._driver.recover(survivors, force=force)
        if waits:
            await self._state.wait_until(lambda state: state.ended or state.view is not None)
            if self._state.view is None:
                raise MembershipEndedError("this process ended before the view was shown")
            return self._state.view
        await self._state.wait_until(
            lambda state: (
                state.ended or state.status in FINAL_STATUSES or self._driver.process.recovery is not None
            )
        )
        match self._driver.process.recovery:
            case RecoveryFinished(configuration):
                return configuration
            case RecoveryFailed(reason):
                raise RecoveryError(reason)
        raise MembershipEndedError("this process is no member any more: nothing was recovered")

    def suspicions(self) -> Suspicions | None:
        """Who suspects whom now, as far as this process knows, and what the next view waits for.

        For people: nothing may be concluded from it. None while this process is in no view.
        """
        return self._driver.suspicions()

    def statistics(self) -> dict[str, int]:
        """Counters since the start: the protocol's, and what was sent, received and dropped, by reason."""
        protocol = {public_name(name): count for name, count in self._driver.core.statistics().items()}
        return {**protocol, **dict(sorted(self.transport.counters.items()))}


@trio_block
async def join(
    listen: str | Address,
    seeds: Iterable[str | Address] = (),
    *,
    name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    advertise: str | Address | None = None,
    found: bool | None = None,
    expect: int = 1,
    mode: Mode = Mode.DECENTRALISED,
    settings: Settings | None = None,
    detector: Detector = None,
    broadcaster: Broadcaster | None = None,
    cluster_id: bytes | None = None,
    faults: Faults | FaultInjector | None = None,
    rejoin: bool = True,
    join_timeout: float | None = None,
    last_view: Path | str | None = None,
    copied_view: Path | str | None = None,
    keys: KeyRing | Path | str | None = None,
    insecure: bool = False,
    services: Mapping[str, Handler] | None = None,
    on_listening: Callable[[Transport], None] | None = None,
    on_waiting: Callable[[Cluster], None] | None = None,
    on_event: Callable[[Member, Event], None] | None = None,
    network: Network | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Cluster]:
    """Be a member of a cluster while the block runs; it begins once this process is in the view.

    Leaving the block leaves the cluster gracefully, in bounded time; if the block is cancelled the
    process just vanishes, as in a crash, and the others find out.

    listen: `host:port` for UDP and TCP; port 0 takes a free one.
    seeds: members to ask, as `host:port`; names are resolved again at every try.
    name: stable and unique in the cluster; default: the advertised address.
    metadata: text by text, agreed with the view; the member's record must fit 1000 bytes.
    advertise: what others are told to send to; default: `listen` as bound. Needed behind a translated
        address, and when listening on all interfaces.
    found: begin a new cluster instead of joining one. Default: if there are no seeds, or the only one is
        this process itself. Two processes that both found never merge.
    expect: the first common view is held until so many processes have met. If all of them name each other
        as seeds, none need be told to found: they agree on one, and on one only, when a majority of the seeds is
        there.
    mode: who agrees on views: all members among themselves, or an ensemble (see `serve_ensemble`); then the
        seeds are members of the ensemble, or of the cluster. The same for the whole cluster.
    settings: intervals and thresholds, the same for the whole cluster; default `Settings.lan()`.
    detector: how this member judges those it observes: `membership.windowed(...)` (the default),
        `membership.phi_accrual(...)`, `membership.application_check(...)`, or just a function, which is asked
        "is this member healthy?" besides the probes: see `application_check`.
    broadcaster: how this member's news reaches the others: `membership.epidemic(...)` (the default), or
        `membership.unicast_to_all()` in small clusters. Members may differ.
    cluster_id: join only this cluster (or found it under this id); 16 bytes.
    faults: fault injection, to be changed at run time through `cluster.transport.fault_injector`.
    rejoin: come back as a new incarnation when the others evicted this process (after a partition, say).
    join_timeout: seconds after which a JoinError says what stood in the way; None tries for ever and
        logs it, unless the cluster refuses this process `Settings.join_refusals` times.
    last_view: a file in which the last view is kept. A process that is started again finds the others by it,
        without seeds; and when the power of all of them failed, those who come back, a majority of the last
        view at least, go on in the same cluster, with higher epochs. Needs the same addresses as before, or a
        seed. `found` and `expect` are then for the very first start only, and seeds serve to find the members of
        that cluster: if none of them is known as one, a line in the log says so.
    copied_view: such a file that was put back from a copy, used where there is no `last_view`: the others are found by
        it, but it does not count for what this process knew.
    keys: a key ring, or the path of a key file: everything is encrypted and authenticated under its primary
        key, and everything that is not under one of its keys is dropped. All members need a key in common.
    insecure: without keys, listen beyond loopback although nothing is encrypted or authenticated.
    services: further services of the transport, there from the first moment.
    on_listening: called once the address is bound, before joining; tells the port the system chose.
    on_waiting: called then, too: with the cluster that the block will get. Of use before it begins is `recover`, by
        which an operator says that those who wait after a power cut are all that come back.
    on_event: called at once with each event of the protocol and this process's record, from within the
        protocol's task: for records and tests; must be quick and must not raise.
    network: where to bind; default the operating system's sockets. Tests use `InMemoryNetwork`.
    rng: source of randomness; default seeded by the system.

    Raises JoinArgumentError, AddressError, MemberError, KeyRingError, BindError, JoinRefusedError, and
    LastViewError, and any JoinError with `join_timeout`.
    """
    _check_arguments(expect, cluster_id, join_timeout)
    settings = settings if settings is not None else Settings.lan()
    memory = None if last_view is None else LastView(Path(last_view), settings.rings)
    copy = None if copied_view is None else LastView(Path(copied_view), settings.rings)
    remembered = None if memory is None else _recall(memory, copy, cluster_id)
    view = None if remembered is None else remembered.view
    if view is not None:
        cluster_id, expect = view.cluster_id, 1
    detectors, check = _detection(detector)
    seed_addresses = _seed_addresses(seeds)
    if mode is Mode.CENTRALISED and memory is not None:
        raise JoinArgumentError(
            "in the centralised mode the ensemble remembers: last_view is not for its clients"
        )
    if mode is Mode.CENTRALISED and (found or expect > 1 or not seed_addresses):
        raise JoinArgumentError("in the centralised mode the ensemble founds: give its members as seeds")
    if mode is Mode.CENTRALISED and broadcaster is not None:
        raise JoinArgumentError(
            "in the centralised mode only the ensemble is told: broadcaster is not for its clients"
        )
    if broadcaster is not None and not isinstance(broadcaster, Broadcaster):
        raise JoinArgumentError(f"broadcaster is epidemic(...) or unicast_to_all(), not {broadcaster!r}")
    if memory is not None:
        await _prepare(memory)
        if view is not None:
            await memory.warn_of_strangers(view, seed_addresses)
    async with open_transport(
        listen,
        advertise=advertise,
        cluster_id=cluster_id,
        faults=faults,
        keys=keys,
        insecure=insecure,
        network=network,
        settings=settings,
    ) as transport:
        founding = (
            # A founding that was cut short may be in force elsewhere: whoever has accepted it goes on from that.
            (remembered is None or remembered.stable == StableState())
            and mode is Mode.DECENTRALISED
            and await _is_founding(transport, seed_addresses, found)
        )
        driver = Driver(
            transport,
            Identity(
                name if name is not None else str(transport.advertised),
                transport.advertised,
                metadata_pairs(metadata or {}),
            ),
            seeds=seed_addresses,
            settings=settings,
            rng=rng if rng is not None else random.Random(),
            found=founding,
            expect=expect,
            cluster_id=cluster_id,
            rejoin=rejoin,
            remembered=remembered,
            last_view=memory,
            mode=mode,
            on_event=on_event,
            detectors=detectors,
            broadcaster=broadcaster,
        )
        for service, handler in (services or {}).items():
            transport.register(service, handler)
        if on_listening is not None:
            on_listening(transport)
        cluster = Cluster(driver)
        if on_waiting is not None:
            on_waiting(cluster)
        tasks: list[Callable[[], Awaitable[None]]] = [transport.run, driver.run]
        if check is not None:
            tasks.append(
                CheckRunner(driver, check, random.Random(driver.core.me.incarnation), driver.log).run
            )

        async def leave() -> None:
            if driver.state.view is not None:
                with trio.move_on_after(driver.leave_bound):
                    await cluster.leave()

        async with run_scope(driver.state, tasks, leave):
            await _wait_until_joined(driver, join_timeout)
            await driver.wait_until_saved()
            yield cluster


def _recall(memory: LastView, copy: LastView | None, cluster_id: bytes | None) -> Remembered | None:
    remembered = recall(memory, copy)
    view = None if remembered is None else remembered.view
    if view is not None and cluster_id not in (None, view.cluster_id):
        raise JoinArgumentError(
            f"the last view is one of cluster {view.cluster_id.hex()[:8]}, "
            f"not of {cluster_id.hex()[:8] if cluster_id else ''}: give the right file, or none"
        )
    return remembered


async def _prepare(memory: LastView) -> None:
    """Take the room for what is to be remembered; a disk that refuses keeps nobody out."""
    try:
        await trio.to_thread.run_sync(memory.prepare)
    except LastViewError as error:
        log.warning("%s; it is tried again", error)


def _detection(detector: Detector) -> tuple[DetectorFactory | None, ApplicationCheck | None]:
    match detector:
        case None:
            return None, None
        case ApplicationCheck():
            return detector.probes, detector
        case DetectorFactory():
            return detector, None
    if callable(detector):
        return None, ApplicationCheck(detector)
    raise JoinArgumentError(
        f"detector is windowed(...), phi_accrual(...), application_check(...) or a function, not {detector!r}"
    )


def _seed_addresses(seeds: Iterable[str | Address]) -> tuple[Address, ...]:
    if isinstance(seeds, str):
        raise JoinArgumentError(f"seeds are several texts, each host:port: write [{seeds!r}]")
    found = []
    for seed in seeds:
        if not isinstance(seed, str | Address):
            raise JoinArgumentError(f"a seed is a text host:port or an Address, not {seed!r}")
        found.append(seed if isinstance(seed, Address) else Address.parse(seed))
    return tuple(found)


def _check_arguments(expect: int, cluster_id: bytes | None, join_timeout: float | None) -> None:
    if join_timeout is not None and not join_timeout > 0:
        raise JoinArgumentError(f"join_timeout is a number of seconds above 0, or None, not {join_timeout}")
    if expect < 1:
        raise JoinArgumentError(f"expect is a number of processes, at least 1, not {expect}")
    if cluster_id is not None and (len(cluster_id) != len(UNKNOWN_CLUSTER) or cluster_id == UNKNOWN_CLUSTER):
        raise JoinArgumentError("cluster_id must be 16 bytes that are not all zero")


async def _wait_until_joined(driver: Driver, timeout: float | None) -> None:
    with trio.move_on_after(float("inf") if timeout is None else timeout):
        async with trio.open_nursery() as nursery:
            if timeout is not None:
                # Whatever the pauses between tries: who gives up soon wants to know why, too.
                nursery.start_soon(_question_in_time, driver, timeout / 2)
            await driver.state.wait_until(
                lambda state: state.view is not None or driver.process.refusal is not None
            )
            nursery.cancel_scope.cancel()
    if driver.state.view is not None:
        return
    if driver.process.refusal is not None:
        raise JoinRefusedError(f"the cluster refuses this process: {driver.process.refusal}")
    assert timeout is not None
    raise driver.diagnosis.error(timeout)


async def _question_in_time(driver: Driver, seconds: float) -> None:
    await trio.sleep(seconds)
    if not driver.diagnosis.known:
        await driver.question_seeds()


async def _is_founding(transport: Transport, seeds: Sequence[Address], found: bool | None) -> bool:
    if found is None:
        resolution = await resolve_seeds(seeds)
        own = (transport.advertised, transport.bound)
        return not resolution.problems and all(address in own for address in resolution.addresses)
    if not found and not seeds:
        raise JoinArgumentError("found=False without seeds can never join: give seeds, or found a cluster")
    return found
