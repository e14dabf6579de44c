"""Break it on purpose, and see whether the promises hold.

`run` a scenario, `fuzz` with random faults, `replay` a script of faults; beneath them a `Cluster` of membership
cores on the deterministic `Simulator`, which hosts any sans-I/O `Process`. The fault vocabulary is `chaos.faults`.
"""

from .backends import BACKENDS
from .cluster import Cluster
from .errors import (
    BackendError,
    BadArgumentError,
    ChaosError,
    InvariantViolation,
    NotRunnableError,
    PlotError,
    ScriptError,
    SimulationError,
    UnknownBackendError,
    UnknownScenarioError,
)
from .fuzz import FuzzReport, Replay, fuzz, replay
from .host import Host
from .network import Network, NetworkSettings
from .process import Codec, Effects, Process, Send
from .report import Report
from .runner import run
from .scenarios import list_scenarios
from .script import Script
from .simulator import Simulator
from .timeline import check_plot, plot
from .views import QuorumNotice, View
from .workers import WorkerError, processors

__all__ = [
    "BACKENDS",
    "BackendError",
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
    "PlotError",
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
    "WorkerError",
    "check_plot",
    "fuzz",
    "list_scenarios",
    "plot",
    "processors",
    "replay",
    "run",
]
