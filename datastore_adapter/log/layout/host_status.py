"""What hosts say and views tell about a layout: whose disk or address is another, what is trimmed, what has come back.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from datastore_adapter.log.layout.document import EpochDocument, Layout
from datastore_adapter.log.messages import StatusReply


def sound(document: EpochDocument, statuses: Mapping[str, StatusReply]) -> dict[str, StatusReply]:
    """The statuses, of which those from another disk than the document names tell of no segment."""
    return {
        host: status if document.disks.get(host, status.disk) == status.disk else replace(status, segments=())
        for host, status in statuses.items()
    }


def without_disk(document: EpochDocument, statuses: Mapping[str, StatusReply]) -> list[str]:
    """The layout servers, and the sequencer, that came back with another disk: they have no vote until one is named."""
    layout = document.layout
    return [
        host
        for host in dict.fromkeys((*layout.layout_servers, *layout.sequencers[:1]))
        if host in statuses and statuses[host].disk != document.disks[host]
    ]


def has_moved(document: EpochDocument, live: Mapping[str, str]) -> bool:
    """Whether a live host is somewhere else than the document says, where clients look for it in vain."""
    return any(live.get(host, address) != address for host, address in document.hosts.items())


def trimmed_below(statuses: Mapping[str, StatusReply]) -> int:
    """All lower addresses are trimmed: somebody has asked one replica at least."""
    return max((one.trimmed_below for status in statuses.values() for one in status.segments), default=0)


def has_come_back(layout: Layout, statuses: Mapping[str, StatusReply], live: Mapping[str, str]) -> bool:
    """Whether a new epoch would take back an extent that is away."""
    held = {(status.key, host) for host, reply in statuses.items() for status in reply.segments}
    for segment, extent in layout.away():
        there = [host for host in extent.chain if host in live]
        if all(host in statuses for host in there) and any((segment.key, host) in held for host in there):
            return True
    return False
