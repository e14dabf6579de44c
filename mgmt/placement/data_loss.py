"""Data loss: which records are gone for good if hosts never come back.  Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from datastore_adapter.interface import Observation


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of a segment that only these hosts have."""

    segment: str
    start: int | None
    """The first address; None: the end of the log, from where the others know it on."""
    end: int | None
    """One above the last; None: nobody knows how far it was written."""
    hosts: tuple[str, ...]


def losses(observation: Observation, hosts: Collection[str]) -> tuple[Loss, ...]:
    """What only `hosts` hold, all of them away; and what nobody has any more."""
    found = []
    for segment in observation.segments:
        found += [
            Loss(segment.key, away.start, away.end, away.hosts)
            for away in segment.away
            if set(away.hosts).issubset(hosts)
        ]
        holders = tuple(copy.host for copy in segment.replicas)
        if holders and set(holders).issubset(hosts):
            found.append(Loss(segment.key, None, None, holders))
    return tuple(found)
