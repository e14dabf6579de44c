"""The log unit: one host's share of the write-once address space, as a state machine.

What it is: it answers writes, reads, seals, joins and state transfer for the segments it is a replica of.
The answer to a request that changed something may leave only after `commit`, so that one fsync serves many
(group commit); `Outcome.needs_commit` says so.
What it is not: aware of chains.  Writers go from head to tail by themselves.

Epochs: a data request carries the data epoch of the asker's layout and is refused once that epoch is
sealed.  Requests of higher epochs are accepted: a layout can only be in force if it was decided, and the
decision needed a seal of the epochs before it where that mattered.
Source: CORFU (NSDI 2012) section 2.2 (storage units: write-once, seal, trim).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from datastore_adapter.codec import entries_checksum
from datastore_adapter.document import EpochDocument
from datastore_adapter.durable_record import load_record, save_record
from datastore_adapter.errors import StorageError, StorageFullError
from datastore_adapter.messages import (
    JUNK,
    BatchWritten,
    Confirm,
    Corrupt,
    Done,
    Entry,
    Found,
    Join,
    NotAReplica,
    Overwritten,
    Read,
    ReadChunk,
    ReadIds,
    ReadStreamTails,
    Refused,
    Reply,
    Request,
    Seal,
    Sealed,
    SegmentStatus,
    Survey,
    Trim,
    Trimmed,
    Unwritten,
    Write,
    WriteBatch,
    WriteChunk,
    WrongEpoch,
)
from datastore_adapter.segment_store import AddressState, SegmentStore
from datastore_adapter.settings import LogSettings
from datastore_adapter.storage import Storage
from datastore_adapter.striping import Stripe, addresses_in
from datastore_adapter.unit_answers import SURVEY_ANSWERS, chunk, record_ids, stream_tails, survey

SEAL_FILE: Final = "unit/sealed"


class Outcome(NamedTuple):
    """A reply, and whether it may leave only after `commit`."""

    reply: Reply
    needs_commit: bool = False


class _SealRecord(msgspec.Struct, frozen=True, array_like=True):
    epoch: int


class LogUnit:
    """All segments of one host.  Construction recovers what the storage holds; may raise StorageError."""

    def __init__(self, storage: Storage, settings: LogSettings) -> None:
        self._storage = storage
        self._settings = settings
        self.stores: dict[str, SegmentStore] = {}
        """By segment key, of every segment this host is a replica of."""
        self._dirty = False
        self.failure: str = ""
        """Why the unit stopped serving; empty while it serves."""
        self._is_full = False
        self.was_full = False
        """The disk took no more records at some time since this process began."""
        self.counters: Counter[str] = Counter()
        sealed = load_record(storage, SEAL_FILE, _SealRecord)
        self.sealed = -1 if sealed is None else sealed.epoch
        """This epoch and all below it are sealed; -1: none."""
        for name in storage.names("unit/"):
            parts = name.split("/")
            if len(parts) == 3 and parts[1] not in self.stores:
                store = self._open(parts[1])
                if store.exists:
                    self.stores[parts[1]] = store
        if storage.is_damaged:
            self._note_damage()

    def _note_damage(self) -> None:
        """Any segment may lack records at its end: each is to join again, and copies what it lacks."""
        for store in self.stores.values():
            store.doubt()
        self._storage.sync()
        self._storage.forget_damage()
        self.counters["damaged_starts"] += 1

    def handle(self, request: Request) -> Outcome:
        """Carry out one request."""
        if self.failure:
            return Outcome(Refused("storage", self.failure))
        try:
            return self._dispatch(request)
        except StorageFullError as error:
            # Nothing was appended, so the unit is intact, and serves what it has.
            self.was_full = self._is_full = True
            self.counters["refused_full"] += 1
            return Outcome(Refused("full", str(error)))
        except StorageError as error:
            self.counters["storage_refusals"] += 1
            return Outcome(Refused("storage", str(error)))

    def look_at_disk(self) -> tuple[bool, int]:
        """Whether the disk takes no more records, and, once that was so, about how many bytes it takes; else -1.

        It counts as full until there is room for a good many.  The room is rounded down to a power of two, so that
        it does not change all the time.
        """
        try:
            room = self._storage.room()
        except StorageError:
            return self._is_full, -1
        enough = 4 * self._settings.max_payload
        self._is_full = room < (enough if self._is_full else self._settings.max_payload)
        self.was_full |= self._is_full
        return self._is_full, (1 << room.bit_length() >> 1 if self.was_full else -1)

    def commit(self) -> None:
        """Make everything durable that `handle` has answered with `needs_commit`.

        Raises StorageError, after which the unit refuses everything: what the disk holds is unknown
        until the process has read it again.
        """
        if not self._dirty:
            return
        try:
            self._storage.sync()
        except StorageError as error:
            self.failure = f"{error}; restart this agent once the disk is sound"
            raise
        self._dirty = False
        self.counters["commits"] += 1

    def install(self, document: EpochDocument, host: str) -> None:
        """A newer layout was decided: forget the segments this host (`host`) has no part in any more.

        A later layout cannot count on what is forgotten: a replica is named only after it joined and
        copied.  But the segments of a layout still being prepared (joined since) must stay.
        """
        if self.failure:
            return
        for key in list(self.stores):
            segment = document.layout.segment(key)
            store = self.stores[key]
            named = segment is not None and host in segment.hosts()
            # A host that was away is no log unit again before it was considered: what it has may be of use.
            considered = host in document.layout.log_units
            if considered and not named and max(store.joined_epoch, store.written_epoch) < document.epoch:
                del self.stores[key]
                try:
                    store.destroy()
                except StorageError:
                    self.counters["storage_refusals"] += 1  # a restart finds the rest, and forgets it then
                self.counters["segments_dropped"] += 1

    def segments(self) -> tuple[SegmentStatus, ...]:
        return tuple(
            SegmentStatus(key, store.tail, len(store.index), store.bytes, store.trimmed_below)
            for key, store in self._sound()
        )

    def _sound(self) -> Iterator[tuple[str, SegmentStore]]:
        """The segments that may answer for what they hold."""
        return ((key, store) for key, store in sorted(self.stores.items()) if not store.in_doubt)

    # requests

    def _dispatch(self, request: Request) -> Outcome:
        self.counters[type(request).__name__] += 1
        match request:
            case WriteBatch():
                return self._write_batch(request)
            case Write():
                return self._write(request)
            case Read():
                return self._with_store(
                    request.epoch, request.segment, lambda store: self._read(store, request)
                )
            case Survey():
                return self._with_store(request.epoch, request.segment, lambda store: survey(store, request))
            case ReadChunk():
                return self._with_store(request.epoch, request.segment, lambda store: chunk(store, request))
            case WriteChunk():
                return self._write_chunk(request)
            case ReadIds():
                return self._with_store(
                    request.epoch, request.segment, lambda store: record_ids(store, request)
                )
            case Confirm():
                return self._confirm(request)
            case Seal():
                return self._seal(request)
            case Join():
                return self._join(request)
            case ReadStreamTails():
                return self._stream_tails(request)
            case Trim():
                return self._trim(request)
            case _:
                return Outcome(Refused("role", f"a log unit does not serve {type(request).__name__}"))

    def _with_store(self, epoch: int, key: str, use: Callable[[SegmentStore], Reply]) -> Outcome:
        """Run `use` on the segment's store; reads wait for the commit of what they may show."""
        refusal = self._refusal(epoch)
        if refusal is not None:
            return refusal
        store = self.stores.get(key)
        if store is None:
            return Outcome(NotAReplica())
        if store.in_doubt:
            return Outcome(
                Refused("damage", f"what is here of segment {key} was damaged; it is copied again")
            )
        return Outcome(use(store), needs_commit=self._dirty)

    def _refusal(self, epoch: int) -> Outcome | None:
        if epoch <= self.sealed or epoch < 0:
            self.counters["wrong_epoch"] += 1
            return Outcome(WrongEpoch(self.sealed))
        return None

    def _write(self, request: Write) -> Outcome:
        if len(request.entry.payload) > self._settings.max_payload:
            limit = self._settings.max_payload
            return Outcome(Refused("too_large", f"a payload of at most {limit} bytes is accepted here"))

        def write(store: SegmentStore) -> Reply:
            return self._put(store, request)

        reply, _ = self._with_store(request.epoch, request.segment, write)
        return Outcome(reply, needs_commit=self._dirty)

    def _write_batch(self, request: WriteBatch) -> Outcome:
        refusal = self._refusal(request.epoch)
        if refusal is not None:
            return refusal
        left_out: list[int] = []
        for key, records in request.records:
            store = self.stores.get(key)
            if store is None or store.in_doubt:
                left_out += [address for address, _ in records]
            else:
                left_out += self._put_new(store, request.epoch, records)
        return Outcome(BatchWritten(tuple(left_out)), needs_commit=self._dirty)

    def _put_new(self, store: SegmentStore, epoch: int, records: Sequence[tuple[int, Entry]]) -> list[int]:
        """Write what goes to free addresses; the addresses of all else, unless the record stands there already."""
        fresh: dict[int, Entry] = {}
        left_out: list[int] = []
        limit, known, new = self._settings.max_payload, store.streams, set[str]()
        room = self._settings.max_streams - len(known)
        for address, entry in records:
            stream = entry.stream
            plain = len(entry.payload) <= limit and (stream in known or stream in new or len(new) < room)
            if plain and address not in fresh and store.state(address) is AddressState.UNWRITTEN:
                fresh[address] = entry
                if stream not in known:
                    new.add(stream)
            elif not _stands(store, address, entry):
                left_out.append(address)
        if fresh:
            store.write_all(epoch, fresh)
            self._dirty = True
            self.counters["records"] += len(fresh)
        return left_out

    def _put(self, store: SegmentStore, request: Write) -> Reply:
        address, entry, repair = request.address, request.entry, request.repair
        state = store.state(address)
        if state is AddressState.TRIMMED:
            return Trimmed(store.trimmed_below)
        if state is AddressState.WRITTEN:
            present = store.record_id(address)
            # Junk may be repaired into a record: a record found further down a chain proves that this
            # replica had it, and lost it to damage before the hole was filled.
            replaceable = repair and present == JUNK.record_id and not entry.is_junk
            if present is not None and not replaceable:
                return Overwritten(present)
            state = store.state(address)
        if state is AddressState.DAMAGED and not repair:
            return Corrupt()
        if repair:
            self.counters["repaired"] += 1
        elif entry.stream not in store.streams and len(store.streams) >= self._settings.max_streams:
            return Refused("streams", f"more than {self._settings.max_streams} streams; use fewer")
        store.write(address, request.epoch, entry, urgent=request.settling)
        self._dirty = True
        return Done()

    def _read(self, store: SegmentStore, request: Read) -> Reply:
        state = store.state(request.address)
        if state is AddressState.TRIMMED:
            return Trimmed(store.trimmed_below)
        if state is AddressState.UNWRITTEN:
            return Unwritten()
        entry = store.read(request.address) if state is AddressState.WRITTEN else None
        if entry is None:
            self.counters["corrupt"] += 1
            return Corrupt()
        return Found(entry)

    def _write_chunk(self, request: WriteChunk) -> Outcome:
        if entries_checksum(request.entries) != request.checksum:
            self.counters["bad_chunks"] += 1
            return Outcome(Refused("checksum", "the chunk was damaged on its way; send it again"))

        def write(store: SegmentStore) -> Reply:
            store.trim(request.trimmed_below)
            entries = dict(request.entries)
            for address in self._put_new(store, request.epoch, request.entries):
                entry = entries[address]
                write = Write(request.epoch, request.segment, address, entry)
                reply = self._put(store, write)
                if isinstance(reply, Corrupt):
                    reply = self._put(store, replace(write, repair=True))
                if isinstance(reply, Overwritten) and reply.record_id != entry.record_id:
                    return Refused("conflict", f"address {address} holds another record here")
                if isinstance(reply, Refused):
                    return reply
            return Done()

        reply, _ = self._with_store(request.epoch, request.segment, write)
        return Outcome(reply, needs_commit=self._dirty)

    def _confirm(self, request: Confirm) -> Outcome:
        def confirm(store: SegmentStore) -> Reply:
            stripe = Stripe(request.stripe, request.stripes)
            candidates = addresses_in(request.start, max(request.start, request.end), stripe)
            if len(candidates) > SURVEY_ANSWERS:
                return Refused("too_many", f"at most {SURVEY_ANSWERS} addresses are confirmed at a time")
            store.confirm((request.start, request.end), candidates, dict(request.ids))
            self._dirty = True
            self.counters["reclaimed"] += len(request.ids)
            return Done()

        reply, _ = self._with_store(request.epoch, request.segment, confirm)
        return Outcome(reply, needs_commit=self._dirty)

    def _seal(self, request: Seal) -> Outcome:
        if request.epoch > self.sealed:
            self.commit()  # what was accepted under the epoch is in the tails told below
            save_record(self._storage, SEAL_FILE, _SealRecord(request.epoch))
            self.sealed = request.epoch
        elif request.epoch < self.sealed:
            return Outcome(WrongEpoch(self.sealed))
        return Outcome(Sealed(tuple((key, store.tail) for key, store in self._sound())))

    def _join(self, request: Join) -> Outcome:
        if self.sealed < request.epoch:
            return Outcome(Refused("unsealed", f"seal epoch {request.epoch} before joining"))
        store = self.stores.get(request.segment)
        if store is None:
            store = self._open(request.segment)
        elif max(store.joined_epoch, store.written_epoch) > request.epoch:
            return Outcome(WrongEpoch(self.sealed))
        elif store.joined_epoch == request.epoch:
            return Outcome(Done())  # a repeated request must not erase what came since
        store.join(request.epoch, request.keep, request.retain_below)
        self.stores[request.segment] = store
        self._dirty = True
        return Outcome(Done(), needs_commit=True)

    def _stream_tails(self, request: ReadStreamTails) -> Outcome:
        refusal = self._refusal(request.epoch)
        if refusal is not None:
            return refusal
        if any(key not in self.stores or self.stores[key].in_doubt for key, _, _ in request.ranges):
            return Outcome(NotAReplica())
        found = stream_tails(self.stores, request, self._settings.back_pointers)
        return Outcome(found, needs_commit=self._dirty)

    def _trim(self, request: Trim) -> Outcome:
        refusal = self._refusal(request.epoch)
        if refusal is not None:
            return refusal
        for store in self.stores.values():
            store.trim(request.address)
        self._dirty = True
        return Outcome(Done(), needs_commit=True)

    # storage

    def _open(self, key: str) -> SegmentStore:
        return SegmentStore(self._storage, key, file_bytes=self._settings.segment_file_bytes)


def _stands(store: SegmentStore, address: int, entry: Entry) -> bool:
    """Whether this very record was written before."""
    if store.state(address) is not AddressState.WRITTEN:
        return False
    return store.record_id(address) == entry.record_id
