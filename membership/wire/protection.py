"""Protection: the interface between the transport and encryption, for datagrams and stream frames alike.

`Unprotected` is that of a process without keys. The encryption itself is in `membership.wire.sealing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from membership.address import Address
from membership.wire.key_ring import KeyRing


class FrameSeal(Protocol):
    """Seals and opens the frames of one connection, in their order.

    `prefix` travels in clear before the frame and must be covered by the seal.  `open` raises FrameError.
    """

    overhead: int
    """Bytes that sealing adds to a frame."""
    sealed: bool
    """Whether the seal proves anything: then the end of the frames is marked, and a missing mark is a cut."""

    def seal(self, payload: bytes, prefix: bytes) -> bytes:
        """The bytes to send for the next frame."""

    def open(self, sealed: bytes, prefix: bytes) -> bytes:
        """The payload of the next frame that arrived."""


class StreamHello(Protocol):
    """The client's side of a stream's handshake."""

    hello: bytes
    """What follows the service's name."""

    def complete(self, opening: bytes, answer: bytes, proof: bytes) -> tuple[FrameSeal, bytes]:
        """The seal of the new stream and the confirmation to send first.  Raises FrameError.

        `opening`: all this side has sent; `answer`: envelope and status; `proof`: the protection's answer.
        """


class StreamAcceptance(Protocol):
    """The acceptor's side of a stream's handshake."""

    def answer(self, opening: bytes, answer: bytes) -> bytes:
        """The protection's answer; `opening` is all that was received, `answer` envelope and status."""

    def confirm(self, confirmation: bytes) -> FrameSeal:
        """The seal of the new stream, once the client has confirmed.  Raises FrameError."""


class Protection(Protocol):
    """Seals what leaves this process and opens what arrives, for datagrams and streams alike.

    `associated` is what travels in the clear beside the payload (the envelope) and must be covered by
    the seal.  `open` and `accept` raise FrameError when the seal does not hold.
    """

    sealed: bool
    """Whether there are keys; both sides must agree on it."""
    overhead: int
    """Bytes that sealing adds to a datagram."""
    hello_length: int
    """Bytes of the protection's part of a stream's opening."""
    answer_length: int
    """Bytes of the protection's part of the answer."""
    confirmation_length: int
    """Bytes of the client's confirmation."""

    @property
    def ring(self) -> KeyRing | None:
        """The keys, to be changed at any time; None without."""

    def seal(self, payload: bytes, associated: bytes, key_id: bytes | None = None) -> bytes:
        """The bytes to send for `payload`; `key_id`: under this key, if it is held, instead of the primary."""

    def open(self, sealed: bytes, associated: bytes, sender: Address) -> bytes:
        """The payload of bytes that arrived from `sender`, as the envelope says."""

    @property
    def peer_keys(self) -> Mapping[Address, bytes]:
        """Peers that were last heard under another key than this process seals with, and that key's id."""

    @property
    def unshown(self) -> list[Address]:
        """Peers in `peer_keys` that are to be shown the primary; whoever shows it empties the list."""

    def hellos(self, peer: Address) -> Sequence[StreamHello]:
        """Ways to begin a stream to `peer` as its client, the likeliest first: one for each key."""

    def accept(self, hello: bytes) -> StreamAcceptance:
        """Begin a stream as its acceptor."""


class Unprotected:
    """No key: payloads travel as they are.  Only for loopback, or where the user said `insecure`."""

    sealed = False
    overhead = 0
    ring = None
    hello_length = answer_length = confirmation_length = 0
    hello = b""
    peer_keys: Mapping[Address, bytes] = MappingProxyType({})

    @property
    def unshown(self) -> list[Address]:
        """Nobody."""
        return []

    def seal(self, payload: bytes, associated: bytes, key_id: bytes | None = None) -> bytes:
        """The payload itself."""
        return payload

    def open(self, sealed: bytes, associated: bytes, sender: Address | None = None) -> bytes:
        """The payload itself."""
        return sealed

    def hellos(self, peer: Address) -> Sequence[StreamHello]:
        """Nothing to agree on."""
        return (self,)

    def accept(self, hello: bytes) -> StreamAcceptance:
        """Nothing to check."""
        return self

    def complete(self, opening: bytes, answer: bytes, proof: bytes) -> tuple[FrameSeal, bytes]:
        """Frames travel as they are."""
        return self, b""

    def answer(self, opening: bytes, answer: bytes) -> bytes:
        """Nothing to prove."""
        return b""

    def confirm(self, confirmation: bytes) -> FrameSeal:
        """Frames travel as they are."""
        return self


_UNPROTECTED = Unprotected()
UNPROTECTED: Final[Protection] = _UNPROTECTED
PLAIN_FRAMES: Final[FrameSeal] = _UNPROTECTED
