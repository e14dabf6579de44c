"""The records of a segment's journal: how they are written down, and read back only where they are sound.

On disk a record is a header of 36 bytes (magic, kind, length, address, epoch, checksum of the body, checksum of the
header) and a body: an encoded entry, or the state of a store.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from datastore_adapter.log.storage.file_storage import Storage

MAGIC: Final = b"\xa5rL1"
_SUMMED_HEADER: Final = struct.Struct("<4sB3xIQQI")
"""All that a header's own checksum is of, which follows it."""
HEADER: Final = struct.Struct(f"{_SUMMED_HEADER.format}I")
RECORD_LIMIT: Final = 20 << 20
"""Bytes, the longest record body; a header that claims more is damaged."""
BLOCK_BYTES: Final = 1 << 20
"""Bytes read at a time by who reads a whole file."""
RUN_BYTES: Final = 128 << 10
"""Bytes of neighbouring records that are read together."""

_HEADER_BYTES: Final = HEADER.size
_SUMMED: Final = _SUMMED_HEADER.size


class Kind(IntEnum):
    ENTRY = 1
    STATE = 2


_ENTRY: Final = int(Kind.ENTRY)
_KINDS: Final = {int(kind): kind for kind in Kind}


class Location(NamedTuple):
    """Of a record: the number of its file, the offset of its header, the length of its body."""

    file: int
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + _HEADER_BYTES + self.length


class State(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a state record says; it also drops every record before it that lies outside the ranges kept."""

    joined_epoch: int
    trimmed_below: int
    keep: tuple[tuple[int, int], ...] | None = None
    """None: keep all."""
    retained: tuple[tuple[int, int], ...] = ()
    dropped: tuple[int, ...] = ()
    """Addresses whose records before it are wrong."""
    in_doubt: bool = False


_state_encoder = msgspec.msgpack.Encoder()
_state_decoder = msgspec.msgpack.Decoder(State)


class DamagedError(Exception):
    """A checksum does not match, or what stands there is not what was written there."""


class Header(NamedTuple):
    kind: Kind
    length: int
    address: int
    epoch: int
    checksum: int


def render(kind: Kind, address: int, epoch: int, body: bytes) -> bytes:
    """A record as it stands on disk."""
    header = _SUMMED_HEADER.pack(MAGIC, kind, len(body), address, epoch, zlib.crc32(body))
    return b"".join((header, zlib.crc32(header).to_bytes(4, "little"), body))


def render_state(state: State) -> bytes:
    """The record of a state."""
    return render(Kind.STATE, 0, 0, _state_encoder.encode(state))


def decode_state(body: bytes) -> State:
    return _state_decoder.decode(body)


def parse_header(data: bytes, at: int = 0) -> Header:
    """The header that begins there in `data`.  Raises DamagedError."""
    if len(data) - at < HEADER.size:
        raise DamagedError
    magic, kind, length, address, epoch, checksum, own = HEADER.unpack_from(data, at)
    if magic != MAGIC or own != zlib.crc32(data[at : at + _SUMMED]) or length > RECORD_LIMIT:
        raise DamagedError
    if kind not in _KINDS:
        raise DamagedError
    return Header(_KINDS[kind], length, address, epoch, checksum)


def entry_body(data: bytes, at: int, address: int, length: int) -> bytes:
    """The body of the entry of `address` whose record begins there in `data`.  Raises DamagedError."""
    # By fields, without a `Header`: most of the time that a transfer takes a host is spent here.
    begin = at + _HEADER_BYTES
    if len(data) < begin + length:
        raise DamagedError
    magic, kind, its_length, its_address, _, checksum, own = HEADER.unpack_from(data, at)
    if magic != MAGIC or kind != _ENTRY or its_length != length or its_address != address:
        raise DamagedError
    body = data[begin : begin + length]
    if own != zlib.crc32(data[at : at + _SUMMED]) or checksum != zlib.crc32(body):
        raise DamagedError
    return body


def neighbours(addresses: Iterable[int], index: Mapping[int, Location]) -> Iterator[list[int]]:
    """The addresses in the same order, together those whose records follow each other on disk, up to `RUN_BYTES`."""
    run: list[int] = []
    in_file = begin = end = -1
    for address in addresses:
        file, offset, length = index[address]
        if offset != end or file != in_file or offset + _HEADER_BYTES + length - begin > RUN_BYTES:
            if run:
                yield run
            run = []
            in_file, begin = file, offset
        run.append(address)
        end = offset + _HEADER_BYTES + length
    if run:
        yield run


class BlockReader:
    """One file, read from its beginning to its end in large blocks."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._block = b""
        self._begin = 0

    def read(self, offset: int, length: int) -> bytes:
        """As `Storage.read`."""
        at = offset - self._begin
        if at < 0 or at + length > len(self._block):
            self._block = self._storage.read(self._name, offset, max(length, BLOCK_BYTES))
            self._begin, at = offset, 0
        return self._block[at : at + length]

    def next_header(self, offset: int, size: int) -> int:
        """The offset of the next sound header at or after `offset`, or `size`, which is that of the file."""
        while offset < size:
            block = self._storage.read(self._name, offset, BLOCK_BYTES)
            found = block.find(MAGIC)
            if found < 0:
                if offset + len(block) >= size:
                    return size
                offset += len(block) - len(MAGIC) + 1
                continue
            try:
                parse_header(self._storage.read(self._name, offset + found, HEADER.size))
                return offset + found
            except DamagedError:
                offset += found + 1
        return size
