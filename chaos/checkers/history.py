"""What clients asked of a replicated store and what they were told: the record that the checkers read.

Operations on the registers of a map, each from the moment a client sent it to the moment it had the answer; and
appends to a log with the addresses they were given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any


class Kind(Enum):
    """What a client asked of a register."""

    READ = "read"
    WRITE = "write"
    REPLACE = "replace"
    """Write if the value is still the expected one (compare-and-set)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one register, as its client saw it.

    `value` is what was read or was to be written; None stands for "no value" (a deletion, when written). `completed`
    is infinite when no answer came, or one that leaves open whether it happened: it may have taken effect at any
    time after `invoked`, or never. `succeeded` tells of a REPLACE whether it took place.
    """

    client: str
    key: str
    kind: Kind
    value: Any
    invoked: float
    completed: float = inf
    expected: Any = None
    succeeded: bool = True

    @property
    def is_open(self) -> bool:
        """Whether the client never learned what came of it."""
        return self.completed == inf

    def after(self, value: Any) -> tuple[bool, Any]:
        """Whether it can take place while the register holds `value`, and what it holds then."""
        if self.kind is Kind.READ:
            return self.is_open or value == self.value, value
        if self.kind is Kind.WRITE:
            return True, self.value
        matches = value == self.expected
        if self.is_open:
            return True, self.value if matches else value
        return matches == self.succeeded, self.value if matches else value

    def __str__(self) -> str:
        span = f"{self.invoked:.3f} s to " + ("no answer" if self.is_open else f"{self.completed:.3f} s")
        words = {
            Kind.READ: f"reads {self.value!r}",
            Kind.WRITE: f"writes {self.value!r}",
            Kind.REPLACE: f"replaces {self.expected!r} by {self.value!r}"
            + ("" if self.succeeded else " in vain"),
        }
        return f"{self.client} {words[self.kind]} at {self.key!r} ({span})"


@dataclass(frozen=True, slots=True)
class Append:
    """One append to the log. `address` is None when no answer came; times as in `Operation`."""

    client: str
    value: Any
    invoked: float
    completed: float = inf
    address: int | None = None

    def __str__(self) -> str:
        where = "no answer" if self.address is None else f"address {self.address}"
        return f"{self.client} appends {self.value!r} at {self.invoked:.3f} s: {where}"


@dataclass
class Record:
    """What the clients saw."""

    appends: list[Append] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)
    """The writers' records by address, as read at the end."""
    acknowledged: set[int] = field(default_factory=set)
    """Addresses of the writers' records."""
    misread: list[str] = field(default_factory=list)
    """What was read of acknowledged records while things went wrong, and should not have been, in words."""
    unreadable: set[int] = field(default_factory=set)
    """Addresses that could not be read at the end, and the store said so."""
