"""The settings of the control loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from mgmt.control.hysteresis import HysteresisLimits
from mgmt.control.step_scheduling import ExecutionLimits
from mgmt.placement.disk_watch import SlowDiskLimits
from mgmt.placement.flap_damping import FreezeLimits
from mgmt.plans.safety import WaveLimits


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Times are seconds."""

    round_interval: float = 5.0
    """Pause between looks at a settled engine.  Views and requests wake the loop at once, so this bounds
    only how long drift of the engine itself stays unnoticed; each look is one majority read."""
    standby_interval: float = 60.0
    """Pause between looks of a host that is not the controller, each a question to every host: they keep its solver
    prepared for other policies.  Whoever asks for its status has it look at once (`Reports.look`)."""
    intent_interval: float = 1.0
    """The same before any intent is agreed: a host that is next in line waits for it to prepare its solver.  Also
    the pause between a new view and the first look of a host that is not the controller."""
    time_interval: float = 60.0
    """Policies that ask for the present time are decided anew when so much of it has gone by.  Shorter: they are
    followed more closely, for a solve each time."""
    poll_interval: float = 0.05
    """Pause between polls of running steps.  Shorter: steps follow each other faster, one call per step."""
    repair_poll_interval: float = 0.005
    """The same for repairs, such as the fail-over of a lost primary: clients wait for them."""
    longest_question: float = 60.0
    """A repair that operators were asked about is tried again after a growing pause, at most this long, and whenever
    the engine shows something else.  Shorter: done sooner when it has become possible; more failed steps in the
    events."""
    solve_budget: float = 2.0
    """Time the solver may take.  Longer: better proofs, but lost hosts leave their chains only after it."""
    longest_solve_budget: float = 16.0
    """Upper bound when the budget is doubled, because the solver had no answer in time.  An operator's question
    gets it at once."""
    seed: int = 0
    """Of the solver: the same state and seed give the same plan."""
    first_backoff: float = 0.1
    """Pause after the first attempt in vain (engine unreachable, plan failed); doubled each further time."""
    longest_backoff: float = 5.0
    """Upper bound of the doubling."""
    intent_attempts: int = 8
    """Tries of a request's compare-and-set before it is given up: others change the document, too."""
    events_kept: int = 1000
    """Events remembered; the oldest are forgotten first."""
    standbys: int = 1
    """Managers next in seniority that have a solver loaded, as the controller has: they are quick where its host is
    what is lost."""
    keep_solver: bool = True
    """Whether these keep their solver while there is nothing to do.  Else it is loaded once in advance, and again when
    a member is suspected: after a quiet time a repair begins later by what that takes longer than the view change."""
    limits: ExecutionLimits = field(default_factory=ExecutionLimits)
    """Of the execution of steps."""
    waves: WaveLimits = field(default_factory=WaveLimits)
    """How much one wave of a plan may move."""
    hysteresis: HysteresisLimits = field(default_factory=HysteresisLimits)
    """What moves for balance have to wait for."""
    freezes: FreezeLimits = field(default_factory=FreezeLimits)
    """How long a host that came back receives nothing new."""
    disks: SlowDiskLimits = field(default_factory=SlowDiskLimits)
    """When a disk counts as slow, so that its host is relieved."""
    suspicion_interval: float = 1.0
    """In place of ``round_interval`` while a disk seems to be slow: until it is relieved all writers wait for it."""
    assumed_rate: float = 20e6
    """Bytes/s of one transfer for the time estimate of a plan, until a transfer was measured."""
