"""The file of a backup: written from beginning to end, refused wherever it is not what was written.

On disk: frames, each a header of 24 bytes (magic, kind, length of the body, number of the frame, CRC-32 of all that and
the body) and a body in MessagePack, little-endian.  The first frame says what the file is (`Head`), then come parts of
the log in order of address (`datastore_adapter.log.client.copying`), and the last one what they are together: up to
which address, the operators' intent, how many records, and the SHA-256 of all before it (`End`).  A file without that
was never finished.

Versions: the last byte of the magic is that of the frames, `Head.format` that of what is in them.  A newer one is
refused before anything else of it is read; fields that are unknown here are left out.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

import msgspec

from datastore_adapter import ProtocolError
from datastore_adapter.log.client.copying import LogPart, decode_part, encode_part
from rota.errors import AgentError
from rota.version import VERSION

FORMAT: Final = 1
MAGIC: Final = b"\xa5rB1"
HEADER: Final = struct.Struct("<4sB3xIQI")
LARGEST_FRAME: Final = 64 << 20
"""Bytes of a body; a header that claims more is damaged."""

T = TypeVar("T")


class BackupError(AgentError):
    """A backup cannot be used."""

    code = "backup"


class BackupDamagedError(BackupError):
    """What stands in the file is not what was written, or its end is missing.  `offset`: the first byte that is wrong.

    Take another backup; of this one nothing was restored.
    """

    code = "backup_damaged"

    def __init__(self, path: Path, offset: int, what: str) -> None:
        super().__init__(f"{path}: {what} at byte {offset}; nothing of it is restored, take another backup")
        self.path = path
        self.offset = offset


class BackupVersionError(BackupError):
    """The file was written by a newer version, in a format that this one does not know.  Upgrade this rota."""

    code = "backup_version"


class _Format(msgspec.Struct, frozen=True):
    """The beginning of a `Head`, of whatever format."""

    format: int
    version: str


class Kind(IntEnum):
    HEAD = 1
    PART = 2
    END = 3


class Head(msgspec.Struct, frozen=True):
    format: int
    version: str
    """Of rota, which wrote it."""
    cluster_id: str
    at: float
    """When it was begun, in Unix seconds."""


class End(msgspec.Struct, frozen=True):
    address: int
    """All records below it are in the file, and nothing else."""
    trimmed_below: int
    """Records below it were trimmed before the backup was done: what the file has of them is of no use."""
    layout_epoch: int
    """Which was in force when the log ended at `address`."""
    intent: dict[str, Any]
    """The operators' intent of that epoch, the policies among them."""
    records: int
    payload_bytes: int
    lost: int
    """Addresses whose records the log itself has lost."""
    digest: bytes


class Summary(NamedTuple):
    """A file that was read from beginning to end, and is sound."""

    head: Head
    end: End
    size: int


class _Frame(NamedTuple):
    kind: Kind
    offset: int
    body: bytes


_encoder = msgspec.msgpack.Encoder()


class BackupWriter:
    """Writes a backup to `file`, frame by frame."""

    def __init__(self, file: BinaryIO, cluster_id: str, at: float) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._number = 0
        self.size = 0
        self.records = 0
        self.payload_bytes = 0
        self.lost = 0
        self._write(Kind.HEAD, _encoder.encode(Head(FORMAT, VERSION, cluster_id, at)))

    def add(self, part: LogPart) -> None:
        """The next part of the log."""
        self._write(Kind.PART, encode_part(part))
        self.records += len(part.entries)
        self.payload_bytes += sum(len(entry.payload) for entry in part.entries.values())
        self.lost += len(part.lost)

    def finish(self, address: int, trimmed_below: int, layout_epoch: int, intent: dict[str, Any]) -> End:
        """Without this the file is none."""
        end = End(
            address,
            trimmed_below,
            layout_epoch,
            intent,
            self.records,
            self.payload_bytes,
            self.lost,
            self._digest.digest(),
        )
        self._write(Kind.END, _encoder.encode(end))
        return end

    def _write(self, kind: Kind, body: bytes) -> None:
        header = HEADER.pack(MAGIC, kind, len(body), self._number, 0)[:-4]
        header += zlib.crc32(body, zlib.crc32(header)).to_bytes(4, "little")
        for data in (header, body):
            self._file.write(data)
            self._digest.update(data)
            self.size += len(data)
        self._number += 1


def verify(path: Path, progress: Callable[[float], None] = lambda share: None) -> Summary:
    """Read all of the file.  Raises BackupDamagedError, BackupVersionError, BackupError."""
    reader = _Reader(path)
    size = _size(path)
    for _ in reader.parts():
        progress(reader.offset / max(1, size))
    assert reader.head is not None
    assert reader.end is not None
    return Summary(reader.head, reader.end, reader.offset)


def parts_of(path: Path) -> Iterator[LogPart]:
    """The parts in the file, in order; raises as `verify`."""
    return _Reader(path).parts()


class _Reader:
    """One pass over a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self._before = b""
        """What that was before the frame read last."""
        self.offset = 0
        self.head: Head | None = None
        self.end: End | None = None
        self._position = self._records = 0

    def parts(self) -> Iterator[LogPart]:
        try:
            with self._path.open("rb") as file:
                yield from self._parts(file)
        except OSError as error:
            raise BackupError(
                f"{self._path}: {error.strerror}; name a file that `rota backup` wrote"
            ) from None

    def _parts(self, file: BinaryIO) -> Iterator[LogPart]:
        for number, frame in enumerate(self._frames(file)):
            if self.end is not None:
                raise self._damaged(frame.offset, "something follows the end")
            if (number == 0) != (frame.kind is Kind.HEAD):
                raise self._damaged(frame.offset, "the frames are out of order")
            match frame.kind:
                case Kind.HEAD:
                    written = self._decoded(frame, _Format)
                    if written.format > FORMAT:
                        raise self._newer(written.format, f"by rota {written.version}")
                    self.head = self._decoded(frame, Head)
                case Kind.PART:
                    yield self._part(frame)
                case Kind.END:
                    self.end = self._decoded(frame, End)
                    self._check_end(frame)
        if self.end is None:
            raise self._damaged(self.offset, "the end is missing: the backup was never finished, or cut off")

    def _part(self, frame: _Frame) -> LogPart:
        try:
            part = decode_part(frame.body)
        except ProtocolError as error:
            raise self._damaged(frame.offset, str(error)) from None
        if part.start < self._position or (part.start > self._position and part.start != part.trimmed_below):
            raise self._damaged(frame.offset, f"addresses {self._position} to {part.start} are missing")
        self._position = part.next
        self._records += len(part.entries)
        return part

    def _check_end(self, frame: _Frame) -> None:
        assert self.end is not None
        if self.end.digest != self._before:
            raise self._damaged(frame.offset, "the checksum of the whole file does not match")
        reached = max(self._position, self.end.trimmed_below)
        if self._records != self.end.records or reached != self.end.address:
            raise self._damaged(frame.offset, "the end does not fit what is before it")

    def _frames(self, file: BinaryIO) -> Iterator[_Frame]:
        number = 0
        while header := file.read(HEADER.size):
            at = self.offset
            self._check_magic(header)
            if len(header) < HEADER.size:
                raise self._damaged(at, "the file is cut off")
            _, kind, length, its_number, checksum = HEADER.unpack(header)
            body = file.read(length) if length <= LARGEST_FRAME else b""
            if checksum != zlib.crc32(body, zlib.crc32(header[:-4])) or its_number != number:
                cut = len(body) < length <= LARGEST_FRAME
                raise self._damaged(at, "the file is cut off, or damaged" if cut else "the file is damaged")
            if kind not in list(Kind):
                raise self._newer(kind, "with frames of a kind unknown here")
            self._before = self._digest.digest()
            self._digest.update(header)
            self._digest.update(body)
            self.offset += len(header) + len(body)
            number += 1
            yield _Frame(Kind(kind), at, body)

    def _check_magic(self, header: bytes) -> None:
        magic = header[: len(MAGIC)]
        if magic == MAGIC[: len(magic)]:
            return
        if self.offset == 0 and magic[:-1] == MAGIC[:-1] and magic[-1:].isdigit():
            raise self._newer(int(magic[-1:]), "by a later rota")
        if self.offset == 0:
            raise BackupError(f"{self._path} is no backup of rota; name a file that `rota backup` wrote")
        raise self._damaged(self.offset, "the file is damaged")

    def _decoded(self, frame: _Frame, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(frame.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damaged(frame.offset, f"the frame cannot be read ({error})") from None

    def _damaged(self, offset: int, what: str) -> BackupDamagedError:
        return BackupDamagedError(self._path, offset, what)

    def _newer(self, found: int, by: str) -> BackupVersionError:
        return BackupVersionError(
            f"{self._path} was written {by}, in format {found}, and this rota {VERSION} reads {FORMAT}; "
            "upgrade this rota"
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # opening it says why
