"""Everything the log's processes say to each other.

What it is: requests, replies and refusals as plain structs, checked on decoding.  Every request gets
exactly one reply.
What it is not: their encoding (`datastore_adapter.codec`), nor the documents' own (`datastore_adapter.document`),
which they carry as opaque bytes.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from consensus import Ballot

RECORD_ID_LENGTH: Final = 16
STREAM_NAME_LIMIT: Final = 255
"""Bytes of UTF-8 in a stream's name."""
TOKENS_LIMIT: Final = 1 << 16
"""Addresses that one request may take for a stream."""

Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Address: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
SegmentKey: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
HostName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
StreamName: TypeAlias = Annotated[str, msgspec.Meta(max_length=STREAM_NAME_LIMIT)]
RecordId: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=RECORD_ID_LENGTH)]
Pointers: TypeAlias = Annotated[tuple[Address, ...], msgspec.Meta(max_length=64)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stands at one address: a record, or junk that fills a hole (no record id, no stream)."""

    record_id: RecordId
    """Unique per append, so that a writer recognises its own record."""
    stream: StreamName
    previous: Pointers
    """Addresses of earlier records of the stream, latest first."""
    payload: bytes

    @property
    def is_junk(self) -> bool:
        return not self.record_id


JUNK: Final = Entry(b"", "", (), b"")


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# Layout servers


class FetchDocument(_Message, frozen=True, tag=1):
    """What is the latest document known to you?"""

    known: Epoch = -1
    """The asker has the document of this epoch: only a later one is of use."""


class Prepare(_Message, frozen=True, tag=2):
    """Phase 1 of deciding the document after `epoch`."""

    epoch: Epoch
    round: Count
    member: Address


class Accept(_Message, frozen=True, tag=3):
    """Phase 2: vote for `document`, the encoding of the document of ``epoch + 1``."""

    epoch: Epoch
    round: Count
    member: Address
    document: bytes


class Install(_Message, frozen=True, tag=4):
    """A decided document, to be kept if it is newer than what is known."""

    document: bytes


class FetchHistory(_Message, frozen=True, tag=5):
    """The latest documents below an epoch that you keep."""

    below: Address


# Log units


class Seal(_Message, frozen=True, tag=10):
    """Refuse every data request of `epoch` and below from now on, and tell the tails."""

    epoch: Epoch


class Join(_Message, frozen=True, tag=11):
    """Become a replica of `segment` in the epoch after `epoch`: forget all its records outside `keep`."""

    epoch: Epoch
    segment: SegmentKey
    keep: tuple[tuple[Address, Address], ...] = ()
    """Ranges ``[start, end)`` of closed extents for which this unit is a replica already."""
    retain_below: Address = 0
    """What it has below this address besides is not lost: it counts as missing until it was compared (`Reclaim`)."""


class Write(_Message, frozen=True, tag=12):
    epoch: Epoch
    segment: SegmentKey
    address: Address
    entry: Entry
    repair: bool = False
    """Replace a damaged copy; without it a damaged address is refused like a written one."""
    settling: bool = False
    """It completes an address that others have: also where the disk is full."""


class WriteBatch(_Message, frozen=True, tag=19):
    """New records, by segment.  What is not plain (another record, damage) is left out and told."""

    epoch: Epoch
    records: tuple[tuple[SegmentKey, tuple[tuple[Address, Entry], ...]], ...]


class Read(_Message, frozen=True, tag=13):
    epoch: Epoch
    segment: SegmentKey
    address: Address


class _Range(_Message, frozen=True):
    """About the addresses of one stripe of a segment in ``[start, end)``."""

    epoch: Epoch
    segment: SegmentKey
    start: Address
    end: Address
    stripe: Count
    stripes: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class Survey(_Range, frozen=True, tag=14):
    """Which addresses of the stripe in ``[start, end)`` are missing, and which are of `stream`?"""

    stream: StreamName | None = None


class ReadChunk(_Range, frozen=True, tag=15):
    """State transfer: the entries of the stripe at ``[start, end)``, as many as fit in `max_bytes`."""

    max_bytes: Count


class WriteChunk(_Message, frozen=True, tag=16):
    """State transfer: entries of closed extents, as read from another replica."""

    epoch: Epoch
    segment: SegmentKey
    entries: tuple[tuple[Address, Entry], ...]
    checksum: int
    trimmed_below: Address = 0


class PullChunk(_Range, frozen=True, tag=31):
    """State transfer: fetch what a `ReadChunk` of this range gives from `source`, and keep it."""

    max_bytes: Count
    source: HostName
    """A host that the latest document names."""


class Reclaim(_Range, frozen=True, tag=32):
    """State transfer: of what was retained in the range, keep what is the same on `source`."""

    source: HostName


class ReadIds(_Range, frozen=True, tag=33):
    """Which entries stand in the range, by their record ids?"""


class Confirm(_Range, frozen=True, tag=34):
    """Of what was retained in the range only these entries are right; a host's request to its own unit."""

    ids: tuple[tuple[Address, RecordId], ...]


class ReadStreamTails(_Message, frozen=True, tag=17):
    """The latest addresses of every stream in the given ranges, by stream name after `after`."""

    epoch: Epoch
    ranges: tuple[tuple[SegmentKey, Address, Address], ...]
    """Segment, start, end (exclusive)."""
    after: StreamName | None = None


class Trim(_Message, frozen=True, tag=18):
    """Forget the records below `address` in all segments."""

    epoch: Epoch
    address: Address


# Sequencers


class TakeTokens(_Message, frozen=True, tag=20):
    """The next addresses for so many records of each stream; without streams only the tail is told."""

    epoch: Epoch
    streams: tuple[tuple[StreamName, Annotated[int, msgspec.Meta(ge=1, le=TOKENS_LIMIT)]], ...] = ()


class LastAddresses(_Message, frozen=True, tag=21):
    """The latest addresses handed out for `stream`."""

    epoch: Epoch
    stream: StreamName


class BeginBootstrap(_Message, frozen=True, tag=22):
    """Prepare to become the sequencer of `epoch`, with no stream known yet."""

    epoch: Epoch
    session: Address
    """Random; tells concurrent bootstraps apart, so that none is finished with half of another's streams."""
    tail: Address


class AddStreamTails(_Message, frozen=True, tag=23):
    """Part of a bootstrap: what the log units know of some streams."""

    epoch: Epoch
    session: Address
    streams: tuple[tuple[StreamName, Pointers], ...]


class FinishBootstrap(_Message, frozen=True, tag=24):
    """Start handing out tokens of `epoch`."""

    epoch: Epoch
    session: Address


class SealTokens(_Message, frozen=True, tag=25):
    """Hand out no more tokens of `epoch` and below from now on, and tell the tail."""

    epoch: Epoch


class GetStatus(_Message, frozen=True, tag=30):
    """The state of all roles of this host."""

    counters: bool = False
    """Tell the counters, too."""


Request: TypeAlias = (
    FetchDocument | Prepare | Accept | Install | FetchHistory
    | Seal | Join | Write | WriteBatch | Read | Survey | ReadChunk | WriteChunk | ReadStreamTails | Trim
    | PullChunk | Reclaim | ReadIds | Confirm
    | TakeTokens | LastAddresses | BeginBootstrap | AddStreamTails | FinishBootstrap | SealTokens
    | GetStatus
)  # fmt: skip


# Replies


class DocumentReply(_Message, frozen=True, tag=1):
    document: bytes | None
    """None: there is none, or none later than the asker knows."""
    sealed: bool
    """Somebody began to decide the next epoch here, and the decision is not known."""
    epoch: Epoch
    """Of the latest document known here; -1: none is."""


class Promised(_Message, frozen=True, tag=2):
    accepted_round: Count
    accepted_member: Address
    accepted: bytes | None


class Voted(_Message, frozen=True, tag=3):
    pass


class Rejected(_Message, frozen=True, tag=4):
    """A higher ballot was promised."""

    round: Count
    member: Address


class Installed(_Message, frozen=True, tag=5):
    epoch: Epoch


class History(_Message, frozen=True, tag=6):
    documents: tuple[bytes, ...]
    """Compressed with zlib, latest first."""
    next: Address
    """Ask for those below it next; 0: there are no more."""


class Sealed(_Message, frozen=True, tag=10):
    tails: tuple[tuple[SegmentKey, Address], ...]
    """Per segment, one above the highest address ever written here."""


class Done(_Message, frozen=True, tag=11):
    pass


class BatchWritten(_Message, frozen=True, tag=22):
    """All records of the batch stand here, but for those at `left_out`: a `Write` of each tells why."""

    left_out: tuple[Address, ...] = ()


class Overwritten(_Message, frozen=True, tag=12):
    """Another entry stands at the address, or the same one already (`record_id` tells)."""

    record_id: RecordId


class Found(_Message, frozen=True, tag=13):
    entry: Entry


class Unwritten(_Message, frozen=True, tag=14):
    pass


class Trimmed(_Message, frozen=True, tag=15):
    below: Address


class Corrupt(_Message, frozen=True, tag=16):
    """The copy here is damaged, or may have been lost; ask another replica."""


class SurveyReply(_Message, frozen=True, tag=17):
    missing: tuple[Address, ...]
    """Unwritten or damaged, ascending."""
    found: tuple[Address, ...]
    """Records of the stream asked for, ascending."""
    next: Address
    """The survey is complete below this address."""
    trimmed_below: Address = 0
    retained: bool = False
    """Something in the range asked for is there, and counts as missing because it was not compared yet."""


class Chunk(_Message, frozen=True, tag=18):
    entries: tuple[tuple[Address, Entry], ...]
    checksum: int
    next: Address
    """Where to go on; equal to the `end` asked for when nothing is left."""
    trimmed_below: Address = 0


class Pulled(_Message, frozen=True, tag=23):
    next: Address
    """Where to go on; the `start` asked for when the source has no sound copy of that address."""
    bytes: Count = 0
    """Of entries that came over the network."""


class Ids(_Message, frozen=True, tag=24):
    ids: tuple[tuple[Address, RecordId], ...]
    """Ascending; junk has an empty one.  What is damaged here is left out."""
    next: Address
    """Where to go on; equal to the `end` asked for when nothing is left."""


class StreamTails(_Message, frozen=True, tag=19):
    streams: tuple[tuple[StreamName, Pointers], ...]
    more: bool


class Tokens(_Message, frozen=True, tag=20):
    """Consecutive addresses, in order of the streams asked for."""

    first: Address
    """The tail, if nothing was asked for."""
    previous: tuple[Pointers, ...] = ()
    """For each stream, the addresses handed out before, latest first."""


class Addresses(_Message, frozen=True, tag=21):
    tail: Address
    addresses: Pointers


class TokensSealed(_Message, frozen=True, tag=25):
    tail: Address
    """One above the highest address ever handed out in the epoch; 0: none was."""


class SegmentStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: SegmentKey
    tail: Address
    records: Count
    bytes: Address
    trimmed_below: Address = 0


class StatusReply(_Message, frozen=True, tag=30):
    host: str
    document_epoch: Epoch
    sealed_layout: bool
    sealed_epoch: Epoch
    segments: tuple[SegmentStatus, ...]
    sequencer_epoch: Epoch
    """The epoch this host's sequencer hands out tokens of; -1: of none."""
    counters: dict[str, int]
    """By ``role.event``; empty unless they were asked for."""
    full: bool = False
    """The disk takes no more records."""
    room: Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)] = -1
    """Bytes that the disk still takes, about, once it was full; -1: it never was."""


# Refusals


class WrongEpoch(_Message, frozen=True, tag=40):
    """Layout server: `epoch` is the current one.  Log unit, sequencer: `epoch` and all below are sealed."""

    epoch: Epoch


class NotAReplica(_Message, frozen=True, tag=41):
    """This unit holds no copy of the segment: the asker's layout is old."""


class NotReady(_Message, frozen=True, tag=42):
    """The sequencer was not bootstrapped for this epoch."""


class Refused(_Message, frozen=True, tag=43):
    """The request can not be carried out; `code` is for programs, `message` for people."""

    code: str
    message: str


Refusal: TypeAlias = WrongEpoch | NotAReplica | NotReady | Refused
Reply: TypeAlias = (
    DocumentReply | Promised | Voted | Rejected | Installed | History
    | Sealed | Done | BatchWritten | Overwritten | Found | Unwritten | Trimmed | Corrupt | SurveyReply | Chunk
    | StreamTails | Pulled | Ids
    | Tokens | Addresses | TokensSealed | StatusReply
    | Refusal
)  # fmt: skip


def ballot_of(message: Prepare | Accept | Rejected) -> Ballot:
    return Ballot(message.round, message.member)
