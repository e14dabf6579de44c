"""Safety: what may not happen on the way from one placement to the next, in any intermediate state of a wave.

A wave changes the chains of some segments.  The engine keeps every complete copy until the new ones are complete
(``Adapter.lower``), segment by segment in any order; so between the two placements each segment passes through: old
chain; old and new copies side by side, the new ones becoming complete one by one; new chain.  :func:`dangers` tells
what is broken in the worst of all these states without going through them (the tests do).

Pure.  The rules of policies are the solver's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WaveLimits:
    """How much one wave may move.  Lower: clients feel less of it, and less is under way when a controller dies;
    higher: fewer layout changes, each of which stops writers for some hundredths of a second."""

    moves_per_host: int = 32
    """Copies that one host may send or receive in one wave."""
    moves_per_rack: int = 256
    """The same for all hosts of one rack together."""
    moves_per_cluster: int = 1024
    """Copies made in one wave in all.  A plan of m moves takes at least m / this many waves."""

    def __post_init__(self) -> None:
        for name in ("moves_per_host", "moves_per_rack", "moves_per_cluster"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class SafetyContext:
    """What safety depends on and a wave does not change: hosts, capacities, limits."""

    racks: Mapping[str, str]
    """Of the live hosts; who is not in it is gone."""
    capacity: Mapping[str, int]
    """Bytes that each live host may hold."""
    wanted: int
    """Copies per segment."""
    servers: Mapping[str, int] = field(default_factory=dict)
    """Copies that each live host can hold; empty: any number."""
    wanted_racks: Mapping[str, int] = field(default_factory=dict)
    """Racks of each segment in the placement that is wanted in the end: on the way there may be as few."""
    frozen: frozenset[str] = frozenset()
    """Hosts that receive nothing new."""
    leaving: frozenset[str] = frozenset()
    """Hosts that a rule wants empty: their primaries have to go whatever their number."""
    limits: WaveLimits = field(default_factory=WaveLimits)


@dataclass(frozen=True, slots=True)
class SegmentState:
    """One segment before a wave."""

    chain: tuple[str, ...]
    """Who takes writes, the primary first."""
    complete: frozenset[str]
    """Live hosts with all of its data."""
    held: frozenset[str]
    """Live hosts with any of its data."""
    bytes: int

    @property
    def is_new(self) -> bool:
        """Nothing is stored yet, so nothing can be lost or has to be copied."""
        return not self.chain and not self.held

    def then(self, chain: tuple[str, ...], live: Container[str]) -> SegmentState:
        """After a wave that made ``chain`` of it."""
        hosts = frozenset(host for host in chain if host in live)
        return SegmentState(chain, hosts, hosts, self.bytes)


@dataclass(frozen=True, slots=True, order=True)
class Danger:
    """A rule broken in some state on the way."""

    rule: str
    """``copies``, ``racks``, ``capacity``, ``servers``, ``primaries``, ``frozen``, ``moves``."""
    subject: str
    """The segment, host, rack or cluster that it is about."""
    by: int
    """How far beyond what may be."""

    def __str__(self) -> str:
        return _WORDS[self.rule].format(subject=self.subject, by=self.by)


_WORDS = {
    "copies": "segment {subject} has {by} complete copies fewer than it may",
    "racks": "segment {subject} is complete in {by} racks fewer than before",
    "capacity": "{subject} holds {by} bytes more than its capacity, old and new copies together",
    "servers": "{subject} has {by} servers fewer than old and new copies need together",
    "primaries": "{by} primaries too many change at once",
    "frozen": "{subject} came back a short while ago and would receive {by} copies",
    "moves": "{by} copies too many at once on {subject}",
}
Chains = Mapping[str, tuple[str, ...]]
SegmentStates = Mapping[str, SegmentState]


def dangers(stand: SegmentStates, wave: Chains, context: SafetyContext) -> list[Danger]:
    """What is broken in some state between ``stand`` and ``wave``, sorted; empty: it is safe.  What is broken before
    already counts only as far as it gets worse."""
    found = [danger for key in wave for danger in of_segment(key, stand[key], wave[key], context)]
    load = WaveLoad(stand, context)
    for key, chain in wave.items():
        load.add(stand[key], chain)
    return sorted([*found, *load.dangers()])


def exchange_dangers(
    stand: SegmentStates, wave: Chains, context: SafetyContext, held: Occupancy | None = None
) -> list[Danger]:
    """As :func:`dangers`, for a wave in which copies leave before those in their places are made.

    Then complete copies are fewer under way than before and after; while they are, so may be their racks.
    """
    found = []
    for key, chain in wave.items():
        before = stand[key]
        found += [danger for danger in of_segment(key, before, chain, context) if danger.rule == "racks"]
        lacking = min(context.wanted, len(before.complete)) - len(before.complete.intersection(chain))
        if lacking > 0:
            found.append(Danger("copies", key, lacking))
    load = WaveLoad(stand, context, held, leaving_first=True)
    for key, chain in wave.items():
        load.add(stand[key], chain)
    return sorted([*found, *load.dangers()])


def of_segment(
    key: str, before: SegmentState, chain: tuple[str, ...], context: SafetyContext
) -> list[Danger]:
    """What a segment's own change breaks."""
    if before.is_new or chain == before.chain:
        return []
    # The fewest complete copies are those of now, or those of the end: in between there are only more.
    live = [host for host in chain if host in context.racks]
    least = min(context.wanted, len(before.complete))
    now, then = (len({context.racks[host] for host in hosts}) for hosts in (before.complete, live))
    now = min(now, context.wanted, context.wanted_racks.get(key, now))
    found = []
    if len(live) < least:
        found.append(Danger("copies", key, least - len(live)))
    if then < now:
        found.append(Danger("racks", key, now - then))
    return found


class Occupancy:
    """What each live host holds before a wave."""

    def __init__(self, stand: SegmentStates) -> None:
        self.bytes: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        for before in stand.values():
            for host in before.held:
                self.bytes[host] += before.bytes
                self.copies[host] += 1


class WaveLoad:
    """What segments changed in one wave load on hosts, racks and the cluster together."""

    def __init__(
        self,
        stand: SegmentStates,
        context: SafetyContext,
        held: Occupancy | None = None,
        *,
        leaving_first: bool = False,
    ) -> None:
        """``held``: what is on each host before the wave, if somebody has counted it already; ``leaving_first``: what
        is to leave does so before anything comes."""
        self._context = context
        self._leaving_first = leaving_first
        self._segments = sum(not before.is_new for before in stand.values())
        self._held = Occupancy(stand) if held is None else held
        self._coming: Counter[str] = Counter()  # bytes, by host
        self._servers: Counter[str] = Counter()  # copies, by host, those of new segments too
        self._new: Counter[str] = Counter()  # copies, by host
        self._by_host: Counter[str] = Counter()
        self._by_rack: Counter[str] = Counter()
        self._moves = 0
        self._primaries = 0

    @property
    def is_full(self) -> bool:
        """Whether no further copy may be made in this wave."""
        return self._moves >= self._context.limits.moves_per_cluster

    def add(self, before: SegmentState, chain: tuple[str, ...]) -> None:
        self._count(before, chain, 1)

    def remove(self, before: SegmentState, chain: tuple[str, ...]) -> None:
        """Take back what :meth:`add` did."""
        self._count(before, chain, -1)

    def _count(self, before: SegmentState, chain: tuple[str, ...], by: int) -> None:
        racks = self._context.racks
        coming = [host for host in chain if host in racks and host not in before.held]
        for host in coming:
            self._coming[host] += by * before.bytes
            self._servers[host] += by
        for host in before.held.difference(chain) if self._leaving_first else ():
            self._coming[host] -= by * before.bytes
            self._servers[host] -= by
        if before.is_new:
            return
        for host in coming:
            self._new[host] += by
        going = [host for host in before.complete if host not in chain][: len(coming)]
        for host in (*coming, *going):
            self._by_host[host] += by
            self._by_rack[racks[host]] += by
        self._moves += by * len(coming)
        if _is_optional_primary_change(before, chain, self._context):
            self._primaries += by

    def dangers(self, hosts: Iterable[str] | None = None) -> list[Danger]:
        """What is broken, on any host or only as far as these are concerned."""
        context, limits = self._context, self._context.limits
        touched = self._by_host.keys() | self._coming.keys() if hosts is None else set(hosts)
        touched &= context.racks.keys()
        found = []
        for host in touched:
            over = self._held.bytes[host] + self._coming[host] - context.capacity[host]
            if self._coming[host] > 0 and over > 0:
                found.append(Danger("capacity", host, over))
            lacking = self._held.copies[host] + self._servers[host] - context.servers.get(host, 0)
            if context.servers and self._servers[host] > 0 and lacking > 0:
                found.append(Danger("servers", host, lacking))
            if host in context.frozen and self._new[host] > 0:
                found.append(Danger("frozen", host, self._new[host]))
        found += _beyond(self._by_host, touched, limits.moves_per_host)
        found += _beyond(
            self._by_rack, {context.racks[host] for host in touched}, limits.moves_per_rack, "rack "
        )
        if self._moves > limits.moves_per_cluster:
            found.append(Danger("moves", "the cluster", self._moves - limits.moves_per_cluster))
        if self._primaries > most_primaries(self._segments):
            over = self._primaries - most_primaries(self._segments)
            found.append(Danger("primaries", "the cluster", over))
        return found


def most_primaries(segments: int) -> int:
    """How many primaries may change at once for no rule's sake: fewer than half of them, but one in any case."""
    return max(1, (segments - 1) // 2)


def _is_optional_primary_change(before: SegmentState, chain: tuple[str, ...], context: SafetyContext) -> bool:
    old = before.chain[0] if before.chain else None
    return bool(chain) and old != chain[0] and old in context.racks and old not in context.leaving


def _beyond(counts: Counter[str], names: Iterable[str], limit: int, what: str = "") -> list[Danger]:
    return [Danger("moves", what + name, counts[name] - limit) for name in names if counts[name] > limit]
