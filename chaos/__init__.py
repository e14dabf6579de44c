"""Break it on purpose, and see whether the promises hold.

`run` a scenario, `fuzz` with random faults, `replay` a script of faults; beneath them a `Cluster` of membership
cores on the deterministic `Simulator`, which hosts any sans-I/O `Process`. The fault vocabulary is `chaos.faults`.
"""

from chaos.errors import (
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
from chaos.fuzzing.fuzz import FuzzReport, Replay, fuzz, replay
from chaos.fuzzing.workers import WorkerError, processors
from chaos.recording.views import QuorumNotice, View
from chaos.runs.backends import BACKENDS
from chaos.runs.report import Report
from chaos.runs.runner import run
from chaos.runs.timeline import check_plot, plot
from chaos.scenarios import list_scenarios
from chaos.script import Script
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulation.host import Host
from chaos.simulation.network import Network, NetworkSettings
from chaos.simulation.process import Codec, Effects, Process, Send
from chaos.simulation.simulator import Simulator

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
