"""Break it on purpose: simulator, fault vocabulary, scenarios, invariants, fuzzing."""

from .errors import (
    BadArgumentError,
    ChaosError,
    InvariantViolation,
    NotRunnableError,
    ScriptError,
    SimulationError,
    UnknownBackendError,
    UnknownScenarioError,
)
from .network import Network, NetworkSettings
from .process import Codec, Effects, Process, Send
from .simulator import Host, Simulator

__all__ = [
    "BadArgumentError",
    "ChaosError",
    "Codec",
    "Effects",
    "Host",
    "InvariantViolation",
    "Network",
    "NetworkSettings",
    "NotRunnableError",
    "Process",
    "ScriptError",
    "Send",
    "SimulationError",
    "Simulator",
    "UnknownBackendError",
    "UnknownScenarioError",
]
