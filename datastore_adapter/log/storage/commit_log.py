"""A commit log: what files got appended, durable with one write to one file that never grows.

Blocks of changes (file, offset, bytes) in a file whose space is used again and again, so that making a block durable
touches no metadata of the file system: one flush instead of a flush and a journal commit for each of many files.
After a power loss the changes are made again; each puts the same bytes at the same place, so that making one twice,
or one that had reached the disk, does no harm.  Nothing is read from it, and it is not kept for ever: once the files
themselves are durable it is cleared (`log.storage.file_storage` decides when).

On disk: blocks at multiples of 4096 bytes, so that writing one never touches another that was acknowledged.  Each has
a header (magic, generation, sequence number, length, checksum) and a body.  Clearing begins a new generation, with
an empty block at the beginning of the file; blocks of other generations are no part of the log.  What cannot be
read at the end was never acknowledged.  Before a sound block of the same generation it was: that is damage.  It is
told, and what can be read is recovered; what else to do is up to those who know what was in the files.
Source: J. Gray, A. Reuter, *Transaction Processing*, 1993, chapter 9 (redo, checkpoints).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from membership.files import SYSTEM, SystemCalls, write_at

ALIGNMENT: Final = 4096
FIRST_SIZE: Final = 1 << 20
"""Bytes of a log that has taken little so far; it doubles until its limit."""
_MAGIC: Final = b"\xa5rC1"
_HEADER: Final = struct.Struct("<4sIQQI")
"""Magic, length of the body, generation, sequence number, checksum of all that and the body."""


class Change(NamedTuple):
    """Bytes appended to a file."""

    name: str
    offset: int
    data: bytes


class _Block(NamedTuple):
    generation: int
    sequence: int
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, int, bytes]])


class CommitLog:
    """One log in one file of at most `limit` bytes.  Errors of the system are left to the caller."""

    def __init__(
        self,
        path: str,
        limit: int,
        *,
        system: SystemCalls = SYSTEM,
        draw: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`draw`: so many random bytes."""
        self._limit = limit
        self._system = system
        self._draw = draw
        self._descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = system.fstat(self._descriptor).st_size
        self._generation = 0
        self._sequence = 0
        self._end = 0
        """Where the next block goes; 0: `begin` comes first."""
        self.is_damaged = False
        """Changes that were acknowledged could not be read."""

    def recover(self) -> Iterator[Change]:
        """The changes in it that can be read, in order; then `is_damaged` says whether there were others.

        To be exhausted, and the log cleared, before anything is appended.
        """
        expected = self._read(0)
        if expected is not None:
            self._generation = expected.generation
        while (block := self._read(self._end)) is not None:
            if (block.generation, block.sequence) != (self._generation, self._sequence):
                break
            self._advance(len(block.body))
            yield from _changes(block)
        for offset in range(self._end, self._size, ALIGNMENT):
            block = self._read(offset)
            if block is not None and (expected is None or block.generation == self._generation):
                self.is_damaged = True
                # Without its beginning nothing tells whether a block is of the last generation.
                yield from () if expected is None else _changes(block)

    @property
    def is_empty(self) -> bool:
        """Nothing is in it, or was ever."""
        return self._sequence <= 1

    def begin(self) -> None:
        """Make it ready for its first changes, durably, if it is new."""
        if self._end == 0:
            self.clear()

    def fits(self, size: int) -> bool:
        """Whether changes of so many bytes (data, names and some for each) find room."""
        return max(self._end, ALIGNMENT) + _aligned(_HEADER.size + size) <= self._limit

    def growth(self, size: int) -> int:
        """Bytes of the disk that the file would need besides what it has, to take changes of so many bytes."""
        needed = max(self._end, ALIGNMENT) + _aligned(_HEADER.size + size)
        return max(0, self._size_for(needed) - self._size) if needed > self._size else 0

    def _size_for(self, needed: int) -> int:
        return max(needed, min(self._limit, max(FIRST_SIZE, 2 * self._size)))

    def append(self, changes: Sequence[Change]) -> None:
        """Add changes, durably.  They must fit."""
        self.begin()
        self._write(_encoder.encode(changes))
        self._system.fdatasync(self._descriptor)

    def clear(self) -> None:
        """Forget all changes, durably."""
        # Random, so that no record's content can pass for a block of it.
        self._generation = int.from_bytes(self._draw(8), "little")
        self._sequence = self._end = 0
        self._write(_encoder.encode(()))
        self._system.fdatasync(self._descriptor)

    def close(self) -> None:
        self._system.close(self._descriptor)

    def _write(self, body: bytes) -> None:
        length = _aligned(_HEADER.size + len(body))
        if self._end + length > self._size:
            self._grow(self._end + length)
        block = _render(_Block(self._generation, self._sequence, body))
        write_at(self._system, self._descriptor, block, self._end)
        self._advance(len(body))

    def _advance(self, length: int) -> None:
        self._end += _aligned(_HEADER.size + length)
        self._sequence += 1

    def _grow(self, needed: int) -> None:
        """Zeros on disk far beyond, so that later blocks there change no metadata."""
        size = self._size_for(needed)
        write_at(self._system, self._descriptor, bytes(size - self._size), self._size)
        self._size = size

    def _read(self, offset: int) -> _Block | None:
        """The block there, if it is sound."""
        header = self._system.pread(self._descriptor, _HEADER.size, offset)
        if len(header) < _HEADER.size:
            return None
        magic, length, generation, sequence, checksum = _HEADER.unpack(header)
        if magic != _MAGIC or offset + _HEADER.size + length > self._size:
            return None
        body = self._system.pread(self._descriptor, length, offset + _HEADER.size)
        return _Block(generation, sequence, body) if checksum == _checksum(header, body) else None


def _changes(block: _Block) -> Iterator[Change]:
    return (Change(name, offset, data) for name, offset, data in _decoder.decode(block.body))


def _render(block: _Block) -> bytes:
    header = _HEADER.pack(_MAGIC, len(block.body), block.generation, block.sequence, 0)
    checksum = _checksum(header, block.body)
    return b"".join((header[:-4], checksum.to_bytes(4, "little"), block.body))


def _checksum(header: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(header[:-4]))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
