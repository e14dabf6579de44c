"""What the log reports of itself, in the terms of the adapter interface: a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from datastore_adapter.interface import (
    Away,
    DiskState,
    DiskTrouble,
    LayoutVersion,
    Observation,
    Placement,
    Replica,
    ReplicaState,
    Role,
    SegmentObservation,
    ServiceRoles,
)
from datastore_adapter.log.layout.chain import Latest
from datastore_adapter.log.layout.change import absent_layout_server
from datastore_adapter.log.layout.document import EpochDocument, Extent, ExtentState, Segment
from datastore_adapter.log.layout.host_status import (
    has_come_back,
    has_moved,
    sound,
    trimmed_below,
    without_disk,
)
from datastore_adapter.log.layout.striping import keys_from
from datastore_adapter.log.messages import SegmentStatus, StatusReply


def make_observation(
    latest: Latest, statuses: Mapping[str, StatusReply], live: Mapping[str, str]
) -> Observation:
    """The observation of the document `latest`; `statuses` of the hosts that answered, `live`: the view.

    Hosts that the layout does not name count for what their disks take, and nothing else.
    """
    layout = latest.document.layout
    every, named = statuses, set(layout.hosts())
    statuses = {host: status for host, status in sound(latest.document, every).items() if host in named}
    spare = absent_layout_server(layout.layout_servers, live)
    held = {(status.key, host): status for host, reply in statuses.items() for status in reply.segments}
    kept = keys_from(layout.all_stripings, trimmed_below(statuses))
    servers = tuple(host for host in layout.layout_servers if host != spare)
    roles = ServiceRoles(servers, layout.sequencers, layout.log_units)
    return Observation(
        layout_epoch=latest.document.epoch,
        cluster_id=latest.document.cluster_id,
        segments=tuple(
            replace(
                _segment(segment, statuses, held, live),
                retired=segment.key in layout.retired,
                trimmed=segment.key not in kept,
            )
            for segment in layout.segments
        ),
        roles=roles,
        unresponsive=frozenset(
            host
            for host in replace_fields(layout, layout_servers=servers).serving_hosts()
            if host not in live
        ),
        intent=latest.document.intent,
        disks={
            host: trouble
            for host, status in sorted(every.items())
            if (trouble := _disk_trouble(status)) is not None
        },
        sync_seconds={host: status.sync_seconds for host, status in sorted(every.items())},
        room={host: status.room for host, status in sorted(every.items()) if status.room >= 0},
        unfinished=_is_unfinished(latest, statuses)
        or has_come_back(layout, statuses, live)
        or has_moved(latest.document, live)
        or bool(without_disk(latest.document, statuses)),
    )


def version_of(document: EpochDocument) -> LayoutVersion:
    """The document in the interface's terms."""
    layout = document.layout
    chains = {segment.key: segment.extents[-1].chain for segment in layout.segments}
    roles = ServiceRoles(layout.layout_servers, layout.sequencers, layout.log_units)
    return LayoutVersion(
        epoch=document.epoch,
        placement=Placement(chains, roles, layout.retired),
        holders={segment.key: segment.serving_hosts() for segment in layout.segments},
        intent=document.intent,
        view_epoch=document.view_epoch,
        plan_id=document.plan_id,
        cause=document.cause,
    )


def _disk_trouble(status: StatusReply) -> DiskTrouble | None:
    if status.failure:
        return DiskTrouble(DiskState.FAILED, status.failure)
    return DiskTrouble(DiskState.FULL, "it takes no more records") if status.full else None


def _is_unfinished(latest: Latest, statuses: Mapping[str, StatusReply]) -> bool:
    """Sealed without a successor, or decided but not activated: the log does not take appends."""
    if latest.sealed:
        return True
    layout = latest.document.layout
    if not layout.segments:
        return False
    if any(status.sealed_epoch >= layout.data_epoch for status in statuses.values()):
        return True
    sequencer = statuses.get(layout.sequencer or "")
    return sequencer is not None and sequencer.sequencer_epoch != layout.data_epoch


def _segment(
    segment: Segment,
    statuses: Mapping[str, StatusReply],
    held: Mapping[tuple[str, str], SegmentStatus],
    live: Mapping[str, str],
) -> SegmentObservation:
    size = max((held[key].bytes for key in held if key[0] == segment.key), default=0)
    replicas, live_copies = [], set()
    for position, host in enumerate(segment.serving_hosts()):
        status = held.get((segment.key, host))
        own = 0 if status is None else status.bytes
        forgot = status is None and host in statuses
        state = _state(segment, host, forgot, host in live)
        if host in live and not forgot:
            live_copies.add(host)
        replicas.append(
            Replica(
                segment=segment.key,
                host=host,
                position=position,
                role=Role.PRIMARY if position == 0 else Role.REPLICA,
                state=state,
                bytes=own,
                lag=max(0, size - own) if state is ReplicaState.SYNCING else 0,
            )
        )
    away = [extent for extent in segment.closed_extents if extent.state is ExtentState.AWAY]
    return SegmentObservation(
        segment.key,
        tuple(replicas),
        size,
        away=tuple(Away(extent.start, extent.end or extent.start, extent.chain) for extent in away),
        fewest_copies=min(len(live_copies.intersection(e.chain)) for e in segment.extents if e.is_held),
    )


def _state(segment: Segment, host: str, forgot: bool, is_live: bool) -> ReplicaState:
    def holds(extent: Extent) -> bool:
        return host in extent.chain or not extent.is_held

    if not is_live:
        return ReplicaState.GONE
    if forgot or not holds(segment.open_extent):
        return ReplicaState.STALE  # out of the open chain, or its disk was emptied
    return ReplicaState.IN_SYNC if all(map(holds, segment.extents)) else ReplicaState.SYNCING
