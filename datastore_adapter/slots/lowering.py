"""From a wanted placement of shards to steps: pure, so that the dry run of a plan needs no server.

- ``create``: a cluster where there is none.
- ``join`` (one for the whole change): servers that hold nothing become members, one for each copy that comes.
- ``replicate`` (per shard and new copy): a member follows the shard's primary until it has everything.  Where the host
  has no server to spare, that is the one whose copy leaves in the same change: an exchange.
- ``switch`` (per shard): another copy becomes the primary; before new copies are made where it has everything today.
- ``migrate`` (per pair of shards): slots change context, or are given to somebody for the first time.
- ``remove`` (per shard and leaving copy): its server leaves the cluster and is empty again.

As repairs also ``failover`` (a lost primary), ``finish-slot`` (a slot left half way) and ``release`` (a server of ours
that the others have forgotten).  A step is defined by its effect and names shards and hosts, never a process: whoever
starts it, later and from another host perhaps, finds out what of it is left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from datastore_adapter.interface import (
    Observation,
    Placement,
    Replica,
    ReplicaState,
    SegmentObservation,
    Step,
)
from datastore_adapter.slots.state.slot_ranges import (
    Ranges,
    common,
    count,
    evenly,
    normalized,
    text_of,
    without,
)

CREATE: Final = "create"
JOIN: Final = "join"
REPLICATE: Final = "replicate"
SWITCH: Final = "switch"
MIGRATE: Final = "migrate"
REMOVE: Final = "remove"
FAILOVER: Final = "failover"
FINISH: Final = "finish-slot"
RELEASE: Final = "release"
KINDS: Final = frozenset({CREATE, JOIN, REPLICATE, SWITCH, MIGRATE, REMOVE, FAILOVER, FINISH, RELEASE})

LIVE: Final = (ReplicaState.IN_SYNC, ReplicaState.SYNCING)


def lower(current: Observation, target: Placement, first: int = 0) -> tuple[Step, ...]:
    """The steps of the shards; numbers begin with ``first``.  Raises ValueError for a target that cannot be."""
    _check(target)
    steps = _Steps(first)
    observed = {segment.key: segment for segment in current.segments}
    if not observed and target.segments:
        steps.create(target)
        return tuple(steps.steps)
    change = _Change(current, observed, target)
    # First where the next primary has everything already: a Valkey server may be caught in a loop when a shard with a
    # third copy is handed over (docs/valkey-internals.md), and new copies are then made from the primary that stays.
    for key in change.ready_to_switch():
        steps.switch(observed[key], target)
    comings = change.comings()
    if comings:
        steps.join(comings)
    # A primary that makes room goes on leading until another one does.
    for coming in sorted(comings, key=lambda coming: coming.displaces_primary):
        if coming.displaces_primary:
            steps.switch(observed[coming.instead or ""], target)
        steps.replicate(coming, observed, target)
    for key in sorted(target.segments):
        if key in observed:
            steps.switch(observed[key], target)
    steps.migrate(observed, target)
    for key in sorted(observed):
        steps.remove(observed[key], change.leaving(observed[key]))
    return tuple(steps.steps)


@dataclass(frozen=True, slots=True)
class _Coming:
    """A new copy of a shard on a host."""

    segment: str
    host: str
    instead: str | None
    """The shard whose copy makes room there."""
    displaces_primary: bool = False
    is_there: bool = False
    """It has begun already, and is not complete."""


class _Change:
    """What differs between the copies that stand and those wanted."""

    def __init__(
        self, current: Observation, observed: Mapping[str, SegmentObservation], target: Placement
    ) -> None:
        self._observed = observed
        self._target = target
        self._free = Counter(current.servers)
        self._free.subtract(copy.host for copy in _copies(observed.values()) if copy.state in LIVE)

    def leaving(self, segment: SegmentObservation) -> list[Replica]:
        """Copies that are not wanted where they are, and those whose server is gone for good."""
        wanted = self._wanted(segment)
        if wanted is None:
            return []
        places = Counter(wanted)
        is_led = any(copy.position == 0 and copy.state in LIVE for copy in segment.replicas)
        found = []
        for copy in sorted(segment.replicas, key=lambda copy: (copy.state not in LIVE, copy.position)):
            places[copy.host] -= 1
            if copy.state is ReplicaState.STALE:
                # Its server may come back, unless another one on its host takes its place.
                leaves = is_led and (copy.host not in wanted or self._free[copy.host] > 0)
            else:
                leaves = places[copy.host] < 0
            if leaves:
                found.append(copy)
        return found

    def ready_to_switch(self) -> list[str]:
        """Shards whose next primary is a complete copy today."""
        wanted = {key: hosts[0] for key, hosts in self._target.segments.items() if key in self._observed}
        return [
            key
            for key, host in sorted(wanted.items())
            if any(
                copy.host == host and copy.position > 0 and copy.state is ReplicaState.IN_SYNC
                for copy in self._observed[key].replicas
            )
        ]

    def comings(self) -> list[_Coming]:
        """New copies, and those that are not complete yet."""
        leaving = {
            key: [copy for copy in self.leaving(segment) if copy.state in LIVE]
            for key, segment in self._observed.items()
        }
        free, found = Counter(self._free), []
        for key, hosts in sorted(self._target.segments.items()):
            standing = self._standing(key)
            for host in hosts:
                copy = standing.get(host)
                if copy is not None and copy.state is ReplicaState.SYNCING and copy.position > 0:
                    found.append(_Coming(key, host, None, is_there=True))
                if copy is not None and (copy.state is not ReplicaState.STALE or free[host] <= 0):
                    continue
                free[host] -= 1
                room = next((c for copies in leaving.values() for c in copies if c.host == host), None)
                if free[host] >= 0 or room is None:
                    found.append(_Coming(key, host, None))
                else:
                    leaving[room.segment].remove(room)
                    found.append(_Coming(key, host, room.segment, room.position == 0))
        return found

    def _standing(self, key: str) -> dict[str, Replica]:
        segment = self._observed.get(key)
        copies = () if segment is None else segment.replicas
        return {copy.host: copy for copy in sorted(copies, key=lambda copy: copy.state in LIVE)}

    def _wanted(self, segment: SegmentObservation) -> Sequence[str] | None:
        """None: the target says nothing of it."""
        if segment.key in self._target.segments:
            return self._target.segments[segment.key]
        return None if self._target.slots is None else ()


class _Steps:
    """Steps in order, each after those that it needs."""

    def __init__(self, first: int) -> None:
        self.steps: list[Step] = []
        self._first = first

    def create(self, target: Placement) -> None:
        slots = _shared_out(target)
        chains = {key: list(hosts) for key, hosts in sorted(target.segments.items())}
        self._add(
            CREATE,
            f"create a cluster of {len(chains)} shards",
            reversible=False,
            arguments={
                "chains": chains,
                "slots": {key: [list(pair) for pair in slots.get(key, ())] for key in chains},
                "hosts": sorted({host for hosts in chains.values() for host in hosts}),
            },
        )

    def join(self, comings: Sequence[_Coming]) -> None:
        pairs = [
            [coming.segment, coming.host]
            for coming in comings
            if coming.instead is None and not coming.is_there
        ]
        hosts = sorted({host for _, host in pairs})
        if pairs:
            self._add(
                JOIN,
                f"have servers of {', '.join(hosts)} join the cluster",
                after=[step.number for step in self.steps],  # no connection is made anew during an election
                reversible=False,
                arguments={"copies": pairs, "hosts": hosts},
            )

    def replicate(
        self, coming: _Coming, observed: Mapping[str, SegmentObservation], target: Placement
    ) -> None:
        segment = observed.get(coming.segment, SegmentObservation(coming.segment, ()))
        chain = list(target.segments[coming.segment])
        switch = self._switch_of(coming.segment)
        source = next((copy.host for copy in segment.replicas if copy.position == 0), chain[0])
        if switch is not None:
            source = switch.arguments["primary"]
        if source == coming.host:
            return  # a new shard's primary: it joins, and that is all
        made_room = "" if coming.instead is None else f", in place of its copy of {coming.instead}"
        joins = [step.number for step in self.steps if step.kind == JOIN]
        handed_on = [step.number for step in (switch, self._switch_of(coming.instead)) if step is not None]
        self._add(
            REPLICATE,
            f"copy {coming.segment} from {source} to {coming.host}{made_room}",
            after=[*joins, *handed_on],
            segment=coming.segment,
            source=source,
            destination=coming.host,
            bytes=segment.bytes,
            arguments={"chain": chain, "instead": coming.instead, "hosts": [coming.host]},
        )

    def switch(self, segment: SegmentObservation, target: Placement) -> None:
        wanted = target.segments.get(segment.key, ())[:1]
        standing = [copy.host for copy in segment.replicas if copy.position == 0]
        if not wanted or not standing or list(wanted) == standing or self._switch_of(segment.key) is not None:
            return
        needs = [s.number for s in self.steps if s.kind == REPLICATE and s.segment == segment.key]
        self._add(
            SWITCH,
            f"{wanted[0]} becomes the primary of {segment.key}, which {standing[0]} was",
            after=needs,
            segment=segment.key,
            arguments={"primary": wanted[0], "previous": standing[0], "hosts": [wanted[0]]},
        )

    def _switch_of(self, key: str | None) -> Step | None:
        return next((step for step in self.steps if step.kind == SWITCH and step.segment == key), None)

    def migrate(self, observed: Mapping[str, SegmentObservation], target: Placement) -> None:
        before = [step.number for step in self.steps]
        for key, ranges in sorted((target.slots or {}).items()):
            held = observed[key].slots if key in observed else ()
            lacking = without(normalized(ranges), held)
            for source in sorted(observed.keys() - {key}):
                moved = common(lacking, observed[source].slots)
                if moved:
                    self._migrate(observed[source], key, moved, target, before)
                    lacking = without(lacking, moved)
            if lacking:
                self._migrate(None, key, lacking, target, before)

    def _migrate(
        self,
        source: SegmentObservation | None,
        key: str,
        ranges: Ranges,
        target: Placement,
        before: Sequence[int],
    ) -> None:
        name = None if source is None else source.key
        destination = target.segments.get(key, ("",))[0]
        leads = (target.segments.get(source.key) or _hosts(source))[0] if source is not None else None
        number = count(ranges)
        size = 0 if source is None else source.bytes * number // max(1, count(source.slots))
        verb = "give" if source is None else f"move from {name}"
        self._add(
            MIGRATE,
            f"{verb} to {key} {number} slots ({text_of(ranges[:4])}{' …' if len(ranges) > 4 else ''})",
            after=before,
            segment=f"{name}>{key}" if source is not None else key,
            source=leads,
            destination=destination,
            bytes=size,
            arguments={
                "from": name,
                "to": key,
                "ranges": [list(pair) for pair in ranges],
                "chain": list(target.segments.get(key, ())),
                "hosts": [host for host in (destination, leads) if host],
            },
        )

    def remove(self, segment: SegmentObservation, leaving: Iterable[Replica]) -> None:
        # The primary last: its replicas would be without one.
        for copy in sorted(leaving, key=lambda copy: (copy.position == 0, copy.host)):
            reused = any(
                step.kind == REPLICATE
                and step.arguments["instead"] == segment.key
                and step.destination == copy.host
                for step in self.steps
            )
            if reused:
                continue
            own = [
                step.number
                for step in self.steps
                if step.kind == MIGRATE
                or (step.segment == segment.key and step.kind in {REPLICATE, SWITCH, REMOVE})
            ]
            dead = copy.state not in LIVE
            twice = sum(other.host == copy.host for other in segment.replicas) > 1
            self._add(
                REMOVE,
                f"{copy.host} leaves {segment.key}" + (", as it does not answer" if dead else ""),
                after=own,
                segment=segment.key,
                required=dead,
                reversible=False,
                arguments={
                    "host": copy.host,
                    "only": "dead" if dead else "second" if twice else "",
                    "hosts": [],
                },
            )

    def _add(self, kind: str, description: str, after: Iterable[int] = (), **fields: Any) -> None:
        number = self._first + len(self.steps)
        self.steps.append(Step(number, kind, description, frozenset(after), **fields))


def failover_step(number: int, segment: SegmentObservation, why: str) -> Step:
    """The shard's primary is lost."""
    return Step(
        number,
        FAILOVER,
        f"fail {segment.key} over: {why}",
        segment=segment.key,
        reversible=False,
        arguments={"lost": _hosts(segment)[0], "hosts": []},
    )


def finish_step(number: int, key: str, ranges: Ranges) -> Step:
    """Slots of the shard were left half way."""
    return Step(
        number,
        FINISH,
        f"finish slots {text_of(ranges[:4])}{' …' if len(ranges) > 4 else ''} of {key}, which were left half way",
        segment=key,
        reversible=False,
        arguments={"slots": [list(pair) for pair in ranges], "hosts": []},
    )


def release_step(number: int, host: str, address: str) -> Step:
    """A server of ours that the others have forgotten is of use again."""
    return Step(
        number,
        RELEASE,
        f"empty {address} on {host}, which the cluster has done without",
        segment=f"{host} {address}",
        reversible=False,
        arguments={"address": address, "hosts": [host]},
    )


def inverse(step: Step) -> Step | None:
    """The way back from a switch; what else a step does is either undone by the next plan or cannot be."""
    if step.kind != SWITCH:
        return None
    primary, previous = step.arguments["primary"], step.arguments["previous"]
    return Step(
        step.number,
        SWITCH,
        f"back: {previous} becomes the primary of {step.segment} again",
        segment=step.segment,
        arguments={"primary": previous, "previous": primary, "hosts": [previous]},
    )


def _shared_out(target: Placement) -> Mapping[str, Ranges]:
    """The slots of a new cluster: as wanted, or as evenly as can be."""
    if target.slots is not None and any(target.slots.values()):
        return target.slots
    return {
        key: (pair,) for key, pair in zip(sorted(target.segments), evenly(len(target.segments)), strict=True)
    }


def _check(target: Placement) -> None:
    for key, hosts in target.segments.items():
        if not hosts or not all(hosts):
            raise ValueError(f"shard {key!r} needs one or more hosts, not {list(hosts)}")
    if target.slots is None:
        return
    normalized(pair for ranges in target.slots.values() for pair in ranges)  # none of them twice
    for key in sorted(target.slots):
        if target.slots[key] and key not in target.segments:
            raise ValueError(f"shard {key!r} is to hold slots, and is placed nowhere")


def _copies(segments: Iterable[SegmentObservation]) -> list[Replica]:
    return [copy for segment in segments for copy in segment.replicas]


def _hosts(segment: SegmentObservation) -> list[str]:
    return [copy.host for copy in sorted(segment.replicas, key=lambda copy: copy.position)]
