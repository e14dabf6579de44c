"""The rows a placement is decided from, and back from decided rows to a placement."""

from __future__ import annotations

import pytest
from hypothesis import given

from datastore_adapter.interface import Observation, ReplicaState, ServiceRoles
from mgmt.errors import PlacementError
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent, PlanRecord
from mgmt.placement.placement_rows import apply_deltas, build_state
from mgmt.solution import Delta
from tests.mgmt.control.situations import ROLES, hosts, intent_of, observation_of, situations, view_of


def hosts_of(state: object, segment: str) -> list[str | None]:
    return [row.host for row in state.replicas if row.segment == segment]  # type: ignore[attr-defined]


@given(situations())
def test_every_wanted_copy_is_one_row_and_no_host_fills_two(
    situation: tuple[HostView, Observation, Intent],
) -> None:
    view, observation, intent = situation
    state = build_state(view, observation, intent, departed={host.name: host for host in hosts(8, 3)})
    assert [row.key for row in state.segments] == list(intent.segments)
    named = {row.name for row in state.hosts}
    for key in intent.segments:
        rows = [row for row in state.replicas if row.segment == key]
        assert [row.slot for row in rows] == list(range(intent.replication_factor))
        filled = [row.host for row in rows if row.host is not None]
        assert len(set(filled)) == len(filled)
        assert set(filled) <= named
        assert sum(row.is_primary for row in rows) <= 1
        # As many rows are filled as there are copies to fill them.
        found = next((s for s in observation.segments if s.key == key), None)
        assert len(filled) == min(intent.replication_factor, len(found.replicas) if found else 0)
    assert state.live_hosts == view.names


@given(situations())
def test_copies_that_are_of_use_are_kept_before_others(
    situation: tuple[HostView, Observation, Intent],
) -> None:
    view, observation, intent = situation
    state = build_state(view, observation, intent, departed={host.name: host for host in hosts(8, 3)})
    for segment in observation.segments:
        kept = set(hosts_of(state, segment.key))
        usable = {
            copy.host
            for copy in segment.replicas
            if copy.host in view.names
            and copy.host not in intent.drains
            and copy.state is ReplicaState.IN_SYNC
        }
        if kept - usable:
            assert usable <= kept, "a complete copy on a good host is never passed over for a worse one"


@given(situations())
def test_slots_stay_when_seen_again(situation: tuple[HostView, Observation, Intent]) -> None:
    view, observation, intent = situation
    first = build_state(view, observation, intent)
    assert build_state(view, observation, intent, previous=first) == first


def test_a_survivor_keeps_its_slot_when_the_chain_is_reordered() -> None:
    intent = intent_of(["a"])
    before = build_state(view_of(), observation_of({"a": "n1 n2 n3"}), intent)
    assert hosts_of(before, "a") == ["n1", "n2", "n3"]
    after = build_state(view_of(), observation_of({"a": "n3 n5 n1"}), intent, previous=before)
    assert hosts_of(after, "a") == ["n1", "n5", "n3"]
    assert [row.host for row in after.replicas if row.is_primary] == ["n3"]


def test_a_lost_host_is_named_when_it_is_known_and_else_its_row_is_empty() -> None:
    view, observation, intent = (
        view_of("n1", "n2", "n3"),
        observation_of({"a": "n1 n9! n3"}),
        intent_of(["a"]),
    )
    unknown = build_state(view, observation, intent)
    assert hosts_of(unknown, "a") == ["n1", None, "n3"]
    assert {row.name for row in unknown.hosts} == {"n1", "n2", "n3"}
    known = build_state(view, observation, intent, departed={"n9": Host("n9", "h:9", "r3")})
    assert hosts_of(known, "a") == ["n1", "n9", "n3"]
    assert [(row.rack, row.alive) for row in known.hosts if row.name == "n9"] == [("r3", False)]


def test_departed_hosts_that_hold_nothing_are_forgotten() -> None:
    state = build_state(
        view_of("n1"), observation_of({"a": "n1"}), intent_of(["a"], 1), departed={"n9": Host("n9", "h:9")}
    )
    assert [row.name for row in state.hosts] == ["n1"]


def test_a_half_made_copy_of_the_plan_in_flight_fills_its_row() -> None:
    observation = observation_of({"a": "n1 n2 n3 n6~"})
    intent = intent_of(["a"])
    assert hosts_of(build_state(view_of(), observation, intent), "a") == ["n1", "n2", "n3"]
    target = apply_deltas(
        build_state(view_of(), observation, intent),
        observation,
        [Delta("replica", ("a", 2), "host", "n3", "n6")],
    )
    going_on = intent.with_plan(PlanRecord("p4", "n1", 7, target))
    assert hosts_of(build_state(view_of(), observation, going_on), "a") == ["n1", "n2", "n6"]


def test_a_drained_host_gives_way_to_the_copy_that_replaces_it() -> None:
    state = build_state(view_of(), observation_of({"a": "n1 n2 n6~ n3-"}), intent_of(["a"], drains=["n3"]))
    assert hosts_of(state, "a") == ["n1", "n2", "n6"]
    assert [row.drained for row in state.hosts if row.name == "n3"] == [True]


def test_roles_are_marked_and_only_the_active_sequencer_counts() -> None:
    roles = ServiceRoles(("n2", "n4"), ("n3", "n5"), ())
    state = build_state(view_of(), observation_of({"a": "n1 n2 n3"}, roles), intent_of(["a"]))
    assert [row.name for row in state.hosts if row.layout_server] == ["n2", "n4"]
    assert [row.name for row in state.hosts if row.sequencer] == ["n3"]


def test_growing_data_keeps_the_fingerprint_until_it_doubles() -> None:
    def print_of(size: int) -> object:
        observation = observation_of({"a": "n1 n2 n3"})
        segments = tuple(type(s)(s.key, s.replicas, size) for s in observation.segments)
        grown = Observation(4, "cluster", segments, ROLES)
        return build_state(view_of(), grown, intent_of(["a"])).fingerprint

    assert print_of(1000) == print_of(1023)
    assert print_of(1000) != print_of(2000)


@given(situations())
def test_no_change_decided_means_the_rows_as_they_are(
    situation: tuple[HostView, Observation, Intent],
) -> None:
    view, observation, intent = situation
    state = build_state(view, observation, intent, departed={host.name: host for host in hosts(8, 3)})
    if any(row.host is None for row in state.replicas):
        with pytest.raises(PlacementError, match="not distinct"):
            apply_deltas(state, observation, [])
        return
    placement = apply_deltas(state, observation, [])
    for segment in observation.segments:
        chain = placement.segments[segment.key]
        positions = {copy.host: copy.position for copy in segment.replicas}
        primaries = [row.host for row in state.replicas if row.segment == segment.key and row.is_primary]
        rest = [host for host in chain if host not in primaries]
        assert sorted(chain) == sorted(map(str, hosts_of(state, segment.key)))
        assert [*primaries, *rest] == list(chain)
        assert rest == sorted(rest, key=positions.__getitem__)


def test_decided_changes_become_chains_and_roles() -> None:
    observation = observation_of({"a": "n1 n2 n3", "b": "n4 n5 n6"})
    state = build_state(view_of(), observation, intent_of(["a", "b"]))
    placement = apply_deltas(
        state,
        observation,
        [
            Delta("replica", ("a", 0), "host", "n1", "n4"),
            Delta("replica", ("a", 0), "is_primary", True, False),
            Delta("replica", ("a", 2), "is_primary", False, True),
            Delta("host", ("n2",), "layout_server", True, False),
            Delta("host", ("n6",), "layout_server", False, True),
            Delta("host", ("n1",), "sequencer", True, False),
            Delta("host", ("n5",), "sequencer", False, True),
        ],
    )
    assert placement.segments == {"a": ("n3", "n2", "n4"), "b": ("n4", "n5", "n6")}
    assert placement.roles == ServiceRoles(("n1", "n3", "n6"), ("n5",), ROLES.log_units)


def test_two_copies_on_one_host_are_no_placement() -> None:
    observation = observation_of({"a": "n1 n2 n3"})
    state = build_state(view_of(), observation, intent_of(["a"]))
    with pytest.raises(PlacementError, match="segment a"):
        apply_deltas(state, observation, [Delta("replica", ("a", 0), "host", "n1", "n2")])
