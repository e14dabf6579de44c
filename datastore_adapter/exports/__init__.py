"""A placement in the words of systems that rota does not steer: Kafka, CockroachDB, and TiKV's Placement Driver (PD).

Pure functions from segments, their hosts in order and the hosts' tags to the document that the other system's own
tool reads.  Nothing here does input or output.
"""

from __future__ import annotations

from datastore_adapter.exports.cockroachdb import zone_configurations
from datastore_adapter.exports.errors import (
    CopiesError,
    ExportError,
    HostTagError,
    NothingPlacedError,
    SegmentNameError,
)
from datastore_adapter.exports.kafka import reassignment
from datastore_adapter.exports.pd import KeyType, rule_bundles
from datastore_adapter.exports.placed import PlacedSegment, placed_segments

__all__ = [
    "CopiesError",
    "ExportError",
    "HostTagError",
    "KeyType",
    "NothingPlacedError",
    "PlacedSegment",
    "SegmentNameError",
    "placed_segments",
    "reassignment",
    "rule_bundles",
    "zone_configurations",
]
