"""Which replica schedules: the holder of a Lease, renewed while it lives.

As client-go does it.  Clocks of hosts are never compared: a lease has run out when its record has not changed for its
duration by *this* process's clock.  The server decides who is first: an update names the resource version that it was
made from.  Should two believe to lead for a moment, bindings are refused for pods that have a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

DURATION: Final = 15.0
"""Seconds after which a holder that is silent has lost the lease."""
RENEWED_WITHIN: Final = 10.0
"""Seconds after which a holder that could not renew it stops to lead."""
PERIOD: Final = 2.0
"""Seconds between two looks at the lease."""


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """``period`` < ``renewed_within`` < ``duration``, in seconds."""

    duration: float = DURATION
    renewed_within: float = RENEWED_WITHIN
    period: float = PERIOD


class Election:
    """One candidate.  Drive it: ``wanted`` is what to write after a look at the lease, ``written`` that it was."""

    def __init__(self, identity: str, settings: ElectionSettings | None = None) -> None:
        self.identity = identity
        self.settings = settings or ElectionSettings()
        self._record: tuple[object, ...] | None = None
        self._changed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leads_until(self) -> float:
        """How long it may lead, as far as it knows."""
        return float("-inf") if self._renewed_at is None else self._renewed_at + self.settings.renewed_within

    def wanted(self, lease: Mapping[str, Any] | None, now: float, moment: datetime) -> dict[str, Any] | None:
        """The ``spec`` to write, given the lease as it is (None: there is none); None: somebody else leads."""
        spec = {} if lease is None else lease.get("spec") or {}
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._record:
            self._record, self._changed_at = record, now
        holder = spec.get("holderIdentity") or None
        duration = float(spec.get("leaseDurationSeconds") or self.settings.duration)
        if holder not in (None, self.identity):
            self._renewed_at = None
            if now - self._changed_at < duration:
                return None
        mine = holder == self.identity
        changes = int(spec.get("leaseTransitions") or 0) + (not mine and lease is not None)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, int(self.settings.duration)),
            "acquireTime": spec.get("acquireTime")
            if mine and spec.get("acquireTime")
            else micro_time(moment),
            "renewTime": micro_time(moment),
            "leaseTransitions": changes,
        }

    def released(self, lease: Mapping[str, Any], moment: datetime) -> dict[str, Any] | None:
        """The ``spec`` to write at the end, so that another one need not wait; None where it is not the holder."""
        spec = lease.get("spec") or {}
        self._renewed_at = None
        if spec.get("holderIdentity") != self.identity:
            return None
        return {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(moment)}

    def written(self, asked_at: float) -> None:
        """The server has taken what was wanted at this time."""
        self._renewed_at = asked_at

    def refused(self) -> None:
        """Somebody else wrote meanwhile: look again."""
        self._renewed_at = None


def micro_time(moment: datetime) -> str:
    """As the API writes a MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
