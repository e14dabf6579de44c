"""Fields that several messages share, and their bounds. What is out of bounds is no message."""

from typing import Annotated

import msgspec

from membership.protocol.view.member import INCARNATION_BYTES, SHORT_BYTES

Epoch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
RingMask = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Index = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
Round = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Bitmap = Annotated[bytes, msgspec.Meta(max_length=1 << 14)]
ShortIdentifier = Annotated[bytes, msgspec.Meta(min_length=SHORT_BYTES, max_length=SHORT_BYTES)]
AnyIdentifier = Annotated[bytes, msgspec.Meta(min_length=SHORT_BYTES, max_length=INCARNATION_BYTES)]
ShortText = Annotated[str, msgspec.Meta(max_length=500)]

MESSAGE_LIMIT = 64 << 20
"""Bytes an encoded message may have; a datagram is bounded far lower by the transport."""
