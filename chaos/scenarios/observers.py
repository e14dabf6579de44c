"""The scenario with observers that are themselves the fault: `bad-observer`.

The worst kind: they hear nothing, so that they must go, and before anybody finds out they have accused everybody
they observe, without any of the doubts that a deaf member of ours would have.
"""

from __future__ import annotations

from chaos.faults import Accuse, At, DropIngress
from chaos.scenarios.model import AGREEMENT, EXACTLY_THE_FAULTY, NOT_READDED, Plan, Scenario, ScenarioContext


def _bad_observer(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, DropIngress(1.0, faulty)), At(0.0, Accuse(faulty))))


SCENARIOS = (
    Scenario(
        name="bad-observer",
        summary="some hosts hear nothing and accuse everybody they observe: exactly they go, once",
        promises=(AGREEMENT, EXACTLY_THE_FAULTY, NOT_READDED),
        duration=60.0,
        minimum_duration=20.0,
        plan=_bad_observer,
        minimum_nodes=4,
    ),
)
