"""Whether a flow is begun: the solver cannot be stopped in the middle, so none is begun that time is too short for.

What it is not: it does not know what to do instead (see ``table``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from mgmt.optimization.engines.flow.counts import NotAFlowError

ARCS_PER_SECOND = 1_000_000
"""What the solver gets through; measured are 0.9 to 4 million on networks of copies and racks."""
ALWAYS = 20_000
"""So few arcs are never too many: they take some milliseconds, and one answer late is better than none."""


class LateFlowError(NotAFlowError):
    """It is a network, but its flow would take longer than there is time."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Until when flows are begun, by a clock; both in seconds."""

    deadline: float = math.inf
    clock: Callable[[], float] = time.monotonic

    def begin(self, arcs: int) -> None:
        """To be called before a flow on so many arcs.  Raises LateFlowError when there is no time for it."""
        if arcs > max(ALWAYS, ARCS_PER_SECOND * (self.deadline - self.clock())):
            raise LateFlowError(f"a network of {arcs} arcs takes longer than the time that is left")
