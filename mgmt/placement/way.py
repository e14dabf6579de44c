"""A plan's waves: moves put into the terms of ``mgmt.placement.waves``, and what comes of it back into placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datastore_adapter.interface import Observation, Placement, ReplicaState, SegmentObservation
from mgmt.placement.availability import available_chain
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent
from mgmt.placement.moves import Move, PrimaryChange, standing_chain
from mgmt.placement.safety import Chains, Danger, Grounds, Standing, WaveLimits
from mgmt.placement.waves import Change, split


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Moves of one segment, and what would be broken by them."""

    moves: tuple[Move, ...]
    dangers: tuple[Danger, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """Placements to be reached one after the other."""

    waves: tuple[Placement, ...]
    required: int
    loads: tuple[Mapping[str, int], ...]
    dangers: tuple[Danger, ...]
    left_out: tuple[LeftOut, ...]
    exchanges: tuple[tuple[str, ...], ...]
    """Of each wave the segments that have a complete copy fewer while copies change places."""

    @property
    def left_moves(self) -> frozenset[Move]:
        return frozenset(move for left in self.left_out for move in left.moves)


def find_way(
    view: HostView,
    observation: Observation,
    intent: Intent,
    target: Placement,
    moves: Sequence[Move],
    primaries: Sequence[PrimaryChange],
    limits: WaveLimits,
    frozen: frozenset[str] = frozenset(),
    left_alone: frozenset[str] = frozenset(),
) -> Way:
    """In which waves to go to ``target``, lost hosts first, but not out of the segments that are ``left_alone``."""
    observed = {segment.key: segment for segment in observation.segments}
    stand = {
        key: _standing(
            observed.get(key) or SegmentObservation(key, ()), chain, view, as_it_is=key in left_alone
        )
        for key, chain in target.segments.items()
    }
    changes = _changes(stand, target.segments, moves, primaries, view)
    hosts = view.by_name
    grounds = Grounds(
        racks={name: host.failure_domain for name, host in hosts.items()},
        capacity={name: host.capacity_bytes for name, host in hosts.items()},
        wanted=intent.replication_factor,
        servers=observation.servers,
        wanted_racks={
            key: len({hosts[host].failure_domain for host in chain if host in hosts})
            for key, chain in target.segments.items()
        },
        frozen=frozen,
        leaving=frozenset(intent.drains),
        limits=limits,
    )
    lost = any(copy.host not in view.names for segment in observation.segments for copy in segment.replicas)
    found = split(stand, changes, grounds, taken_out=lost)
    left = {(change.segment, change.required): dangers for change, dangers in found.left_out}
    last = len(found.waves) - 1
    return Way(
        waves=tuple(
            _placement(chains, target, with_slots=number == last) for number, chains in enumerate(found.waves)
        ),
        required=found.required,
        loads=_loads(stand, found.waves),
        dangers=tuple(danger for wave in found.dangers for danger in wave),
        left_out=tuple(
            LeftOut(_moves_left(moves, segment, required), dangers)
            for (segment, required), dangers in left.items()
        ),
        exchanges=found.exchanges,
    )


def _moves_left(moves: Sequence[Move], segment: str, required: bool) -> tuple[Move, ...]:
    """With what is required, what was to follow is left out too."""
    return tuple(m for m in moves if m.segment == segment and (required or not m.required))


def _standing(
    segment: SegmentObservation, wanted: tuple[str, ...], view: HostView, *, as_it_is: bool = False
) -> Standing:
    """What a wave begins with; where nobody is left in a chain, the first one goes straight to what is wanted."""
    lost = not as_it_is and any(copy.host not in view.names for copy in segment.replicas)
    held = frozenset(copy.host for copy in segment.replicas if copy.host in view.names)
    complete = frozenset(
        copy.host for copy in segment.replicas if copy.host in held and copy.state is ReplicaState.IN_SYNC
    )
    chain = (available_chain(segment, view) or tuple(wanted)) if lost else standing_chain(segment)
    return Standing(chain, complete, held, segment.bytes)


def _changes(
    stand: Mapping[str, Standing],
    wanted: Chains,
    moves: Sequence[Move],
    primaries: Sequence[PrimaryChange],
    view: HostView,
) -> list[Change]:
    """Segments with anything required change first; others, and moves for balance within a rack, wait."""
    urgent = {move.segment for move in moves if move.required}
    urgent |= {change.segment for change in primaries if change.required}
    at_risk = {
        m.segment for m in moves if m.required and m.destination is not None and m.source not in view.names
    }
    # Within a rack a copy may stay where it is for now without any rule being the worse for it.
    waiting = {
        (move.segment, move.destination): move.source
        for move in moves
        if not move.required and move.source is not None and move.source_rack == move.destination_rack
    }
    changes: list[Change] = []
    for key, final in wanted.items():
        chain = stand[key].chain
        if key in urgent:
            first = tuple(waiting.get((key, host)) or host for host in final)
            if first != chain:
                changes.append(Change(key, first, True, key in at_risk))
            chain = first
        if final != chain:
            changes.append(Change(key, tuple(final), False))
    return changes


def _placement(chains: Chains, target: Placement, *, with_slots: bool) -> Placement:
    """Slots move last, when there is somebody to receive them."""
    slots = target.slots if with_slots else None
    if slots is not None and any(ranges and not chains.get(key) for key, ranges in slots.items()):
        slots = None
    named = {host for chain in chains.values() for host in chain}
    log_units = target.roles.log_units
    missing = sorted(named - set(log_units))
    roles = replace(target.roles, log_units=(*log_units, *missing)) if missing else target.roles
    return replace(target, segments=chains, roles=roles, slots=slots)


def _loads(stand: Mapping[str, Standing], waves: Sequence[Chains]) -> tuple[Mapping[str, int], ...]:
    """Bytes that each host receives in each wave."""
    held = {key: before.complete for key, before in stand.items()}
    loads: list[Mapping[str, int]] = []
    for chains in waves:
        load: Counter[str] = Counter()
        for key, chain in chains.items():
            if stand[key].is_new or (chain == stand[key].chain and held[key] >= set(chain)):
                continue
            for host in chain:
                if host not in held[key]:
                    load[host] += stand[key].bytes
            held[key] = frozenset(chain)
        loads.append(dict(load))
    return tuple(loads)
