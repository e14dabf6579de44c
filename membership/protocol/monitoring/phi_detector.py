"""The phi-accrual failure detector: how unlikely is this silence, given how regularly the subject answered so far?

It keeps the intervals between answered probes. Phi is the negative decimal logarithm of the probability that the next
answer comes later than now. Unanswered probes make the intervals longer and more varied, so the detector becomes
patient with a lossy link by itself; that is why every edge tests the loss of attempts besides (see loss_test).
Source: Hayashibara, Defago, Yared, Katayama, *The Phi Accrual Failure Detector*, SRDS 2004, section 4.
"""

from collections import deque
from dataclasses import dataclass
from math import erfc, fsum, isfinite, log, log10, pi, sqrt

from membership.protocol.monitoring.edge_detector import EdgeDetector
from membership.settings import Settings, SettingsError

_ERFC_UNDERFLOWS_FROM = 25.0
"""Standard deviations from which the tail probability is computed as a logarithm directly."""
_SMALLEST_DEVIATION = 0.5
"""In probe intervals: on a quiet network the answers are so regular that the first lost one would convict.
With threshold 8 a silent subject is then found in about four intervals, as by the windowed rule."""
_LONGEST_DEVIATION = 2.0
"""In probe intervals: nor may a bad past make the detector endlessly patient."""
_EVIDENCE = 1.5
"""Intervals of silence that are a sign of trouble."""


def phi(silence: float, mean: float, deviation: float) -> float:
    """Negative decimal logarithm of the probability that a normal variable exceeds `silence`.

    `mean` and `deviation` (positive) in the same unit. Finite for every finite argument: where the tail
    underflows, its asymptotic form is used.
    """
    z = (silence - mean) / deviation
    if z < _ERFC_UNDERFLOWS_FROM:
        return max(0.0, -log10(erfc(z / sqrt(2)) / 2))
    return (z * z / 2 + log(z * sqrt(2 * pi))) / log(10)


class PhiAccrualDetector:
    """One edge. `interval` is the probe interval, `now` the beginning of the edge; both in seconds."""

    __slots__ = ("_interval", "_intervals", "_last", "_silent_until", "_threshold")

    def __init__(self, threshold: float, samples: int, interval: float, now: float) -> None:
        self._threshold = threshold
        self._interval = interval
        self._intervals: deque[float] = deque(maxlen=samples)
        self._last = now
        self._silent_until = now

    def on_probe_result(self, success: bool, now: float) -> None:
        """Take the arrival of an answer, or the time up to which one was awaited in vain."""
        self._silent_until = now
        if success:
            # Two answers may arrive close together after a delay; the sum of the intervals stays right.
            self._intervals.append(max(0.0, now - self._last))
            self._last = now

    def phi(self, now: float) -> float:
        """The level of suspicion at `now`: 1 is wrong once in ten times, 8 once in a hundred million."""
        silence = max(now, self._silent_until) - self._last
        if silence <= self._interval:
            return 0.0
        return phi(silence, *self._distribution())

    def _distribution(self) -> tuple[float, float]:
        """Mean and deviation of the intervals. Computed from the samples anew, so no error accumulates."""
        # The first interval stands for what is expected, until there are samples.
        samples = self._intervals or (self._interval,)
        mean = fsum(samples) / len(samples)
        variance = fsum((sample - mean) ** 2 for sample in samples) / len(samples)
        low, high = _SMALLEST_DEVIATION * self._interval, _LONGEST_DEVIATION * self._interval
        return max(mean, self._interval), min(max(sqrt(variance), low), high)

    def is_faulty(self, now: float) -> bool:
        """Whether phi reached the threshold when an answer was last awaited in vain."""
        return self._silent_until > self._last and self.phi(self._silent_until) >= self._threshold

    def has_evidence(self) -> bool:
        """Whether the subject has been silent for longer than one probe explains."""
        return self._silent_until - self._last >= _EVIDENCE * self._interval


@dataclass(frozen=True, slots=True)
class PhiAccrual:
    """Phi-accrual detectors."""

    threshold: float
    samples: int

    def __post_init__(self) -> None:
        if not (isfinite(self.threshold) and self.threshold > 0):
            raise SettingsError(f"the threshold of phi is a positive number, not {self.threshold}")
        if not 2 <= self.samples <= 10_000:
            raise SettingsError(f"phi needs 2 to 10000 samples per edge, not {self.samples}")

    def new(self, settings: Settings, now: float) -> EdgeDetector:
        """A detector for one edge."""
        return PhiAccrualDetector(self.threshold, self.samples, settings.probe_interval, now)


def phi_accrual(threshold: float = 8.0, samples: int = 100) -> PhiAccrual:
    """The phi-accrual kind: faulty when the silence has less than a 10^-threshold chance to be normal.

    `threshold`: 8 finds a crash about as fast as the windowed kind, 12 about two intervals later. `samples`:
    intervals remembered per edge. Raises SettingsError.
    """
    return PhiAccrual(threshold, samples)
