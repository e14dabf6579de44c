"""One segment's records on one host's disk: a journal of checksummed records, and its index in memory.

Write-once per address; journal files of bounded size, each starting with a state record; recovery by scanning;
detection of torn writes and flipped bits.  Nothing whose checksum fails is ever returned.  It knows nothing of
epochs, chains or other hosts (`log.log_unit.unit`).

A later record of an address replaces an earlier one; that happens only in repairs and after joining again.  How a
record looks on disk: `log.log_unit.journal_records`.

A region that cannot be parsed at the very end of the newest file is an append that was never acknowledged,
and is cut off.  Anywhere else it may have held acknowledged records of unknown address: then every address
below the tail that is not in the index counts as damaged rather than unwritten, until it is repaired.
Source: T. Pillai et al., *All File Systems Are Not Created Equal*, OSDI 2014; P. Bailis,
*Protocol-Aware Recovery for Consensus-Based Storage* (Alagappan et al., FAST 2018): a replica must tell
damage from absence.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import takewhile
from typing import Final, TypeAlias, TypeVar

from datastore_adapter.log.errors import ProtocolError
from datastore_adapter.log.log_unit.journal_records import (
    HEADER,
    BlockReader,
    DamagedError,
    Header,
    Kind,
    Location,
    State,
    decode_state,
    entry_body,
    neighbours,
    parse_header,
    render,
    render_state,
)
from datastore_adapter.log.messages import (
    Entry,
)
from datastore_adapter.log.messages.codec import decode_entry, decode_record_id, encode_entry
from datastore_adapter.log.storage.file_storage import Storage

T = TypeVar("T")


class AddressState(IntEnum):
    UNWRITTEN = 0
    WRITTEN = 1
    DAMAGED = 2
    TRIMMED = 3


Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Each ``[start, end)``."""

EVERYWHERE: Final[Ranges] = ((0, 1 << 62),)


class SegmentStore:
    """The records of one segment.  Opening it recovers what the files hold."""

    def __init__(
        self,
        storage: Storage,
        key: str,
        *,
        file_bytes: int,
        on_files: Callable[[str, tuple[int, int], bool], None] = lambda key, files, at_once: None,
    ) -> None:
        """`on_files` is told the key and `files` when they change: before some are removed (at once), or once a
        further one is begun, to be noted before anything in it is acknowledged."""
        self._storage = storage
        self._on_files = on_files
        self._prefix = f"unit/{key}/"
        self._file_bytes = file_bytes
        self.key = key
        self.index: dict[int, Location] = {}
        self.damaged: set[int] = set()
        """Addresses whose copy here is known to be bad."""
        self.gaps: tuple[tuple[int, int], ...] = ()
        """Ranges (start, end): what is not in the index there may have been lost here."""
        self.retained: tuple[tuple[int, int], ...] = ()
        """Ranges (start, end): what is there counts as missing, until it is confirmed to be right."""
        self.in_doubt = False
        """Records at its end may have been lost, of addresses unknown; until it joins again."""
        self.trimmed_below = 0
        self.joined_epoch = -1
        self.written_epoch = -1
        """The highest epoch under which anything was written since joining."""
        self.tail = 0
        """One above the highest address ever written."""
        self.bytes = 0
        """Bytes of live records on disk."""
        self.streams: dict[str, list[int]] = {}
        self._live: dict[int, int] = {}
        """Per journal file, the number of index entries that point into it; in order of file number."""
        self._recover()

    @property
    def exists(self) -> bool:
        """Whether this host ever joined the segment, and did not drop it."""
        return bool(self._live)

    @property
    def files(self) -> tuple[int, int]:
        """The numbers of the first and the last journal file."""
        return next(iter(self._live)), next(reversed(self._live))

    def has_files(self, first: int, last: int) -> bool:
        """Whether all these journal files are there."""
        return all(number in self._live for number in range(first, last + 1))

    def state(self, address: int) -> AddressState:
        if address < self.trimmed_below:
            return AddressState.TRIMMED
        if self.retained and self.is_retained(address):
            return AddressState.UNWRITTEN
        if address in self.damaged:
            return AddressState.DAMAGED
        if address in self.index:
            return AddressState.WRITTEN
        if self.gaps and any(start <= address < end for start, end in self.gaps):
            return AddressState.DAMAGED
        return AddressState.UNWRITTEN

    def is_retained(self, address: int) -> bool:
        return any(start <= address < end for start, end in self.retained)

    def join(self, epoch: int, keep: Ranges, retain_below: int = 0) -> None:
        """Forget everything outside `keep`, but retain it below `retain_below`; durable after the storage's sync."""
        left = (*keep, (0, retain_below)) if retain_below else keep
        self._change_state(State(epoch, self.trimmed_below, left, _cut((0, retain_below), keep)))
        self._drop_outside(left)
        self._remove_dead_files()

    def doubt(self) -> None:
        """The storage has lost something, perhaps of this segment.  That holds even if it could not be written."""
        self.in_doubt, self.gaps = True, EVERYWHERE
        self._change_state(State(self.joined_epoch, self.trimmed_below, None, self.retained, (), True))

    def trust(self) -> None:
        """What is here is all there is, although some may be missing."""
        self._change_state(State(self.joined_epoch, self.trimmed_below, None, self.retained))
        self.gaps = ()

    def confirm(self, done: tuple[int, int], candidates: range, ids: Mapping[int, bytes]) -> None:
        """Of what is retained in the range `done`, only entries with these ids are right; the others are dropped.

        `candidates`: the segment's addresses in that range.
        """
        index = self.index
        asked = [address for address in candidates if address in index and self.is_retained(address)]
        present = self.record_ids(address for address in asked if address in ids)
        right = {address for address, record_id in present if record_id == ids[address]}
        wrong = {address for address in asked if address not in right}
        left = tuple(part for each in self.retained for part in _cut(each, (done,)))
        self._change_state(
            State(self.joined_epoch, self.trimmed_below, None, left, tuple(sorted(wrong)), self.in_doubt)
        )
        self._drop(wrong)

    def trim(self, below: int) -> None:
        if below <= self.trimmed_below:
            return
        self._change_state(State(self.joined_epoch, below, None, self.retained, (), self.in_doubt))
        self._drop_trimmed()
        self._remove_dead_files()

    def destroy(self) -> None:
        """Remove every file; the object is of no use afterwards."""
        for name in self._storage.names(self._prefix):
            self._storage.remove(name)
        self._live.clear()

    def write(self, address: int, epoch: int, entry: Entry, *, urgent: bool = False) -> None:
        """Put an entry; the caller has checked that the address is free, or is to be repaired."""
        body = encode_entry(entry)
        number, offset = self._extend(render(Kind.ENTRY, address, epoch, body), urgent=urgent)
        self._index(address, epoch, Location(number, offset, len(body)), entry.stream)

    def write_all(self, epoch: int, entries: Mapping[int, Entry]) -> None:
        """Put entries at addresses that are free, in one go: all of them, or none if it raises."""
        bodies = [encode_entry(entry) for entry in entries.values()]
        rendered = [
            render(Kind.ENTRY, address, epoch, body) for address, body in zip(entries, bodies, strict=True)
        ]
        number, offset = self._extend(b"".join(rendered))
        for (address, entry), body in zip(entries.items(), bodies, strict=True):
            self._index(address, epoch, Location(number, offset, len(body)), entry.stream)
            offset += HEADER.size + len(body)

    def read(self, address: int) -> Entry | None:
        """The entry of a written address, or None when its copy turns out to be damaged."""
        return self._decoded_at(address, decode_entry)

    def record_id(self, address: int) -> bytes | None:
        """The id of the entry of a written address, empty for junk, or None when its copy turns out to be damaged."""
        return self._decoded_at(address, decode_record_id)

    def entries(self, addresses: Iterable[int]) -> Iterator[tuple[int, Entry]]:
        """The entries of written addresses, in the same order; without those whose copies turn out to be damaged."""
        return self._decoded(addresses, decode_entry)

    def record_ids(self, addresses: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The ids of the entries, as `entries`."""
        return self._decoded(addresses, decode_record_id)

    def written(self, candidates: Iterable[int]) -> Iterator[int]:
        """Those of `candidates` that are written; nothing may change meanwhile, but for damage that is found."""
        present = filter(self.index.__contains__, candidates)
        if not self.retained and not self.damaged:
            return present
        return (address for address in present if self.state(address) is AddressState.WRITTEN)

    def stream_addresses(self, stream: str, start: int, end: int) -> list[int]:
        addresses = self.streams.get(stream, [])
        return addresses[bisect_left(addresses, start) : bisect_left(addresses, end)]

    def count(self, stream: str, sample: int) -> tuple[int, int]:
        """The records of the stream, and about how many bytes they take, by the `sample` latest."""
        addresses = self.streams.get(stream, ())
        lengths = [self.index[address].length for address in addresses[-sample:] if address in self.index]
        mean = sum(lengths) / len(lengths) if lengths else 0.0
        return len(addresses), round(len(addresses) * mean)

    def missing(self, candidates: Iterable[int]) -> list[int]:
        """Those of `candidates` (ascending) that are unwritten or known to be damaged."""
        index = self.index
        if self.retained:
            return [a for a in candidates if a not in index or a in self.damaged or self.is_retained(a)]
        if not self.damaged:
            return [address for address in candidates if address not in index]
        return [address for address in candidates if address not in index or address in self.damaged]

    # journal

    def _change_state(self, state: State) -> None:
        """Write it, and then let it hold: a file that begins with it says what held before."""
        self._extend(render_state(state), urgent=True)
        self.joined_epoch, self.trimmed_below = state.joined_epoch, state.trimmed_below
        self.retained, self.in_doubt = state.retained, state.in_doubt

    def _extend(self, data: bytes, *, urgent: bool = False) -> tuple[int, int]:
        """Append to the newest file, or to a further one when that is full; its number, the offset."""
        number = next(reversed(self._live), 0)
        name = self._name(number)
        size = self._storage.size(name) if number else self._file_bytes
        if size >= self._file_bytes:
            number += 1
            name = self._name(number)
            size = self._storage.size(name)
        if size == 0:
            # Each file repeats the state, so that older files can be removed.
            state = State(self.joined_epoch, self.trimmed_below, None, self.retained, (), self.in_doubt)
            self._storage.append(name, render_state(state), urgent=urgent)
            self._live[number] = 0
            self._on_files(self.key, self.files, False)
        return number, self._storage.append(name, data, urgent=urgent)

    def _decoded_at(self, address: int, decode: Callable[[bytes], T]) -> T | None:
        location = self.index[address]
        data = self._storage.read(self._name(location.file), location.offset, HEADER.size + location.length)
        return self._sound(address, decode, data, 0, location.length)

    def _decoded(self, addresses: Iterable[int], decode: Callable[[bytes], T]) -> Iterator[tuple[int, T]]:
        for run in neighbours(addresses, self.index):
            first, last = self.index[run[0]], self.index[run[-1]]
            data = self._storage.read(self._name(first.file), first.offset, last.end - first.offset)
            for address in run:
                _, offset, length = self.index[address]
                found = self._sound(address, decode, data, offset - first.offset, length)
                if found is not None:
                    yield address, found

    def _sound(
        self, address: int, decode: Callable[[bytes], T], data: bytes, at: int, length: int
    ) -> T | None:
        try:
            return decode(entry_body(data, at, address, length))
        except (DamagedError, ProtocolError):
            self.damaged.add(address)
            return None

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:08d}.log"

    # index

    def _index(self, address: int, epoch: int, location: Location, stream: str) -> None:
        earlier = self.index.get(address)
        if earlier is not None:
            self._unindex(address, earlier)
        self.index[address] = location
        self.damaged.discard(address)
        self._live[location.file] += 1
        self.bytes += HEADER.size + location.length
        if address >= self.tail:
            self.tail = address + 1
        if epoch > self.written_epoch:
            self.written_epoch = epoch
        if stream:
            addresses = self.streams.setdefault(stream, [])
            if not addresses or addresses[-1] < address:
                addresses.append(address)
            else:
                position = bisect_left(addresses, address)
                if position == len(addresses) or addresses[position] != address:
                    insort(addresses, address)

    def _unindex(self, address: int, location: Location) -> None:
        del self.index[address]
        self._live[location.file] -= 1
        self.bytes -= HEADER.size + location.length

    def _drop_outside(self, keep: tuple[tuple[int, int], ...]) -> None:
        def kept(address: int) -> bool:
            return any(start <= address < end for start, end in keep)

        self._retain(kept)
        common = [(max(a, c), min(b, d)) for a, b in self.gaps for c, d in keep]
        self.gaps = tuple((start, end) for start, end in common if start < end)
        self.tail = max((address + 1 for address in self.index), default=0)
        self.written_epoch = -1

    def _drop_trimmed(self) -> None:
        self._retain(lambda address: address >= self.trimmed_below)

    def _drop(self, wrong: Collection[int]) -> None:
        if wrong:
            self._retain(lambda address: address not in wrong)

    def _retain(self, kept: Callable[[int], bool]) -> None:
        for address in [address for address in self.index if not kept(address)]:
            self._unindex(address, self.index[address])
        self.damaged = {address for address in self.damaged if kept(address)}
        for stream in list(self.streams):
            addresses = [address for address in self.streams[stream] if kept(address)]
            if addresses:
                self.streams[stream] = addresses
            else:
                del self.streams[stream]

    def _remove_dead_files(self) -> None:
        """Remove files from the oldest on while nothing lives in them.

        Oldest first, because a state record must outlive the records it drops.  The newest file stays.
        """
        newest = next(reversed(self._live), 0)
        dead = list(takewhile(lambda number: number != newest and not self._live[number], self._live))
        if not dead:
            return
        self._storage.sync()  # what made the files superfluous must be durable first
        self._on_files(self.key, (dead[-1] + 1, newest), True)
        for number in dead:
            self._storage.remove(self._name(number))
            del self._live[number]

    # recovery

    def _recover(self) -> None:
        names = self._storage.names(self._prefix)
        lost = False
        for name in names:
            self._live[int(name[len(self._prefix) :].removesuffix(".log"))] = 0
        for number in list(self._live):
            lost |= self._recover_file(number, newest=self._name(number) == names[-1])
        if lost and not self.in_doubt:
            self.gaps = ((0, self.tail),)

    def _recover_file(self, number: int, *, newest: bool) -> bool:
        """Index one file's records; True when something unreadable lies before its end."""
        name = self._name(number)
        size = self._storage.size(name)
        file = BlockReader(self._storage, name)
        offset, bad_from, lost = 0, None, False
        while offset < size:
            try:
                header = parse_header(file.read(offset, HEADER.size))
                body = file.read(offset + HEADER.size, header.length)
                if len(body) < header.length:
                    raise DamagedError
            except DamagedError:
                bad_from = offset if bad_from is None else bad_from
                offset = file.next_header(offset + 1, size)
                continue
            lost |= bad_from is not None
            bad_from = None
            self._recover_record(header, body, Location(number, offset, header.length))
            offset += HEADER.size + header.length
        if bad_from is None:
            return lost
        if newest:
            self._storage.truncate(name, bad_from)
            return lost
        return True

    def _recover_record(self, header: Header, body: bytes, location: Location) -> None:
        intact = zlib.crc32(body) == header.checksum
        if header.kind is Kind.STATE:
            if intact:
                self._recover_state(decode_state(body))
            elif location.offset or location.file == next(iter(self._live)):
                self.gaps = ((0, self.tail),)
            return  # at the beginning of a later file it only repeats what the files before it say
        try:
            stream = decode_entry(body).stream if intact else ""
        except ProtocolError:
            intact, stream = False, ""
        self._index(header.address, header.epoch, location, stream)
        if not intact:
            self.damaged.add(header.address)

    def _recover_state(self, state: State) -> None:
        self.joined_epoch = state.joined_epoch
        if self.in_doubt and not state.in_doubt and state.keep is None:
            self.gaps = ()  # trusted all the same
        self.retained, self.in_doubt = state.retained, state.in_doubt
        self.trimmed_below = max(self.trimmed_below, state.trimmed_below)
        self.tail = max(self.tail, self.trimmed_below)
        if state.in_doubt:
            self.gaps = EVERYWHERE
        if state.keep is not None:
            self._drop_outside(state.keep)
        self._drop(state.dropped)
        self._drop_trimmed()


def _cut(whole: tuple[int, int], parts: Ranges) -> Ranges:
    """What is left of a range without the parts."""
    left: list[tuple[int, int]] = []
    start, end = whole
    for begin, until in sorted(parts):
        left.append((start, min(begin, end)))
        start = max(start, until)
    left.append((start, end))
    return tuple(pair for pair in left if pair[0] < pair[1])
