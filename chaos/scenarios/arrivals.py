"""Scenarios in which members come and go: `bootstrap`, `churn`.

Source: *Stable and Consistent Membership at Scale with Rapid*, section 7, Figures 5 to 7 (bootstrap).
"""

from __future__ import annotations

from chaos.faults import At, Crash, Leave, Start, in_order
from chaos.scenarios.model import (
    AGREEMENT,
    CONVERGED,
    NOBODY_HEALTHY,
    Outcome,
    Plan,
    Promise,
    Scenario,
    ScenarioContext,
)

_MOST_SIZES = 8
"""Different sizes the paper's implementation showed at most while 1000 to 2000 members started."""
_AWAY = 15.0
"""Seconds a host of `churn` is away."""
_QUIET = 40.0
"""Seconds at the end of `churn` in which nothing more happens."""


def _few_sizes(outcome: Outcome) -> bool:
    return len(set(outcome.sizes)) <= _MOST_SIZES


def _all_in(outcome: Outcome) -> bool:
    return bool(outcome.sizes) and outcome.sizes[-1] == outcome.nodes


def _churn(context: ScenarioContext) -> Plan:
    """Every few seconds a host crashes, or leaves, or comes for the first time; the gone come back."""
    schedule: list[At] = []
    touched: dict[str, None] = {}
    absent: dict[str, float] = {}
    newcomers = 0
    now = 1.0
    while now < context.duration - _QUIET - _AWAY:
        absent = {name: back for name, back in absent.items() if back > now - _AWAY}
        choice = context.rng.random()
        present = [f"n{number}" for number in range(context.nodes) if f"n{number}" not in absent]
        if choice < 0.3:
            schedule.append(At(now, Start((f"n{context.nodes + newcomers}",))))
            newcomers += 1
        elif len(absent) < context.faulty:
            name = context.rng.choice(present)
            schedule.append(At(now, Crash((name,)) if choice < 0.65 else Leave((name,))))
            back = round(now + context.rng.uniform(0.5, 1.0) * _AWAY, 3)
            schedule.append(At(back, Start((name,))))
            absent[name] = back
            touched[name] = None
        now = round(now + context.rng.uniform(1.0, 6.0), 3)
    return Plan(tuple(touched), in_order(schedule))


SCENARIOS = (
    Scenario(
        name="bootstrap",
        summary="all start within a second: few view changes, everybody at the same size",
        promises=(
            AGREEMENT,
            CONVERGED,
            Promise("the view holds all nodes", _all_in),
            Promise(f"at most {_MOST_SIZES} different sizes are seen", _few_sizes),
        ),
        duration=60.0,
        faulty=lambda nodes: 0,
    ),
    Scenario(
        name="churn",
        summary="hosts come, leave and crash every few seconds: the view follows, nobody healthy is removed",
        promises=(AGREEMENT, CONVERGED, NOBODY_HEALTHY),
        duration=180.0,
        minimum_duration=_QUIET + _AWAY + 10.0,
        plan=_churn,
        faulty=lambda nodes: max(1, nodes // 5),
        minimum_nodes=4,
    ),
)
