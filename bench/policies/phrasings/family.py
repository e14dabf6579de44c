"""What a family of spellings is, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Asked:
    """CPU seconds of a solve at 500 and at 2000 nodes (1000 and 10 000 segments), and the largest gap."""

    small: float
    large: float
    gap: float = 0.0
    or_budget: bool = False
    """An answer that is not proven is well, too, if the whole budget went into it."""

    def seconds(self, extent: int) -> float | None:
        """None at sizes that nothing is asked of."""
        return {500: self.small, 1000: self.small, 2000: self.large, 10_000: self.large}.get(extent)


@dataclass(frozen=True, slots=True)
class Family:
    """Rules that mean the same.

    ``broken`` and ``value`` are plain SQL over the plan: ``pod.node`` (``replica.host``) is what the solver chose.  The
    first gives the rows that break the rule, the second the objective, the less the better.
    """

    name: str
    rule: str
    asked: Asked | None
    spellings: Mapping[str, str]
    listed: tuple[str, ...] = ()
    """The spellings that speed was asked for by name; the others are our own."""
    broken: str = ""
    value: str = ""
    asked_of: Mapping[str, Asked] = field(default_factory=dict)
    """Of spellings of which something else is asked than of the family."""
    published: str = ""
    prelude: str = ""
    """Views and constraints that all spellings share."""
    state: Literal["pods", "datastore"] = "pods"

    def policies(self, spelling: str) -> str:
        return f"{self.prelude}\n{self.spellings[spelling]}"
