"""What goes around a message on the wire: the envelope of datagrams and the opening of streams.

The envelope is the outermost layer of bytes. It names the protocol, its version, the cluster and the sender, and what
cannot be ours is refused before anything inside is decoded.
Source: rota's own format.

Layout of the envelope, big endian:

    magic 4 | version 1 | flags 1 | sender port 2 | cluster id 16 | host length 1 | sender host ...

The lowest flag says that the sender has keys: then what follows the envelope is sealed, and everything
in clear is covered by the seal.  A datagram is an envelope and then the protected payload.

A stream opens with an envelope, one byte with the length of the service's name, the name, and the
protection's hello; the answer is an envelope, one status byte and, if that is OK, the protection's
answer; then the client sends the protection's confirmation.  Without keys all three are empty.  A
client that means one member, whoever answers at its address, writes ``NAME@INCARNATION`` for the name,
in hexadecimal digits.  After the opening either side sends frames: a length of four bytes, then the
protected payload.  The highest bit of the length marks the last frame of a direction, sent by whoever
seals, so that a cut is noticed.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from membership.address import Address
from membership.errors import MembershipError
from membership.wire.protection import UNPROTECTED, Protection

MAGIC: Final = b"rota"
PROTOCOL_VERSION: Final = 1

UNKNOWN_CLUSTER: Final = bytes(16)
"""The cluster id of a process that belongs to none yet."""

DATAGRAM_LIMIT: Final = 8192
"""Bytes.  A longer datagram is dropped unread; what we send stays at or below 1400 and an envelope."""

STREAM_FRAME_LIMIT: Final = 64 * 1024 * 1024
"""Bytes, default.  A frame that announces more is refused before anything is allocated for it."""

SERVICE_NAME_LIMIT: Final = 64
"""Characters, those included that name the member."""

_FIXED = struct.Struct("!4sBBH16sB")
_LENGTH = struct.Struct("!I")
FIXED_LENGTH: Final = _FIXED.size
FRAME_LENGTH_SIZE: Final = _LENGTH.size

_MEMBER_MARK = b"@"
_INCARNATION = re.compile(rb"[0-9a-f]{32}")
_CACHE_BOUND = 8192
_SEALED = 1
_LAST_FRAME = 1 << 31


class DropReason(StrEnum):
    """Why something that arrived was not accepted; also the names of the counters."""

    NOT_ROTA = "not_rota"
    WRONG_VERSION = "wrong_version"
    FOREIGN_CLUSTER = "foreign_cluster"
    UNKNOWN_CLUSTER = "unknown_cluster"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    NOT_ENCRYPTED = "not_encrypted"
    ENCRYPTED = "encrypted"
    UNKNOWN_KEY = "unknown_key"
    REMOVED_KEY = "removed_key"
    FORGED = "forged"
    REPLAYED = "replayed"
    REFLECTED = "reflected"


class FrameError(MembershipError):
    """Bytes that are not an acceptable envelope or frame: drop them and count `reason`."""

    def __init__(self, reason: DropReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.sender: Address | None = None
        """Who sent it, as the envelope says; unproven."""


class Envelope(NamedTuple):
    """Who speaks, and for which cluster (UNKNOWN_CLUSTER while the sender belongs to none).

    `sender` is the address the sender advertises: the one to answer to, and the name of its end of a
    stream, whose own port means nothing.  None: a client that is no member and cannot be called back.
    `sealed`: the sender has keys, and what follows is under one of them.
    """

    sender: Address | None
    cluster_id: bytes
    sealed: bool = False

    def encode(self) -> bytes:
        """The envelope's bytes."""
        host, port = (b"", 0) if self.sender is None else (self.sender.host.encode(), self.sender.port)
        if len(host) > 255:
            raise ValueError(f"host name of {len(host)} bytes; the longest a DNS name can be is 253")
        flags = _SEALED if self.sealed else 0
        return _FIXED.pack(MAGIC, PROTOCOL_VERSION, flags, port, self.cluster_id, len(host)) + host


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
    if flags & ~_SEALED:
        raise FrameError(DropReason.MALFORMED, f"flags {flags:#x} are not known to this version")
    sealed = bool(flags & _SEALED)
    if host_length == 0:
        return Envelope(None, cluster_id, sealed)
    try:
        host = encoded[FIXED_LENGTH:].decode()
    except UnicodeDecodeError:
        raise FrameError(DropReason.MALFORMED, "the sender's host is not UTF-8") from None
    if port == 0 or not host.isprintable() or " " in host:
        raise FrameError(DropReason.MALFORMED, "the sender's address cannot be one")
    return Envelope(Address(host, port), cluster_id, sealed)


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
        sealed = self._protection.sealed
        self._header = Envelope(self.sender, cluster_id or UNKNOWN_CLUSTER, sealed).encode()
        self._known.clear()

    def seal(self, payload: bytes, key_id: bytes | None = None) -> bytes:
        """The datagram that carries `payload`; `key_id`: under this key instead of the primary."""
        return self._header + self._protection.seal(payload, self._header, key_id)

    def open(self, datagram: bytes) -> Opened:
        """Sender, cluster and payload of a datagram.  Raises FrameError with the reason to count."""
        if len(datagram) > DATAGRAM_LIMIT:
            raise FrameError(DropReason.TOO_LARGE, f"datagram of more than {DATAGRAM_LIMIT} bytes")
        if len(datagram) < FIXED_LENGTH:
            check_magic(datagram)
            raise FrameError(DropReason.MALFORMED, f"datagram of {len(datagram)} bytes")
        header = datagram[: FIXED_LENGTH + datagram[FIXED_LENGTH - 1]]
        # A sender's envelope is the same in all its datagrams: judge it once, then look it up.
        known = self._known.get(header)
        envelope = known or decode_envelope(header)
        if envelope.sender is None:
            raise FrameError(DropReason.MALFORMED, "datagram without a sender")
        try:
            if known is None:
                check_cluster(envelope.cluster_id, self._cluster_id)
                check_sealed(envelope, self._protection)
            payload = self._protection.open(datagram[len(header) :], header, envelope.sender)
        except FrameError as error:
            error.sender = envelope.sender
            raise
        if known is None:
            # Only now: what is forged must not push out the envelopes of true peers.
            if len(self._known) >= _CACHE_BOUND:
                self._known.clear()
            self._known[header] = envelope
        return Opened(envelope.sender, envelope.cluster_id, payload)


def check_sealed(envelope: Envelope, protection: Protection) -> None:
    """Raise FrameError unless both sides have keys, or neither has."""
    if protection.sealed and not envelope.sealed:
        raise FrameError(DropReason.NOT_ENCRYPTED, "has no keys, this process has; give it the key file")
    if envelope.sealed and not protection.sealed:
        raise FrameError(DropReason.ENCRYPTED, "has keys, this process has none; give this one the key file")


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
    KEY_REQUIRED = 4
    UNKNOWN_KEY = 5
    OTHER_MEMBER = 6


class Wanted(NamedTuple):
    """What a client asks for: a service, of the member with this incarnation or of whoever it has reached."""

    service: str
    incarnation: bytes | None = None


def encode_opening(envelope: Envelope, service: str, incarnation: bytes | None = None) -> bytes:
    """The first bytes of a client's stream: who it is, which service it wants, and of whom if it means a member."""
    name = service.encode("ascii")
    if incarnation is not None:
        name += _MEMBER_MARK + incarnation.hex().encode()
    if not 0 < len(name) <= SERVICE_NAME_LIMIT:
        raise ValueError(f"a service's name has 1 to {SERVICE_NAME_LIMIT} characters, not {len(name)}")
    return envelope.encode() + bytes([len(name)]) + name


def decode_service(name: bytes) -> Wanted:
    """What is named in a stream's opening.  Raises FrameError."""
    if not 0 < len(name) <= SERVICE_NAME_LIMIT or not name.isascii():
        raise FrameError(DropReason.MALFORMED, "the service's name cannot be one")
    service, mark, member = name.rpartition(_MEMBER_MARK)
    if mark and service and _INCARNATION.fullmatch(member):
        return Wanted(service.decode("ascii"), bytes.fromhex(member.decode("ascii")))
    return Wanted(name.decode("ascii"))


def frame_prefix(length: int, *, last: bool = False) -> bytes:
    """The bytes before a stream frame of `length` bytes; `last`: no other follows in this direction."""
    return _LENGTH.pack(length | _LAST_FRAME if last else length)


def frame_length(prefix: bytes | bytearray, limit: int, *, marked: bool = False) -> int:
    """The length a frame's prefix announces.  Raises FrameError when it is above `limit`.

    `marked`: the highest bit says whether it is the last frame, and is no part of the length.
    """
    length: int = _LENGTH.unpack_from(prefix)[0]
    if marked:
        length &= ~_LAST_FRAME
    if length > limit:
        raise FrameError(DropReason.TOO_LARGE, f"frame of {length} bytes; at most {limit} are accepted")
    return length


def is_last_frame(prefix: bytes | bytearray) -> bool:
    """Whether the prefix marks the last frame of its direction."""
    return bool(prefix[0] & 0x80)
