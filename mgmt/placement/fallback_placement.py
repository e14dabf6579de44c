"""The fallback placement: the least that must be done when hosts are gone and no full placement exists (yet).

Writes must go on although, say, two racks cannot hold three rack-distinct copies: dead hosts leave their
chains, and the service roles leave dead hosts; so do hosts whose disks are in trouble, for everybody waits for them.
No new copy is made (one that is under way is finished, or undone
where the host that it is made on is dead) and no chain has a rack twice that had it once.  Full repair is the
solver's business.
Only a chain of which nobody is left begins anew on other hosts, in as many racks as there are: the log has to write its
next record somewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from datastore_adapter.interface import (
    Observation,
    Placement,
    ReplicaState,
    SegmentObservation,
    ServiceRoles,
    layout_servers_wanted,
)
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.placement_rows import log_units_of


def available_placement(view: HostView, observation: Observation, drains: Sequence[str] = ()) -> Placement:
    """What stands, without the hosts that are not in ``view`` or whose disks are in trouble.

    The engine remembers who held what is away then, and takes it back when they return.
    """
    serving = serving_hosts(view, observation)
    candidates = [host for host in serving.by_seniority if host.name not in drains] or list(
        serving.by_seniority
    )
    chains = {
        segment.key: serving_chain(segment, view, serving) or _elsewhere(segment, view, candidates, number)
        for number, segment in enumerate(observation.segments)
    }
    standing = observation.roles.layout_servers
    servers = _replaced_layout_servers(standing, serving, candidates)
    if len(servers) < len(standing):
        # A vote that comes late is better than none.
        servers = _replaced_layout_servers(standing, view, candidates)
    roles = ServiceRoles(
        layout_servers=servers,
        sequencers=refilled(observation.roles.sequencers, serving, candidates, 1),
        log_units=log_units_of(chains, observation, view.names),
    )
    return Placement(chains, roles)


def serving_hosts(view: HostView, observation: Observation) -> HostView:
    """Those whose disks are in order; all, if no disk is."""
    serving = view.without(observation.relieved)
    return serving if serving.hosts else view


def is_unavailable(segment: SegmentObservation, view: HostView) -> bool:
    """Whether the live hosts together lack data of the segment, until one of the lost ones returns.

    That is so, too, while the engine goes on without a part of it (``SegmentObservation.away``).  A complete copy is
    enough; so is one with the new records beside one with the old, in the middle of a move.
    """
    live = {copy.state for copy in segment.replicas if copy.host in view.names}
    in_the_middle = {ReplicaState.SYNCING, ReplicaState.STALE}
    if segment.away:
        return True
    return bool(segment.replicas) and ReplicaState.IN_SYNC not in live and not in_the_middle <= live


def available_chain(segment: SegmentObservation, view: HostView) -> tuple[str, ...]:
    """The chain without lost hosts; empty where none is left.

    What was about to leave it stays in the place of a lost one where its rack has no other: it has the older records,
    and who was to have them instead may be lost.
    """
    in_order = sorted(segment.replicas, key=lambda copy: copy.position)
    present = [copy for copy in in_order if copy.host in view.names]
    live = [copy for copy in present if copy.state is not ReplicaState.STALE]
    # A copy that lacks data is not made the first of its chain while there is a complete one.
    chain = [copy.host for copy in sorted(live, key=lambda copy: copy.state is not ReplicaState.IN_SYNC)]
    hosts = view.by_name
    racks = {hosts[name].failure_domain for name in chain}
    places = len(in_order) - len(present) if chain else 0
    for copy in present:
        rack = hosts[copy.host].failure_domain
        if places and copy.state is ReplicaState.STALE and copy.bytes and rack not in racks:
            chain.append(copy.host)
            racks.add(rack)
            places -= 1
    return tuple(chain)


def serving_chain(segment: SegmentObservation, view: HostView, serving: HostView) -> tuple[str, ...]:
    """The chain without hosts that are lost, or not ``serving`` where others are; empty where none is left."""
    return available_chain(segment, serving) or available_chain(segment, view)


def _elsewhere(
    segment: SegmentObservation, view: HostView, candidates: Sequence[Host], number: int
) -> tuple[str, ...]:
    """A chain of other hosts, as long as the lost one: those first that hold older records of the segment."""
    holders = [copy.host for copy in segment.replicas if copy.host in view.names]
    lost = [copy.host for copy in segment.replicas if copy.host not in view.names]
    turn = number % len(candidates)
    return refilled((*holders, *lost), view, [*candidates[turn:], *candidates[:turn]], max(1, len(lost)))


def refilled(
    standing: Sequence[str], view: HostView, candidates: Sequence[Host], wanted: int
) -> tuple[str, ...]:
    """Live holders keep their role; free places go to hosts of racks that have fewest, the senior first."""
    holders = [name for name in standing if name in view.names]
    if len(holders) == len(standing):
        return tuple(holders)
    return _filled(holders, view, candidates, wanted)


def enough_layout_servers(
    view: HostView, standing: Sequence[str], candidates: Sequence[Host] | None = None
) -> tuple[str, ...]:
    """Those that live, and others for as many as there are to be."""
    usable = view.by_seniority if candidates is None else candidates
    holders = [name for name in standing if name in view.names]
    return _filled(holders, view, usable, layout_servers_wanted(len(usable)))


def _replaced_layout_servers(
    standing: Sequence[str], view: HostView, candidates: Sequence[Host]
) -> tuple[str, ...]:
    """Those that stand, if none of them is lost and they are odd.

    Of an even number one may be named besides that is away: the log keeps it to be able to do without another's disk
    (``datastore_adapter.log.layout.change.absent_layout_server``), and does not show it.
    """
    if view.names.issuperset(standing) and len(standing) % 2:
        return tuple(standing)
    return enough_layout_servers(view, standing, candidates)


def _filled(holders: list[str], view: HostView, candidates: Sequence[Host], wanted: int) -> tuple[str, ...]:
    racks = {host.name: host.failure_domain for host in view.hosts}
    spare = [host for host in candidates if host.name not in holders]
    while spare and len(holders) < wanted:
        held = Counter(racks[name] for name in holders)
        chosen = min(spare, key=lambda host: held[host.failure_domain])
        spare.remove(chosen)
        holders.append(chosen.name)
    return tuple(holders)
