"""Snapshots of a replicated map, in the log itself.

Writing one (chunks, then the manifest that names them, then the word that older records are not needed), and finding
and reading the newest.  A crash in between leaves chunks that no manifest names, or records that could have been
trimmed: nothing that anybody mistakes for a snapshot.

Everything of a snapshot stands behind the position it is of.  So once its manifest is in the log, all three streams of
the map can forget what lies before that position, whoever else writes snapshots at the same time.
Source: L. Lamport, *Paxos Made Simple* leaves it out; D. Ongaro and J. Ousterhout, *Raft*, 2014, section 7 (snapshots,
chunks); Tango (SOSP 2013) section 3.2 (checkpoints in the log, forget).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from datastore_adapter.log.client.log_client import LogClient
from datastore_adapter.log.client.record import Record
from datastore_adapter.log.client.retention import Retention
from datastore_adapter.log.errors import ProtocolError, SnapshotDamagedError
from datastore_adapter.log.maps.records import Chunk, Manifest, decode, encode
from datastore_adapter.log.maps.state import Frozen

CHUNKS_AT_ONCE: Final = 4


MAP_STREAMS: Final = "map/"
"""What the names of all streams of maps begin with."""


@dataclass(frozen=True, slots=True)
class MapStreams:
    """The streams of the map called `name`."""

    name: str

    @property
    def commands(self) -> str:
        return f"{MAP_STREAMS}{self.name}"

    @property
    def chunks(self) -> str:
        return f"map/{self.name}/chunks"

    @property
    def manifests(self) -> str:
        return f"map/{self.name}/manifests"


async def write_snapshot(client: LogClient, streams: MapStreams, frozen: Frozen, chunk_bytes: int) -> int:
    """Write `frozen` into the log and forget what it makes superfluous; the address of its manifest."""
    chunks: list[tuple[int, int]] = []
    for entries in _cut(frozen.values, chunk_bytes):
        payload = encode(Chunk(entries))
        chunks.append((await client.append(streams.chunks, payload), zlib.crc32(payload)))
    manifest = Manifest(frozen.position, frozen.written, tuple(chunks), len(frozen.values))
    address = await client.append(streams.manifests, encode(manifest))
    await Retention(client).forget(
        dict.fromkeys((streams.commands, streams.chunks, streams.manifests), frozen.position)
    )
    return address


async def read_snapshot(client: LogClient, streams: MapStreams, retention: Retention) -> Frozen | None:
    """The newest whole snapshot, or None if there was never any.

    Raises TrimmedError when a newer one has taken its place meanwhile, SnapshotDamagedError.
    """
    start = (await retention.marks()).get(streams.manifests, 0)
    newest: Manifest | None = None
    async for record in retention.records(client.reader(streams.manifests, start), streams.manifests):
        manifest = _manifest(record)
        if manifest is not None and (newest is None or manifest.position >= newest.position):
            newest = manifest
    if newest is None:
        return None
    values: dict[str, bytes] = {}
    for first in range(0, len(newest.chunks), CHUNKS_AT_ONCE):
        named = newest.chunks[first : first + CHUNKS_AT_ONCE]
        records = await client.read_all([address for address, _ in named])
        for (address, checksum), chunk in zip(named, records, strict=True):
            values.update(_entries(address, checksum, chunk))
    if len(values) != newest.entries:
        raise SnapshotDamagedError(
            f"the snapshot of map {streams.name!r} has {len(values)} entries, its manifest says {newest.entries}"
        )
    return Frozen(newest.position, newest.written, values)


def _cut(values: Mapping[str, bytes], chunk_bytes: int) -> Iterator[tuple[tuple[str, bytes], ...]]:
    """The entries in pieces of at most `chunk_bytes`, or of one entry."""
    piece: list[tuple[str, bytes]] = []
    size = 0
    for key, value in values.items():
        entry_size = len(key.encode()) + len(value) + 16
        if piece and size + entry_size > chunk_bytes:
            yield tuple(piece)
            piece, size = [], 0
        piece.append((key, value))
        size += entry_size
    if piece:
        yield tuple(piece)


def _manifest(record: Record) -> Manifest | None:
    try:
        manifest = decode(record.payload)
    except ProtocolError:
        return None
    return manifest if isinstance(manifest, Manifest) else None


def _entries(address: int, checksum: int, record: Record | None) -> tuple[tuple[str, bytes], ...]:
    if record is not None and zlib.crc32(record.payload) == checksum:
        chunk = decode(record.payload)
        if isinstance(chunk, Chunk):
            return chunk.entries
    raise SnapshotDamagedError(f"address {address} is not the chunk that the snapshot's manifest names")
