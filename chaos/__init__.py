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
from .fuzz import FuzzReport, Replay, fuzz, replay
from .network import Network, NetworkSettings
from .process import Codec, Effects, Process, Send
from .report import Report
from .runner import BACKENDS, run
from .scenarios import list_scenarios
from .script import Script
from .simulator import Host, Simulator

__all__ = [
    "BACKENDS",
    "BadArgumentError",
    "ChaosError",
    "Codec",
    "Effects",
    "FuzzReport",
    "Host",
    "InvariantViolation",
    "Network",
    "NetworkSettings",
    "NotRunnableError",
    "Process",
    "Replay",
    "Report",
    "Script",
    "ScriptError",
    "Send",
    "SimulationError",
    "Simulator",
    "UnknownBackendError",
    "UnknownScenarioError",
    "fuzz",
    "list_scenarios",
    "replay",
    "run",
]
