"""The file with the last view a process was in, so that its next incarnation finds the others again.

Beside the view it says whether this process founded the cluster, whether the view is known not to be the last any more,
and the views accepted since (see `membership.protocol.context.stable_storage`), which are durable before anybody is
told.

The file has its size from the beginning, and is written in place: saving needs no room, so that a disk that is full
does not keep a process from remembering. It has two copies of the record, each with a checksum and a number that
grows. A save writes the older copy while the other stands, and then the other one, too. So what a power cut tears is
the copy that nobody has relied on yet, and one that has decayed is made good by the other. Only a record that outgrows
its copy needs room: then the file is replaced by a larger one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from membership.address import Address
from membership.errors import MembershipError
from membership.files import SYSTEM, SystemCalls, read_at, replace_file, replace_file_on, write_at
from membership.protocol.context.stable_storage import StableState
from membership.protocol.view.configuration import Configuration, ConfigurationError
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.transport.resolve import resolve_seeds

log = logging.getLogger("membership")

LARGEST: Final = 64 << 20
"""Bytes that are read of such a file; ten thousand members take about one megabyte."""

FIRST_CAPACITY: Final = 256 << 10
"""Bytes of each copy at first: enough for two thousand members. A larger record gets twice what it needs."""

_MAGIC: Final = b"rota last view 2"
_HEADER: Final = struct.Struct("<16sQI")
"""Magic, bytes of each copy, checksum of both."""
_BLOCK: Final = 4096
"""Bytes before the first copy, and what copies are aligned to: writing one touches nothing of the other."""
_COPY: Final = struct.Struct("<16sQQ")
"""Checksum, number, length of the record."""
_CHECKSUM_BYTES: Final = 16


class LastViewError(MembershipError):
    """The file of the last view cannot be used. The text says what to do."""


class DamagedViewError(LastViewError):
    """The file of the last view is damaged: whoever has a seed can do without it."""


class Remembered(msgspec.Struct, frozen=True):
    """What a process remembers beyond its end."""

    stable: StableState
    founded: bool
    """Whether it, or one before it, founded the cluster."""
    is_copy: bool = False
    """There may have been later views: the file was put back from a copy, or others recovered without this process."""

    @property
    def view(self) -> Configuration | None:
        """The last view it was in; None: it was in none so far."""
        return self.stable.view


class _Record(msgspec.Struct, frozen=True, array_like=True):
    founded: bool
    id: bytes
    view: bytes
    """Both empty: the process was in no view so far."""
    superseded: bool = False
    """There may be later views, of which this record says nothing."""
    accepted: tuple[tuple[bytes, bytes], ...] = ()
    """Identifiers and bytes of the views accepted since."""


_UNKNOWN: Final = -1
"""The number of a copy that is not whole, or may not be: the next one that is written."""


class _Copy(NamedTuple):
    """One copy of the record, as it was found or written."""

    number: int = 0
    """0: never written."""
    body: bytes = b""


class LastView:
    """The file at `path`. `rings`: as in the cluster's settings; `system`: the file system's calls.

    For one thread at a time.
    """

    def __init__(self, path: Path, rings: int, *, system: SystemCalls = SYSTEM) -> None:
        self._path = path
        self._rings = rings
        self._system = system
        self._capacity = 0
        """Bytes of each copy; 0: there is no file, or one of an earlier version."""
        self._copies = [_Copy(), _Copy()]
        self.saved: Remembered | None = None
        """What the file says, as far as it was read or written here."""

    def load(self) -> Remembered | None:
        """What it says, None if there is no such file, or nothing in it yet. Raises LastViewError."""
        try:
            body = self._read()
            self.saved = None if body is None else self._decode(body)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LastViewError(f"{self._path}: {error.strerror}; make it readable, or remove it") from error
        except (msgspec.DecodeError, ValueError, struct.error) as error:
            raise DamagedViewError(
                f"{self._path} is damaged ({error}); remove it: this process then needs a seed to find its cluster"
            ) from None
        return self.saved

    def _read(self) -> bytes | None:
        """The record of the latest copy that is whole; None: none was ever written. Raises OSError."""
        descriptor = self._system.open(str(self._path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = read_at(self._system, descriptor, _HEADER.size, 0)
            if not header.startswith(_MAGIC):
                return _read_earlier(read_at(self._system, descriptor, LARGEST, 0))
            _, self._capacity, checksum = _HEADER.unpack(header)
            if checksum != zlib.crc32(header[: _HEADER.size - 4]):
                raise ConfigurationError("its beginning does not match its checksum")
            self._copies = [self._read_copy(descriptor, which) for which in range(2)]
        finally:
            self._system.close(descriptor)
        latest = max(self._copies)
        if latest.number > 0:
            return latest.body
        if all(copy.number == _UNKNOWN for copy in self._copies):
            raise ConfigurationError("neither copy in it is whole")
        return None  # at most the first save was begun: nobody has relied on it

    def _read_copy(self, descriptor: int, which: int) -> _Copy:
        """One that the disk does not give is as good as torn: there is another one."""
        offset = _BLOCK + which * self._capacity
        try:
            head = read_at(self._system, descriptor, _COPY.size, offset)
            if len(head) < _COPY.size:
                return _Copy(_UNKNOWN)
            if not any(head):
                return _Copy()
            checksum, number, length = _COPY.unpack(head)
            if length > self._capacity:
                return _Copy(_UNKNOWN)
            body = read_at(self._system, descriptor, length, offset + _COPY.size)
        except OSError:
            return _Copy(_UNKNOWN)
        if checksum != _checksum(head[_CHECKSUM_BYTES:] + body):
            return _Copy(_UNKNOWN)
        return _Copy(number, body)

    def _decode(self, body: bytes) -> Remembered:
        record = msgspec.msgpack.decode(body, type=_Record)
        cache = ConfigurationCache()
        view = cache.decode(record.view, record.id, self._rings) if record.view else None
        accepted = tuple(cache.decode(body, name, self._rings) for name, body in record.accepted)
        return Remembered(StableState(view, accepted), record.founded, record.superseded)

    def prepare(self) -> None:
        """After `load`: take the room that it needs, if it has none, and mend a copy. Raises LastViewError."""
        if not self._capacity:
            self._replace(b"" if self.saved is None else _encode(self.saved))
        elif self.saved is not None:
            self.complete()

    def save(self, memory: Remembered) -> None:
        """Durable on return; `complete` is to follow. Raises LastViewError: then what was saved before stands."""
        body = _encode(memory)
        if _COPY.size + len(body) > self._capacity:
            self._replace(body)
        else:
            self._write(self._copies.index(min(self._copies)), max(self._copies).number + 1, body)
        self.saved = memory

    def complete(self) -> None:
        """Bring the other copy up to what was saved. Raises LastViewError."""
        older, latest = min(self._copies), max(self._copies)
        if older.number < latest.number:
            self._write(self._copies.index(older), latest.number, latest.body)

    def _write(self, which: int, number: int, body: bytes) -> None:
        copy = _Copy(number, body)
        self._copies[which] = _Copy(_UNKNOWN)  # until it is written
        try:
            descriptor = self._system.open(str(self._path), os.O_RDWR | os.O_CLOEXEC)
            try:
                write_at(self._system, descriptor, _render(copy), _BLOCK + which * self._capacity)
                self._system.fdatasync(descriptor)
            finally:
                self._system.close(descriptor)
        except FileNotFoundError:
            self._replace(body)
        except OSError as error:
            raise LastViewError(f"{self._path}: {error.strerror}; the view was not saved") from error
        else:
            self._copies[which] = copy

    def _replace(self, body: bytes) -> None:
        """A new file, with the record (empty: none yet) in both copies."""
        needed = -(-2 * (_COPY.size + len(body)) // _BLOCK) * _BLOCK
        capacity = max(FIRST_CAPACITY, needed)
        copy = _Copy(max(self._copies).number + 1, body) if body else _Copy()
        replace = replace_file if self._system is SYSTEM else partial(replace_file_on, self._system)
        rendered = (_render(copy) if body else b"").ljust(capacity, b"\0")
        try:
            replace(self._path, _header(capacity) + 2 * rendered)
        except OSError as error:
            raise LastViewError(f"{self._path}: {error.strerror}; the view was not saved") from error
        self._capacity, self._copies = capacity, [copy, copy]

    async def warn_of_strangers(self, view: Configuration, seeds: Sequence[Address]) -> None:
        """Log it if none of the seeds is in `view`: somebody may expect this process to join their cluster."""
        addresses = {member.address for member in view.members}
        if not seeds or not addresses.isdisjoint(seeds):
            return
        if not addresses.isdisjoint((await resolve_seeds(seeds)).addresses):
            return
        log.warning(
            "this process goes on in cluster %s, whose view %d (members: %d) is remembered in %s; none of the seeds "
            "(%s) was in it. If they are another cluster, to be joined instead, stop this process and remove that file",
            view.cluster_id.hex()[:8],
            view.epoch,
            len(view),
            self._path,
            ", ".join(map(str, seeds)),
        )


def _encode(memory: Remembered) -> bytes:
    view, accepted = memory.stable.view, memory.stable.accepted
    named = (b"", b"") if view is None else (view.id, view.encoded())
    others = tuple((each.id, each.encoded()) for each in accepted)
    return msgspec.msgpack.encode(_Record(memory.founded, *named, memory.is_copy, others))


def _header(capacity: int) -> bytes:
    unsigned = _HEADER.pack(_MAGIC, capacity, 0)[:-4]
    return (unsigned + zlib.crc32(unsigned).to_bytes(4, "little")).ljust(_BLOCK, b"\0")


def _render(copy: _Copy) -> bytes:
    unsigned = _COPY.pack(b"", copy.number, len(copy.body)) + copy.body
    return _checksum(unsigned[_CHECKSUM_BYTES:]) + unsigned[_CHECKSUM_BYTES:]


def _read_earlier(data: bytes) -> bytes:
    """The record in a file of an earlier version, which was replaced as a whole."""
    body = data[_CHECKSUM_BYTES:]
    if data[:_CHECKSUM_BYTES] != _checksum(body):
        raise ConfigurationError("the checksum does not match")
    return body


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES, person=b"rota last view").digest()
