"""Small records that a role must not forget: one checksummed file each, replaced as a whole."""

from __future__ import annotations

import zlib
from typing import Final, TypeVar

import msgspec

from datastore_adapter.log.errors import DamagedRecordError
from datastore_adapter.log.storage.file_storage import Storage

R = TypeVar("R", bound=msgspec.Struct)

_CHECKSUM_BYTES: Final = 4


def save_record(storage: Storage, name: str, record: msgspec.Struct) -> None:
    """Durable on return.  Raises StorageError, and then the former record stands."""
    body = msgspec.msgpack.encode(record)
    storage.replace(name, zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little") + body)


def load_record(storage: Storage, name: str, kind: type[R]) -> R | None:
    """The record last saved, or None.  Raises DamagedRecordError when it is damaged.

    A role that forgot what it promised must not go on as if it had promised nothing, so there is no
    default in that case; `log.storage.disk_identity` says what becomes of it.
    """
    data = storage.load(name)
    if data is None:
        return None
    body = data[_CHECKSUM_BYTES:]
    try:
        if (
            len(data) < _CHECKSUM_BYTES
            or zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little") != data[:_CHECKSUM_BYTES]
        ):
            raise msgspec.DecodeError("the checksum does not match")
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedRecordError(f"{name} is damaged ({error})") from None
