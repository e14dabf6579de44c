"""From a wanted placement to steps: pure, so that the dry run of a plan needs no server.

The log's vocabulary of steps, and which of them a change needs.

- ``open`` (one for the whole change): one new layout; writing goes on at the log's tail on the new chains, dead
  hosts leave every chain, roles change hands.
- ``copy`` (per segment and new replica): state transfer of what was written before.
- ``close`` (one): one new layout; the new replicas serve the old records too, leaving ones are dropped.
- ``complete`` (only as a repair): whatever was left half done, by a new epoch of the chains as they are then; and the
  addresses of hosts that came back somewhere else.

Every step is defined by its effect, so that one that was begun by a dead controller can be started again by its
successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from datastore_adapter.interface import (
    Observation,
    Placement,
    ReplicaState,
    SegmentObservation,
    ServiceRoles,
    Step,
    StepGraph,
)
from datastore_adapter.log.errors import LayoutError

OPEN: Final = "open"
COPY: Final = "copy"
CLOSE: Final = "close"
COMPLETE: Final = "complete"
KINDS: Final = (OPEN, COPY, CLOSE, COMPLETE)


def lower(current: Observation, target: Placement) -> StepGraph:
    """The steps from `current` to `target`; none when nothing is to be done.

    Raises LayoutError for a target that this log cannot reach.
    """
    observed = {segment.key: segment for segment in current.segments}
    _check(observed, target)
    retired = _retired(observed) if target.retired is None else target.retired
    wanted = {key: hosts for key, hosts in target.segments.items() if key in observed or key not in retired}
    target = replace(target, segments=wanted)  # what is retired and gone does not come back for it
    retired &= wanted.keys()
    changed = [key for key in sorted(wanted) if _needs_open(observed.get(key), wanted[key])]
    copies = [
        step
        for key in sorted(observed)
        for step in _copies(observed[key], target.segments[key], current.relieved)
    ]
    closing = [
        key
        for key in sorted(observed)
        if _needs_close(observed[key], target.segments[key])
        or any(copy[0] == key for copy in copies)
        or (key in retired and observed[key].trimmed)
    ]
    steps: list[Step] = []
    if (
        changed
        or retired != _retired(observed)
        or target.roles != current.roles
        or current.unfinished
        or current.unresponsive
    ):
        steps.append(_open(0, current, observed, target, changed, retired))
    first = frozenset(step.number for step in steps)
    for key, host, source in copies:
        steps.append(_copy(len(steps), observed[key], host, source, first))
    if closing:
        after = frozenset(step.number for step in steps)
        steps.append(_close(len(steps), observed, target, closing, after))
    return StepGraph(tuple(steps))


def roles_to_mapping(roles: ServiceRoles) -> dict[str, list[str]]:
    return {
        "layout_servers": list(roles.layout_servers),
        "sequencers": list(roles.sequencers),
        "log_units": list(roles.log_units),
    }


def _check(observed: Mapping[str, SegmentObservation], target: Placement) -> None:
    forgotten = sorted(set(observed).difference(target.segments))
    if forgotten:
        raise LayoutError(f"segment {forgotten[0]!r} has records: retire it, and say where they are to be")
    retired = target.retired or frozenset()
    if not retired <= set(target.segments) or (target.segments and retired == set(target.segments)):
        raise LayoutError("only segments that are placed can be retired, and one must take records")
    for key, hosts in target.segments.items():
        if not hosts or len(set(hosts)) != len(hosts):
            raise LayoutError(f"segment {key!r} needs one or more different hosts, not {list(hosts)}")
    if not target.roles.layout_servers or (target.segments and not target.roles.sequencers):
        raise LayoutError("a placement needs at least one layout server and one sequencer")


def _open_chain(segment: SegmentObservation) -> tuple[str, ...]:
    """Who is in the open extent's chain: everybody but those who only hold older records."""
    return tuple(
        replica.host
        for replica in sorted(segment.replicas, key=lambda replica: replica.position)
        if replica.state is not ReplicaState.STALE
    )


def _retired(observed: Mapping[str, SegmentObservation]) -> frozenset[str]:
    return frozenset(key for key, segment in observed.items() if segment.retired)


def _needs_open(segment: SegmentObservation | None, hosts: tuple[str, ...]) -> bool:
    if segment is None:
        return True
    gone = any(replica.state is ReplicaState.GONE for replica in segment.replicas)
    return gone or _open_chain(segment) != hosts


def _needs_close(segment: SegmentObservation, hosts: tuple[str, ...]) -> bool:
    return _needs_open(segment, hosts) or {replica.host for replica in segment.replicas} != set(hosts)


def _copies(
    segment: SegmentObservation, hosts: tuple[str, ...], relieved: frozenset[str]
) -> list[tuple[str, str, str]]:
    """(segment, new replica, source) for every host that lacks older records; of `relieved` hosts only if need be."""

    def hosts_in(state: ReplicaState) -> list[str]:
        return [replica.host for replica in segment.replicas if replica.state is state]

    complete = hosts_in(ReplicaState.IN_SYNC)
    # Where nobody has everything, whoever has a part is named; the copy itself finds out who has what.
    sources = complete or [*hosts_in(ReplicaState.STALE), *hosts_in(ReplicaState.SYNCING)]
    copies = []
    for index, host in enumerate(host for host in hosts if host not in complete):
        others = [source for source in sources if source != host]
        others = [source for source in others if source not in relieved] or others
        if others:
            copies.append((segment.key, host, others[index % len(others)]))
    return copies  # nothing for a host where nobody else alive has anything to copy from


def _has_forgotten(segment: SegmentObservation, hosts: tuple[str, ...]) -> bool:
    """Whether a wanted host is not in the open chain although the layout may name it: it lost its disk."""
    return any(replica.state is ReplicaState.STALE and replica.host in hosts for replica in segment.replicas)


def _is_repair(segment: SegmentObservation) -> bool:
    return any(replica.state is ReplicaState.GONE for replica in segment.replicas)


def _open(
    number: int,
    current: Observation,
    observed: Mapping[str, SegmentObservation],
    target: Placement,
    changed: list[str],
    retired: frozenset[str],
) -> Step:
    parts = []
    if changed:
        parts.append(f"other hosts for {', '.join(changed[:6])}{' …' if len(changed) > 6 else ''}")
    if retired != _retired(observed):
        parts.append(f"{len(target.segments) - len(retired)} segments that take records")
    if target.roles != current.roles:
        parts.append("roles")
    what = " and ".join(parts) or "finish what was left half done"
    arguments: dict[str, Any] = {
        "segments": {key: list(target.segments[key]) for key in sorted(target.segments)},
        "roles": roles_to_mapping(target.roles),
        # Segments that are new can be taken back only by retiring them.
        "previous": {
            key: list(_open_chain(observed[key]) if key in observed else target.segments[key])
            for key in sorted(target.segments if observed else ())
        },
        "previous_roles": roles_to_mapping(current.roles),
        "retired": sorted(retired),
        "previous_retired": sorted(_retired(observed).union(target.segments.keys() - observed)),
    }
    if current.unfinished or any(
        _has_forgotten(observed[key], target.segments[key]) for key in changed if key in observed
    ):
        arguments["force"] = (
            True  # the layout may look right already; a new data epoch is needed all the same
        )
    used = {host for hosts in target.segments.values() for host in hosts}
    if unreliable := sorted(current.relieved - used):
        arguments["unreliable"] = unreliable
    return Step(
        number=number,
        kind=OPEN,
        description=f"new layout after epoch {current.layout_epoch}: {what}",
        required=not observed or bool(current.unresponsive) or any(map(_is_repair, observed.values())),
        reversible=bool(observed),
        arguments=arguments,
    )


def _copy(number: int, segment: SegmentObservation, host: str, source: str, after: frozenset[int]) -> Step:
    return Step(
        number=number,
        kind=COPY,
        description=f"copy {segment.key} from {source} to {host}",
        after=after,
        segment=segment.key,
        source=source,
        destination=host,
        bytes=segment.bytes,
        required=_is_repair(segment),
    )


def _close(
    number: int,
    observed: Mapping[str, SegmentObservation],
    target: Placement,
    closing: list[str],
    after: frozenset[int],
) -> Step:
    leaving = sorted(
        {
            replica.host
            for key in closing
            for replica in observed[key].replicas
            if replica.host not in target.segments[key] and replica.state is not ReplicaState.GONE
        }
    )
    tail = f"; {', '.join(leaving)} may forget theirs" if leaving else ""
    return Step(
        number=number,
        kind=CLOSE,
        description=f"have the new copies of {len(closing)} segments serve the older records, too{tail}",
        after=after,
        required=any(_is_repair(observed[key]) for key in closing),
        reversible=False,
        arguments={"segments": {key: list(target.segments[key]) for key in closing}},
    )
