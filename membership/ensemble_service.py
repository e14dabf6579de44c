"""The interface for trio of an ensemble member: be a voter for as long as a block of code runs.

`serve_ensemble` gives an `Ensemble`, and drives its voter with a transport and a file. A voter is no member of the
cluster whose views it records; those join with `mode=Mode.CENTRALISED`, in other processes or at another port.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from pathlib import Path

import trio

from membership.address import Address
from membership.ensemble.voter import EnsembleError, Voter
from membership.protocol.context.effects import (
    Dropped,
    Effects,
    Event,
    QuorumLost,
    QuorumRegained,
    StateToSave,
)
from membership.protocol.context.refusals import public_name
from membership.protocol.view.member import INCARNATION_BYTES, Member
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.change_feed import ClusterState, ClusterStatus
from membership.runtime.driver import read_message, transmit
from membership.runtime.event_loops.task_scope import run_scope
from membership.runtime.event_loops.trio_block import trio_block
from membership.runtime.member_log import MemberLog
from membership.runtime.transport_setup import new_signer, open_transport
from membership.runtime.voter_storage import StateDirectory
from membership.settings import Settings
from membership.surface import EnsembleSurface, TrioSurface
from membership.transport.endpoint import Network
from membership.transport.faults import FaultInjector, Faults
from membership.transport.resolve import resolve_seeds
from membership.transport.transport import Arrival, Transport
from membership.wire.key_ring import KeyRing


class Ensemble(TrioSurface, EnsembleSurface):
    """This process's part in an ensemble. Made by `serve_ensemble`; valid within its block."""

    @property
    def transport(self) -> Transport:
        """The process's address on the network, as in `Cluster.transport`. Only here."""
        return self._transport

    def statistics(self) -> dict[str, int]:
        """Counters since the start: the protocol's, and what was sent, received and dropped, by reason."""
        protocol = {public_name(name): count for name, count in self._voter.statistics().items()}
        return {**protocol, **dict(sorted(self.transport.counters.items()))}


@trio_block
async def serve_ensemble(
    listen: str | Address,
    members: Iterable[str | Address],
    *,
    state: Path | str,
    name: str | None = None,
    advertise: str | Address | None = None,
    expect: int = 1,
    settings: Settings | None = None,
    faults: Faults | FaultInjector | None = None,
    keys: KeyRing | Path | str | None = None,
    insecure: bool = False,
    on_listening: Callable[[Transport], None] | None = None,
    network: Network | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Ensemble]:
    """Be a voter of an ensemble while the block runs. It begins at once: the others may come later.

    members: the addresses of all voters, this one's among them; at least three, and the same for all of them, for
        ever. At the very first start all of them must run for the ensemble to form; afterwards a majority.
    state: this voter's own directory. Never delete it and never copy another's: a voter that has lost its state
        has no vote any more, because it might contradict what it has said.
    expect: hold the cluster's first view until so many processes want to join.
    settings: the same as those of the cluster's members; default `Settings.lan()`.
    The other arguments are those of `membership.join`.

    Every vote is synced to disk in the event loop, for some milliseconds: do not run much else there.
    Raises EnsembleError, RecordError, StateError, AddressError, KeyRingError and BindError.
    """
    settings = settings if settings is not None else Settings.lan()
    given = tuple(member if isinstance(member, Address) else Address.parse(member) for member in members)
    resolution = await resolve_seeds(given)
    if resolution.problems:
        raise EnsembleError(
            f"not every member of the ensemble has an address: {'; '.join(resolution.problems)}"
        )
    with closing(StateDirectory(Path(state))) as directory:
        async with open_transport(
            listen,
            advertise=advertise,
            cluster_id=None,
            faults=faults,
            keys=keys,
            insecure=insecure,
            network=network,
            settings=settings,
        ) as transport:
            generator = rng if rng is not None else random.Random()
            address = transport.advertised
            me = Member.create(name or str(address), address, generator.randbytes(INCARNATION_BYTES))
            voter = Voter(
                me,
                addresses=resolution.addresses,
                settings=settings,
                rng=random.Random(generator.getrandbits(64)),
                saved=directory.load(),
                expect=expect,
                signer=new_signer(transport),
            )
            transport.incarnation = voter.me.incarnation
            if on_listening is not None:
                on_listening(transport)
            driver = _VoterDriver(transport, voter, directory)
            async with run_scope(driver.state, (transport.run, driver.run)):
                yield Ensemble(voter, transport, driver.state)


class _VoterDriver:
    """One task: wait, drain, hand to the voter, tick; save first, then send."""

    def __init__(self, transport: Transport, voter: Voter, directory: StateDirectory) -> None:
        self.state = ClusterState()
        self._transport = transport
        self._voter = voter
        self._log = MemberLog(voter.me.name)
        self._directory = directory
        self._wake_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        self._perform(self._voter.start(trio.current_time()))
        while True:
            await self._transport.wait(self._wake_at)
            now = trio.current_time()
            for arrival in self._transport.drain():
                self._take(arrival, now)
            if now >= self._wake_at:
                self._perform(self._voter.tick(now))

    def _take(self, arrival: Arrival, now: float) -> None:
        message = read_message(arrival, self._transport.counters)
        if message is not None:
            self._perform(self._voter.receive(arrival.source, message, now))

    def _perform(self, effects: Effects) -> None:
        # What is sent may be a promise; it must survive a crash, so it is on disk before it is on the network.
        for event in effects.events:
            if isinstance(event, StateToSave):
                self._directory.save(event.record)
        if self._voter.cluster_id != self._transport.cluster_id:
            self._transport.cluster_id = self._voter.cluster_id
        transmit(self._transport, effects)
        self._wake_at = effects.wake_at
        for event in effects.events:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case ViewChanged():
                view = event.configuration
                self._log.info("the ensemble has decided view %d of %d members", view.epoch, len(view))
                self.state.publish(
                    status=ClusterStatus.MEMBER,
                    quorum=True,
                    view=view,
                    left=event.left,
                    evicted=event.evicted,
                    failed=event.failed,
                )
            case QuorumLost():
                self._log.warning(
                    "no majority of the ensemble within reach: views stay as they are until one is"
                )
                self.state.publish(quorum=False)
            case QuorumRegained():
                self._log.warning("a majority of the ensemble is within reach again")
                self.state.publish(quorum=True)
            case Dropped(reason):
                self._log.warning("dropped what arrived: %s", reason)
            case _:
                pass
