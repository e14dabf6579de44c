"""The scenarios by name, and the names that later floors of the house will make runnable."""

from __future__ import annotations

from difflib import get_close_matches

from ..errors import NotRunnableError, UnknownScenarioError
from . import arrivals, failures, observers, processes, separations
from .model import Outcome, Plan, Promise, Scenario, Stage

_SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *arrivals.SCENARIOS,
        *failures.SCENARIOS,
        *observers.SCENARIOS,
        *separations.SCENARIOS,
        *processes.SCENARIOS,
    )
}

_NEED_A_STORE = ("rack-loss", "disk-full", "kill-sequencer", "kill-controller")


def list_scenarios() -> dict[str, str]:
    """The runnable scenarios: name and what each must show, in one line."""
    return {scenario.name: scenario.summary for scenario in _SCENARIOS.values()}


def find_scenario(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownScenarioError or NotRunnableError."""
    scenario = _SCENARIOS.get(name)
    if scenario is not None:
        return scenario
    known = ", ".join(_SCENARIOS)
    if name in _NEED_A_STORE:
        raise NotRunnableError(
            f"scenario {name} needs a store, and chaos runs have members only in this version; "
            f"these run: {known}"
        )
    guess = get_close_matches(name, _SCENARIOS, n=1)
    hint = f"did you mean {guess[0]}? " if guess else ""
    raise UnknownScenarioError(f"no scenario {name!r}: {hint}there are {known}")


__all__ = ["Outcome", "Plan", "Promise", "Scenario", "Stage", "find_scenario", "list_scenarios"]
