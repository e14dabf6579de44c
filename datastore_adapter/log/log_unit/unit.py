"""The log unit: one host's share of the write-once address space, as a state machine.

It answers writes, reads, seals, joins and state transfer for the segments it is a replica of.  The answer to a
request that changed something may leave only after `commit`, so that one fsync serves many (group commit);
`Outcome.needs_commit` says so.  It knows nothing of chains: writers go from head to tail by themselves.

Epochs: a data request carries the data epoch of the asker's layout and is refused once that epoch is
sealed.  Requests of higher epochs are accepted, as far as the unit knows that they were decided: their decision needed
a seal of the epochs before where that mattered.  A unit that has not been told of the epoch refuses (`BEHIND`), and
whoever asked tells it: the layout may name another disk for its host by now, and what stands on this one is then no
copy of anything until it was compared (`log.storage.disk_identity`).
Source: CORFU (NSDI 2012) section 2.2 (storage units: write-once, seal, trim).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from datastore_adapter.log.errors import StorageError
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.layout.striping import Stripe, addresses_in
from datastore_adapter.log.log_unit.answers import (
    SURVEY_ANSWERS,
    chunk,
    record_ids,
    stream_counts,
    stream_tails,
    survey,
)
from datastore_adapter.log.log_unit.segment_store import AddressState, SegmentStore
from datastore_adapter.log.log_unit.writes import Writes
from datastore_adapter.log.messages import (
    UNKNOWN,
    BatchWritten,
    Confirm,
    Corrupt,
    CountStreams,
    Done,
    Found,
    Join,
    NotAReplica,
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
    Trust,
    UnknownRequest,
    Unwritten,
    Write,
    WriteBatch,
    WriteChunk,
    WrongEpoch,
)
from datastore_adapter.log.messages.codec import entries_checksum
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_health import refused_by
from datastore_adapter.log.storage.durable_record import load_record, save_record
from datastore_adapter.log.storage.file_storage import Storage

UNIT_FILE: Final = "unit/state"
BEHIND: Final = "behind"
"""Code of the refusal of a unit that was not told of the request's epoch."""
_ANY_EPOCH: Final = 1 << 62


class Outcome(NamedTuple):
    """A reply, and whether it may leave only after `commit`."""

    reply: Reply
    needs_commit: bool = False


class UnitRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a log unit must remember besides the journals of its segments."""

    sealed: int = -1
    """This epoch and all below it are sealed; -1: none."""
    files: dict[str, tuple[int, int]] = {}
    """By segment, the numbers of the first and the last journal file that have to be there."""
    blank: dict[str, int] = {}
    """By segment, the epoch under which it was joined with nothing kept, until a later one that counts on it is known.

    A reconfiguration that lets a replica join may fail, and the epoch in force still names this host for what it has
    lost: it must not be taken for the replica that had it."""


class LogUnit:
    """All segments of one host.  Construction recovers what the storage holds; may raise StorageError."""

    def __init__(self, storage: Storage, settings: LogSettings) -> None:
        self._storage = storage
        self._settings = settings
        self.stores: dict[str, SegmentStore] = {}
        """By segment key, of every segment this host is a replica of."""
        self._dirty = False
        self.counters: Counter[str] = Counter()
        self._writes = Writes(settings, self.counters, self._note_change)
        self._disk = b""
        self._known_epoch = _ANY_EPOCH
        """Data requests of higher epochs are refused; any is served until `bind`."""
        record = load_record(storage, UNIT_FILE, UnitRecord)
        if record is None:
            record = UnitRecord()
            save_record(storage, UNIT_FILE, record)
        self._files, self._new_files = record.files, dict[str, tuple[int, int]]()
        self._blank = record.blank
        self.sealed = record.sealed
        """This epoch and all below it are sealed; -1: none."""
        for name in storage.names("unit/"):
            parts = name.split("/")
            if len(parts) == 3 and parts[1] not in self.stores:
                store = self._open(parts[1])
                if store.exists:
                    self.stores[parts[1]] = store
        for key, (first, last) in record.files.items():
            if key in self.stores and not self.stores[key].has_files(first, last):
                self._doubt([self.stores[key]], "lost_files")
            # One of which no file is left is not here, dropped or lost as a whole; it may join again, see `blank`.
        if storage.is_damaged:
            self._note_damage()

    def _note_change(self) -> None:
        self._dirty = True

    def _note_damage(self) -> None:
        """Any segment may lack records at its end: each is to join again, and copies what it lacks."""
        if self._doubt(self.stores.values(), "damaged_segments"):
            self._storage.forget_damage()
        self.counters["damaged_starts"] += 1

    def _doubt(self, stores: Iterable[SegmentStore], reason: str) -> bool:
        """What these segments hold here is no copy until they have joined again, and were compared.

        Whether the disk says so too.  One that takes nothing does not: then it holds for this process, and the next
        one finds the same reason, for what tells it is on the disk.
        """
        noted: list[bool] = []
        for store in stores:
            self.counters[reason] += 1
            try:
                store.doubt()
            except StorageError:
                noted.append(False)
            else:
                noted.append(True)
        if any(noted):
            self._storage.sync()
        return all(noted)

    def bind(self, disk: bytes, host: str, document: EpochDocument | None, *, has_forgotten: bool) -> None:
        """From now on serve only what the documents told to this host (`host`) entrust to this `disk`.

        `has_forgotten`: no earlier document can mean what stands here.
        """
        self._disk, self._known_epoch = disk, -1
        if has_forgotten:
            self._doubt(self.stores.values(), "other_disk")
        if document is not None:
            self._learn(document, host)

    def _learn(self, document: EpochDocument, host: str) -> None:
        self._known_epoch = max(self._known_epoch, document.epoch)
        self._learn_of_blanks(document, host)
        if document.disks.get(host) in (None, self._disk):
            return

        def is_old(store: SegmentStore) -> bool:
            # What has joined with nothing for the next epoch is not doubted: once decided, that one counts on it.
            joined_for_next = store.joined_epoch == document.epoch and self._is_blank(store)
            return not store.in_doubt and store.joined_epoch <= document.epoch and not joined_for_next

        self._doubt([store for store in self.stores.values() if is_old(store)], "other_disk")

    def _learn_of_blanks(self, document: EpochDocument, host: str) -> None:
        """An epoch that was decided after this unit joined segments with nothing counts on that; or it was sealed
        before that, and names this host for more than it has."""
        decided = {key for key, epoch in self._blank.items() if epoch < document.layout.data_epoch}
        for key in decided & self.stores.keys():
            segment, store = document.layout.segment(key), self.stores[key]
            closed = () if segment is None else segment.closed_extents
            if any(host in extent.chain for extent in closed) and not store.in_doubt:
                self._doubt([store], "lost_files")
        # What is in doubt stays noted until it joins again: a full disk may not have taken the doubt.
        decided -= {key for key, store in self.stores.items() if store.in_doubt}
        if decided:
            self._blank = {key: epoch for key, epoch in self._blank.items() if key not in decided}
            with suppress(StorageError):  # then with whatever is saved next
                self._save_blank(self._blank)

    def is_sound(self, key: str) -> bool:
        """Whether this unit answers for what it has of the segment as a replica of it."""
        store = self.stores.get(key)
        return store is not None and not store.in_doubt and not self._is_blank(store)

    def _is_blank(self, store: SegmentStore) -> bool:
        """Whether it joined with nothing, and no later epoch is known to count on it: nor has written here."""
        joined = self._blank.get(store.key)
        return joined is not None and store.written_epoch <= joined

    @property
    def failure(self) -> str:
        """Why it serves nothing: what the disk holds of what it took last is not known until the storage was repaired.
        Empty while it serves."""
        return "" if self._storage.failure is None else str(self._storage.failure)

    def handle(self, request: Request) -> Outcome:
        """Carry out one request."""
        if self._storage.failure is not None:
            return Outcome(refused_by(self._storage.failure))
        try:
            return self._dispatch(request)
        except StorageError as error:
            # Nothing was appended, so the unit is intact, and serves what it has; or a sync failed, and it is stopped.
            self.counters["storage_refusals"] += 1
            return Outcome(refused_by(error))

    @property
    def needs_commit(self) -> bool:
        """Whether anything is not durable yet."""
        return self._dirty

    def commit(self) -> None:
        """Make everything durable that `handle` has answered with `needs_commit`.  Raises StorageError."""
        if not self._dirty:
            return
        self._storage.sync()
        if self._new_files:
            # Else with the next commit: the records are safe, a lost file unnoticed.
            with suppress(StorageError):
                self._save_files()
        self._dirty = False
        self.counters["commits"] += 1

    def after_repair(self) -> None:
        """The storage was repaired: everything that was appended is durable.  Raises StorageError."""
        try:
            is_damaged = self._storage.is_damaged
        except StorageError:
            is_damaged = True  # it cannot be ruled out
        if is_damaged:
            self._note_damage()

    def _note_files(self, key: str, files: tuple[int, int], at_once: bool) -> None:
        self._new_files[key] = files
        if at_once:
            self._save_files()

    def _save_files(self) -> None:
        known = {key: files for key, files in self._files.items() if key in self.stores}
        self._save(self.sealed, {**known, **self._new_files})
        self._new_files.clear()

    def _save(self, sealed: int, files: dict[str, tuple[int, int]]) -> None:
        save_record(self._storage, UNIT_FILE, UnitRecord(sealed, files, self._blank))
        self.sealed, self._files = sealed, files

    def _save_blank(self, blank: dict[str, int]) -> None:
        save_record(self._storage, UNIT_FILE, UnitRecord(self.sealed, self._files, blank))
        self._blank = blank

    def install(self, document: EpochDocument, host: str) -> None:
        """A newer layout was decided: forget the segments this host (`host`) has no part in any more.

        A later layout cannot count on what is forgotten: a replica is named only after it joined and
        copied.  But the segments of a layout still being prepared (joined since) must stay.
        """
        if self.failure:
            return
        if self._disk:
            try:
                self._learn(document, host)
            except StorageError:
                self.counters["storage_refusals"] += 1
                return
        for key in list(self.stores):
            segment = document.layout.segment(key)
            store = self.stores[key]
            named = segment is not None and host in segment.hosts()
            # A host that was away is no log unit again before it was considered: what it has may be of use.
            considered = host in document.layout.log_units
            is_old = not store.in_doubt and max(store.joined_epoch, store.written_epoch) < document.epoch
            if considered and not named and is_old:
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

    def doubtful(self) -> tuple[SegmentStatus, ...]:
        """The segments that are here, and no copies until they were compared."""
        return tuple(
            SegmentStatus(key, store.tail, len(store.index), store.bytes, store.trimmed_below)
            for key, store in sorted(self.stores.items())
            if store.in_doubt
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
            case CountStreams():
                return self._stream_counts(request)
            case Trim():
                return self._trim(request)
            case Trust():
                return self._trust(request)
            case UnknownRequest():
                text = f"requests of kind {request.kind} are unknown here, perhaps of a later version: upgrade it"
                return Outcome(Refused(UNKNOWN, text))
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

    def _change(self, epoch: int, key: str, change: Callable[[SegmentStore], Reply]) -> Outcome:
        """As `_with_store`, where `change` changes something itself."""
        reply, _ = self._with_store(epoch, key, change)
        return Outcome(reply, needs_commit=self._dirty)

    def _refusal(self, epoch: int) -> Outcome | None:
        if epoch <= self.sealed or epoch < 0:
            self.counters["wrong_epoch"] += 1
            return Outcome(WrongEpoch(self.sealed))
        if epoch > self._known_epoch:
            self.counters["behind"] += 1
            return Outcome(Refused(BEHIND, f"this log unit was told of no epoch after {self._known_epoch}"))
        return None

    def _write(self, request: Write) -> Outcome:
        if len(request.entry.payload) > self._settings.max_payload:
            limit = self._settings.max_payload
            return Outcome(Refused("too_large", f"a payload of at most {limit} bytes is accepted here"))

        return self._change(request.epoch, request.segment, lambda store: self._writes.one(store, request))

    def _write_chunk(self, request: WriteChunk) -> Outcome:
        if entries_checksum(request.entries) != request.checksum:
            self.counters["bad_chunks"] += 1
            return Outcome(Refused("checksum", "the chunk was damaged on its way; send it again"))
        return self._change(request.epoch, request.segment, lambda store: self._writes.chunk(store, request))

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
                left_out += self._writes.batch(store, request.epoch, records)
        return Outcome(BatchWritten(tuple(left_out)), needs_commit=self._dirty)

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

        return self._change(request.epoch, request.segment, confirm)

    def _seal(self, request: Seal) -> Outcome:
        if request.epoch > self.sealed:
            self.commit()  # what was accepted under the epoch is in the tails told below
            self._save(request.epoch, self._files)
        elif request.epoch < self.sealed:
            return Outcome(WrongEpoch(self.sealed))
        tails = tuple((key, store.tail) for key, store in self._sound() if not self._is_blank(store))
        return Outcome(Sealed(tails, self._disk))

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
        if self._disk and not request.keep:
            self._save_blank({**self._blank, request.segment: request.epoch})
        elif request.segment in self._blank:
            self._save_blank({key: epoch for key, epoch in self._blank.items() if key != request.segment})
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

    def _stream_counts(self, request: CountStreams) -> Outcome:
        if any(key not in self.stores or self.stores[key].in_doubt for key in request.segments):
            return Outcome(NotAReplica())
        return Outcome(stream_counts(self.stores, request))

    def _trim(self, request: Trim) -> Outcome:
        refusal = self._refusal(request.epoch)
        if refusal is not None:
            return refusal
        for store in self.stores.values():
            store.trim(request.address)
        self._dirty = True
        return Outcome(Done(), needs_commit=True)

    def _trust(self, request: Trust) -> Outcome:
        for key in request.segments:
            store = self.stores.get(key)
            if store is None or not store.in_doubt:
                return Outcome(Refused("sound", f"segment {key} is not here, or not in doubt"))
            store.trust()
        if not self._blank.keys().isdisjoint(request.segments):
            self._save_blank(
                {key: epoch for key, epoch in self._blank.items() if key not in request.segments}
            )
        self._dirty = True
        return Outcome(Done(), needs_commit=True)

    # storage

    def _open(self, key: str) -> SegmentStore:
        file_bytes = self._settings.segment_file_bytes
        return SegmentStore(self._storage, key, file_bytes=file_bytes, on_files=self._note_files)
