"""The errors of streams, and of opening them: what can go wrong between two processes, as the one that asked sees it.

Reasons for which incoming traffic is dropped are only counted (`membership.wire.frames.DropReason`).
"""

from __future__ import annotations

from membership.errors import MembershipError


class TransportError(MembershipError):
    """Base of the transport's errors."""


class BindError(TransportError):
    """The listening address cannot be used: it is taken, not of this machine, or not allowed."""


class PeerUnreachableError(TransportError):
    """Nobody answered at the address: wrong address, process not running, or network down.  Retry later."""


class NotRotaError(TransportError):
    """Something answered at the address, but it does not speak rota.  Check the port."""


class WrongVersionError(TransportError):
    """The peer speaks another version of the protocol.  Upgrade the older of the two."""


class ForeignClusterError(TransportError):
    """The peer belongs to another cluster.  Check the seeds, or the cluster id given."""


class OtherMemberError(TransportError):
    """Another process has the address of the member that is meant, and was asked nothing.  Retry with the next view."""


class KeyMismatchError(TransportError):
    """The two processes have no key in common, or only one has keys.  Compare `rota keys list` on both."""


class UnknownKeyError(KeyMismatchError):
    """The peer does not hold the key that this process used."""


class UnknownServiceError(TransportError):
    """The peer is rota but does not offer this service (yet).  Retry, or ask another member."""


class PeerBusyError(TransportError):
    """The peer holds as many connections as it allows.  Retry later."""


class StreamError(TransportError):
    """Base of the errors of an established stream.  After any of them, close it and open another."""


class StreamClosedError(StreamError):
    """The peer closed the stream between two frames, or this side closed it."""


class StreamBrokenError(StreamError):
    """The connection failed, or a send was cancelled half-way: frames may have been lost."""


class FrameTooLargeError(StreamError):
    """A frame is larger than the stream's limit.  Cut the payload, or raise the limit on both sides."""
