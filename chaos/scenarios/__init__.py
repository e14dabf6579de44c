"""The scenarios by name."""

from __future__ import annotations

from difflib import get_close_matches

from chaos.errors import UnknownScenarioError
from chaos.scenarios import arrivals, failures, observers, processes, separations, stores, storms
from chaos.scenarios.disks import with_lost_disks
from chaos.scenarios.model import Outcome, Plan, Promise, Scenario, ScenarioContext

_SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *arrivals.SCENARIOS,
        *failures.SCENARIOS,
        *observers.SCENARIOS,
        *separations.SCENARIOS,
        *processes.SCENARIOS,
        *stores.SCENARIOS,
        *storms.SCENARIOS,
    )
}


def list_scenarios() -> dict[str, str]:
    """The runnable scenarios: name and what each must show, in one line."""
    return {scenario.name: scenario.summary for scenario in _SCENARIOS.values()}


def scenarios_with_servers() -> list[str]:
    """Those whose faults hit servers of Valkey or Redis, too."""
    return [
        name for name, scenario in _SCENARIOS.items() if (scenario.with_store or scenario).runs_with_servers
    ]


def find_scenario(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownScenarioError."""
    scenario = _SCENARIOS.get(name)
    if scenario is not None:
        return scenario
    known = ", ".join(_SCENARIOS)
    guess = get_close_matches(name, _SCENARIOS, n=1)
    hint = f"did you mean {guess[0]}? " if guess else ""
    raise UnknownScenarioError(f"no scenario {name!r}: {hint}there are {known}")


__all__ = [
    "Outcome",
    "Plan",
    "Promise",
    "Scenario",
    "ScenarioContext",
    "find_scenario",
    "list_scenarios",
    "scenarios_with_servers",
    "with_lost_disks",
]
