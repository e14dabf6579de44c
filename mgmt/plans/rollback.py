"""Rollback: the placement to return to when an operator aborts a plan, as far as its hosts still live.

Where a host of then is gone its place is kept by a complete copy of now, of a rack that has none yet if there is one,
so that going back never leaves a segment with fewer copies than it has hosts for.  Pure; nothing is solved for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastore_adapter.interface import (
    Observation,
    Placement,
    ReplicaState,
    SegmentObservation,
    ServiceRoles,
)
from mgmt.placement.fallback_placement import available_placement, refilled
from mgmt.placement.hosts import HostView
from mgmt.placement.placement_rows import log_units_of


def rollback_target(view: HostView, observation: Observation, previous: Placement) -> Placement:
    """``previous`` with hosts that are not in ``view`` any more replaced by what there is."""
    available = available_placement(view, observation).segments
    chains = {
        segment.key: _chain(segment, previous.segments.get(segment.key, ()), available[segment.key], view)
        for segment in observation.segments
    }
    live = list(view.by_seniority)
    then, now = previous.roles, observation.roles
    roles = ServiceRoles(
        layout_servers=refilled(then.layout_servers, view, live, len(then.layout_servers)),
        sequencers=refilled(then.sequencers[:1] or now.sequencers[:1], view, live, 1),
        log_units=log_units_of(chains, observation, view.names),
    )
    retired = None if previous.retired is None else previous.retired & chains.keys()
    slots = previous.slots
    if slots is not None and any(ranges and key not in chains for key, ranges in slots.items()):
        slots = None  # who held them then is no more
    return Placement(chains, roles, retired, slots)


def _chain(
    segment: SegmentObservation, then: Sequence[str], available: tuple[str, ...], view: HostView
) -> tuple[str, ...]:
    hosts = view.by_name
    chain = [host for host in then if host in hosts]
    now = sorted(segment.replicas, key=lambda copy: copy.position)
    spare = [
        copy.host
        for copy in now
        if copy.host in hosts and copy.host not in chain and copy.state is ReplicaState.IN_SYNC
    ]
    while spare and len(chain) < len(then):
        racks = {hosts[host].failure_domain for host in chain}
        stays = next((host for host in spare if hosts[host].failure_domain not in racks), spare[0])
        spare.remove(stays)
        chain.append(stays)
    return tuple(chain) or available  # nobody of then lives, or is complete now
