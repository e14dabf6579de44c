"""What the loss of one more host, or of one more rack, would break, as it stands: arithmetic, without a solver.

`rota what-if` says where everything would go instead; this says what nothing could be done about until a host is back.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from datastore_adapter.interface import Observation, ReplicaState
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent

_NAMED = 4
"""Segments in one sentence."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Losing any one of these, hosts or racks, breaks the same."""

    what: str
    names: tuple[str, ...]
    breaks: str

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "names": list(self.names), "breaks": self.breaks}


def losses(view: HostView, observation: Observation, intent: Intent) -> list[Losses]:
    """Of every host, and of every rack with several."""
    racks: dict[str, set[str]] = {}
    for host in view.hosts:
        racks.setdefault(host.failure_domain, set()).add(host.name)
    groups = [("host", name, {name}) for name in sorted(view.names)]
    groups += [("rack", rack, hosts) for rack, hosts in sorted(racks.items()) if len(hosts) > 1]
    last = _last_copies(view, observation)
    usable = view.names - set(intent.drains)
    usable_racks = {rack for rack, hosts in racks.items() if hosts & usable}
    found: dict[tuple[str, str], list[str]] = {}
    of_host: dict[str, set[str]] = {}
    for what, name, lost in groups:
        texts = [
            *_gone(last.get((what, name), ())),
            *_stops(lost, view, observation),
            *_too_few_hosts(lost, usable, intent),
            *(_shared_racks(name, usable_racks, intent) if what == "rack" else ()),
        ]
        known = set().union(
            *(of_host.get(host, set()) for host in lost)
        )  # what one of a rack's hosts breaks alone
        if what == "host":
            of_host[name] = set(texts)
        for text in texts:
            if text not in known:
                found.setdefault((what, text), []).append(name)
    return [Losses(what, tuple(names), text) for (what, text), names in found.items()]


def _last_copies(view: HostView, observation: Observation) -> dict[tuple[str, str], list[str]]:
    """The segments that only one host, or only one rack, has complete copies of."""
    last: dict[tuple[str, str], list[str]] = {}
    for segment in observation.segments:
        hosts = [
            view.by_name[copy.host]
            for copy in segment.replicas
            if copy.host in view.names and copy.state is ReplicaState.IN_SYNC
        ]
        if len(hosts) == 1:
            last.setdefault(("host", hosts[0].name), []).append(segment.key)
        if len({host.failure_domain for host in hosts}) == 1:
            last.setdefault(("rack", hosts[0].failure_domain), []).append(segment.key)
    return last


def _gone(segments: Sequence[str]) -> Iterator[str]:
    if segments:
        more = f" and {len(segments) - _NAMED} more" if len(segments) > _NAMED else ""
        yield f"no copy of {', '.join(segments[:_NAMED])}{more} would be left"


def _stops(lost: Set[str], view: HostView, observation: Observation) -> Iterator[str]:
    servers = observation.roles.layout_servers
    left = sum(server in view.names and server not in lost for server in servers)
    if servers and 2 * left <= len(servers):
        yield "no majority of the layout servers would be left, and the store would wait for them"


def _too_few_hosts(lost: Set[str], usable: Set[str], intent: Intent) -> Iterator[str]:
    wanted = intent.replication_factor
    left = len(usable) - len(lost & usable)
    if left < wanted <= len(usable):
        yield f"{left} hosts would be left for {wanted} copies (replication_factor)"


def _shared_racks(rack: str, usable: Set[str], intent: Intent) -> Iterator[str]:
    """There is a rack for each copy as long as there are as many racks as copies."""
    if rack in usable and len(usable) == intent.replication_factor > 1:
        yield f"copies would share racks, {len(usable)} of them in {len(usable) - 1} (one_replica_per_rack)"
