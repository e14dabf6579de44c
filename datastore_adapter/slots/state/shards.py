"""Which shard is which: the keys of ours, matched to the primaries that hold slots now.

A primary's node id changes with each fail-over, and slots move; what stays is most of a shard's slots, and the record
of them that the epoch document keeps.  So a shard is whoever holds most of the slots recorded for its key.
Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datastore_adapter.slots.errors import SlotRangeError
from datastore_adapter.slots.state.cluster_state import ClusterState, Member
from datastore_adapter.slots.state.slot_ranges import Ranges, normalized, overlap


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard as it stands."""

    key: str
    primary: Member
    slots: Ranges
    replicas: tuple[Member, ...]
    """In the order that the plan agreed last wants them, then by host."""

    @property
    def members(self) -> tuple[Member, ...]:
        """The primary first."""
        return (self.primary, *self.replicas)

    def at(self, host: str) -> tuple[Member, ...]:
        """Its copies on a host; those that answer first."""
        found = [member for member in self.members if member.host == host]
        return tuple(sorted(found, key=lambda member: member.report is None))


@dataclass(frozen=True, slots=True)
class Record:
    """What the epoch document says of the shards."""

    keys: tuple[str, ...] = ()
    """Wanted ones."""
    slots: Mapping[str, Ranges] | None = None
    """Wanted for each key; None: nothing is recorded."""
    plan_slots: Mapping[str, Ranges] | None = None
    """Of the plan agreed last."""
    previous_slots: Mapping[str, Ranges] | None = None
    """What stood when that plan was made: the shards it gives up are told by these."""
    drains: frozenset[str] = frozenset()
    """Hosts that are being emptied."""
    chains: Mapping[str, tuple[str, ...]] | None = None
    """Hosts of each shard in the plan agreed last, the primary first."""


def record_of(intent: Mapping[str, Any]) -> Record:
    """From the epoch document's intent.  What cannot be read counts as not recorded: the control loop refuses it."""
    plan = intent.get("plan")
    plan = plan if isinstance(plan, Mapping) else {}
    previous = plan.get("previous")
    chains = plan.get("segments")
    return Record(
        tuple(str(key) for key in intent.get("segments") or ()),
        _ranges(intent.get("slots")),
        _ranges(plan.get("slots")),
        _ranges(previous.get("slots")) if isinstance(previous, Mapping) else None,
        frozenset(str(host) for host in intent.get("drains") or ()),
        {str(key): tuple(map(str, hosts)) for key, hosts in chains.items()}
        if isinstance(chains, Mapping)
        else None,
    )


def _ranges(value: object) -> Mapping[str, Ranges] | None:
    if not isinstance(value, Mapping):
        return None
    try:
        return {str(key): normalized(ranges) for key, ranges in value.items()}
    except (SlotRangeError, TypeError, ValueError, IndexError):
        return None


def identify(owners: Mapping[str, Ranges], record: Record) -> dict[str, str]:
    """Key of each shard -> node id of whoever holds slots for it now.

    Largest overlap first; what overlaps with nothing recorded gets a key of its own, in order of the lowest slot.
    """
    left = {node_id: ranges for node_id, ranges in owners.items() if ranges}
    # All that is recorded counts together: where shards are put together, the intent names all slots for one of them.
    recorded = [each for each in (record.slots, record.plan_slots, record.previous_slots) if each]
    keys = {key for each in recorded for key in each}
    scores = {
        (key, node_id): sum(overlap(ranges, each.get(key, ())) for each in recorded)
        for key in keys
        for node_id, ranges in left.items()
    }
    found: dict[str, str] = {}
    for (key, node_id), score in sorted(scores.items(), key=lambda item: (-item[1], item[0])):
        if score and key not in found and node_id in left:
            found[key] = node_id
            del left[node_id]
    names = _names({*found, *keys})
    for node_id in sorted(left, key=lambda node_id: left[node_id]):
        found[next(names)] = node_id
    return found


def _names(taken: Iterable[str]) -> Iterator[str]:
    used = set(taken)
    return (name for name in (f"s{number:02d}" for number in itertools.count()) if name not in used)


def shards_of(state: ClusterState, record: Record) -> dict[str, Shard]:
    """All shards, by key: those that hold slots, and those that a plan has begun or is about to leave out."""
    shards: dict[str, Shard] = {}
    for key, node_id in identify(state.owners, record).items():
        primary = state.members.get(node_id)
        if primary is not None:
            shards[key] = _shard(key, primary, state, record)
    used = {shard.primary.node_id for shard in shards.values()}
    for key, chain in (record.chains or {}).items():
        if key in shards or not chain:
            continue
        # It has no slots yet, or none any more: its primary is the one without slots where the plan wants it.
        empty = [
            member
            for member in state.at(chain[0])
            if member.record.is_primary and member.node_id not in used and member.node_id not in state.owners
        ]
        if empty:
            used.add(empty[0].node_id)
            shards[key] = _shard(key, empty[0], state, record)
    return dict(sorted(shards.items()))


def _shard(key: str, primary: Member, state: ClusterState, record: Record) -> Shard:
    wanted: Sequence[str] = (record.chains or {}).get(key, ())

    def rank(member: Member) -> tuple[int, str, str]:
        place = wanted.index(member.host) if member.host in wanted else len(wanted)
        return place, member.host, member.node_id

    replicas = tuple(sorted(state.replicas_of(primary.node_id), key=rank))
    return Shard(key, primary, state.owners.get(primary.node_id, ()), replicas)
