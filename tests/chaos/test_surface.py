"""The public names of `chaos`: adding one is a decision, removing one breaks somebody."""

import chaos

SURFACE = [
    "BACKENDS",
    "BadArgumentError",
    "ChaosError",
    "Cluster",
    "Codec",
    "Effects",
    "FuzzReport",
    "Host",
    "InvariantViolation",
    "Network",
    "NetworkSettings",
    "NotRunnableError",
    "Process",
    "QuorumNotice",
    "Replay",
    "Report",
    "Script",
    "ScriptError",
    "Send",
    "SimulationError",
    "Simulator",
    "UnknownBackendError",
    "UnknownScenarioError",
    "View",
    "fuzz",
    "list_scenarios",
    "replay",
    "run",
]


def test_the_public_names_are_frozen() -> None:
    assert sorted(chaos.__all__) == SURFACE
    assert all(hasattr(chaos, name) for name in SURFACE)
