"""The scenarios by name, and the names that later floors of the house will make runnable."""

from __future__ import annotations

from difflib import get_close_matches

from ..errors import NotRunnableError, UnknownScenarioError
from . import arrivals, failures, observers, separations
from .model import Outcome, Plan, Promise, Scenario, Stage

_SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *arrivals.SCENARIOS,
        *failures.SCENARIOS,
        *observers.SCENARIOS,
        *separations.SCENARIOS,
    )
}

_NOT_ON_THE_SIMULATOR = {
    "pause": "a stopped process",
    "slow-node": "a starved processor",
    "clock-jump": "a clock that jumps",
    "rolling-restart": "one restart after the other",
    "quorum-loss": "a majority lost for good",
    "rack-loss": "a store",
    "disk-full": "a store",
    "kill-sequencer": "a store",
    "kill-controller": "a store",
}


def list_scenarios() -> dict[str, str]:
    """The runnable scenarios: name and what each must show, in one line."""
    return {scenario.name: scenario.summary for scenario in _SCENARIOS.values()}


def find_scenario(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownScenarioError or NotRunnableError."""
    scenario = _SCENARIOS.get(name)
    if scenario is not None:
        return scenario
    known = ", ".join(_SCENARIOS)
    if name in _NOT_ON_THE_SIMULATOR:
        raise NotRunnableError(
            f"scenario {name} ({_NOT_ON_THE_SIMULATOR[name]}) does not run on the simulator yet; "
            f"these do: {known}"
        )
    guess = get_close_matches(name, _SCENARIOS, n=1)
    hint = f"did you mean {guess[0]}? " if guess else ""
    raise UnknownScenarioError(f"no scenario {name!r}: {hint}there are {known}")


__all__ = ["Outcome", "Plan", "Promise", "Scenario", "Stage", "find_scenario", "list_scenarios"]
