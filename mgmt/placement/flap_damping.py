"""Flap damping: a host that went and came back is frozen for a while, and for longer each time it happens again.

Pure values, part of the agreed intent, so that they outlive the controller that saw the host return.  Times are Unix
seconds by the clock of whoever is the controller; where clocks differ a freeze is that much shorter or longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreezeLimits:
    """Times are seconds."""

    first: float = 5.0
    """Freeze after the first return; doubled with each further one within the window.  Longer: fewer copies are made
    for a host that is gone again soon; a host that was merely restarted waits so long for new copies."""
    longest: float = 300.0
    """Upper bound of the doubling."""
    repairs_wait: float = 30.0
    """If only frozen hosts can take lost copies, they take them so long after their return.  Longer: less is copied to
    a host that goes again; lower: what was lost is missing for a shorter time."""
    window: float = 3600.0
    """A host that has not come back for so long is forgotten: its next return counts as the first."""

    def __post_init__(self) -> None:
        for name in ("first", "longest", "window"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.repairs_wait < 0:
            raise ValueError(f"repairs_wait must be 0 or more, not {self.repairs_wait}")


@dataclass(frozen=True, slots=True)
class Freeze:
    """One host's record; it is frozen until ``until`` and remembered longer."""

    host: str
    returns: int
    view_epoch: int
    """View of the last return: one that is known already is not counted again."""
    since: float
    until: float


def with_returns(
    freezes: Sequence[Freeze], returns: Sequence[tuple[str, int]], now: float, limits: FreezeLimits
) -> tuple[Freeze, ...]:
    """``returns``: hosts and the views in which they came back.  What is over for good is forgotten."""
    known = {freeze.host: freeze for freeze in freezes if 0 <= now - freeze.since < limits.window}
    for host, view_epoch in sorted(returns, key=lambda pair: pair[1]):
        before = known.get(host)
        if before is not None and before.view_epoch >= view_epoch:
            continue
        count = 1 if before is None else before.returns + 1
        seconds = min(limits.first * 2.0 ** min(count - 1, 64), limits.longest)
        known[host] = Freeze(host, count, view_epoch, now, now + seconds)
    return tuple(known[host] for host in sorted(known))


def unknown(freezes: Sequence[Freeze], returns: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The returns that are in no record yet."""
    counted = {freeze.host: freeze.view_epoch for freeze in freezes}
    return [(host, epoch) for host, epoch in returns if counted.get(host, -1) < epoch]


def overdue_at(freezes: Sequence[Freeze], now: float, limits: FreezeLimits) -> frozenset[str]:
    """Who is frozen, and takes lost copies all the same if nobody else can."""
    return frozenset(
        freeze.host
        for freeze in freezes
        if freeze.since + limits.repairs_wait <= now < freeze.until and freeze.since <= now
    )


def frozen_at(freezes: Sequence[Freeze], now: float) -> frozenset[str]:
    """Who is frozen."""
    return frozenset(freeze.host for freeze in freezes if freeze.since <= now < freeze.until)
