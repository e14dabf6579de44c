"""Edge failure detectors: the pluggable rule by which an observer finds one subject faulty.

Here are the interface and the default, the windowed rule. A detector gives one observer's opinion; the cut detector
waits for several. Every edge also tests the loss of single attempts (see loss_test), and an observer may doubt itself
(see local_health).
Source: Rapid, section 6 (a fixed window of probe results; 40 % failures mark the edge faulty).
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from membership.settings import Settings, SettingsError


class EdgeDetector(Protocol):
    """The rule of one edge. It lives as long as the edge does, across view changes.

    `now` is the time that the observer has been observing, in seconds. It stands still while the observer itself is
    stopped, starved, or jumps in time: what it did not observe says nothing about its subjects.
    """

    def on_probe_result(self, success: bool, now: float) -> None:
        """Learn the outcome of one probe: success when the first answer arrives, failure when the time for it
        is up."""

    def is_faulty(self, now: float) -> bool:
        """Whether the subject should be reported."""

    def has_evidence(self) -> bool:
        """Whether there is any recent sign of trouble, although not enough for `is_faulty`."""


@runtime_checkable
class UntimedDetector(EdgeDetector, Protocol):
    """A detector to which only the order of results matters, not their times."""

    @property
    def is_settled(self) -> bool:
        """Whether further successes change nothing."""

    @property
    def near_threshold(self) -> bool:
        """Whether one more failure would make the subject faulty."""


@runtime_checkable
class DetectorFactory(Protocol):
    """A kind of detector, to choose for all edges of a member."""

    def new(self, settings: Settings, now: float) -> EdgeDetector:
        """A detector for an edge that begins at `now` (seconds of observation)."""


class WindowedDetector:
    """Faulty when at least `failures` of the last `window` probes failed.

    If a probe fails with probability p, independently, an edge to a healthy subject is found faulty at any one
    time with probability sum over k >= failures of C(window, k) p^k (1-p)^(window-k).
    """

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

    @property
    def is_settled(self) -> bool:
        """Whether the window holds no failure."""
        return not self._results

    @property
    def near_threshold(self) -> bool:
        """Whether one more failure would be enough."""
        return ((self._results << 1 | 1) & self._mask).bit_count() >= self._failures


@dataclass(frozen=True, slots=True)
class Windowed:
    """Windowed detectors; what is None is taken from the settings."""

    window: int | None = None
    failures: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise SettingsError(f"a window holds at least 1 probe, not {self.window}")
        if self.failures is not None and self.failures < 1:
            raise SettingsError(f"at least 1 failed probe makes an edge faulty, not {self.failures}")
        if self.window is not None and self.failures is not None and self.failures > self.window:
            raise SettingsError(f"{self.failures} failures do not fit a window of {self.window} probes")

    def new(self, settings: Settings, now: float) -> EdgeDetector:
        """A detector for one edge."""
        window = self.window or settings.probe_window
        failures = self.failures or settings.probe_failures
        if failures > window:
            raise SettingsError(f"{failures} failures do not fit a window of {window} probes")
        return WindowedDetector(window, failures)


def windowed(window: int | None = None, failures: int | None = None) -> DetectorFactory:
    """The default kind: faulty at `failures` failed probes among the last `window`.

    Left out, both come from the settings (4 of 10). Raises SettingsError when they contradict each other.
    """
    return Windowed(window, failures)
