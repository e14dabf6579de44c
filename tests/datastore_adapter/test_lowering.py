"""Plans of the log: which steps lead from an observation to a placement.  No server is needed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import LayoutError
from datastore_adapter.interface import (
    Observation,
    Placement,
    Replica,
    ReplicaState,
    Role,
    SegmentObservation,
    ServiceRoles,
)
from datastore_adapter.log.adapter.lowering import lower

IN_SYNC, SYNCING, STALE, GONE = (
    ReplicaState.IN_SYNC,
    ReplicaState.SYNCING,
    ReplicaState.STALE,
    ReplicaState.GONE,
)
ROLES = ServiceRoles(("a", "b", "c"), ("a",), ("a", "b", "c", "d"))

Copies = tuple[tuple[str, ReplicaState], ...]


def observation(segments: Mapping[str, Copies], roles: ServiceRoles = ROLES, **more: object) -> Observation:
    return Observation(
        7,
        "id",
        tuple(
            SegmentObservation(
                key,
                tuple(
                    Replica(key, host, index, Role.REPLICA if index else Role.PRIMARY, state, 100)
                    for index, (host, state) in enumerate(copies)
                ),
                100,
            )
            for key, copies in segments.items()
        ),
        roles,
        **more,  # type: ignore[arg-type]  # by name, as the tests need
    )


def healthy(*hosts: str) -> Copies:
    return tuple((host, IN_SYNC) for host in hosts)


def plan(
    current: Observation, segments: Mapping[str, tuple[str, ...]], roles: ServiceRoles = ROLES
) -> list[str]:
    graph = lower(current, Placement(segments, roles))
    for step in graph.steps:
        assert step.number == graph.steps.index(step)
        assert all(earlier < step.number for earlier in step.after)
    return [
        f"{step.kind} {step.segment}: {step.source} -> {step.destination} after {sorted(step.after)}"
        if step.kind == "copy"
        else f"{step.kind} after {sorted(step.after)}"
        for step in graph.steps
    ]


def test_the_first_placement_has_nothing_to_copy() -> None:
    current = observation({}, ServiceRoles(("a",)))
    assert plan(current, {"s00": ("a", "b"), "s01": ("b", "c")}) == ["open after []"]


def test_what_is_as_wanted_needs_no_step() -> None:
    current = observation({"s00": healthy("a", "b"), "s01": healthy("c", "a")})
    assert plan(current, {"s00": ("a", "b"), "s01": ("c", "a")}) == []


def test_a_dead_host_is_repaired_in_one_plan() -> None:
    current = observation(
        {
            "s00": (("a", GONE), ("b", IN_SYNC)),
            "s01": healthy("b", "c"),
            "s02": (("c", IN_SYNC), ("a", GONE)),
        },
        unresponsive=frozenset({"a"}),
    )
    target = {"s00": ("b", "d"), "s01": ("b", "c"), "s02": ("c", "d")}
    assert plan(current, target, ServiceRoles(("b", "c", "d"), ("b",), ("b", "c", "d"))) == [
        "open after []",
        "copy s00: b -> d after [0]",
        "copy s02: c -> d after [0]",
        "close after [0, 1, 2]",
    ]
    graph = lower(current, Placement(target, ROLES))
    assert all(step.required for step in graph.steps)
    assert [step.bytes for step in graph.steps] == [0, 100, 100, 0]


def test_a_drain_copies_first_and_drops_last() -> None:
    current = observation({"s00": healthy("a", "b")})
    graph = lower(current, Placement({"s00": ("c", "b")}, ROLES))
    assert [step.kind for step in graph.steps] == ["open", "copy", "close"]
    assert not any(step.required for step in graph.steps)
    assert graph.steps[-1].description.endswith("a may forget theirs")


def test_a_half_done_plan_goes_on_with_the_copies() -> None:
    current = observation({"s00": (("b", IN_SYNC), ("c", SYNCING), ("a", STALE))})
    assert plan(current, {"s00": ("b", "c")}) == ["copy s00: b -> c after []", "close after [0]"]


def test_only_another_order_needs_no_copy() -> None:
    current = observation({"s00": healthy("a", "b")})
    assert plan(current, {"s00": ("b", "a")}) == ["open after []", "close after [0]"]


def test_other_roles_need_one_step() -> None:
    current = observation({"s00": healthy("a", "b")})
    roles = ServiceRoles(("a", "b"), ("b",), ROLES.log_units)
    assert plan(current, {"s00": ("a", "b")}, roles) == ["open after []"]


def test_what_was_left_half_done_is_taken_up() -> None:
    current = observation({"s00": healthy("a", "b")}, unfinished=True)
    graph = lower(current, Placement({"s00": ("a", "b")}, ROLES))
    assert [step.kind for step in graph.steps] == ["open"]
    assert graph.steps[0].arguments["force"]


def test_a_host_that_lost_its_disk_is_opened_anew_and_copied_to() -> None:
    current = observation({"s00": (("a", IN_SYNC), ("b", STALE))})
    graph = lower(current, Placement({"s00": ("a", "b")}, ROLES))
    assert [step.kind for step in graph.steps] == ["open", "copy", "close"]
    assert graph.steps[0].arguments["force"]


def test_without_any_live_copy_there_is_nothing_to_copy_from() -> None:
    current = observation({"s00": (("a", GONE),)}, unresponsive=frozenset({"a"}))
    assert [step.kind for step in lower(current, Placement({"s00": ("b",)}, ROLES)).steps] == [
        "open",
        "close",
    ]


def test_replicas_that_have_a_part_each_complete_each_other() -> None:
    current = observation({"s00": (("a", SYNCING), ("b", SYNCING))})
    assert plan(current, {"s00": ("a", "b")}) == [
        "copy s00: b -> a after []",
        "copy s00: a -> b after []",
        "close after [0, 1]",
    ]


@pytest.mark.parametrize(
    ("target", "roles", "complaint"),
    [
        ({"s00": ("a",)}, ROLES, "'s01' has records: retire it"),
        ({"s00": ("a",), "s01": ()}, ROLES, "'s01' needs one or more different hosts"),
        ({"s00": ("a", "a"), "s01": ("a",)}, ROLES, "different hosts"),
        ({"s00": ("a",), "s01": ("a",)}, ServiceRoles((), ("a",)), "at least one layout server"),
        ({"s00": ("a",), "s01": ("a",)}, ServiceRoles(("a",), ()), "one sequencer"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(
    target: dict[str, tuple[str, ...]], roles: ServiceRoles, complaint: str
) -> None:
    current = observation({"s00": healthy("a"), "s01": healthy("a")})
    with pytest.raises(LayoutError, match=complaint):
        lower(current, Placement(target, roles))


hosts = st.sampled_from("abcdef")
copies = st.lists(
    st.tuples(hosts, st.sampled_from(ReplicaState)), min_size=1, max_size=5, unique_by=lambda c: c[0]
)
chains = st.lists(hosts, min_size=1, max_size=3, unique=True).map(tuple)


@given(
    st.fixed_dictionaries({key: copies.map(tuple) for key in ("s00", "s01")}),
    st.fixed_dictionaries(dict.fromkeys(("s00", "s01"), chains)),
)
def test_every_plan_is_deterministic_and_copies_to_exactly_those_who_lack_data(
    segments: dict[str, Copies], target: dict[str, tuple[str, ...]]
) -> None:
    current = observation(segments)
    graph = lower(current, Placement(target, ROLES))
    assert graph == lower(current, Placement(dict(reversed(target.items())), ROLES))
    plan(current, target)
    expected = set()
    for key, chain in target.items():
        states = dict(segments[key])
        for host in chain:
            others = {state for other, state in states.items() if other != host}
            if states.get(host) is not IN_SYNC and others - {GONE}:
                expected.add((key, host))
    assert {(step.segment, step.destination) for step in graph.steps if step.kind == "copy"} == expected
    for step in graph.steps:
        if step.kind == "copy":
            assert step.source is not None
            states = dict(segments[step.segment or ""])
            assert step.source != step.destination
            assert states[step.source] is (IN_SYNC if IN_SYNC in states.values() else states[step.source])
            assert states[step.source] is not GONE
