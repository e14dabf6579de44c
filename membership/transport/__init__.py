"""Moving bytes between processes: framed streams for every service over one TCP port, and datagrams."""

from membership.transport.errors import (
    BindError,
    ForeignClusterError,
    FrameTooLargeError,
    NotRotaError,
    PeerBusyError,
    PeerUnreachableError,
    StreamBrokenError,
    StreamClosedError,
    StreamError,
    TransportError,
    UnknownServiceError,
    WrongVersionError,
)
from membership.transport.services import Handler, Services, open_service
from membership.transport.streams import FrameStream

__all__ = [
    "BindError",
    "ForeignClusterError",
    "FrameStream",
    "FrameTooLargeError",
    "Handler",
    "NotRotaError",
    "PeerBusyError",
    "PeerUnreachableError",
    "Services",
    "StreamBrokenError",
    "StreamClosedError",
    "StreamError",
    "TransportError",
    "UnknownServiceError",
    "WrongVersionError",
    "open_service",
]
