"""What the servers said, in the terms of the interface.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from datastore_adapter.interface import (
    LayoutVersion,
    Observation,
    Placement,
    Replica,
    ReplicaState,
    Role,
    SegmentObservation,
    Unreachable,
)
from datastore_adapter.slots.state.cluster_state import ClusterState, Member, describe_foreign
from datastore_adapter.slots.state.shards import Record, Shard, record_of, shards_of
from datastore_adapter.slots.state.slot_ranges import text_of


def make_observation(
    kept: Observation, state: ClusterState, live: frozenset[str], sync_lag: int
) -> Observation | Unreachable:
    """``kept``: what the layout adapter observes; ``live``: hosts of the view."""
    record = record_of(kept.intent)
    lost = _lost(state, record, live)
    if lost:
        return Unreachable(
            f"no server that answers holds slots, and shard {lost} was agreed to be on "
            f"{', '.join((record.chains or {})[lost])}, which left: bring one of them back"
        )
    shards = shards_of(state, record)
    return replace(
        kept,
        segments=tuple(_segment(shard, record, live, sync_lag) for shard in shards.values()),
        servers=_servers(state, live),
        notices=(*kept.notices, *_notices(state)),
    )


def _lost(state: ClusterState, record: Record, live: frozenset[str]) -> str:
    """A shard whose hosts have all left, where nothing is left of the cluster that it was in."""
    if state.owners:
        return ""
    chains = record.chains or {}
    return next((key for key, hosts in sorted(chains.items()) if hosts and not live.intersection(hosts)), "")


def _segment(shard: Shard, record: Record, live: frozenset[str], sync_lag: int) -> SegmentObservation:
    report = shard.primary.report
    copies = [
        _replica(shard, member, position, live, sync_lag) for position, member in enumerate(shard.members)
    ]
    retired = bool(record.keys) and shard.key not in record.keys
    sizes = [member.report.info.memory for member in shard.members if member.report is not None]
    return SegmentObservation(
        shard.key,
        tuple(copies),
        bytes=report.info.memory if report is not None else max(sizes, default=0),
        retired=retired,
        trimmed=retired and not shard.slots,
        slots=shard.slots,
        load=0.0 if report is None else report.info.operations,
    )


def _replica(shard: Shard, member: Member, position: int, live: frozenset[str], sync_lag: int) -> Replica:
    report, primary = member.report, shard.primary.report
    lag = 0
    if report is not None and primary is not None:
        lag = max(0, primary.info.offset - report.info.offset)
    return Replica(
        shard.key,
        member.host,
        position,
        Role.PRIMARY if position == 0 else Role.REPLICA,
        _state(shard, member, lag, live, sync_lag),
        bytes=0 if report is None else report.info.memory,
        lag=lag,
        history_id="" if report is None else report.info.replication_id,
    )


def _state(shard: Shard, member: Member, lag: int, live: frozenset[str], sync_lag: int) -> ReplicaState:
    if member.host not in live:
        return ReplicaState.GONE
    if member.report is None:
        return ReplicaState.STALE
    info = member.report.info
    if member is shard.primary:
        return ReplicaState.SYNCING if info.is_loading else ReplicaState.IN_SYNC
    if shard.primary.report is None:  # nobody to be behind of; whether it may be promoted is for `evidence`
        return ReplicaState.SYNCING if info.is_syncing or info.is_loading else ReplicaState.IN_SYNC
    return ReplicaState.IN_SYNC if is_in_step(member, shard.primary, lag, sync_lag) else ReplicaState.SYNCING


def is_in_step(member: Member, primary: Member, lag: int, sync_lag: int) -> bool:
    """Whether the replica has everything, but for what is on its way."""
    assert member.report is not None
    info = member.report.info
    same = primary.report is None or info.replication_id == primary.report.info.replication_id
    return info.link_up and not info.is_syncing and not info.is_loading and same and lag <= sync_lag


def _servers(state: ClusterState, live: frozenset[str]) -> Mapping[str, int]:
    counts = Counter(report.host for report in state.usable if report.host in live)
    return {host: counts[host] for host in sorted(live)}


def _notices(state: ClusterState) -> tuple[str, ...]:
    return (
        *state.troubles,
        *(f"{address} does not answer" for address in state.missing),
        *(
            f"another server answers at the address of {node_id[:8]}, which was on {member.host}"
            for node_id, member in sorted(state.members.items())
            if member.report is None and not member.record.has_address
        ),
        *(describe_foreign(report) for report in state.foreign),
        *sorted(report.fault for report in state.usable if report.fault),
        *(
            f"slots {text_of(report.table.open_slots)} are open at {report.address}: keys of them may be elsewhere"
            for report in state.reports
            if report.table.open_slots
        ),
    )


def with_placement(version: LayoutVersion) -> LayoutVersion:
    """What was in force by the plan that the epoch document names: the layout adapter has no segments of its own."""
    record = record_of(version.intent)
    chains = dict(record.chains or {})
    roles = version.placement.roles
    slots = record.plan_slots
    return replace(version, placement=Placement(chains, roles, None, slots), holders=chains)
