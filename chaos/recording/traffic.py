"""Bytes per member and second, as the paper's Table 2 counts them.

Samples of received and sent bytes, one for each running host and second, and their mean, 99th percentile and maximum
in KB/s (1 KB = 1000 bytes). These are the bytes of the messages themselves. So must the paper's be: ten probes and
ten answers a second in 0.71 KB/s are 35 bytes each, less than the headers of TCP alone.
Source: *Stable and Consistent Membership at Scale with Rapid*, section 7, Table 2.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean, 99th percentile and maximum over members and seconds, in KB/s."""

    mean: float
    p99: float
    max: float


class Traffic:
    """The samples of a run."""

    __slots__ = ("_received", "_sent")

    def __init__(self) -> None:
        self._received = array("d")
        self._sent = array("d")

    def record(self, received: float, sent: float) -> None:
        """Add one member's bytes per second."""
        self._received.append(received)
        self._sent.append(sent)

    def received(self) -> Rate:
        """What members received."""
        return _rate(self._received)

    def sent(self) -> Rate:
        """What members sent."""
        return _rate(self._sent)


def _rate(samples: array[float]) -> Rate:
    if not samples:
        return Rate(0.0, 0.0, 0.0)
    ordered = sorted(samples)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Rate(*(round(value / 1000, 3) for value in (sum(ordered) / len(ordered), p99, ordered[-1])))
