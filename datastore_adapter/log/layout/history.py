"""The documents before the one in force, as far back as they are kept: how the layout came about.

What each host keeps beside its layout server, and reading it from all of them.  A document was told to a majority of
its layout servers before anything went on, so as long as one of those answers it is found.  Nothing needs it: a host
that cannot keep it serves all the same.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from datastore_adapter.log.errors import LayoutError, StorageError
from datastore_adapter.log.layout.document import DOCUMENT_LIMIT, EpochDocument, decode_document
from datastore_adapter.log.messages import FetchHistory, History
from datastore_adapter.log.runtime.runtime import Runtime, call_all, hosts_at
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.durable_record import load_record, save_record
from datastore_adapter.log.storage.file_storage import Storage

KEPT: Final = 256
"""Documents each host keeps, the latest.  One of 12 segments takes half a kilobyte, one of 10 000 some 100 kB."""
ANSWER_BYTES: Final = 8 << 20
"""Of one answer, at least one document."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    document: bytes
    """Compressed."""


class DocumentHistory:
    """One host's; used by one thread at a time, that of its layout server.

    Each document has a place of its own by its epoch, where it takes the one `KEPT` epochs older: nothing is removed.
    """

    def __init__(self, storage: Storage, kept: int = KEPT) -> None:
        self._storage = storage
        self._kept = kept
        self.counters: Counter[str] = Counter()

    def keep(self, document: EpochDocument, encoded: bytes) -> None:
        """Durable on return, or counted as lost."""
        try:
            save_record(
                self._storage, self._place(document.epoch), _Kept(document.epoch, zlib.compress(encoded, 1))
            )
        except StorageError:
            self.counters["history_lost"] += 1

    def answer(self, request: FetchHistory, latest: int) -> History:
        """The documents asked for, latest first, as many as fit."""
        found: list[bytes] = []
        size = 0
        epoch = min(latest, request.below - 1)
        lowest = max(0, latest - self._kept + 1)
        while epoch >= lowest:
            kept = self._load(epoch)
            if kept is not None:
                size += len(kept)
                if found and size > ANSWER_BYTES:
                    break
                found.append(kept)
            epoch -= 1
        return History(tuple(found), epoch + 1 if epoch >= lowest else 0)

    def _place(self, epoch: int) -> str:
        return f"layout/history/{epoch % self._kept:03d}"

    def _load(self, epoch: int) -> bytes | None:
        try:
            kept = load_record(self._storage, self._place(epoch), _Kept)
        except StorageError:
            self.counters["history_damaged"] += 1
            return None
        return kept.document if kept is not None and kept.epoch == epoch else None


async def read_history(
    runtime: Runtime, settings: LogSettings, addresses: Mapping[str, str]
) -> dict[int, EpochDocument]:
    """What the hosts at `addresses` keep together, by epoch; those that do not answer are left out."""
    found: dict[int, EpochDocument] = {}
    below = dict.fromkeys(addresses, 1 << 62)
    while below:
        asked = hosts_at({host: addresses[host] for host in below})
        requests = {host: FetchHistory(bound) for host, bound in below.items()}
        replies = await call_all(runtime, asked, requests, settings.call_timeout)
        below = {}
        for host, reply in replies.items():
            if not isinstance(reply, History):
                continue
            for compressed in reply.documents:
                document = _decompressed(compressed)
                if document is not None:
                    found.setdefault(document.epoch, document)
            if 0 < reply.next < requests[host].below:
                below[host] = reply.next
    return dict(sorted(found.items()))


def _decompressed(compressed: bytes) -> EpochDocument | None:
    """None for what is no document: a damaged host is as good as one that is away."""
    try:
        decompressor = zlib.decompressobj()
        encoded = decompressor.decompress(compressed, DOCUMENT_LIMIT + 1)
        return decode_document(encoded)
    except (zlib.error, LayoutError):
        return None
