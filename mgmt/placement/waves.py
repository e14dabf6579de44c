"""In which waves to go from what stands to a wanted placement, so that every state on the way is safe.

A wave is a placement to be reached before the next begins.  The first takes lost hosts out of every chain at once,
whatever else it does, because the engine does not serve with them.  Repairs go before moves for balance, segments
with the fewest complete copies first; each wave takes what is safe together (``mgmt.placement.safety``).  A
change that is safe in no wave is left out, unless data is at risk without it, or it is merely larger than a wave may
be: then it makes a wave of its own, and the danger is shown.  Where servers for new copies are lacking, what is
required is carried out by exchanges (``mgmt.placement.exchanges``).

Pure and greedy.  Not here: what is wanted, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgmt.placement.exchanges import Exchange, find_exchange
from mgmt.placement.safety import Chains, Danger, Grounds, Held, Load, Standing, dangers, of_segment


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


def split(
    stand: Mapping[str, Standing], changes: Sequence[Change], grounds: Grounds, *, taken_out: bool = False
) -> Waves:
    """``stand``: every segment, lost hosts taken out of its chain already; ``taken_out``: there were some.

    A segment may have two changes, one that is required and then one that is not.
    """
    return _Splitting(stand, grounds).run(changes, taken_out)


class _Splitting:
    def __init__(self, stand: Mapping[str, Standing], grounds: Grounds) -> None:
        self._stand = dict(stand)
        self._grounds = grounds
        self._held = Held(stand)
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
        load = Load(self._stand, self._grounds, self._held)
        for position, change in enumerate(pending):
            if load.is_full:
                rest += pending[position:]
                break
            before = self._stand[change.segment]
            load.add(before, change.chain)
            touched = {*before.chain, *before.complete, *change.chain}
            if of_segment(change.segment, before, change.chain, self._grounds) or load.dangers(touched):
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
        return find_exchange(self._stand, wanted, self._grounds)

    def _carry_out_exchange(self, exchange: Exchange) -> None:
        self._dangers.append(exchange.dangers)
        self._exchanges.append(tuple(danger.subject for danger in exchange.dangers))
        self._stand_after(exchange.chains)

    def _dangers_of(self, change: Change) -> tuple[Danger, ...]:
        return tuple(dangers(self._stand, {change.segment: change.chain}, self._grounds))

    def _reach(self, chosen: Sequence[Change]) -> None:
        wave = {change.segment: change.chain for change in chosen}
        self._dangers.append(tuple(dangers(self._stand, wave, self._grounds)))
        self._exchanges.append(())
        self._stand_after(wave)

    def _stand_after(self, wave: Chains) -> None:
        for key, chain in wave.items():
            self._stand[key] = self._stand[key].then(chain, self._grounds.racks)
        self._held = Held(self._stand)
        self._waves.append(self._chains())

    def _chains(self) -> Chains:
        return {key: before.chain for key, before in self._stand.items()}
