"""Which disk a host's roles remember by: a random identity that lives on the disk, and is lost with what they forget.

An acceptor that forgot a vote, a sequencer that forgot an address or a log unit that forgot a record must never be
taken for the one that remembers, though it answers at the same address under the same host name.  So the epoch
document names, beside each host, the disk that its part is entrusted to (`EpochDocument.disks`), and whoever counts
votes, tails or copies counts only answers that come from that disk.  A host whose disk was emptied, restored from a
copy, or lacks a record that a role must not lose, has another identity: it is a new server, which votes in no epoch
that does not name it, and whose copies count only after they were compared with others.

What cannot be told from the original is a disk that was put back as a whole below the file system (a snapshot of a
volume or of a virtual machine): such a host must come back with an emptied data directory.
Source: D. Michael et al., *Recovering Shared Objects Without Stable Storage*, DISC 2017 (why amnesia breaks quorums);
R. Alagappan et al., *Protocol-Aware Recovery for Consensus-Based Storage*, FAST 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from datastore_adapter.log.errors import DamagedRecordError
from datastore_adapter.log.messages.fields import DISK_ID_LENGTH
from datastore_adapter.log.storage.durable_record import load_record, save_record
from datastore_adapter.log.storage.file_storage import Storage

IDENTITY_FILE: Final = "identity"
COPIED: Final = "the data directory is a copy"
"""Why a disk is not trusted although all of its files are there."""


class _IdentityRecord(msgspec.Struct, frozen=True, array_like=True):
    disk: bytes


@dataclass(frozen=True, slots=True)
class DiskIdentity:
    """What was found when a host's roles opened their storage."""

    disk: bytes
    forgotten: tuple[str, ...] = ()
    """Why the identity is another one than before, one reason each; empty on a sound disk, and on a fresh one."""
    set_aside: tuple[str, ...] = ()
    """Damaged files, by the names they have now."""


def open_identity(
    storage: Storage,
    records: Mapping[str, type[msgspec.Struct]],
    *,
    draw: Callable[[int], bytes],
    is_copy: bool = False,
) -> DiskIdentity:
    """The identity of the disk, a new one unless all `records` (file name -> type) are there and sound.

    Every role writes its record when it first opens the storage, so that a missing one was lost.  A damaged one is set
    aside.  `is_copy`: the directory is known to be a copy; `draw`: so many random bytes.  Raises StorageError.
    """
    every: dict[str, type[msgspec.Struct]] = {IDENTITY_FILE: _IdentityRecord, **records}
    lost: list[str] = []
    set_aside: list[str] = []
    disk: bytes | None = None
    for name, kind in every.items():
        try:
            record = load_record(storage, name, kind)
        except DamagedRecordError as error:
            set_aside.append(storage.set_aside(name))
            lost.append(str(error))
            continue
        if record is None:
            lost.append(f"{name} is missing")
        elif isinstance(record, _IdentityRecord):
            disk = record.disk
    if disk is not None and not lost and not is_copy:
        return DiskIdentity(disk)
    is_fresh = len(lost) == len(every) and not set_aside and not storage.names("unit/")
    # Known to be another disk before any role goes on: until the layout names it nothing on it counts.
    disk = draw(DISK_ID_LENGTH)
    save_record(storage, IDENTITY_FILE, _IdentityRecord(disk))
    reasons = () if is_fresh else (COPIED,) if is_copy and not lost else tuple(lost)
    return DiskIdentity(disk, reasons, tuple(set_aside))
