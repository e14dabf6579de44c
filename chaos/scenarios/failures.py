"""Scenarios with faulty hosts that must go, all of them and nobody else.

Source: *Stable and Consistent Membership at Scale with Rapid*, section 7, Figures 8 (concurrent crashes),
9 (flip-flopping one-way failures) and 10 (80 % egress loss), and section 2 for one-way connectivity.
"""

from __future__ import annotations

from chaos.faults import At, Crash, DropEgress, DropIngress, flip_flop, in_order
from chaos.scenarios.model import (
    AGREEMENT,
    CAME_BACK,
    EXACTLY_THE_FAULTY,
    NOT_READDED,
    ONE_CHANGE,
    Outcome,
    Plan,
    Promise,
    Scenario,
    ScenarioContext,
    few,
)

_HEAVY_LOSS = 0.8
_PERIOD = 20.0
_LOSSY = 60.0
"""Seconds that `loss-over` lasts, ..."""
_BACK = 15.0
"""... and within which all are back afterwards: about as long as it takes to find such loss out."""
_PROMISES = (AGREEMENT, EXACTLY_THE_FAULTY, NOT_READDED)


def _crash(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, Crash(faulty)),))


def _flip_flop(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, flip_flop(faulty, period=_PERIOD, until=context.duration))


def _loss_ingress(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, DropIngress(_HEAVY_LOSS, faulty)),))


def _loss_egress(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, DropEgress(_HEAVY_LOSS, faulty)),))


def _loss_over(context: ScenarioContext) -> Plan:
    """Half of the faulty hosts do not hear, the others are not heard."""
    faulty = context.choose_faulty()
    deaf, mute = faulty[::2], faulty[1::2]
    schedule = [At(0.0, DropIngress(_HEAVY_LOSS, deaf)), At(_LOSSY, DropIngress(0.0, deaf))]
    if mute:
        schedule += [At(0.0, DropEgress(_HEAVY_LOSS, mute)), At(_LOSSY, DropEgress(0.0, mute))]
    return Plan(faulty, in_order(schedule))


def _back_soon(outcome: Outcome) -> bool:
    back = {name for view in outcome.views if view.seconds <= _LOSSY + _BACK for name in view.joined}
    return back.issuperset(outcome.faulty)


def _twice_at_most(outcome: Outcome) -> bool:
    """Once it was let in again after an outage that was over, as anybody would be."""
    return all(sum(name in view.removed for view in outcome.views) <= 2 for name in outcome.faulty)


def _one_way(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, DropIngress(1.0, faulty)),))


SCENARIOS = (
    Scenario(
        name="crash",
        summary="hosts die together: one view change removes exactly them",
        promises=(*_PROMISES, ONE_CHANGE),
        duration=120.0,
        minimum_duration=15.0,
        plan=_crash,
        minimum_nodes=3,
        runs_with_servers=True,
    ),
    Scenario(
        name="flip-flop",
        summary="hosts receive nothing for 20 s, everything for 20 s, and so on: exactly they go, and come back once",
        promises=(*_PROMISES, Promise("nobody is removed more than twice", _twice_at_most)),
        duration=300.0,
        minimum_duration=2 * _PERIOD + 20.0,
        plan=_flip_flop,
        minimum_nodes=4,
    ),
    Scenario(
        name="loss-ingress",
        summary="80 % of what arrives at some hosts is lost: exactly they go",
        promises=_PROMISES,
        duration=180.0,
        minimum_duration=45.0,
        plan=_loss_ingress,
        minimum_nodes=4,
    ),
    Scenario(
        name="loss-egress",
        summary="80 % of what some hosts send is lost: exactly they go",
        promises=_PROMISES,
        duration=180.0,
        minimum_duration=45.0,
        plan=_loss_egress,
        minimum_nodes=4,
    ),
    Scenario(
        name="loss-over",
        summary="80 % of what some hosts hear or say is lost for 60 s: out meanwhile, back within 15 s afterwards",
        promises=(*_PROMISES, Promise("all are back soon", _back_soon), CAME_BACK),
        duration=100.0,
        minimum_duration=_LOSSY + _BACK + 5.0,
        plan=_loss_over,
        faulty=lambda nodes: max(2, few(nodes)),
        minimum_nodes=5,
    ),
    Scenario(
        name="one-way",
        summary="some hosts can send, but receive nothing: exactly they go, whatever they accuse others of",
        promises=_PROMISES,
        duration=120.0,
        minimum_duration=20.0,
        plan=_one_way,
        minimum_nodes=4,
    ),
)
