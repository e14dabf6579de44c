"""Cyclic exchanges: copies that change places, where no host has a server for a new copy beside the old ones.

In a cluster in which every server holds a copy, no copy can be made before another one leaves.  What is left then is
a closed set of moves, each of which goes where the next one leaves: while it lasts, each of its segments has one
complete copy fewer.  The smallest such set is looked for, and never one that takes a segment's last complete copy, or
its primary: that is handed to a copy that stays first.

Pure.  It is for moves that rules require; nothing is put at risk for balance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mgmt.plans.safety import (
    Chains,
    Danger,
    Occupancy,
    SafetyContext,
    SegmentState,
    SegmentStates,
    dangers,
    exchange_dangers,
)

MOST_PATHS = 20_000
"""Sets of moves looked at before none is said to be found; that many take some tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What to do next: hand primaries on, or move the copies."""

    chains: Chains
    """Of the segments it is about, afterwards."""
    dangers: tuple[Danger, ...]


@dataclass(frozen=True, slots=True)
class _Hop:
    """One copy of a segment goes from a host to another."""

    segment: str
    source: str
    destination: str


def find_exchange(stand: SegmentStates, wanted: Chains, context: SafetyContext) -> Exchange | None:
    """The smallest set of moves, out of those that lead to ``wanted``, that needs no server more than there are."""
    if not context.servers:
        return None
    held = Occupancy(stand)
    for hops in _closed_sets(stand, wanted, context, held):
        leads = {hop.segment: _lead(stand[hop.segment], wanted[hop.segment], hop) for hop in hops}
        if None in leads.values():
            continue
        handed = {key: _led_by(stand[key], lead) for key, lead in leads.items() if lead is not None}
        then = {**stand, **{key: replace(stand[key], chain=chain) for key, chain in handed.items()}}
        chains = {hop.segment: _moved(handed[hop.segment], hop) for hop in hops}
        found = dangers(then, chains, context) and exchange_dangers(then, chains, context, held)
        if all(danger.rule == "copies" for danger in found):
            return _primaries_first(stand, handed, context) or Exchange(chains, tuple(found))
    return None


def _closed_sets(
    stand: SegmentStates, wanted: Chains, context: SafetyContext, held: Occupancy
) -> Iterator[tuple[_Hop, ...]]:
    """Shortest first: moves that each go where the next leaves, the last where the first left, or to a free server."""
    leaving: dict[str, list[_Hop]] = {}
    for key in sorted(wanted):
        for hop in _hops(key, stand[key], wanted[key]):
            leaving.setdefault(hop.source, []).append(hop)
    free = {host: count - held.copies[host] for host, count in context.servers.items()}
    queue: deque[tuple[_Hop, ...]] = deque((hop,) for hops in leaving.values() for hop in hops)
    for _ in range(MOST_PATHS):
        if not queue:
            return
        path = queue.popleft()
        end = path[-1].destination
        if end == path[0].source or free.get(end, 0) > 0:
            yield path
            continue
        segments, sources = {hop.segment for hop in path}, {hop.source for hop in path}
        for hop in leaving.get(end, ()):
            # A circle is found from its first host by name alone.
            turns_back = hop.destination in sources and hop.destination != path[0].source
            if hop.segment not in segments and not turns_back:
                queue.append((*path, hop))


def _hops(key: str, before: SegmentState, chain: tuple[str, ...]) -> Iterator[_Hop]:
    if not before.chain:
        return
    coming = [host for host in chain if host not in before.held]
    for source in sorted(before.held.difference(chain)):
        for destination in coming:
            yield _Hop(key, source, destination)


def _lead(before: SegmentState, wanted: Sequence[str], hop: _Hop) -> str | None:
    """Who leads the segment while its copy moves: the present primary, or a complete copy, a wanted one if it can be.

    None where no complete copy would be left.
    """
    complete = [host for host in before.chain if host in before.complete and host != hop.source]
    if before.chain[0] in complete:
        return before.chain[0]
    as_wanted = [host for host in wanted if host in complete]
    return next(iter((*as_wanted, *complete)), None)


def _led_by(before: SegmentState, lead: str) -> tuple[str, ...]:
    return (lead, *(host for host in before.chain if host != lead))


def _moved(chain: tuple[str, ...], hop: _Hop) -> tuple[str, ...]:
    return (*(host for host in chain if host != hop.source), hop.destination)


def _primaries_first(stand: SegmentStates, handed: Chains, context: SafetyContext) -> Exchange | None:
    """Primaries that are to move are handed on before, as many at a time as may change; None where none is."""
    chains: dict[str, tuple[str, ...]] = {}
    for key, chain in handed.items():
        if chain != stand[key].chain and not dangers(stand, {**chains, key: chain}, context):
            chains[key] = chain
    return Exchange(chains, ()) if chains else None
