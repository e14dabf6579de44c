"""The settings of a replicated map.

Replicas need not agree on them.  A limit goes with each command, so all of them decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from datastore_adapter.log.errors import LogSettingsError


@dataclass(frozen=True, slots=True)
class MapSettings:
    """The limits of a map, and how often it is written out as a whole."""

    max_key: int = 1024
    """Bytes of UTF-8, the longest key."""
    max_value: int = 256 << 10
    """Bytes, the longest value.  Formula: a compare-and-set carries two values and a key, which must fit into one
    record of the log (`LogSettings.max_payload`)."""
    max_bytes: int = 64 << 20
    """Bytes of all keys and values together.  Every replica holds them in memory, with some 200 bytes more per
    entry, and 100 more while it writes a snapshot.  A command that would go beyond is refused.  Higher makes
    snapshots longer."""
    snapshot_bytes: int = 16 << 20
    """Bytes of commands (128 more for each) after which whoever wrote the last of them writes a snapshot.  Formula:
    what a new replica replays is at most about this much, and what is written is ``1 + size of the map /
    snapshot_bytes`` times the commands.  Lower starts faster and frees the log sooner, at more writing."""
    chunk_bytes: int = 256 << 10
    """Bytes of entries in one record of a snapshot (at least one entry).  Larger is fewer records; each of them blocks
    a chain for longer."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise LogSettingsError(f"{field.name} must be above 0, not {getattr(self, field.name)}")
