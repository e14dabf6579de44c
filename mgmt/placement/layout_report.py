"""The layout as people and programs read it: segments, replicas by rack, roles, and the rules checked.

A read model: computed from an observation and the view, never a source of decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from datastore_adapter.interface import Away, Observation, Placement, Replica, ReplicaState, Unreachable
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """Segments that break a rule, counted."""

    rack_violations: int
    """Segments of which a rack has more copies than its even share: two where there are as many racks as copies."""
    under_replicated: int
    """Segments of whose data some has fewer live copies than wanted."""

    def to_json(self) -> dict[str, int]:
        return {"rack_violations": self.rack_violations, "under_replicated": self.under_replicated}


@dataclass(frozen=True, slots=True)
class Troubled:
    """A segment that breaks a rule."""

    segment: str
    copies: int
    """Live ones in sync, of ``wanted``."""
    wanted: int
    hosts: tuple[str, ...]
    """Of those copies."""
    crowded: tuple[str, ...]
    """Racks with more of them than their even share."""

    def to_json(self) -> dict[str, Any]:
        return {
            "segment": self.segment,
            "copies": self.copies,
            "wanted": self.wanted,
            "hosts": list(self.hosts),
            "crowded": list(self.crowded),
        }


def counted(troubled: Sequence[Troubled]) -> RuleCheck:
    """How many of these break each rule."""
    return RuleCheck(
        sum(bool(each.crowded) for each in troubled), sum(each.copies < each.wanted for each in troubled)
    )


def worst(checks: Sequence[RuleCheck]) -> RuleCheck:
    """The most segments that break each rule in any of them."""
    return RuleCheck(
        max((check.rack_violations for check in checks), default=0),
        max((check.under_replicated for check in checks), default=0),
    )


def racks_of(hosts: Mapping[str, Host]) -> dict[str, str]:
    return {name: host.failure_domain for name, host in hosts.items()}


def check_observation(view: HostView, observation: Observation, intent: Intent | None) -> RuleCheck:
    """The rules as they hold now: only live copies count, and for racks those that are in sync."""
    return counted(troubled_segments(view, observation, intent))


def troubled_segments(view: HostView, observation: Observation, intent: Intent | None) -> list[Troubled]:
    """The same, by segment."""
    names = view.names
    chains = {
        segment.key: [
            copy.host
            for copy in segment.replicas
            if copy.host in names and copy.state is ReplicaState.IN_SYNC
        ]
        for segment in observation.segments
    }
    wanted = {key: _wanted(intent) for key in chains}
    if intent is not None:
        wanted |= dict.fromkeys(intent.segments, intent.replication_factor)
    copies = {s.key: s.fewest_copies for s in observation.segments if s.fewest_copies is not None}
    return _troubled(chains, wanted, racks_of(view.by_name), copies)


def check_placement(view: HostView, placement: Placement, intent: Intent) -> RuleCheck:
    """The rules as they would hold once ``placement`` stands."""
    names = view.names
    chains = {key: [host for host in hosts if host in names] for key, hosts in placement.segments.items()}
    wanted = dict.fromkeys([*intent.segments, *chains], intent.replication_factor)
    return counted(_troubled(chains, wanted, racks_of(view.by_name), {}))


def _wanted(intent: Intent | None) -> int:
    return 1 if intent is None else intent.replication_factor


def _troubled(
    chains: Mapping[str, Sequence[str]],
    wanted: Mapping[str, int],
    racks: Mapping[str, str],
    copies: Mapping[str, int],
) -> list[Troubled]:
    """``copies``: by segment where they are not as many as the chain is long."""
    number = max(1, len(set(racks.values())))
    found = []
    for key, count in sorted(wanted.items()):
        hosts = chains.get(key, ())
        share = max(1, ceil(count / number))
        crowded = [rack for rack, some in Counter(racks[host] for host in hosts).items() if some > share]
        there = copies.get(key, len(hosts))
        if there < count or crowded:
            found.append(Troubled(key, there, count, tuple(hosts), tuple(sorted(crowded))))
    return found


def shards_to_json(observation: Observation) -> list[dict[str, Any]]:
    """Segments that hold slots, in numbers; none where the engine has no slots."""
    return [
        {
            "key": segment.key,
            "primary": next((copy.host for copy in segment.replicas if copy.position == 0), None),
            "slots": sum(last - first + 1 for first, last in segment.slots),
            "bytes": segment.bytes,
            "load": segment.load,
            "in_sync": sum(copy.state is ReplicaState.IN_SYNC for copy in segment.replicas),
        }
        for segment in observation.segments
        if segment.slots
    ]


def layout_report(view: HostView, observation: Observation, intent: Intent | None) -> dict[str, Any]:
    """``rota layout show --json``."""
    racks = racks_of(view.by_name)
    roles = observation.roles
    return {
        "layout_epoch": observation.layout_epoch,
        "cluster_id": observation.cluster_id,
        "replication_factor": None if intent is None else intent.replication_factor,
        "segments": [
            {
                "key": segment.key,
                "bytes": segment.bytes,
                "retired": segment.retired,
                "away": [away_to_json(away) for away in segment.away],
                "slots": [list(pair) for pair in segment.slots],
                "load": segment.load,
                "replicas": [
                    _replica(copy, racks) for copy in sorted(segment.replicas, key=lambda c: c.position)
                ],
            }
            for segment in sorted(observation.segments, key=lambda segment: segment.key)
        ],
        "roles": {
            "layout_servers": list(roles.layout_servers),
            "sequencers": list(roles.sequencers),
            "log_units": list(roles.log_units),
        },
        "drained": [] if intent is None else list(intent.drains),
        "unresponsive": sorted(observation.unresponsive),
        "servers": dict(sorted(observation.servers.items())),
        "notices": list(observation.notices),
        "known_only": False,
        "layout_servers_lost": [],
        **check_observation(view, observation, intent).to_json(),
    }


def known_layout_report(
    view: HostView, known: Observation, intent: Intent | None, answer: Unreachable
) -> dict[str, Any]:
    """The same while no majority of the engine answers: of the latest that live hosts know."""
    report = layout_report(view, known, intent)
    notice = f"this is the latest that live hosts know, perhaps not in force any more: {answer.reason}"
    return report | {
        "notices": [*report["notices"], notice],
        "known_only": True,
        "layout_servers_lost": list(answer.lost),
    }


def away_to_json(away: Away) -> dict[str, Any]:
    return {"start": away.start, "end": away.end, "hosts": list(away.hosts)}


def _replica(copy: Replica, racks: Mapping[str, str]) -> dict[str, Any]:
    return {
        "host": copy.host,
        "rack": racks.get(copy.host, ""),
        "position": copy.position,
        "role": str(copy.role),
        "state": str(copy.state if copy.host in racks else ReplicaState.GONE),
        "bytes": copy.bytes,
        "lag": copy.lag,
    }
