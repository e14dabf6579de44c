"""A plan: how the placement that stands differs from the one wanted, why, and in which waves to get there.

Pure values.  Required moves (a host is gone or drained, a copy is missing, a rule is broken) make the first
wave; optional ones (balance) wait for the second, so that repairs never queue behind tidying up.  The steps
of a wave are the engine's business (``Adapter.lower``), their execution ``mgmt.control.execution``'s.

Not here: solving, and any input or output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from datastore_adapter.interface import (
    Observation,
    Placement,
    Replica,
    ReplicaState,
    SegmentObservation,
)
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent, Order, PlanRecord
from mgmt.placement.layout_report import RuleCheck, check_observation, check_placement


class PlanKind(StrEnum):
    SOLVED = "solved"  # decided by the policies
    RESUMED = "resumed"  # found in the epoch document and still right
    AVAILABILITY = "availability"  # no full placement: only take lost hosts out
    PAUSED = "paused"  # the same, and no data is moved for it
    UNDO = "undo"  # an operator broke a plan off: back to what stood before


@dataclass(frozen=True, slots=True)
class Move:
    """A copy leaves ``source`` (None: it had no host) for ``destination`` (None: it is dropped)."""

    segment: str
    source: str | None
    source_rack: str
    destination: str | None
    destination_rack: str
    required: bool
    why: str
    bytes: int
    """To be copied; 0 when nothing is."""


@dataclass(frozen=True, slots=True)
class PrimaryChange:
    segment: str
    old: str | None
    new: str
    required: bool


@dataclass(frozen=True, slots=True)
class RoleChange:
    """``host`` takes the role on (``added``) or gives it up."""

    role: str
    host: str
    added: bool


@dataclass(frozen=True, slots=True)
class Plan:
    plan_id: str
    """Under which its steps are fenced.  A plan that is resumed gets a new one: its steps are new steps."""
    agreed_as: str
    """Its id in the epoch document."""
    kind: PlanKind
    view_epoch: int
    layout_epoch: int
    """The layout it starts from."""
    moves: tuple[Move, ...]
    """Required ones first."""
    primaries: tuple[PrimaryChange, ...]
    roles: tuple[RoleChange, ...]
    target: Placement
    waves: tuple[Placement, ...]
    """Placements to reach one after the other; the last is ``target``."""
    now: RuleCheck
    after: RuleCheck
    previous: Placement | None = None
    """What stands, if every wanted segment is placed already."""

    @property
    def required_moves(self) -> int:
        return sum(move.required for move in self.moves)

    @property
    def optional_moves(self) -> int:
        return len(self.moves) - self.required_moves

    @property
    def bytes(self) -> int:
        """To be copied in all."""
        return sum(move.bytes for move in self.moves)

    @property
    def is_empty(self) -> bool:
        """Whether the placement that stands is the one wanted, as far as hosts and roles go."""
        return not (self.moves or self.primaries or self.roles)

    def record(self, controller: str, order: Order = Order.NONE) -> PlanRecord:
        """What is agreed in the epoch document before the first step."""
        return PlanRecord(self.plan_id, controller, self.view_epoch, self.target, self.previous, order)


def plan_id_of(observation: Observation, controller: str) -> str:
    """Unique: agreeing a plan moves the layout epoch on, so no two agreed plans start from one epoch."""
    return f"p{observation.layout_epoch}-{controller}"


def make_plan(
    view: HostView,
    observation: Observation,
    intent: Intent,
    target: Placement,
    *,
    plan_id: str,
    agreed_as: str | None = None,
    kind: PlanKind = PlanKind.SOLVED,
    departed: Mapping[str, Host] | None = None,
) -> Plan:
    """Compare what stands with ``target``.  ``departed`` gives the racks of hosts that left."""
    known = {**(departed or {}), **view.by_name}
    reasons = _Reasons(view, observation, intent, known)
    observed = {segment.key: segment for segment in observation.segments}
    moves: list[Move] = []
    primaries: list[PrimaryChange] = []
    for key in sorted(target.segments):
        segment = observed.get(key, SegmentObservation(key, ()))
        moves.extend(_moves(segment, target.segments[key], reasons))
        primaries.extend(_primary_change(segment, target.segments[key], reasons))
    moves.sort(key=lambda move: not move.required)
    return Plan(
        plan_id=plan_id,
        agreed_as=agreed_as or plan_id,
        kind=kind,
        view_epoch=view.epoch,
        layout_epoch=observation.layout_epoch,
        moves=tuple(moves),
        primaries=tuple(primaries),
        roles=_role_changes(observation, target),
        target=target,
        waves=_waves(observation, target, moves, primaries),
        now=check_observation(view, observation, intent),
        after=check_placement(view, target, intent),
        previous=_standing(observation, target),
    )


def _standing(observation: Observation, target: Placement) -> Placement | None:
    chains = {segment.key: standing_chain(segment) for segment in observation.segments}
    return Placement(chains, observation.roles) if chains and set(target.segments) <= set(chains) else None


def standing_chain(segment: SegmentObservation) -> tuple[str, ...]:
    """The hosts that take new writes, in order: those that only hold data of an old layout do not count."""
    in_order = sorted(segment.replicas, key=lambda copy: copy.position)
    return tuple(copy.host for copy in in_order if copy.state is not ReplicaState.STALE)


def is_reached(observation: Observation, target: Placement) -> bool:
    """Whether the engine holds ``target``: the same chains, every copy in sync, and the same roles."""
    observed = {segment.key: segment for segment in observation.segments}
    for key, hosts in target.segments.items():
        segment = observed.get(key)
        if segment is None or standing_chain(segment) != tuple(hosts):
            return False
        if any(copy.state is not ReplicaState.IN_SYNC for copy in segment.replicas):
            return False
    roles = observation.roles
    return (
        set(roles.layout_servers) == set(target.roles.layout_servers)
        and roles.sequencers[:1] == target.roles.sequencers[:1]
    )


class _Reasons:
    """Why a copy must leave its host."""

    def __init__(
        self, view: HostView, observation: Observation, intent: Intent, known: Mapping[str, Host]
    ) -> None:
        self._live = view.names
        self._drained = frozenset(intent.drains)
        self._known = known
        self.wanted = intent.replication_factor
        self._used: dict[str, int] = {}
        for segment in observation.segments:
            for copy in segment.replicas:
                self._used[copy.host] = self._used.get(copy.host, 0) + segment.bytes

    def rack(self, host: str | None) -> str:
        if host is None:
            return ""
        known = self._known.get(host)
        return known.failure_domain if known is not None else "?"

    def must_leave(self, copy: Replica, segment: SegmentObservation) -> str | None:
        """The rule broken by this copy where it is, in words; None when it may stay."""
        host = copy.host
        if host not in self._live:
            return f"{host} is gone"
        if host in self._drained:
            return f"{host} is drained"
        mates = [c.host for c in segment.replicas if c.host != host and c.host in self._live]
        if any(self.rack(mate) == self.rack(host) for mate in mates):
            return f"two copies in rack {self.rack(host)}"
        if self._used[host] > self._known[host].capacity_bytes:
            return f"{host} is over its capacity"
        return None


def _moves(segment: SegmentObservation, wanted: Sequence[str], reasons: _Reasons) -> list[Move]:
    """Pair copies that leave with copies that come, those that must leave first."""
    standing = sorted(segment.replicas, key=lambda copy: copy.position)
    leaving = [(copy, reasons.must_leave(copy, segment)) for copy in standing if copy.host not in wanted]
    leaving.sort(key=lambda pair: pair[1] is None)
    present = {copy.host: copy for copy in standing}
    coming = [host for host in wanted if host not in present]
    moves: list[Move] = []
    for copy, why, destination in _paired(leaving, coming, reasons):
        required = why is not None or copy is None
        if copy is None:
            why = "a copy is missing"
        elif destination is None and why is None:
            why = "more copies than wanted"
        moves.append(_move(segment, copy, destination, required, why or "balance", reasons))
    moves.extend(
        _move(segment, None, host, True, "its copy is not complete", reasons)
        for host in wanted
        if host in present and present[host].state is not ReplicaState.IN_SYNC
    )
    return moves


def _paired(
    leaving: Sequence[tuple[Replica, str | None]], coming: Sequence[str], reasons: _Reasons
) -> list[tuple[Replica | None, str | None, str | None]]:
    """Who replaces whom: within a rack where possible, else in order.  What is left over stands alone."""
    free = list(coming)
    partners: dict[str, str | None] = {}
    for copy, _ in leaving:
        same_rack = (host for host in free if reasons.rack(host) == reasons.rack(copy.host))
        partner = next(same_rack, None)
        if partner is not None:
            free.remove(partner)
        partners[copy.host] = partner
    for copy, _ in leaving:
        if partners[copy.host] is None and free:
            partners[copy.host] = free.pop(0)
    pairs: list[tuple[Replica | None, str | None, str | None]]
    pairs = [(copy, why, partners[copy.host]) for copy, why in leaving]
    return [*pairs, *((None, None, host) for host in free)]


def _move(
    segment: SegmentObservation,
    copy: Replica | None,
    destination: str | None,
    required: bool,
    why: str,
    reasons: _Reasons,
) -> Move:
    source = None if copy is None else copy.host
    return Move(
        segment=segment.key,
        source=source,
        source_rack=reasons.rack(source),
        destination=destination,
        destination_rack=reasons.rack(destination),
        required=required,
        why=why if segment.replicas else "new segment",
        bytes=0 if destination is None else segment.bytes,
    )


def _primary_change(
    segment: SegmentObservation, wanted: Sequence[str], reasons: _Reasons
) -> list[PrimaryChange]:
    standing = standing_chain(segment)
    if not wanted or not standing or standing[0] == wanted[0]:
        return []
    old = next(copy for copy in segment.replicas if copy.host == standing[0])
    required = old.host not in wanted and reasons.must_leave(old, segment) is not None
    return [PrimaryChange(segment.key, old.host, wanted[0], required)]


def _role_changes(observation: Observation, target: Placement) -> tuple[RoleChange, ...]:
    pairs = (
        ("layout_server", observation.roles.layout_servers, target.roles.layout_servers),
        ("sequencer", observation.roles.sequencers[:1], target.roles.sequencers[:1]),
    )
    changes: list[RoleChange] = []
    for role, old, new in pairs:
        changes.extend(RoleChange(role, host, False) for host in old if host not in new)
        changes.extend(RoleChange(role, host, True) for host in new if host not in old)
    return tuple(changes)


def _waves(
    observation: Observation, target: Placement, moves: Sequence[Move], primaries: Sequence[PrimaryChange]
) -> tuple[Placement, ...]:
    """Segments with anything required change in the first wave; the others, and moves for balance, wait."""
    changed = {move.segment for move in moves} | {change.segment for change in primaries}
    urgent = {move.segment for move in moves if move.required}
    urgent |= {change.segment for change in primaries if change.required}
    if not urgent or (urgent == changed and all(move.required for move in moves)):
        return (target,)
    standing = {segment.key: standing_chain(segment) for segment in observation.segments}
    # Within a rack a copy may stay where it is for now without any rule being the worse for it.
    waiting = {
        (move.segment, move.destination): move.source
        for move in moves
        if not move.required and move.source is not None and move.source_rack == move.destination_rack
    }
    chains = {
        key: tuple(waiting.get((key, host), host) for host in hosts)
        if key in urgent
        else standing.get(key, tuple(hosts))
        for key, hosts in target.segments.items()
    }
    hosts = {host for chain in chains.values() for host in chain}
    log_units = target.roles.log_units
    roles = target.roles
    missing = sorted(hosts - set(log_units))
    if missing:
        roles = type(roles)(roles.layout_servers, roles.sequencers, (*log_units, *missing))
    first = Placement(chains, roles)
    return (first, target) if first != target else (target,)
