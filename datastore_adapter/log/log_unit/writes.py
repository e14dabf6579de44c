"""What becomes of the records that a log unit is given: written once, left out, repaired.

The rules of one segment's addresses, for a batch of new records, for a single one, which may also repair damage or
fill a hole, and for a chunk of a transfer. The log unit (`log.log_unit.unit`) refuses sealed epochs before it writes
here, and commits afterwards.
Source: CORFU (NSDI 2012) section 2.2 (write-once storage units).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from datastore_adapter.log.log_unit.segment_store import AddressState, SegmentStore
from datastore_adapter.log.messages import (
    JUNK,
    Corrupt,
    Done,
    Entry,
    Overwritten,
    Refused,
    Reply,
    Trimmed,
    Write,
    WriteChunk,
)
from datastore_adapter.log.settings import LogSettings


class Writes:
    """For one log unit; `changed` is called whenever something was written."""

    def __init__(self, settings: LogSettings, counters: Counter[str], changed: Callable[[], None]) -> None:
        self._settings = settings
        self._counters = counters
        self._changed = changed

    def batch(self, store: SegmentStore, epoch: int, records: Sequence[tuple[int, Entry]]) -> list[int]:
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
            self._changed()
            self._counters["records"] += len(fresh)
        return left_out

    def one(self, store: SegmentStore, request: Write) -> Reply:
        """Write one record, or repair one."""
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
            self._counters["repaired"] += 1
        elif entry.stream not in store.streams and len(store.streams) >= self._settings.max_streams:
            return Refused("streams", f"more than {self._settings.max_streams} streams; use fewer")
        store.write(address, request.epoch, entry, urgent=request.settling)
        self._changed()
        return Done()

    def chunk(self, store: SegmentStore, request: WriteChunk) -> Reply:
        """Write what another replica has, over what is damaged here."""
        store.trim(request.trimmed_below)
        entries = dict(request.entries)
        for address in self.batch(store, request.epoch, request.entries):
            entry = entries[address]
            write = Write(request.epoch, request.segment, address, entry)
            reply = self.one(store, write)
            if isinstance(reply, Corrupt):
                reply = self.one(store, replace(write, repair=True))
            if isinstance(reply, Overwritten) and reply.record_id != entry.record_id:
                return Refused("conflict", f"address {address} holds another record here")
            if isinstance(reply, Refused):
                return reply
        return Done()


def _stands(store: SegmentStore, address: int, entry: Entry) -> bool:
    """Whether this very record was written before."""
    if store.state(address) is not AddressState.WRITTEN:
        return False
    return store.record_id(address) == entry.record_id
