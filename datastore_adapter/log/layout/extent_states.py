"""What becomes of extents when the hosts that hold them go and come back: pure functions.

Dead hosts leave the chains in which others remain.  Where none remains the extent is *away*: it keeps its chain, the
log goes on without it, and it is taken back when its hosts are there again, or *forgotten* when an operator has said
that they never come.

An extent is taken back only when every host that its chain keeps is sealed and knows the segment: from then on
nobody who works under an older layout, in which the chain may have had other hosts, can write there, and the activation
of the new epoch completes what stands on a part of the chain (`log.reconfiguration.activation`).  Until then its
chain stays as it was, host by host, so that reading and completing by the rules of chain replication is right whichever
layout a client knows.  An extent that had not been settled when it went away holds `Layout.settled_below`
down, so that the activation that takes it back comes to it.

A host that comes back with an emptied disk, and becomes a replica anew, leaves the chains of what is away: it would
pass for one that has the records.
Source: CORFU (NSDI 2012) section 2.3 (reconfiguration, extended to extents without a live replica).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from datastore_adapter.log.layout.document import Extent, ExtentState, Layout, Segment


@dataclass(frozen=True, slots=True)
class Presence:
    """Who is there, as far as a change of the layout knows."""

    gone: frozenset[str]
    """Hosts that leave the chains in which others remain."""
    away: frozenset[str]
    """Of these, the hosts that are not there: what they alone hold cannot be read."""
    forgetful: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Per segment, hosts that are there and know nothing of it."""
    sealed: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Per segment, hosts that are sealed and know it."""
    forgotten: frozenset[str] = frozenset()
    """Hosts that an operator does not expect back."""

    def leaving(self, key: str) -> frozenset[str]:
        """Whoever leaves the chains of the segment where others remain."""
        return self.gone.union(self.forgetful.get(key, ()))

    def applied(self, key: str, extent: Extent, joining: Collection[str]) -> Extent:
        """A closed extent as it is afterwards; `joining`: who is in the segment's open chain then."""
        if extent.state is ExtentState.FORGOTTEN:
            return extent
        forgetful = frozenset(self.forgetful.get(key, ()))
        missing = self.away | forgetful
        there = tuple(host for host in extent.chain if host not in missing)
        if there and extent.is_held:
            staying = tuple(host for host in there if host not in self.gone)
            return replace(extent, chain=staying or there)
        if there and frozenset(self.sealed.get(key, ())).issuperset(there):
            return replace(extent, chain=there, state=ExtentState.HELD)
        chain = tuple(host for host in extent.chain if host not in forgetful.intersection(joining))
        is_forgotten = bool(chain) and self.forgotten.intersection(self.away).issuperset(chain)
        return replace(extent, chain=chain, state=ExtentState.FORGOTTEN if is_forgotten else ExtentState.AWAY)


def without(chain: tuple[str, ...], gone: Collection[str]) -> tuple[str, ...]:
    """`chain` without dead hosts, or unchanged when nobody else is left."""
    return tuple(host for host in chain if host not in gone) or chain


def settled_below(layout: Layout) -> int:
    """How far an activated layout is settled: up to its base, or the first extent that is away and was not."""
    return min(
        (
            max(extent.start, layout.settled_below)
            for _, extent in layout.away()
            if extent.end is not None and extent.end > layout.settled_below
        ),
        default=layout.base,
    )


def forgotten_with(layout: Layout, hosts: Collection[str], away: Collection[str]) -> Layout:
    """The layout once an operator has said that `hosts` never come back; `away`: who is not there.

    What only they held is forgotten: at once where it is closed, and with the change of the layout that closes it
    otherwise.  So is what nobody has any more.
    """
    forgotten = frozenset(layout.forgotten).union(hosts)

    def state(extent: Extent) -> ExtentState:
        lost = forgotten.intersection(away).issuperset(extent.chain)
        return ExtentState.FORGOTTEN if lost and extent.end is not None else extent.state

    segments = tuple(
        replace(segment, extents=tuple(replace(extent, state=state(extent)) for extent in segment.extents))
        for segment in layout.segments
    )
    return after_change(replace(layout, forgotten=tuple(sorted(forgotten))), segments, away)


def after_change(layout: Layout, segments: tuple[Segment, ...], away: Collection[str]) -> Layout:
    """The layout with these segments, and with what has to be known about those that are not held.

    An operator's word on a host is good until the host is there again.
    """
    closed = [extent for segment in segments for extent in segment.closed_extents]
    return replace(
        layout,
        segments=segments,
        forgotten=tuple(host for host in layout.forgotten if host in away),
        pointers_from=max(layout.pointers_from, _end_of(closed, ExtentState.AWAY, ExtentState.FORGOTTEN)),
        forgotten_below=max(layout.forgotten_below, _end_of(closed, ExtentState.FORGOTTEN)),
    )


def _end_of(extents: Iterable[Extent], *states: ExtentState) -> int:
    return max((extent.end or 0 for extent in extents if extent.state in states), default=0)
