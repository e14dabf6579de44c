"""An estimate of how long a plan takes, by the speed of transfers: for people, never for decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransferSpeeds:
    """What is known of the engine's speed."""

    bytes_per_second: float = 20e6
    """Of one transfer."""
    transfers: int = 8
    """Transfers in the whole cluster at once."""
    transfers_per_host: int = 2
    """Transfers that one host receives at once."""
    layout_seconds: float = 0.2
    """One change of the layout; a wave has two."""

    def seconds(self, loads: Sequence[Mapping[str, int]]) -> float:
        """``loads``: for each wave the bytes that each host receives.  What is slower, the cluster as a whole or the
        host that receives most, decides how long a wave takes."""
        rate = self.bytes_per_second
        return sum(
            2 * self.layout_seconds
            + max(
                sum(load.values()) / (rate * self.transfers),
                max(load.values(), default=0) / (rate * self.transfers_per_host),
            )
            for load in loads
        )
