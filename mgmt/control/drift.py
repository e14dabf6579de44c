"""Drift: whether the engine changed although nobody changed it, told by comparing one observation with the next.

Between two looks in one view, with no step of ours in between, chains, roles and complete copies stay what they are.
If they do not, something else has a hand in it (another program, the engine's own fail-over, damage on a disk), and
that is told whether or not it breaks a rule.  What comes with a view change is no drift, nor is a copy that becomes
complete, nor one of slots that is behind or does not answer.

It only tells: what is to be done about it the next solve says, as for any other state.
"""

from __future__ import annotations

from datastore_adapter.interface import Observation, ReplicaState, SegmentObservation, ServiceRoles
from mgmt.control.events import ControlEvents
from mgmt.placement.hash_slot_assignment import number_of, slot_moves

MOST_TOLD = 100
"""Changes listed in one event."""


class DriftWatch:
    """Of one controller.  :meth:`look` at every observation, :meth:`acted` before every change of ours."""

    def __init__(self, events: ControlEvents) -> None:
        self._events = events
        self._last: tuple[int, Observation] | None = None

    def acted(self) -> None:
        """Whatever the next look finds is ours, or is not to be told from it."""
        self._last = None

    def look(self, view_epoch: int, observation: Observation) -> bool:
        """Compare with the look before, and tell; whether something changed by itself."""
        last, self._last = self._last, (view_epoch, observation)
        if last is None or last[0] != view_epoch:
            return False
        changes = differences(last[1], observation)
        if changes:
            more = f"; and {len(changes) - 3} more" if len(changes) > 3 else ""
            self._events.add(
                "drift",
                f"the engine changed by itself, by no plan of this controller: {'; '.join(changes[:3])}{more}",
                changes=changes[:MOST_TOLD],
                layout_epoch=observation.layout_epoch,
            )
        return bool(changes)


def differences(before: Observation, after: Observation) -> list[str]:
    """What of the placement is not as it was, in words."""
    old = {segment.key: segment for segment in before.segments}
    new = {segment.key: segment for segment in after.segments}
    found = [f"{key} is no longer there" for key in old if key not in new]
    found += [f"{key} is new" for key in new if key not in old]
    found += [
        f"{key}: {_told(old[key])} -> {_told(new[key])}{_primaries_told(old[key], new[key])}"
        for key in old.keys() & new.keys()
        if _has_changed(old[key], new[key])
    ]
    return [
        *sorted(found),
        *_slot_differences(before, after),
        *_role_differences(before.roles, after.roles),
    ]


def _primaries_told(before: SegmentObservation, after: SegmentObservation) -> str:
    old, new = (next(iter(_states(segment)), None) for segment in (before, after))
    return "" if old == new else f" (primary {old or 'nobody'} -> {new or 'nobody'})"


def _slot_differences(before: Observation, after: Observation) -> list[str]:
    old, new = ({segment.key: segment.slots for segment in look.segments} for look in (before, after))
    moves = slot_moves(old, new, {})
    lost = sum(map(number_of, old.values())) + sum(m.slots for m in moves if m.source is None)
    lost -= sum(map(number_of, new.values()))
    told = [f"{move.slots} slots: {move.source or 'nowhere'} -> {move.destination}" for move in moves]
    return [*told, f"{lost} slots are nowhere"] if lost > 0 else told


def _has_changed(before: SegmentObservation, after: SegmentObservation) -> bool:
    old, new = _states(before), _states(after)
    complete = [host for host, state in old.items() if state is ReplicaState.IN_SYNC]
    # A replica of slots follows its primary by itself, a little behind, and a server that has ended is started again:
    # what its copy lacks for a moment is nobody's doing.  Elsewhere a copy that was complete stays it.
    lost = not after.slots and any(new.get(host) is not ReplicaState.IN_SYNC for host in complete)
    return lost or list(old) != list(new)


def _states(segment: SegmentObservation) -> dict[str, ReplicaState]:
    """Of the copies in the view, in the order of the chain."""
    copies = sorted(segment.replicas, key=lambda copy: copy.position)
    return {copy.host: copy.state for copy in copies if copy.state is not ReplicaState.GONE}


def _told(segment: SegmentObservation) -> str:
    states = _states(segment)
    return (
        ", ".join(
            host if state is ReplicaState.IN_SYNC else f"{host} ({state})" for host, state in states.items()
        )
        or "nobody"
    )


def _role_differences(before: ServiceRoles, after: ServiceRoles) -> list[str]:
    pairs = (
        ("layout servers", sorted(before.layout_servers), sorted(after.layout_servers)),
        ("sequencer", list(before.sequencers[:1]), list(after.sequencers[:1])),
    )
    return [
        f"{role}: {', '.join(old) or 'none'} -> {', '.join(new) or 'none'}"
        for role, old, new in pairs
        if old != new
    ]
