"""Moving bytes between processes: datagrams, and framed streams for every service over one TCP port."""

from membership.transport.errors import (
    BindError,
    ForeignClusterError,
    FrameTooLargeError,
    KeyMismatchError,
    NotRotaError,
    OtherMemberError,
    PeerBusyError,
    PeerUnreachableError,
    StreamBrokenError,
    StreamClosedError,
    StreamError,
    TransportError,
    UnknownServiceError,
    WrongVersionError,
)
from membership.transport.in_memory import InMemoryNetwork
from membership.transport.services import Handler, Services, open_service
from membership.transport.sockets import SocketNetwork
from membership.transport.streams import FrameStream
from membership.transport.transport import Arrival, Transport

__all__ = [
    "Arrival",
    "BindError",
    "ForeignClusterError",
    "FrameStream",
    "FrameTooLargeError",
    "Handler",
    "InMemoryNetwork",
    "KeyMismatchError",
    "NotRotaError",
    "OtherMemberError",
    "PeerBusyError",
    "PeerUnreachableError",
    "Services",
    "SocketNetwork",
    "StreamBrokenError",
    "StreamClosedError",
    "StreamError",
    "Transport",
    "TransportError",
    "UnknownServiceError",
    "WrongVersionError",
    "open_service",
]
