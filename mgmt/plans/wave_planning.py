"""Wave planning: in which waves to go from what stands to a wanted placement, so that every state on the way is safe.

A wave is a placement to be reached before the next begins.  The first takes lost hosts out of every chain at once,
whatever else it does, because the engine does not serve with them; and those whose disks are in trouble.  Repairs go
before moves for balance, segments with the fewest complete copies first; each wave takes what is safe together
(``safety``).  A change that is safe in no wave is left out, unless data is at risk without it, or it is merely larger
than a wave may be: then it makes a wave of its own, and the danger is shown.  Where servers for new copies are lacking,
what is required is carried out by exchanges (``cyclic_exchanges``).

Pure and greedy.  :func:`plan_waves` speaks of plans, :func:`split_into_waves` only of chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datastore_adapter.interface import Observation, Placement, ReplicaState, SegmentObservation
from mgmt.placement.fallback_placement import serving_chain, serving_hosts
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent
from mgmt.placement.placement_rows import standing_chain
from mgmt.plans.cyclic_exchanges import Exchange, find_exchange
from mgmt.plans.moves import Move, PrimaryChange
from mgmt.plans.safety import (
    Chains,
    Danger,
    Occupancy,
    SafetyContext,
    SegmentState,
    WaveLimits,
    WaveLoad,
    dangers,
    of_segment,
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Moves of one segment, and what would be broken by them."""

    moves: tuple[Move, ...]
    dangers: tuple[Danger, ...]


@dataclass(frozen=True, slots=True)
class WavePlan:
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


def plan_waves(
    view: HostView,
    observation: Observation,
    intent: Intent,
    target: Placement,
    moves: Sequence[Move],
    primaries: Sequence[PrimaryChange],
    limits: WaveLimits,
    frozen: frozenset[str] = frozenset(),
    left_alone: frozenset[str] = frozenset(),
) -> WavePlan:
    """In which waves to go to ``target``, lost hosts first, but not out of the segments that are ``left_alone``."""
    observed = {segment.key: segment for segment in observation.segments}
    serving = serving_hosts(view, observation)
    stand = {
        key: _standing(
            observed.get(key) or SegmentObservation(key, ()), chain, view, serving, as_it_is=key in left_alone
        )
        for key, chain in target.segments.items()
    }
    changes = _changes(stand, target.segments, moves, primaries, view)
    hosts = view.by_name
    context = SafetyContext(
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
    lost = any(_is_lost(segment, view, serving) for segment in observation.segments)
    found = split_into_waves(stand, changes, context, taken_out=lost)
    left = {(change.segment, change.required): dangers for change, dangers in found.left_out}
    last = len(found.waves) - 1
    return WavePlan(
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
    segment: SegmentObservation,
    wanted: tuple[str, ...],
    view: HostView,
    serving: HostView,
    *,
    as_it_is: bool = False,
) -> SegmentState:
    """What a wave begins with; where nobody is left in a chain, the first one goes straight to what is wanted."""
    held = frozenset(copy.host for copy in segment.replicas if copy.host in view.names)
    complete = frozenset(
        copy.host for copy in segment.replicas if copy.host in held and copy.state is ReplicaState.IN_SYNC
    )
    if as_it_is or not _is_lost(segment, view, serving):
        chain = standing_chain(segment)
    else:
        chain = serving_chain(segment, view, serving) or tuple(wanted)
    return SegmentState(chain, complete, held, segment.bytes)


def _is_lost(segment: SegmentObservation, view: HostView, serving: HostView) -> bool:
    """Whether a host is to leave its chain, whatever else is done."""
    chain = standing_chain(segment)
    gone = any(copy.host not in view.names for copy in segment.replicas)
    return gone or any(host not in serving.names for host in chain)


def _changes(
    stand: Mapping[str, SegmentState],
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


def _loads(stand: Mapping[str, SegmentState], waves: Sequence[Chains]) -> tuple[Mapping[str, int], ...]:
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


@dataclass(frozen=True, slots=True)
class Change:
    """One segment's way to another chain, as a whole."""

    segment: str
    chain: tuple[str, ...]
    required: bool
    at_risk: bool = False
    """Whether data is at risk while it is not done: a copy is missing or lost."""


@dataclass(frozen=True, slots=True)
class Waves:
    waves: tuple[Chains, ...]
    """All chains after each wave; at least one."""
    required: int
    """How many of them are needed for what is required; the others are for balance."""
    dangers: tuple[tuple[Danger, ...], ...]
    """Of each wave, which was made all the same."""
    left_out: tuple[tuple[Change, tuple[Danger, ...]], ...]
    """What would be safe in no wave, and why."""
    exchanges: tuple[tuple[str, ...], ...] = ()
    """Of each wave the segments that have a complete copy fewer while copies change places."""


def split_into_waves(
    stand: Mapping[str, SegmentState],
    changes: Sequence[Change],
    context: SafetyContext,
    *,
    taken_out: bool = False,
) -> Waves:
    """``stand``: every segment, lost hosts taken out of its chain already; ``taken_out``: there were some.

    A segment may have two changes, one that is required and then one that is not.
    """
    return _WaveSplitter(stand, context).run(changes, taken_out)


class _WaveSplitter:
    def __init__(self, stand: Mapping[str, SegmentState], context: SafetyContext) -> None:
        self._stand = dict(stand)
        self._context = context
        self._held = Occupancy(stand)
        self._waves: list[Chains] = []
        self._dangers: list[tuple[Danger, ...]] = []
        self._exchanges: list[tuple[str, ...]] = []
        self._left_out: list[tuple[Change, tuple[Danger, ...]]] = []

    def run(self, changes: Sequence[Change], taken_out: bool) -> Waves:
        required = [change for change in changes if change.required]
        required.sort(key=lambda change: (not change.at_risk, len(self._stand[change.segment].complete)))
        self._carry_out(required)
        if taken_out and not self._waves:
            self._reach(())
        count = len(self._waves)
        stuck = {change.segment for change, _ in self._left_out}
        self._carry_out([c for c in changes if not c.required and c.segment not in stuck])
        if not self._waves:
            self._reach(())
        return Waves(
            tuple(self._waves), count, tuple(self._dangers), tuple(self._left_out), tuple(self._exchanges)
        )

    def _carry_out(self, pending: Sequence[Change]) -> None:
        while pending:
            chosen, pending = self._choose(pending)
            if not chosen:
                exchange = self._exchange(pending)
                if exchange is not None:
                    self._carry_out_exchange(exchange)
                    pending = [c for c in pending if self._stand[c.segment].chain != c.chain]
                    continue
                alone = next((change for change in pending if self._is_done_alone(change)), None)
                if alone is None:
                    self._left_out += [(change, self._dangers_of(change)) for change in pending]
                    return
                chosen, pending = [alone], [change for change in pending if change is not alone]
            self._reach(chosen)

    def _choose(self, pending: Sequence[Change]) -> tuple[list[Change], list[Change]]:
        """What can be done together now, and the rest."""
        chosen: list[Change] = []
        rest: list[Change] = []
        load = WaveLoad(self._stand, self._context, self._held)
        for position, change in enumerate(pending):
            if load.is_full:
                rest += pending[position:]
                break
            before = self._stand[change.segment]
            load.add(before, change.chain)
            touched = {*before.chain, *before.complete, *change.chain}
            if of_segment(change.segment, before, change.chain, self._context) or load.dangers(touched):
                load.remove(before, change.chain)
                rest.append(change)
            else:
                chosen.append(change)
        return chosen, rest

    def _is_done_alone(self, change: Change) -> bool:
        """Whether data is at risk without it, or it only moves more than a wave may; it cannot be made in parts."""
        rules = {danger.rule for danger in self._dangers_of(change)}
        return rules <= {"moves"} or (change.at_risk and "servers" not in rules)

    def _exchange(self, pending: Sequence[Change]) -> Exchange | None:
        wanted: dict[str, tuple[str, ...]] = {}
        for change in pending:
            if change.required and not self._stand[change.segment].is_new:
                wanted.setdefault(change.segment, change.chain)
        return find_exchange(self._stand, wanted, self._context)

    def _carry_out_exchange(self, exchange: Exchange) -> None:
        self._dangers.append(exchange.dangers)
        self._exchanges.append(tuple(danger.subject for danger in exchange.dangers))
        self._stand_after(exchange.chains)

    def _dangers_of(self, change: Change) -> tuple[Danger, ...]:
        return tuple(dangers(self._stand, {change.segment: change.chain}, self._context))

    def _reach(self, chosen: Sequence[Change]) -> None:
        wave = {change.segment: change.chain for change in chosen}
        self._dangers.append(tuple(dangers(self._stand, wave, self._context)))
        self._exchanges.append(())
        self._stand_after(wave)

    def _stand_after(self, wave: Chains) -> None:
        for key, chain in wave.items():
            self._stand[key] = self._stand[key].then(chain, self._context.racks)
        self._held = Occupancy(self._stand)
        self._waves.append(self._chains())

    def _chains(self) -> Chains:
        return {key: before.chain for key, before in self._stand.items()}
