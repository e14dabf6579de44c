"""What goes around a message on the wire: the envelope of datagrams and the opening of streams.

What it is: the outermost layer of bytes.  It names the protocol, its version, the cluster and the
sender, and it refuses what cannot be ours before anything inside is decoded.  `Protection` is the one
place where payloads are sealed and opened, for datagrams and stream frames alike.
What it is not: input or output, and no knowledge of the messages inside (`membership.messages`).
Source: rota's own format; no paper prescribes one.

Layout of the envelope, big endian:

    magic 4 | version 1 | flags 1 | sender port 2 | cluster id 16 | host length 1 | sender host ...

A datagram is an envelope and then the protected payload.  A stream opens with an envelope, one byte
with the length of the service's name, and the name; the answer is an envelope and one status byte.
After that either side sends frames: a length of four bytes, then the protected payload.
"""

from __future__ import annotations

import struct
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, Protocol

from membership.address import Address
from membership.errors import MembershipError

MAGIC: Final = b"rota"
PROTOCOL_VERSION: Final = 1

UNKNOWN_CLUSTER: Final = bytes(16)
"""The cluster id of a process that belongs to none yet."""

DATAGRAM_LIMIT: Final = 8192
"""Bytes.  A longer datagram is dropped unread; what we send stays at or below 1400 and an envelope."""

STREAM_FRAME_LIMIT: Final = 64 * 1024 * 1024
"""Bytes, default.  A frame that announces more is refused before anything is allocated for it."""

SERVICE_NAME_LIMIT: Final = 64

_FIXED = struct.Struct("!4sBBH16sB")
_LENGTH = struct.Struct("!I")
FIXED_LENGTH: Final = _FIXED.size
FRAME_LENGTH_SIZE: Final = _LENGTH.size

_CACHE_BOUND = 8192


class DropReason(StrEnum):
    """Why something that arrived was not accepted; also the names of the counters."""

    NOT_ROTA = "not_rota"
    WRONG_VERSION = "wrong_version"
    FOREIGN_CLUSTER = "foreign_cluster"
    UNKNOWN_CLUSTER = "unknown_cluster"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"


class FrameError(MembershipError):
    """Bytes that are not an acceptable envelope or frame: drop them and count `reason`."""

    def __init__(self, reason: DropReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Protection(Protocol):
    """Seals payloads on their way out and opens them on their way in.

    `associated` is what travels in the clear beside the payload (the envelope) and must be covered by
    the seal.  `open` raises FrameError when the seal does not hold.
    """

    overhead: int
    """Bytes that sealing adds to a payload, at most."""

    def seal(self, payload: bytes, associated: bytes) -> bytes:
        """The bytes to send for `payload`."""

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """The payload of bytes that arrived."""


class Unprotected:
    """No key: payloads travel as they are.  Only for loopback, or where the user said `insecure`."""

    overhead = 0

    def seal(self, payload: bytes, associated: bytes) -> bytes:
        """The payload itself."""
        return payload

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """The payload itself."""
        return sealed


UNPROTECTED: Final[Protection] = Unprotected()


class Envelope(NamedTuple):
    """Who speaks, and for which cluster (UNKNOWN_CLUSTER while the sender belongs to none).

    `sender` is the address the sender advertises: the one to answer to, and the name of its end of a
    stream, whose own port means nothing.  None: a client that is no member and cannot be called back.
    """

    sender: Address | None
    cluster_id: bytes

    def encode(self) -> bytes:
        """The envelope's bytes."""
        host, port = (b"", 0) if self.sender is None else (self.sender.host.encode(), self.sender.port)
        if len(host) > 255:
            raise ValueError(f"host name of {len(host)} bytes; the longest a DNS name can be is 253")
        return _FIXED.pack(MAGIC, PROTOCOL_VERSION, 0, port, self.cluster_id, len(host)) + host


def envelope_length(head: bytes | bytearray) -> int:
    """Length of the whole envelope that starts with `head` (at least FIXED_LENGTH bytes).

    Raises FrameError when it is no envelope of ours.
    """
    check_magic(head)
    return FIXED_LENGTH + head[FIXED_LENGTH - 1]


def check_magic(head: bytes | bytearray) -> None:
    """Raise FrameError unless `head` can be the start of an envelope of our version."""
    if head[:4] != MAGIC[: len(head)]:
        raise FrameError(
            DropReason.NOT_ROTA, f"speaks something that starts with {bytes(head[:4])!r}, not rota"
        )
    if len(head) > 4 and head[4] != PROTOCOL_VERSION:
        raise FrameError(
            DropReason.WRONG_VERSION,
            f"speaks protocol version {head[4]}, this process {PROTOCOL_VERSION}; upgrade the older one",
        )


def decode_envelope(encoded: bytes) -> Envelope:
    """The envelope in `encoded`, which must be exactly one envelope.  Raises FrameError."""
    if len(encoded) < FIXED_LENGTH:
        check_magic(encoded)
        raise FrameError(DropReason.MALFORMED, f"an envelope has at least {FIXED_LENGTH} bytes")
    if envelope_length(encoded) != len(encoded):
        raise FrameError(DropReason.MALFORMED, "the envelope is cut short")
    _, _, flags, port, cluster_id, host_length = _FIXED.unpack_from(encoded)
    if flags:
        raise FrameError(DropReason.MALFORMED, f"flags {flags:#x} are not known to this version")
    if host_length == 0:
        return Envelope(None, cluster_id)
    try:
        host = encoded[FIXED_LENGTH:].decode()
    except UnicodeDecodeError:
        raise FrameError(DropReason.MALFORMED, "the sender's host is not UTF-8") from None
    if port == 0 or not host.isprintable() or " " in host:
        raise FrameError(DropReason.MALFORMED, "the sender's address cannot be one")
    return Envelope(Address(host, port), cluster_id)


class Opened(NamedTuple):
    """A datagram whose envelope was accepted."""

    sender: Address
    cluster_id: bytes
    payload: bytes


class DatagramCodec:
    """Puts one process's payloads into envelopes, and takes those of others out.

    `cluster_id` is None until the process belongs to a cluster; until then every cluster is listened
    to, afterwards only its own and senders that belong to none yet.
    """

    def __init__(
        self, sender: Address, cluster_id: bytes | None = None, protection: Protection = UNPROTECTED
    ) -> None:
        self.sender = sender
        self._protection = protection
        self._known: dict[bytes, Envelope] = {}
        self._cluster_id: bytes | None = None
        self._header = b""
        self.cluster_id = cluster_id

    @property
    def cluster_id(self) -> bytes | None:
        """The cluster this process belongs to, 16 bytes, or None."""
        return self._cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: bytes | None) -> None:
        self._cluster_id = cluster_id
        self._header = Envelope(self.sender, cluster_id or UNKNOWN_CLUSTER).encode()
        self._known.clear()

    def seal(self, payload: bytes) -> bytes:
        """The datagram that carries `payload`."""
        return self._header + self._protection.seal(payload, self._header)

    def open(self, datagram: bytes) -> Opened:
        """Sender, cluster and payload of a datagram.  Raises FrameError with the reason to count."""
        if len(datagram) > DATAGRAM_LIMIT:
            raise FrameError(DropReason.TOO_LARGE, f"datagram of more than {DATAGRAM_LIMIT} bytes")
        if len(datagram) < FIXED_LENGTH:
            check_magic(datagram)
            raise FrameError(DropReason.MALFORMED, f"datagram of {len(datagram)} bytes")
        header = datagram[: FIXED_LENGTH + datagram[FIXED_LENGTH - 1]]
        # A sender's envelope is the same in all its datagrams: judge it once, then look it up.
        envelope = self._known.get(header) or self._judge(header)
        assert envelope.sender is not None
        payload = self._protection.open(datagram[len(header) :], header)
        return Opened(envelope.sender, envelope.cluster_id, payload)

    def _judge(self, header: bytes) -> Envelope:
        envelope = decode_envelope(header)
        check_cluster(envelope.cluster_id, self._cluster_id)
        if envelope.sender is None:
            raise FrameError(DropReason.MALFORMED, "datagram without a sender")
        if len(self._known) >= _CACHE_BOUND:
            self._known.clear()
        self._known[header] = envelope
        return envelope


def check_cluster(theirs: bytes, ours: bytes | None) -> None:
    """Raise FrameError when both sides belong to a cluster and it is not the same one."""
    if ours is not None and theirs != ours and UNKNOWN_CLUSTER not in (theirs, ours):
        raise FrameError(
            DropReason.FOREIGN_CLUSTER,
            f"belongs to cluster {theirs.hex()}, this process to {ours.hex()}; check the seeds of both",
        )


class StreamStatus(IntEnum):
    """The answer to a stream's opening."""

    OK = 0
    UNKNOWN_SERVICE = 1
    FOREIGN_CLUSTER = 2
    BUSY = 3


def encode_opening(envelope: Envelope, service: str) -> bytes:
    """The first bytes of a client's stream: who it is and which service it wants."""
    name = service.encode("ascii")
    if not 0 < len(name) <= SERVICE_NAME_LIMIT:
        raise ValueError(f"a service's name has 1 to {SERVICE_NAME_LIMIT} characters, not {len(name)}")
    return envelope.encode() + bytes([len(name)]) + name


def decode_service(name: bytes) -> str:
    """The service named in a stream's opening.  Raises FrameError."""
    if not 0 < len(name) <= SERVICE_NAME_LIMIT or not name.isascii():
        raise FrameError(DropReason.MALFORMED, "the service's name cannot be one")
    return name.decode("ascii")


def frame_prefix(length: int) -> bytes:
    """The bytes before a stream frame of `length` bytes."""
    return _LENGTH.pack(length)


def frame_length(prefix: bytes | bytearray, limit: int) -> int:
    """The length a frame's prefix announces.  Raises FrameError when it is above `limit`."""
    length: int = _LENGTH.unpack_from(prefix)[0]
    if length > limit:
        raise FrameError(DropReason.TOO_LARGE, f"frame of {length} bytes; at most {limit} are accepted")
    return length
