"""Chain replication: writing to, reading from and completing the chains of one epoch document.

The procedures of a client of the log units, under one layout, without retries over layouts.

The rules.  A writer goes from head to tail, and a record counts as written when the tail has it.  The head
decides who wins an address: writers and hole fillers alike begin there.  A reader asks the tail; what the
tail has not, it may not show.  To *settle* an address is to complete it: the first value in chain order is
carried to all replicas, or junk if there is none.  Addresses below ``settled_below`` are known to be settled,
so that any replica may serve them.
Source: R. van Renesse, F. Schneider, *Chain Replication for Supporting High Throughput and Availability*,
OSDI 2004; CORFU (NSDI 2012) section 2.2 (filling holes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from datastore_adapter.log.errors import (
    CallError,
    EpochSealedError,
    ExtentAwayError,
    LogError,
    OutcomeUnknownError,
    RecordLostError,
    ReplicaRefusedError,
    ReplicaSilentError,
    ReplicaUnavailableError,
    TrimmedError,
)
from datastore_adapter.log.layout.document import EpochDocument, Extent, ExtentState, Segment, encode_document
from datastore_adapter.log.log_unit.unit import BEHIND
from datastore_adapter.log.messages import (
    JUNK,
    BatchWritten,
    Corrupt,
    Done,
    Entry,
    Found,
    Install,
    NotAReplica,
    NotReady,
    Overwritten,
    Read,
    Refused,
    Reply,
    Request,
    Survey,
    SurveyReply,
    TakeTokens,
    Tokens,
    Trimmed,
    Unwritten,
    Write,
    WriteBatch,
    WrongEpoch,
)
from datastore_adapter.log.runtime.runtime import Peer, Runtime, call_all
from datastore_adapter.log.settings import LogSettings


class NotWritten(NamedTuple):
    """What became of a record that `Replication.write_all` could not write through."""

    begun: bool
    """Some replica may hold it."""
    failure: LogError | None = None
    """What stopped it; None: it was left out, and `Replication.write` finds out whose record stands."""


class Replication:
    """Data operations under the layout of `document`; `addresses` of live hosts go before the document's.

    Every method may raise EpochSealedError (the layout is old) and ReplicaUnavailableError (a replica that
    is needed is away or refuses; the layout may be about to change).
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: LogSettings,
        document: EpochDocument,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._addresses = addresses or {}
        self.document = document
        self.layout = document.layout
        self.epoch = document.layout.data_epoch

    def place_of(self, address: int) -> tuple[Segment, Extent]:
        """Who holds the address.  Raises TrimmedError or RecordLostError when nobody does any more."""
        if address < self.layout.trimmed_below:
            raise _trimmed(address, self.layout.trimmed_below)
        segment = self.layout.segment_of(address)
        extent = segment.extent_of(address)
        if extent.state is ExtentState.FORGOTTEN:
            raise RecordLostError(
                f"address {address} was on {', '.join(extent.chain) or 'no host any more'}, which an operator "
                "declared lost; restore a backup"
            )
        return segment, extent

    async def call(self, host: str, request: Request, timeout: float | None = None) -> Reply:
        """One request to `host`, with the refusals that every caller treats alike turned into errors."""
        peer = self._peer(host)
        try:
            seconds = self._settings.call_timeout if timeout is None else timeout
            reply = await self._runtime.call(peer, request, seconds)
            if isinstance(reply, Refused) and reply.code == BEHIND:
                # It missed the layout when that was told to all.
                await self._runtime.call(peer, Install(encode_document(self.document)), seconds)
                reply = await self._runtime.call(peer, request, seconds)
        except CallError as error:
            raise ReplicaSilentError(host, str(error)) from error
        return self.checked(host, reply)

    def _peer(self, host: str) -> Peer:
        return self.document.peer(host, self._addresses.get(host))

    def checked(self, host: str, reply: Reply) -> Reply:
        """`reply`, unless it is a refusal."""
        match reply:
            case WrongEpoch():
                raise EpochSealedError(host, reply.epoch)
            case NotAReplica():
                raise ReplicaUnavailableError(f"{host} is no replica of the segment; the layout here is old")
            case NotReady():
                raise ReplicaUnavailableError(f"the sequencer on {host} was not started for this epoch yet")
            case Refused():
                raise ReplicaRefusedError(host, reply.code, reply.message)
            case _:
                return reply

    async def take_tokens(self, *streams: tuple[str, int]) -> Tokens:
        """The next addresses for so many records of each stream; with no stream the tail."""
        sequencer = self.sequencer
        reply = await self.call(sequencer, TakeTokens(self.epoch, streams))
        if not isinstance(reply, Tokens) or len(reply.previous) != len(streams):
            raise ReplicaUnavailableError(f"{sequencer} answered with {type(reply).__name__}")
        return reply

    @property
    def sequencer(self) -> str:
        """The host that hands out tokens."""
        sequencer = self.layout.sequencer
        if sequencer is None:
            raise ReplicaUnavailableError("the layout names no sequencer")
        return sequencer

    def by_chain(self, addresses: Iterable[int]) -> dict[tuple[str, ...], list[int]]:
        """The addresses that have the same chain."""
        chains: dict[tuple[str, ...], list[int]] = {}
        for address in addresses:
            chains.setdefault(self.place_of(address)[1].chain, []).append(address)
        return chains

    async def write_all(self, chain: tuple[str, ...], entries: Mapping[int, Entry]) -> dict[int, NotWritten]:
        """Carry new entries, all of the same chain, from head to tail; those that are not written through."""
        left = dict(entries)
        not_written: dict[int, NotWritten] = {}
        for position, host in enumerate(chain):
            try:
                reply = await self.call(host, WriteBatch(self.epoch, self._by_segment(left)))
                if not isinstance(reply, BatchWritten):
                    raise ReplicaUnavailableError(f"{host} answered with {type(reply).__name__}")
            except LogError as error:
                return not_written | dict.fromkeys(left, NotWritten(True, error))
            for address in reply.left_out:
                if left.pop(address, None) is not None:
                    not_written[address] = NotWritten(position > 0)
            if not left:
                break
        return not_written

    def _by_segment(
        self, entries: Mapping[int, Entry]
    ) -> tuple[tuple[str, tuple[tuple[int, Entry], ...]], ...]:
        records: dict[str, list[tuple[int, Entry]]] = {}
        for address, entry in entries.items():
            records.setdefault(self.layout.segment_of(address).key, []).append((address, entry))
        return tuple([(key, tuple(members)) for key, members in records.items()])

    async def write(self, address: int, entry: Entry) -> bool:
        """Carry `entry` from head to tail; False when another entry has won the address.

        May be repeated with the same entry until it returns.  Raises TrimmedError when the address was trimmed
        before this call wrote anything, OutcomeUnknownError when that happened in the middle.
        """
        segment, extent = self.place_of(address)
        request = Write(self.epoch, segment.key, address, entry)
        for position, host in enumerate(extent.chain):
            reply = await self.call(host, request)
            if isinstance(reply, Overwritten) and reply.record_id == entry.record_id:
                continue
            if isinstance(reply, Done):
                continue
            if isinstance(reply, Overwritten) and position == 0:
                return False
            if isinstance(reply, Trimmed) and position == 0:
                raise _trimmed(address, reply.below)
            if isinstance(reply, Trimmed):
                raise OutcomeUnknownError(f"address {address} was trimmed while a record was written there")
            # Damage on the way: settling repairs it and tells whose record stands.
            try:
                return (await self.settle(address)).record_id == entry.record_id
            except TrimmedError as error:
                raise OutcomeUnknownError(
                    f"address {address} was trimmed while a record was written there"
                ) from error
        return True

    async def read(self, address: int) -> Entry | None:
        """The entry at `address`, or None when it is not written through.

        Raises TrimmedError, and RecordLostError when no replica has a sound copy.
        """
        segment, extent = self.place_of(address)
        request = Read(self.epoch, segment.key, address)
        hosts = extent.chain[-1:]
        if address < self.layout.settled_below:
            hosts = extent.chain[::-1]
        failure: ReplicaUnavailableError | None = None
        try:
            for host in hosts:
                try:
                    reply = await self.call(host, request)
                except ReplicaUnavailableError as error:
                    failure = failure or error
                else:
                    return await self._shown(address, host, reply)
            raise away_error(segment, extent, failure)
        finally:
            del failure  # it leads back to this frame

    async def _shown(self, address: int, host: str, reply: Reply) -> Entry | None:
        """What a replica's answer to a `Read` says of the address."""
        match reply:
            case Found():
                return reply.entry
            case Unwritten():
                return None
            case Trimmed():
                raise _trimmed(address, reply.below)
            case Corrupt():
                return await self._read_around_damage(address)
            case _:
                raise ReplicaUnavailableError(f"{host} answered with {type(reply).__name__}")

    async def settle(self, address: int) -> Entry:
        """Complete the address on its whole chain; the entry that stands there then.

        Repairs damaged copies.  Needs every replica of the chain.
        """
        segment, extent = self.place_of(address)
        try:
            replies = await self._read_all(segment, extent, address)
            if not _is_lost(replies, extent):
                entry = _authority(replies, extent) or JUNK
                return await self._carry(segment, extent, address, entry, replies)
        except ReplicaUnavailableError as error:
            if extent.is_held:
                raise
            raise away_error(segment, extent, error) from error
        raise RecordLostError(
            f"address {address}: the copies on {', '.join(extent.chain)} are damaged; restore a backup"
        )

    async def survey(
        self, host: str, segment: Segment, start: int, end: int, stream: str | None = None
    ) -> SurveyReply:
        """What `host` is missing of the segment's addresses in ``[start, end)``; see `messages.Survey`.

        The range must lie in one extent.
        """
        stripe = self.layout.stripe_of(segment.key, start)
        if stripe is None:
            return SurveyReply((), (), end)
        request = Survey(self.epoch, segment.key, start, end, *stripe, stream)
        reply = await self.call(host, request)
        if not isinstance(reply, SurveyReply):
            raise ReplicaUnavailableError(f"{host} answered a survey with {type(reply).__name__}")
        return reply

    async def _read_all(self, segment: Segment, extent: Extent, address: int) -> dict[str, Reply]:
        peers = {host: self._peer(host) for host in extent.chain}
        request = Read(self.epoch, segment.key, address)
        replies = await call_all(self._runtime, peers, request, self._settings.call_timeout)
        for host in extent.chain:
            if host not in replies:
                raise ReplicaUnavailableError(f"{host} did not answer; a new layout drops it if it is dead")
            reply = replies[host]
            if isinstance(reply, Refused) and reply.code == BEHIND:
                reply = replies[host] = await self.call(host, request)
            reply = self.checked(host, reply)
            if isinstance(reply, Trimmed):
                raise _trimmed(address, reply.below)
        return replies

    async def _carry(
        self, segment: Segment, extent: Extent, address: int, entry: Entry, replies: Mapping[str, Reply]
    ) -> Entry:
        """Bring `entry` to every replica that lacks it, head first."""
        for position, host in enumerate(extent.chain):
            reply = replies[host]
            if isinstance(reply, Found) and reply.entry == entry:
                continue
            repair = isinstance(reply, Corrupt | Found)
            answer = await self.call(
                host, Write(self.epoch, segment.key, address, entry, repair, settling=True)
            )
            if isinstance(answer, Done):
                continue
            if isinstance(answer, Overwritten) and answer.record_id == entry.record_id:
                continue
            if isinstance(answer, Overwritten) and position == 0:
                # Somebody else was first at the head: theirs stands.
                return await self.settle(address)
            raise ReplicaUnavailableError(f"{host} holds another record at {address}; settling it again")
        return entry

    async def _read_around_damage(self, address: int) -> Entry | None:
        """The tail's copy is damaged: settle the address, or at least find a sound copy.

        The tail once had the record, so that any other replica's copy is the one written through; unless
        it is away, every copy is repaired on the way.
        """
        try:
            return await self.settle(address)
        except ReplicaUnavailableError:
            segment, extent = self.place_of(address)
            if address >= self.layout.settled_below:
                raise  # a replica that is away may be the one that decides
            request = Read(self.epoch, segment.key, address)
            for host in extent.chain:
                try:
                    reply = await self.call(host, request)
                except ReplicaUnavailableError:
                    continue
                if isinstance(reply, Found):
                    return reply.entry
            raise


def _authority(replies: Mapping[str, Reply], extent: Extent) -> Entry | None:
    """The value that stands: the first record in chain order, else junk if anybody has it.

    A record goes before junk further up: it can only have come from the head, which then lost it to
    damage before the hole was filled.
    """
    found = [reply.entry for host in extent.chain if isinstance(reply := replies[host], Found)]
    return next((entry for entry in found if not entry.is_junk), found[0] if found else None)


def away_error(
    segment: Segment, extent: Extent, failure: ReplicaUnavailableError | None
) -> ReplicaUnavailableError:
    """What to tell of an extent none of whose hosts could be asked."""
    if extent.state is not ExtentState.AWAY and failure is not None:
        return failure
    which = f"{segment.key} holds from address {extent.start} to {(extent.end or 0) - 1}"
    if not extent.chain:
        text = f"nobody has what {which} any more: its last hosts came back without it; see `rota log forget`"
    else:
        text = f"what {which} is on {', '.join(extent.chain)} only, and they are away; start one of them"
    return ExtentAwayError(text, extent.chain)


def _trimmed(address: int, below: int) -> TrimmedError:
    return TrimmedError(f"address {address} was trimmed; records begin at {below}", below)


def _is_lost(replies: Mapping[str, Reply], extent: Extent) -> bool:
    """No sound copy, and nobody who could testify that there never was one.

    Whatever was acknowledged stands on every replica, so that one sound replica without it proves that
    nothing is lost.
    """
    return all(isinstance(replies[host], Corrupt) for host in extent.chain)
