"""Small builders and Hypothesis strategies for views, observations and intents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from datastore_adapter.interface import (
    Observation,
    Replica,
    ReplicaState,
    Role,
    SegmentObservation,
    ServiceRoles,
)
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent

ROLES = ServiceRoles(("n1", "n2", "n3"), ("n1",), ("n1", "n2", "n3", "n4", "n5", "n6"))
STATES = {
    "": ReplicaState.IN_SYNC,
    "~": ReplicaState.SYNCING,
    "-": ReplicaState.STALE,
    "!": ReplicaState.GONE,
}


def hosts(count: int = 6, racks: int = 3) -> tuple[Host, ...]:
    return tuple(Host(f"n{i + 1}", f"h:{i + 1}", f"r{i % racks + 1}", seniority=i) for i in range(count))


def view_of(*names: str, epoch: int = 7, racks: int = 3) -> HostView:
    wanted = names or tuple(host.name for host in hosts())
    return HostView(epoch, tuple(host for host in hosts(12, racks) if host.name in wanted))


def segment_of(key: str, chain: str, size: int = 100) -> SegmentObservation:
    """``"n1 n2~ n3!"``: complete, syncing (~), of an old layout (-), gone (!), in chain order."""
    replicas: list[Replica] = []
    for position, word in enumerate(chain.split()):
        mark = word[-1] if word[-1] in "~-!" else ""
        role = Role.REPLICA if position else Role.PRIMARY
        replicas.append(Replica(key, word.rstrip("~-!"), position, role, STATES[mark], size))
    return SegmentObservation(key, tuple(replicas), size)


def observation_of(chains: Mapping[str, str], roles: ServiceRoles = ROLES, epoch: int = 4) -> Observation:
    segments = tuple(segment_of(key, chains[key]) for key in sorted(chains))
    return Observation(epoch, "cluster", segments, roles)


def intent_of(keys: Sequence[str], replication_factor: int = 3, drains: Sequence[str] = ()) -> Intent:
    return Intent(tuple(sorted(keys)), replication_factor, drains=tuple(sorted(drains)))


@st.composite
def situations(draw: st.DrawFn) -> tuple[HostView, Observation, Intent]:
    """Any mess an interrupted plan and lost hosts can leave behind."""
    names = [host.name for host in hosts(8, 3)]
    live = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    factor = draw(st.integers(1, 4))
    count = draw(st.integers(0, 4))
    chains: dict[str, str] = {}
    for index in range(count):
        members = draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True))
        marks = [draw(st.sampled_from(["", "", "~", "-"])) if name in live else "!" for name in members]
        chains[f"s{index}"] = " ".join(map("".join, zip(members, marks, strict=True)))
    drains = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    servers = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    roles = ServiceRoles(tuple(servers), (draw(st.sampled_from(names)),), tuple(names[:3]))
    view = HostView(9, tuple(host for host in hosts(8, 3) if host.name in live))
    return (
        view,
        observation_of(chains, roles),
        intent_of([f"s{i}" for i in range(max(count, 1))], factor, drains),
    )
