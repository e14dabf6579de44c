"""Moves: how one segment's copies differ from those wanted, which leave and come, why, and whether a rule requires it.

Pure.  A plan (``mgmt.plans.plan``) is made of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datastore_adapter.interface import Observation, Replica, ReplicaState, SegmentObservation
from mgmt.placement.disk_watch import disk_text
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent
from mgmt.placement.placement_rows import standing_chain

_INCOMPLETE = "its copy is not complete"
_SURPLUS = "more copies than wanted"
_DEMANDED = "a rule of the policies"


@dataclass(frozen=True, slots=True)
class Move:
    """A copy leaves ``source`` (None: it had no host) for ``destination`` (None: it is dropped)."""

    segment: str
    source: str | None
    source_rack: str
    destination: str | None
    destination_rack: str
    required: bool
    why: str
    bytes: int
    """To be copied; 0 when nothing is."""


@dataclass(frozen=True, slots=True)
class PrimaryChange:
    segment: str
    old: str | None
    new: str
    required: bool


class MoveReasons:
    """Why a copy must leave its host."""

    def __init__(
        self,
        view: HostView,
        observation: Observation,
        intent: Intent,
        known: Mapping[str, Host],
        must_leave: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        """``must_leave``: (segment, host) of copies that the policies do not let stay there."""
        self._must_leave = must_leave
        self._live = view.names
        self._drained = frozenset(intent.drains)
        self._disks = observation.disks
        self._known = known
        self.pins = frozenset(intent.pins)
        self.wanted = intent.replication_factor
        self._servers = observation.servers
        self._copies = Counter(copy.host for segment in observation.segments for copy in segment.replicas)
        self._used: dict[str, int] = {}
        for segment in observation.segments:
            for copy in segment.replicas:
                self._used[copy.host] = self._used.get(copy.host, 0) + segment.bytes

    def rack(self, host: str | None) -> str:
        if host is None:
            return ""
        known = self._known.get(host)
        return known.failure_domain if known is not None else "?"

    def reason_to_leave(self, copy: Replica, segment: SegmentObservation) -> str | None:
        """The rule broken by this copy where it is, in words; None when it may stay."""
        host = copy.host
        if host not in self._live:
            return f"{host} is gone"
        if host in self._disks and self._disks[host].is_relieved:
            return disk_text(host, self._disks[host])
        if host in self._drained:
            return f"{host} is drained"
        chain = standing_chain(segment)
        mates = [mate for mate in chain if mate != host and mate in self._live]
        # A host out of the chain only holds older records, until others do.
        if host in chain and any(self.rack(mate) == self.rack(host) for mate in mates):
            return f"two copies in rack {self.rack(host)}"
        if self._used[host] > self._known[host].capacity_bytes:
            return f"{host} is over its capacity"
        if self._servers and self._copies[host] > self._servers.get(host, 0):
            return f"{host} has fewer servers than copies"
        if (segment.key, host) in self._must_leave:
            return _DEMANDED
        return None


def moves_of(segment: SegmentObservation, wanted: Sequence[str], reasons: MoveReasons) -> list[Move]:
    """Pair copies that leave with copies that come, those that must leave first."""
    standing = sorted(segment.replicas, key=lambda copy: copy.position)
    leaving = [(copy, reasons.reason_to_leave(copy, segment)) for copy in standing if copy.host not in wanted]
    leaving.sort(key=lambda pair: pair[1] is None)
    present = {copy.host: copy for copy in standing}
    coming = [host for host in wanted if host not in present]
    moves: list[Move] = []
    for copy, why, destination in _paired(leaving, coming, reasons):
        if destination is not None and (segment.key, destination) in reasons.pins:
            why = f"pinned to {destination}" if why in {None, _DEMANDED} else why
        required = why is not None or copy is None
        if copy is None:
            why = "a copy is missing"
        elif destination is None and why is None:
            why = _SURPLUS
        moves.append(_move(segment, copy, destination, required, why or "balance", reasons))
    moves.extend(
        _move(segment, None, host, True, _INCOMPLETE, reasons)
        for host in wanted
        if host in present and present[host].state is not ReplicaState.IN_SYNC
    )
    return moves


def joined(moves: Sequence[Move]) -> list[Move]:
    """The same for people: a move that is under way already is one move, as it was when it began.

    Its old copy leaves, and its new one is there but not complete; within a rack where possible, else in order.
    """
    begun: dict[str, list[Move]] = {}
    for move in moves:
        if move.why == _INCOMPLETE:
            begun.setdefault(move.segment, []).append(move)
    partners: dict[Move, Move] = {}
    for within_rack in (True, False):
        for move in moves:
            if move.destination is not None or move in partners:
                continue
            free = begun.get(move.segment, [])
            new = next((n for n in free if n.destination_rack == move.source_rack or not within_rack), None)
            if new is not None:
                free.remove(new)
                partners[move] = new
    going_on = {
        old: replace(
            new,
            source=old.source,
            source_rack=old.source_rack,
            why=new.why if old.why == _SURPLUS else old.why,
        )
        for old, new in partners.items()
    }
    taken = set(partners.values())
    return [going_on.get(move, move) for move in moves if move not in taken]


def _paired(
    leaving: Sequence[tuple[Replica, str | None]], coming: Sequence[str], reasons: MoveReasons
) -> list[tuple[Replica | None, str | None, str | None]]:
    """Who replaces whom: within a rack where possible, else in order.  What is left over stands alone."""
    free = list(coming)
    partners: dict[str, str | None] = {}
    for copy, _ in leaving:
        same_rack = (host for host in free if reasons.rack(host) == reasons.rack(copy.host))
        partner = next(same_rack, None)
        if partner is not None:
            free.remove(partner)
        partners[copy.host] = partner
    for copy, _ in leaving:
        if partners[copy.host] is None and free:
            partners[copy.host] = free.pop(0)
    pairs: list[tuple[Replica | None, str | None, str | None]]
    pairs = [(copy, why, partners[copy.host]) for copy, why in leaving]
    return [*pairs, *((None, None, host) for host in free)]


def _move(
    segment: SegmentObservation,
    copy: Replica | None,
    destination: str | None,
    required: bool,
    why: str,
    reasons: MoveReasons,
) -> Move:
    source = None if copy is None else copy.host
    return Move(
        segment=segment.key,
        source=source,
        source_rack=reasons.rack(source),
        destination=destination,
        destination_rack=reasons.rack(destination),
        required=required,
        why=why if segment.replicas else "new segment",
        bytes=0 if destination is None else segment.bytes,
    )


def primary_change_of(
    segment: SegmentObservation, wanted: Sequence[str], reasons: MoveReasons
) -> list[PrimaryChange]:
    standing = standing_chain(segment)
    if not wanted or not standing or standing[0] == wanted[0]:
        return []
    old = next(copy for copy in segment.replicas if copy.host == standing[0])
    required = old.host not in wanted and reasons.reason_to_leave(old, segment) is not None
    return [PrimaryChange(segment.key, old.host, wanted[0], required)]
