"""From a wanted placement to steps, without any server."""

from __future__ import annotations

import random

import pytest

from datastore_adapter.interface import (
    Observation,
    Placement,
    Replica,
    ReplicaState,
    Role,
    SegmentObservation,
    ServiceRoles,
)
from datastore_adapter.slots.lowering import inverse, lower
from datastore_adapter.slots.state.shards import Record, identify
from datastore_adapter.slots.state.slot_ranges import SLOTS, of_slots, overlap
from tests.slots.controllers import placement

HALVES = {"s00": [(0, 8191)], "s01": [(8192, SLOTS - 1)]}


def seen(chains: dict[str, str], servers: int = 1, **marks: ReplicaState) -> Observation:
    """``{"s00": "n0 n1"}``; ``marks``: the state of all copies on a host, if not in sync."""
    segments = []
    for key, hosts in chains.items():
        copies = [
            Replica(
                key,
                host,
                position,
                Role.REPLICA if position else Role.PRIMARY,
                marks.get(host, ReplicaState.IN_SYNC),
            )
            for position, host in enumerate(hosts.split())
        ]
        slots = tuple(HALVES.get(key, ()))
        segments.append(SegmentObservation(key, tuple(copies), 1000, slots=slots))
    live = [f"n{i}" for i in range(6) if marks.get(f"n{i}") is not ReplicaState.GONE]
    answering = {host: servers - (marks.get(host) is ReplicaState.STALE) for host in live}
    return Observation(3, "c", tuple(segments), ServiceRoles(("n0",), ("n0",)), servers=answering)


def told(observation: Observation, target: Placement) -> list[str]:
    return [step.description for step in lower(observation, target)]


@pytest.mark.parametrize(
    "state", [ReplicaState.GONE, ReplicaState.STALE, ReplicaState.SYNCING, ReplicaState.IN_SYNC]
)
def test_what_stands_needs_no_steps_lost_hosts_included(state: ReplicaState) -> None:
    standing = seen({"s00": "n0 n1", "s01": "n2 n3"}, n1=state)
    steps = told(standing, placement({"s00": "n0 n1", "s01": "n2 n3"}, HALVES))
    assert steps == (["copy s00 from n0 to n1"] if state is ReplicaState.SYNCING else [])


def test_copies_come_before_primaries_are_handed_on_and_leave_last() -> None:
    steps = lower(seen({"s00": "n0 n1"}), placement({"s00": "n2 n1"}))
    assert [step.description for step in steps] == [
        "have servers of n2 join the cluster",
        "copy s00 from n0 to n2",
        "n2 becomes the primary of s00, which n0 was",
        "n0 leaves s00",
    ]
    assert [sorted(step.after) for step in steps] == [[], [0], [1], [1, 2]]
    back = inverse(steps[2])
    assert back is not None
    assert back.description == "back: n0 becomes the primary of s00 again"
    assert all(inverse(step) is None for step in steps if step.kind != "switch")


def test_a_copy_that_has_everything_leads_before_new_ones_are_made() -> None:
    """New copies then come from the primary that stays, and no third copy is there while a shard is handed over."""
    steps = lower(seen({"s00": "n0 n1"}), placement({"s00": "n1 n2"}))
    assert [step.description for step in steps] == [
        "n1 becomes the primary of s00, which n0 was",
        "have servers of n2 join the cluster",
        "copy s00 from n1 to n2",
        "n0 leaves s00",
    ]
    assert [sorted(step.after) for step in steps] == [[], [0], [0, 1], [0, 2]]
    behind = seen({"s00": "n0 n1"}, n1=ReplicaState.SYNCING)
    assert told(behind, placement({"s00": "n1 n2"}))[-2:] == [
        "n1 becomes the primary of s00, which n0 was",
        "n0 leaves s00",
    ]


def test_where_no_server_is_to_spare_copies_change_places() -> None:
    full = seen({"s00": "n0 n1", "s01": "n2 n3"})
    assert told(full, placement({"s00": "n0 n3", "s01": "n2 n1"})) == [
        "copy s00 from n0 to n3, in place of its copy of s01",
        "copy s01 from n2 to n1, in place of its copy of s00",
    ]
    # With a server more on each host nothing has to leave before.
    roomy = seen({"s00": "n0 n1", "s01": "n2 n3"}, servers=2)
    assert told(roomy, placement({"s00": "n0 n3", "s01": "n2 n1"}))[0].startswith("have servers")


def test_slots_move_when_all_copies_are_there_and_a_shard_that_gave_them_away_goes() -> None:
    steps = lower(
        seen({"s00": "n0 n1", "s01": "n2 n3"}), placement({"s00": "n0 n1"}, {"s00": [(0, SLOTS - 1)]})
    )
    assert [step.description for step in steps] == [
        "move from s01 to s00 8192 slots (8192-16383)",
        "n3 leaves s01",
        "n2 leaves s01",
    ]
    assert [sorted(step.after) for step in steps] == [[], [0], [0, 1]]
    assert (steps[0].source, steps[0].destination, steps[0].bytes) == ("n2", "n0", 1000)


def test_two_copies_on_one_host_are_one_too_many() -> None:
    twice = seen({"s00": "n0 n0"}, servers=2)
    (step,) = lower(twice, placement({"s00": "n0"}))
    assert (step.kind, step.arguments["only"]) == ("remove", "second")
    assert lower(twice, placement({"s00": "n0 n0"})) == ()


def test_a_dead_server_stays_a_member_until_another_one_takes_its_place() -> None:
    alone = seen({"s00": "n0 n1"}, n1=ReplicaState.STALE)
    assert told(alone, placement({"s00": "n0 n2"}))[-1] == "n1 leaves s00, as it does not answer"
    left_alone = seen({"s00": "n0 n1"}, n0=ReplicaState.GONE, n1=ReplicaState.STALE)
    assert told(left_alone, placement({"s00": "n0"})) == []


def test_what_cannot_be_is_refused() -> None:
    standing = seen({"s00": "n0 n1", "s01": "n2 n3"})
    with pytest.raises(ValueError, match="one or more hosts"):
        lower(standing, placement({"s00": ""}))
    with pytest.raises(ValueError, match="placed nowhere"):
        lower(standing, placement({"s00": "n0"}, {"s00": [(0, 1)], "s09": [(2, SLOTS - 1)]}))


def test_a_shard_keeps_its_key_while_its_slots_move_and_whoever_leads_it() -> None:
    """From three shards to two, at any moment of the way."""
    before = {"s00": ((0, 5460),), "s01": ((5461, 10921),), "s02": ((10922, SLOTS - 1),)}
    after = {"s00": ((0, 5460), (10922, 13652)), "s01": ((5461, 10921), (13653, SLOTS - 1))}
    record = Record(("s00", "s01"), after, after, before)
    chance = random.Random(1)
    for moved in (0, 1, 2000, 4000, 5461):
        slots = {
            key: {s for first, last in ranges for s in range(first, last + 1)}
            for key, ranges in before.items()
        }
        for slot in chance.sample(range(10922, SLOTS), moved):
            slots["s02"].discard(slot)
            slots["s00" if slot <= 13652 else "s01"].add(slot)
        nodes = {key: f"{chance.randrange(1 << 40):040x}" for key in slots}
        owners = {nodes[key]: of_slots(held) for key, held in slots.items()}
        found = identify(owners, record)
        assert found == {key: node for key, node in nodes.items() if slots[key]}
    assert overlap(after["s00"], before["s02"]) == 2731


def test_shards_that_nobody_has_named_are_named_by_their_lowest_slots() -> None:
    owners = {"b" * 40: ((0, 99),), "a" * 40: ((100, SLOTS - 1),)}
    assert identify(owners, Record()) == {"s00": "b" * 40, "s01": "a" * 40}
