"""What the fields of messages may hold, checked on decoding."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

RECORD_ID_LENGTH: Final = 16
DISK_ID_LENGTH: Final = 16
STREAM_NAME_LIMIT: Final = 255
"""Bytes of UTF-8 in a stream's name."""
TOKENS_LIMIT: Final = 1 << 16
"""Addresses that one request may take for a stream."""
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Address: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
SegmentKey: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
HostName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
StreamName: TypeAlias = Annotated[str, msgspec.Meta(max_length=STREAM_NAME_LIMIT)]
RecordId: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=RECORD_ID_LENGTH)]
DiskId: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=DISK_ID_LENGTH)]
"""Of the disk that the answering roles remember by (`log.storage.disk_identity`)."""
Pointers: TypeAlias = Annotated[tuple[Address, ...], msgspec.Meta(max_length=64)]
