"""Edge failure detectors: one observer's opinion about one subject.

What it is: the pluggable rule from probe results to "faulty", and the windowed rule that is the default.
What it is not: a decision; the cut detector hears many observers first.
Source: Rapid section 6 (a fixed window of probe results; 40 % failures mark the edge faulty).
"""

from collections.abc import Callable
from typing import Protocol

from membership.settings import Settings


class EdgeDetector(Protocol):
    """The rule of one edge. It lives as long as the edge does, across view changes."""

    def on_probe_result(self, success: bool, now: float) -> None:
        """Learn the outcome of one probe (seconds)."""

    def is_faulty(self, now: float) -> bool:
        """Whether the subject should be reported."""

    def has_evidence(self) -> bool:
        """Whether there is any recent sign of trouble, although not enough for `is_faulty`."""


class WindowedDetector:
    """Faulty when at least `failures` of the last `window` probes failed."""

    __slots__ = ("_failures", "_mask", "_results")

    def __init__(self, window: int, failures: int) -> None:
        self._mask = (1 << window) - 1
        self._failures = failures
        self._results = 0  # one bit per probe, 1 is a failure, the youngest is lowest

    def on_probe_result(self, success: bool, now: float) -> None:
        """Shift the result into the window."""
        self._results = (self._results << 1 | (not success)) & self._mask

    def is_faulty(self, now: float) -> bool:
        """Whether the window holds enough failures. Old failures slide out: nothing accumulates for ever."""
        return self._results.bit_count() >= self._failures

    def has_evidence(self) -> bool:
        """Whether one of the last two probes failed."""
        return self._results & 0b11 != 0


DetectorFactory = Callable[[Settings], EdgeDetector]


def windowed(settings: Settings) -> EdgeDetector:
    """The default detector of an edge."""
    return WindowedDetector(settings.probe_window, settings.probe_failures)
