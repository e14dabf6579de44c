"""How large amounts are: the same workload in units, in thousands or in bytes, round or of any digits."""

from __future__ import annotations

from enum import StrEnum
from random import Random


class Amounts(StrEnum):
    """What an amount of a few units becomes; those that are not round have no divisor in common."""

    UNITS = "units"
    THOUSANDS = "thousands"
    ROUND_THOUSANDS = "round-thousands"
    BYTES = "bytes"
    ROUND_BYTES = "round-bytes"

    @property
    def unit(self) -> int:
        """One unit in these."""
        if self is Amounts.UNITS:
            return 1
        return 100 if "thousands" in self else 10**10

    def of(self, units: int, draw: Random) -> int:
        """So many units."""
        rest = 0 if "round" in self or not units else draw.randrange(self.unit)
        return units * self.unit + rest
