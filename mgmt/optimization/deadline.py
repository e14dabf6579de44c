"""A deadline: until when there is time, by a clock that is given, and which parts of it are for what.

Whatever may take long is given one and asks it in its loops; only solvers are told of seconds.  Tests give a clock that
jumps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """``at`` is the moment, by ``clock``, in seconds."""

    at: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """So many seconds from now."""
        return cls(clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds; 0 when it has passed."""
        return max(0.0, self.at - self.clock())

    @property
    def passed(self) -> bool:
        return self.clock() >= self.at

    def part(self, share: float) -> Deadline:
        """When this share of what is left will have passed."""
        now = self.clock()
        return Deadline(now + share * max(0.0, self.at - now), self.clock)

    def within(self, seconds: float) -> Deadline:
        """So many seconds from now, or the same if that is sooner."""
        return Deadline(min(self.at, self.clock() + seconds), self.clock)

    def if_more(self, number: int, than: int) -> Deadline:
        """The same, or none at all where so few are looked at that an answer a little late is better than none."""
        return self if number > than else NEVER

    def check(self) -> None:
        """TimeoutError when it has passed."""
        if self.passed:
            raise TimeoutError


NEVER = Deadline(math.inf)
