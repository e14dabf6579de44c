"""The rows that a placement is decided from: view, observation and intent in the datastore schema.

Pure: the same inputs give the same rows.  A row of ``replica`` is one *wanted* copy; which of the copies
found today fill the rows is decided here (a half-made copy of a plan in flight fills its row, so that the
next plan goes on with it), which copies there shall be is decided by the policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from datastore_adapter.interface import (
    Observation,
    Placement,
    Replica,
    ReplicaState,
    SegmentObservation,
    ServiceRoles,
)
from mgmt.errors import PlacementError
from mgmt.placement.hash_slot_assignment import number_of
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent
from mgmt.solution import Delta

LEAST_LOAD = 100.0
"""Operations per second below which it does not matter where a segment is led."""

_STATE_RANK = {
    ReplicaState.IN_SYNC: 0,
    ReplicaState.SYNCING: 1,
    ReplicaState.STALE: 2,
    ReplicaState.GONE: 3,
}


@dataclass(frozen=True, slots=True)
class HostRow:
    name: str
    rack: str
    zone: str
    capacity_bytes: int
    alive: bool
    drained: bool
    layout_server: bool
    sequencer: bool
    servers: int | None = None
    """Copies it can hold, where the engine needs a server process for each; None: any number."""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentRow:
    key: str
    bytes: int
    replication_factor: int
    slots: int = 0
    load: int = 0
    """Operations per second, held still: see :func:`steady_load`."""


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    segment: str
    slot: int
    host: str | None
    is_primary: bool


@dataclass(frozen=True, slots=True)
class PinRow:
    """The copy in this slot stays on, or goes to, the host."""

    segment: str
    slot: int
    host: str


@dataclass(frozen=True, slots=True)
class PlacementState:
    """Rows for the state database, and the roles and orders that the schema does not carry."""

    hosts: tuple[HostRow, ...]
    segments: tuple[SegmentRow, ...]
    replicas: tuple[ReplicaRow, ...]
    roles: ServiceRoles
    frozen: tuple[str, ...] = ()
    """Hosts that receive no new copies now, sorted."""
    pins: tuple[PinRow, ...] = ()
    retired: frozenset[str] = frozenset()
    """Segments that are to take no more records: there are some in them, and they are not wanted any more."""
    observed: tuple[tuple[bool, bool], ...] = ()
    """Of each segment that is there, whether it is retired and whether nothing of it is left."""
    moment: float = 0.0
    """The present time of policies that ask for it, in Unix seconds."""

    @property
    def live_hosts(self) -> frozenset[str]:
        return frozenset(row.name for row in self.hosts if row.alive)

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """Equal fingerprints need no new solve.  Sizes count by powers of two: data grows all the time."""
        sizes = tuple(
            (row.key, row.bytes.bit_length(), row.replication_factor, row.slots, row.load)
            for row in self.segments
        )
        return (
            self.hosts,
            sizes,
            self.replicas,
            self.roles,
            self.frozen,
            self.pins,
            self.retired,
            self.observed,
        )


def build_state(
    view: HostView,
    observation: Observation,
    intent: Intent,
    *,
    departed: Mapping[str, Host] | None = None,
    previous: PlacementState | None = None,
    frozen: frozenset[str] = frozenset(),
) -> PlacementState:
    """Join view, observation and intent.

    ``departed`` knows hosts of earlier views: a lost copy then still names its host, so that the plan can say
    where it was.  ``previous`` keeps the slots of surviving copies where they were.
    """
    departed = departed or {}
    observed = {segment.key: segment for segment in observation.segments if not _is_over(segment, intent)}
    known = {**{name: departed[name] for name in sorted(departed)}, **view.by_name}
    old_slots = _slots(previous)
    old_loads = {row.key: row.load for row in previous.segments} if previous is not None else {}
    preferred = intent.plan.target.segments if intent.plan is not None else {}
    segments: list[SegmentRow] = []
    replicas: list[ReplicaRow] = []
    for key in sorted({*intent.segments, *observed}):
        found = observed.get(key, SegmentObservation(key, ()))
        load = steady_load(old_loads.get(key, 0), found.load)
        segments.append(SegmentRow(key, found.bytes, intent.replication_factor, number_of(found.slots), load))
        kept = _kept_copies(found, intent, view, frozenset(preferred.get(key, ())))
        hosts = [copy.host if copy.host in known else None for copy in kept]
        slots = _assign_slots(hosts, intent.replication_factor, old_slots.get(key, {}))
        primary = next((copy.host for copy in kept if copy.position == 0), None)
        for slot, host in enumerate(slots):
            replicas.append(ReplicaRow(key, slot, host, host is not None and host == primary))
    named = {row.host for row in replicas if row.host is not None}
    hosts_needed = [known[name] for name in sorted(view.names | (named & known.keys()))]
    rows = tuple(_host_row(host, view, observation, intent) for host in hosts_needed)
    names = tuple(sorted(frozen & {row.name for row in rows}))
    pins = tuple(_pin_rows(intent, view, replicas))
    return PlacementState(
        rows,
        tuple(segments),
        tuple(replicas),
        observation.roles,
        names,
        pins,
        retired=frozenset(observed).difference(intent.segments),
        observed=tuple((segment.retired, segment.trimmed) for segment in observation.segments),
    )


def steady_load(before: int, now: float) -> int:
    """What a load counts as: it changes all the time, and only a change by half and more is one worth deciding anew.

    A load too small to matter is none.
    """
    if now < LEAST_LOAD:
        return 0
    return before if before / 2 < now < before * 2 else round(now)


def _pin_rows(intent: Intent, view: HostView, replicas: Sequence[ReplicaRow]) -> Iterable[PinRow]:
    """A slot for each pin: that of the copy that is there, or the one whose copy can be spared best.

    A pin to a host that is away rests: it must not keep the copies that can be had from being made.
    """
    pinned = [(segment, host) for segment, host in intent.pins if host in view.names]
    hosts, drained = view.by_name, frozenset(intent.drains)
    free: dict[str, list[ReplicaRow]] = {segment: [] for segment, _ in pinned}
    for row in replicas:
        if row.segment in free:
            free[row.segment].append(row)

    def rank(row: ReplicaRow, segment: str, host: str) -> tuple[bool, bool, bool, bool, int]:
        at = row.host
        spare = at is None or at not in hosts or at in drained
        same_rack = at in hosts and at is not None and hosts[at].failure_domain == hosts[host].failure_domain
        wanted_elsewhere = at is not None and (segment, at) in intent.pins and at in hosts
        return at != host, wanted_elsewhere, not same_rack, not spare, row.slot

    for segment, host in pinned:
        if free[segment]:
            row = min(free[segment], key=lambda row: rank(row, segment, host))
            free[segment].remove(row)
            yield PinRow(segment, row.slot, host)


def _is_over(segment: SegmentObservation, intent: Intent) -> bool:
    """Whether it is given up and holds no slots any more.  An engine without slots leaves such a segment out itself."""
    return bool(intent.slots) and segment.trimmed and segment.key not in intent.segments


def _slots(previous: PlacementState | None) -> dict[str, dict[str, int]]:
    slots: dict[str, dict[str, int]] = {}
    for row in previous.replicas if previous is not None else ():
        if row.host is not None:
            slots.setdefault(row.segment, {})[row.host] = row.slot
    return slots


def _kept_copies(
    found: SegmentObservation, intent: Intent, view: HostView, preferred: frozenset[str]
) -> list[Replica]:
    """The copies that fill the wanted rows: at most one per row, the most useful first, in chain order."""
    names = view.names
    drained = frozenset(intent.drains)

    def usefulness(copy: Replica) -> tuple[bool, bool, bool, int, int]:
        lost = copy.host not in names
        return lost, copy.host in drained, copy.host not in preferred, _STATE_RANK[copy.state], copy.position

    by_use = sorted(found.replicas, key=usefulness)[: intent.replication_factor]
    return sorted(by_use, key=lambda copy: copy.position)


def _assign_slots(hosts: Sequence[str | None], count: int, old: Mapping[str, int]) -> list[str | None]:
    """Hosts that had a slot keep it; the others take the free ones in order."""
    slots: list[str | None] = [None] * count
    homeless: list[str | None] = []
    for host in hosts:
        slot = old.get(host, count) if host is not None else count
        if slot < count and slots[slot] is None:
            slots[slot] = host
        else:
            homeless.append(host)
    free = iter([slot for slot, host in enumerate(slots) if host is None])
    for host in homeless:
        slots[next(free)] = host
    return slots


def _host_row(host: Host, view: HostView, observation: Observation, intent: Intent) -> HostRow:
    roles = observation.roles
    return HostRow(
        name=host.name,
        rack=host.failure_domain,
        zone=host.zone,
        capacity_bytes=_capacity(host, observation),
        alive=host.name in view.names,
        drained=host.name in intent.drains,
        layout_server=host.name in roles.layout_servers,
        sequencer=host.name in roles.sequencers[:1],
        servers=observation.servers.get(host.name, 0)
        if observation.servers and host.name in view.names
        else None,
        labels=host.labels,
    )


def _capacity(host: Host, observation: Observation) -> int:
    """What it says, or, once its disk was full, what it holds and what that still takes."""
    room = observation.room.get(host.name)
    if room is None:
        return host.capacity_bytes
    held = sum(
        copy.bytes for segment in observation.segments for copy in segment.replicas if copy.host == host.name
    )
    return min(host.capacity_bytes, held + room)


def apply_deltas(state: PlacementState, observation: Observation, deltas: Iterable[Delta]) -> Placement:
    """The placement that the decided changes amount to.

    Chains keep their order: the primary first, then survivors as they stand, then new hosts by slot.
    Raises :class:`PlacementError` when the result is no placement.
    """
    copies: dict[str, dict[int, ReplicaRow]] = {row.segment: {} for row in state.replicas}
    for row in state.replicas:
        copies[row.segment][row.slot] = row
    layout_servers = {row.name: row.layout_server for row in state.hosts}
    sequencers = {row.name: row.sequencer for row in state.hosts}
    for delta in deltas:
        column = delta.column.removeprefix("controllable__")
        if delta.table == "replica":
            segment, slot = str(delta.primary_key[0]), int(delta.primary_key[1] or 0)
            row = copies[segment][slot]
            if column == "host":
                row = replace(row, host=None if delta.new is None else str(delta.new))
            else:
                row = replace(row, is_primary=bool(delta.new))
            copies[segment][slot] = row
        elif delta.table == "host":
            marks = layout_servers if column == "layout_server" else sequencers
            marks[str(delta.primary_key[0])] = bool(delta.new)
    standing = {segment.key: segment.replicas for segment in observation.segments}
    chains = {
        segment.key: _chain(segment.key, tuple(copies[segment.key].values()), standing.get(segment.key, ()))
        for segment in state.segments
    }
    roles = ServiceRoles(
        layout_servers=_in_order(observation.roles.layout_servers, layout_servers),
        sequencers=_in_order(observation.roles.sequencers, sequencers),
        log_units=log_units_of(chains, observation, state.live_hosts),
    )
    return Placement(chains, roles, state.retired)


def _chain(key: str, rows: Sequence[ReplicaRow], standing: Sequence[Replica]) -> tuple[str, ...]:
    hosts = [row.host for row in rows if row.host is not None]
    if len(hosts) != len(rows) or len(set(hosts)) != len(hosts):
        raise PlacementError(
            f"segment {key}: the solved hosts {hosts} are not distinct; add a rule to the policies"
        )
    primaries = {row.host for row in rows if row.is_primary}
    positions = {copy.host: copy.position for copy in standing}
    last = max(positions.values(), default=0) + 1
    return tuple(sorted(hosts, key=lambda host: (host not in primaries, positions.get(host, last))))


def _in_order(standing: Sequence[str], marks: Mapping[str, bool]) -> tuple[str, ...]:
    """Marked names: those that stand already in their order, then the new ones by name."""
    stay = [name for name in standing if marks.get(name, False)]
    return (*stay, *sorted(name for name, marked in marks.items() if marked and name not in stay))


def standing_chain(segment: SegmentObservation) -> tuple[str, ...]:
    """The hosts that take new writes, in order: those that only hold data of an old layout do not count."""
    in_order = sorted(segment.replicas, key=lambda copy: copy.position)
    return tuple(copy.host for copy in in_order if copy.state is not ReplicaState.STALE)


def log_units_of(
    chains: Mapping[str, Sequence[str]], observation: Observation, live: frozenset[str]
) -> tuple[str, ...]:
    """Log units: those that stand and live, then the new hosts of the chains by name.

    A live log unit stays one when its last copy leaves: taking the role away would be a change for nothing.
    """
    stay = tuple(name for name in observation.roles.log_units if name in live)
    wanted = {host for chain in chains.values() for host in chain}
    return (*stay, *sorted(wanted - set(stay)))
