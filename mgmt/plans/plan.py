"""A plan: how the placement that stands differs from the one wanted, why, and in which waves to get there.

Pure values.  Required moves (a host is gone or drained, a copy is missing, a rule is broken) make the first
waves; optional ones (balance) wait for later ones, so that repairs never queue behind tidying up
(``mgmt.plans.wave_planning``).  The steps of a wave are the engine's business (``Adapter.lower``), their execution
``mgmt.control.step_scheduling``'s.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b

from datastore_adapter.interface import Observation, Placement, ReplicaState, SegmentObservation
from mgmt.placement.hash_slot_assignment import SlotMove, slot_moves
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent, Order, PlanRecord
from mgmt.placement.layout_report import RuleCheck, check_observation, check_placement, worst
from mgmt.placement.placement_rows import standing_chain
from mgmt.plans.moves import (
    Move,
    MoveReasons,
    PrimaryChange,
    joined,
    moves_of,
    primary_change_of,
)
from mgmt.plans.safety import Danger, WaveLimits
from mgmt.plans.wave_planning import LeftOut, WavePlan, plan_waves


class PlanKind(StrEnum):
    SOLVED = "solved"  # decided by the policies
    RESUMED = "resumed"  # found in the epoch document and still right
    AVAILABILITY = "availability"  # no full placement: only take lost hosts out
    PAUSED = "paused"  # the same, and no data is moved for it
    UNDO = "undo"  # an operator broke a plan off: back to what stood before


@dataclass(frozen=True, slots=True)
class RoleChange:
    """``host`` takes the role on (``added``) or gives it up."""

    role: str
    host: str
    added: bool


@dataclass(frozen=True, slots=True)
class RetirementChange:
    """``segment`` takes no more records (``retired``), or takes them again."""

    segment: str
    retired: bool


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
    required_waves: int
    """How many of them come before the first that is for balance alone."""
    loads: tuple[Mapping[str, int], ...]
    """For each wave the bytes that each host receives."""
    now: RuleCheck
    during: RuleCheck
    """The worst after any of the waves."""
    after: RuleCheck
    dangers: tuple[Danger, ...] = ()
    """What is broken under way all the same, because data is at risk without it."""
    exchanges: tuple[tuple[str, ...], ...] = ()
    """Of each wave the segments that have a complete copy fewer for as long as it takes, because no host has a server
    to spare: what leaves does so before what comes is complete."""
    left_out: tuple[LeftOut, ...] = ()
    """Wanted moves that are safe in no order; they are not among ``moves``."""
    thawed: tuple[str, ...] = ()
    """Hosts that came back a short while ago and receive lost copies all the same: no other host can."""
    previous: Placement | None = None
    """What stands, if every wanted segment is placed already."""
    slots: tuple[SlotMove, ...] = ()
    """Which go from segment to segment, in the last wave."""
    retirements: tuple[RetirementChange, ...] = ()

    @property
    def required_moves(self) -> int:
        return sum(move.required for move in self.moves)

    @property
    def optional_moves(self) -> int:
        return len(self.moves) - self.required_moves

    @property
    def bytes(self) -> int:
        """To be copied in all."""
        return sum(move.bytes for move in self.moves) + sum(move.bytes for move in self.slots)

    @property
    def is_empty(self) -> bool:
        """Whether what stands is what is wanted, as far as hosts, roles, slots and retired segments go."""
        return not (self.moves or self.primaries or self.roles or self.slots or self.retirements)

    @property
    def digest(self) -> str:
        """Names where it leads, and what it breaks on the way there from what stands now.

        When part of it is done it is the same, unless that was the part which breaks something.
        """
        target = self.target
        named = (
            dict(target.segments),
            target.roles.layout_servers,
            target.roles.sequencers[:1],
            dict(target.slots or {}),
            None if target.retired is None else sorted(target.retired),
            [(danger.rule, danger.subject) for danger in self.dangers],
        )
        return blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=8).hexdigest()

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
    limits: WaveLimits | None = None,
    frozen: frozenset[str] = frozenset(),
    thawed: frozenset[str] = frozenset(),
    must_leave: frozenset[tuple[str, str]] = frozenset(),
    left_alone: frozenset[str] = frozenset(),
) -> Plan:
    """Compare what stands with ``target``.

    ``departed`` gives the racks of hosts that left; ``must_leave`` are (segment, host) of copies that the policies do
    not let stay there; ``left_alone`` are segments that stay as they are, with hosts that are gone, and no slots move
    while there are any.
    """
    if left_alone:
        standing = {s.key: standing_chain(s) for s in observation.segments if s.key in left_alone}
        target = replace(target, segments={**target.segments, **standing}, slots=None)
    known = {**(departed or {}), **view.by_name}
    reasons = MoveReasons(view, observation, intent, known, must_leave)
    observed = {segment.key: segment for segment in observation.segments}
    moves: list[Move] = []
    primaries: list[PrimaryChange] = []
    for key in sorted(target.segments.keys() - left_alone):
        segment = observed.get(key, SegmentObservation(key, ()))
        moves.extend(moves_of(segment, target.segments[key], reasons))
        primaries.extend(primary_change_of(segment, target.segments[key], reasons))
    if target.slots is not None:
        moves.extend(_given_up(observation, target, reasons))
    moves.sort(key=lambda move: not move.required)
    planned = plan_waves(
        view, observation, intent, target, moves, primaries, limits or WaveLimits(), frozen, left_alone
    )
    target = planned.waves[-1]
    slots = slots_on_the_move(observation, target)
    retirements = _retirement_changes(observation, target)
    return Plan(
        plan_id=plan_id,
        agreed_as=agreed_as or plan_id,
        kind=kind,
        view_epoch=view.epoch,
        layout_epoch=observation.layout_epoch,
        moves=tuple(
            sorted(joined([m for m in moves if m not in planned.left_moves]), key=lambda m: not m.required)
        ),
        primaries=tuple(change for change in primaries if _is_led_so(change, target)),
        roles=_role_changes(observation, target),
        target=target,
        waves=planned.waves,
        required_waves=_required_waves(planned, moves, asked_for=bool(slots or retirements)),
        loads=_with_slots(planned.loads, slots, target),
        now=check_observation(view, observation, intent),
        during=worst(
            [
                *(check_placement(view, wave, intent) for wave in planned.waves),
                *(RuleCheck(0, len(segments)) for segments in planned.exchanges),
            ]
        ),
        after=check_placement(view, target, intent),
        dangers=planned.dangers,
        exchanges=planned.exchanges,
        left_out=planned.left_out,
        thawed=tuple(sorted(thawed.intersection(move.destination or "" for move in moves))),
        previous=_standing(observation, target),
        slots=slots,
        retirements=retirements,
    )


def slots_on_the_move(observation: Observation, target: Placement) -> tuple[SlotMove, ...]:
    """Which slots are not where ``target`` has them."""
    if target.slots is None:
        return ()
    before = {segment.key: segment.slots for segment in observation.segments}
    return slot_moves(before, target.slots, {segment.key: segment.bytes for segment in observation.segments})


def _given_up(observation: Observation, target: Placement, reasons: MoveReasons) -> list[Move]:
    """Copies of segments that hold nothing any more, and are wanted nowhere."""
    return [
        replace(move, required=True, why="it holds no slots any more")
        for segment in observation.segments
        if segment.key not in target.segments
        for move in moves_of(segment, (), reasons)
    ]


def _required_waves(planned: WavePlan, moves: Sequence[Move], *, asked_for: bool) -> int:
    """Slots move and segments retire because somebody asked for it: a wave with nothing else is required."""
    only_that = asked_for and all(move.required for move in moves) and len(planned.waves) == 1
    return max(planned.required, int(only_that))


def _with_slots(
    loads: Sequence[Mapping[str, int]], slots: Sequence[SlotMove], target: Placement
) -> tuple[Mapping[str, int], ...]:
    """What moves with slots is received by the primaries."""
    last = Counter(loads[-1])
    for move in slots:
        for host in target.segments.get(move.destination, ())[:1]:
            last[host] += move.bytes
    return (*loads[:-1], dict(last))


def _is_led_so(change: PrimaryChange, target: Placement) -> bool:
    return target.segments[change.segment][:1] == (change.new,)


def _standing(observation: Observation, target: Placement) -> Placement | None:
    chains = {segment.key: standing_chain(segment) for segment in observation.segments}
    if not chains:
        return None
    # Segments that are new by then stay where they are, and take no more records.
    new = {key: hosts for key, hosts in target.segments.items() if key not in chains}
    retired = {segment.key for segment in observation.segments if segment.retired}
    slots = {segment.key: segment.slots for segment in observation.segments}
    return Placement(
        {**chains, **new},
        observation.roles,
        frozenset({*retired, *new}),
        None if target.slots is None else {**dict.fromkeys(new, ()), **slots},
    )


def is_reached(observation: Observation, target: Placement) -> bool:
    """Whether the engine holds ``target``: the same chains, every copy in sync, the same slots, and the same roles.

    Where keys are divided into slots the replicas of a segment have no order.
    """
    observed = {segment.key: segment for segment in observation.segments}
    retired = target.retired if target.retired is not None else frozenset[str]()
    for key, hosts in target.segments.items():
        segment = observed.get(key)
        if segment is None and key in retired:
            continue  # nothing was left of it
        if segment is None or (target.retired is not None and segment.retired != (key in retired)):
            return False
        standing, wanted = standing_chain(segment), tuple(hosts)
        if target.slots is not None and standing[:1] == wanted[:1]:
            standing, wanted = tuple(sorted(standing)), tuple(sorted(wanted))
        if standing != wanted:
            return False
        if any(copy.state is not ReplicaState.IN_SYNC for copy in segment.replicas):
            return False
    if target.slots is not None and (
        observed.keys() - target.segments.keys() or slots_on_the_move(observation, target)
    ):
        return False
    roles = observation.roles
    return (
        set(roles.layout_servers) == set(target.roles.layout_servers)
        and roles.sequencers[:1] == target.roles.sequencers[:1]
    )


def _retirement_changes(observation: Observation, target: Placement) -> tuple[RetirementChange, ...]:
    """Of segments that are there.  An engine with slots has no steps for it: who holds none is retired."""
    if target.retired is None or target.slots is not None:
        return ()
    return tuple(
        RetirementChange(segment.key, not segment.retired)
        for segment in observation.segments
        if segment.retired != (segment.key in target.retired)
    )


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
