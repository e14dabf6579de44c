"""The codec: one tagged union of all messages, as MessagePack, fully validated."""

from typing import get_args

import msgspec

from membership.errors import MembershipError
from membership.protocol.messages import catching_up, deciding, ensemble, joining, probes, reports, requests
from membership.protocol.messages.base import Message
from membership.protocol.messages.ensemble import EnsembleGreeting, EnsembleJoin
from membership.protocol.messages.fields import MESSAGE_LIMIT
from membership.protocol.messages.joining import ColdStart, JoinDeferred, JoinRequest
from membership.protocol.messages.probes import NotMember


class DecodeError(MembershipError, ValueError):
    """Raised when bytes are not a message. The bytes must be dropped and counted."""


_UNION = (
    joining.Messages
    | probes.Messages
    | reports.Messages
    | deciding.Messages
    | catching_up.Messages
    | requests.Messages
    | ensemble.Messages
)

MESSAGE_TYPES: tuple[type[Message], ...] = tuple(sorted(get_args(_UNION), key=lambda kind: kind.__name__))
"""Every type of message that travels, by name."""

ANONYMOUS_MESSAGES: tuple[type[Message], ...] = (
    JoinRequest,
    JoinDeferred,
    ColdStart,
    NotMember,
    EnsembleJoin,
    EnsembleGreeting,
)
"""Messages a process may send before it knows the cluster id; the envelope then carries zeros."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(_UNION)


def encode(message: Message) -> bytes:
    """The message as MessagePack bytes."""
    return _encoder.encode(message)


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The message in these bytes, fully validated. Raises DecodeError, and nothing else, on bad input."""
    if len(data) > MESSAGE_LIMIT:
        raise DecodeError(f"a message has at most {MESSAGE_LIMIT} bytes, not {len(data)}")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(f"not a message: {error}") from error
