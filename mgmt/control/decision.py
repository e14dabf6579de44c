"""Decisions of the control loop: wait, resume a plan, follow the solver, or only keep data available.

Pure functions; the controller (``mgmt.control.controller``) looks, asks here, and acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from datastore_adapter.interface import Observation, Placement
from mgmt.placement.fallback_placement import available_placement, serving_hosts
from mgmt.placement.flap_damping import FreezeLimits, frozen_at, overdue_at
from mgmt.placement.hash_slot_assignment import Slots
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent, Order, PlanRecord
from mgmt.placement.layout_report import check_observation
from mgmt.placement.placement_rows import (
    PlacementState,
    apply_deltas,
    build_state,
    log_units_of,
    standing_chain,
)
from mgmt.plans.plan import Plan, PlanKind, is_reached, make_plan, plan_id_of
from mgmt.plans.rollback import rollback_target
from mgmt.plans.safety import WaveLimits
from mgmt.solving.placement_solver import Solved, SolveOutcome


@dataclass(frozen=True, slots=True)
class Situation:
    """All a decision may depend on."""

    me: str
    view: HostView
    observation: Observation
    intent: Intent
    departed: Mapping[str, Host]
    state: PlacementState
    limits: WaveLimits
    now: float
    """Unix seconds."""
    overdue: frozenset[str] = frozenset()
    """Frozen hosts that take lost copies all the same, where nobody else can."""
    tick: int = 0
    """Counts up now and then as time goes by, where the policies ask for the time."""
    thawed: frozenset[str] = frozenset()
    """Those that this is decided for as if they were not frozen."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """By segment what operators are asked about it: it is left as it is."""

    @property
    def effective_intent(self) -> Intent:
        """The intent, with hosts drained whose disks are in trouble."""
        return relieved(self.intent, self.observation)

    @property
    def slots(self) -> Slots | None:
        """Those that each segment is to hold; None where the engine has none."""
        if not self.intent.slots:
            return None
        return {**{segment.key: () for segment in self.state.segments}, **dict(self.intent.slots)}

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset(self.state.frozen)

    @property
    def lacks_copies(self) -> bool:
        return check_observation(self.view, self.observation, self.intent).under_replicated > 0

    @property
    def closed(self) -> frozenset[str]:
        """Hosts that a plan must give nothing new."""
        return self.frozen - self.thawable

    @property
    def thawable(self) -> frozenset[str]:
        """The overdue hosts, if copies are lacking: nothing else is given to who is frozen."""
        return self.overdue if self.overdue and self.lacks_copies else frozenset()


def thawed(situation: Situation) -> Situation | None:
    """To be decided anew when there is no placement: repairs go before freezes, after a while; None: not (yet)."""
    if not (thawable := situation.thawable):
        return None
    frozen = tuple(host for host in situation.state.frozen if host not in thawable)
    return replace(situation, state=replace(situation.state, frozen=frozen), thawed=thawable)


def situation_of(
    me: str,
    view: HostView,
    observation: Observation,
    intent: Intent,
    departed: Mapping[str, Host],
    previous: PlacementState | None = None,
    limits: WaveLimits | None = None,
    now: float = 0.0,
    freezes: FreezeLimits | None = None,
    tick: int = 0,
    questions: Mapping[str, str] | None = None,
) -> Situation:
    frozen = frozen_at(intent.freezes, now)
    overdue = overdue_at(intent.freezes, now, freezes or FreezeLimits())
    state = build_state(
        view, observation, relieved(intent, observation), departed=departed, previous=previous, frozen=frozen
    )
    state = replace(state, moment=now)
    return Situation(
        me,
        view,
        observation,
        intent,
        departed,
        state,
        limits or WaveLimits(),
        now,
        overdue,
        tick,
        questions=questions or {},
    )


def relieved(intent: Intent, observation: Observation) -> Intent:
    """The intent, with hosts drained whose disks are in trouble."""
    return replace(intent, drains=tuple(sorted(observation.relieved.union(intent.drains))))


def decision_key(situation: Situation) -> object:
    """Equal keys mean equal decisions: nothing was to do then, nothing is to do now."""
    shape = tuple(
        (
            segment.key,
            segment.slots,
            tuple((copy.host, copy.position, copy.state) for copy in segment.replicas),
        )
        for segment in situation.observation.segments
    )
    record = resumable(situation)
    going_on = None if record is None else (record.plan_id, record.order)
    intent = situation.intent.with_plan(None)
    state = situation.state.fingerprint, situation.tick
    asked = tuple(sorted(situation.questions))
    return (situation.view.epoch, intent, going_on, state, situation.thawable, asked, shape)


def hosts_missing(situation: Situation) -> int:
    """How many hosts the first placement still waits for; 0 once one was decided, for then they were all there."""
    if situation.observation.segments or situation.intent.plan is not None:
        return 0
    return max(0, situation.intent.expect - len(situation.view.hosts))


def resumable(situation: Situation) -> PlanRecord | None:
    """The plan in the epoch document to go on with; none while paused, unless an operator ordered it."""
    record = in_flight(situation)
    if record is not None and situation.intent.paused and record.order is Order.NONE:
        return None
    return record


def in_flight(situation: Situation) -> PlanRecord | None:
    """The plan in the epoch document, if something is left to do for it and what it wants can still be had.

    A plan that names a host which has left or is being drained, or other segments than are wanted now, is to
    be replaced.  The solver need not be asked about one that is left: it decided it.
    """
    record, intent = situation.intent.plan, situation.effective_intent
    if record is None or is_reached(
        situation.observation, destination(situation.view, situation.observation, record)
    ):
        return None
    if record.order is Order.ABORT:
        return record  # back to what stood, as far as it can be had
    target = record.target
    usable = situation.view.names - frozenset(intent.drains)
    named = {host for chain in target.segments.values() for host in chain}
    named |= {*target.roles.layout_servers, *target.roles.sequencers}
    retired = {segment.key for segment in situation.observation.segments if segment.retired}
    written = set(target.segments) - (retired if target.retired is None else target.retired)
    if not named <= usable or tuple(sorted(written)) != intent.segments:
        return None
    if target.slots is not None and _held(target.slots) != _held(dict(intent.slots)):
        return None
    if any(len(chain) != intent.replication_factor for chain in target.segments.values()):
        return None
    if any(host in usable and host not in target.segments.get(segment, ()) for segment, host in intent.pins):
        return None
    return None if _meets_frozen(situation, target) else record


def _held(slots: Slots) -> Slots:
    return {key: ranges for key, ranges in slots.items() if ranges}


def _meets_frozen(situation: Situation, target: Placement) -> bool:
    """Whether it gives something new to a host that is frozen meanwhile."""
    held = {
        segment.key: {copy.host for copy in segment.replicas} for segment in situation.observation.segments
    }
    return any(
        host in situation.closed and host not in held.get(key, ())
        for key, chain in target.segments.items()
        for host in chain
    )


def destination(view: HostView, observation: Observation, record: PlanRecord) -> Placement:
    """Where the recorded plan leads, with the hosts there are now."""
    return rollback_target(view, observation, record.target) if record.order is Order.ABORT else record.target


def resumed_plan(situation: Situation, record: PlanRecord) -> Plan:
    kind = PlanKind.UNDO if record.order is Order.ABORT else PlanKind.RESUMED
    return _plan(
        situation, destination(situation.view, situation.observation, record), kind, agreed_as=record.plan_id
    )


def abort_record(situation: Situation) -> PlanRecord | None:
    """The order to go back from the plan in flight; None when there is none, or nothing stood before it."""
    record = in_flight(situation)
    if record is None or record.order is Order.ABORT or record.previous is None:
        return None
    plan_id = plan_id_of(situation.observation, situation.me)
    return PlanRecord(plan_id, situation.me, situation.view.epoch, record.previous, None, Order.ABORT)


def paused_plan(situation: Situation) -> Plan:
    """What goes on while paused: lost hosts are taken out, so that the data stays available."""
    view, observation = situation.view, situation.observation
    available = available_placement(view, observation, situation.effective_intent.drains)
    chains = dict(available.segments)
    serving = serving_hosts(view, observation)
    for segment in observation.segments:
        if {copy.host for copy in segment.replicas} <= serving.names:
            chains[segment.key] = standing_chain(segment)  # not even the order changes for no need
    return _plan(situation, replace(available, segments=chains), PlanKind.PAUSED)


def decided_plan(situation: Situation, outcome: SolveOutcome) -> Plan:
    """The solver's placement as a plan; without one, only what keeps the data available.

    Of one that is made for want of a better, with hosts that were frozen, and of
    a placement that is not proven to be the best only what is required is taken: repairs do not wait for
    a proof, but data is not moved for balance's sake on a guess that the next solve may take back.

    Raises :class:`mgmt.errors.PlacementError` when the solver's answer is no placement.
    """
    if isinstance(outcome, Solved):
        target = apply_deltas(situation.state, situation.observation, outcome.deltas)
        target = replace(target, slots=situation.slots)
        plan = _plan(situation, target, PlanKind.SOLVED, must_leave=frozenset(outcome.must_leave))
        return plan if outcome.proven and not situation.thawed else without_balance(situation, plan)
    target = available_placement(situation.view, situation.observation, situation.effective_intent.drains)
    return _plan(situation, target, PlanKind.AVAILABILITY)


def without_balance(situation: Situation, plan: Plan) -> Plan:
    """Only what the rules require of it."""
    must_leave = frozenset((move.segment, move.source or "") for move in plan.moves if move.required)
    return _plan(situation, _required_part(situation, plan), PlanKind.SOLVED, must_leave=must_leave)


def _required_part(situation: Situation, plan: Plan) -> Placement:
    """The last wave for what is required, with the roles as they stand if their holders may keep them."""
    observation, roles = situation.observation, plan.target.roles
    if plan.required_waves:
        wave = plan.waves[plan.required_waves - 1]
        chains, retired = wave.segments, wave.retired
    else:
        chains = {segment.key: standing_chain(segment) for segment in observation.segments}
        retired = None
    holders = {*observation.roles.layout_servers, *observation.roles.sequencers[:1]}
    may_stay = holders <= situation.view.names - frozenset(situation.effective_intent.drains)
    counts = [len(r.layout_servers) for r in (observation.roles, roles)]
    if may_stay and counts[0] == counts[1] and observation.roles.sequencers:
        roles = observation.roles
    log_units = log_units_of(chains, observation, situation.view.names)
    return Placement(chains, replace(roles, log_units=log_units), retired, situation.slots)


def _plan(
    situation: Situation,
    target: Placement,
    kind: PlanKind,
    agreed_as: str | None = None,
    must_leave: frozenset[tuple[str, str]] = frozenset(),
) -> Plan:
    return make_plan(
        situation.view,
        situation.observation,
        situation.effective_intent,
        target,
        plan_id=plan_id_of(situation.observation, situation.me),
        agreed_as=agreed_as,
        kind=kind,
        departed=situation.departed,
        limits=situation.limits,
        frozen=situation.closed,
        thawed=situation.thawed,
        must_leave=must_leave,
        left_alone=frozenset(situation.questions),
    )
