"""What to do in a situation: wait, go on with the plan found, follow the solver, or only keep data available.

Pure functions; the controller (``mgmt.controller``) looks, asks here, and acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datastore_adapter.interface import Observation, Placement
from mgmt.availability import available_placement
from mgmt.hosts import Host, HostView
from mgmt.intent import Intent, PlanRecord
from mgmt.placement_solver import Solved, SolveOutcome
from mgmt.plan import Plan, PlanKind, is_reached, make_plan, plan_id_of
from mgmt.state import PlacementState, apply_deltas, build_state


@dataclass(frozen=True, slots=True)
class Situation:
    """All a decision may depend on."""

    me: str
    view: HostView
    observation: Observation
    intent: Intent
    departed: Mapping[str, Host]
    state: PlacementState


def situation_of(
    me: str,
    view: HostView,
    observation: Observation,
    intent: Intent,
    departed: Mapping[str, Host],
    previous: PlacementState | None = None,
) -> Situation:
    state = build_state(view, observation, intent, departed=departed, previous=previous)
    return Situation(me, view, observation, intent, departed, state)


def hosts_missing(situation: Situation) -> int:
    """How many hosts the first placement still waits for; 0 once anything is placed."""
    if situation.observation.segments:
        return 0
    return max(0, situation.intent.expect - len(situation.view.hosts))


def resumable(situation: Situation) -> PlanRecord | None:
    """The plan in the epoch document, if it is in flight and what it wants can still be had.

    A plan that names a host which has left or is being drained, or other segments than are wanted now, is to
    be replaced.  The solver need not be asked about one that is left: it decided it.
    """
    record, intent = situation.intent.plan, situation.intent
    if record is None or is_reached(situation.observation, record.target):
        return None
    target = record.target
    usable = situation.view.names - frozenset(intent.drains)
    named = {host for chain in target.segments.values() for host in chain}
    named |= {*target.roles.layout_servers, *target.roles.sequencers}
    if not named <= usable or tuple(sorted(target.segments)) != intent.segments:
        return None
    if any(len(chain) != intent.replication_factor for chain in target.segments.values()):
        return None
    return record


def resumed_plan(situation: Situation, record: PlanRecord) -> Plan:
    return _plan(situation, record.target, PlanKind.RESUMED, agreed_as=record.plan_id)


def decided_plan(situation: Situation, outcome: SolveOutcome) -> Plan:
    """The solver's placement as a plan; without one, only what keeps the data available.

    Raises :class:`mgmt.control_errors.PlacementError` when the solver's answer is no placement.
    """
    if isinstance(outcome, Solved):
        target = apply_deltas(situation.state, situation.observation, outcome.deltas)
        return _plan(situation, target, PlanKind.SOLVED)
    target = available_placement(situation.view, situation.observation, situation.intent.drains)
    return _plan(situation, target, PlanKind.AVAILABILITY)


def _plan(situation: Situation, target: Placement, kind: PlanKind, agreed_as: str | None = None) -> Plan:
    return make_plan(
        situation.view,
        situation.observation,
        situation.intent,
        target,
        plan_id=plan_id_of(situation.observation, situation.me),
        agreed_as=agreed_as,
        kind=kind,
        departed=situation.departed,
    )
