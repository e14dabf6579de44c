"""Without a full placement: lost hosts leave, data stays reachable, nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given

from datastore_adapter.interface import Observation, ReplicaState, SegmentObservation, ServiceRoles
from mgmt.placement.fallback_placement import available_chain, available_placement, is_unavailable
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent
from tests.mgmt.control.situations import ROLES, observation_of, segment_of, situations, view_of


def test_lost_hosts_leave_their_chains_in_order() -> None:
    observation = observation_of({"a": "n9! n2 n3", "b": "n4 n5 n6"})
    placement = available_placement(view_of(), observation)
    assert placement.segments == {"a": ("n2", "n3"), "b": ("n4", "n5", "n6")}
    assert placement.roles == ROLES


def test_a_complete_copy_comes_before_an_incomplete_one() -> None:
    placement = available_placement(view_of(), observation_of({"a": "n9! n2~ n3"}))
    assert placement.segments["a"] == ("n3", "n2")


def test_a_chain_of_which_nobody_is_left_begins_anew_in_different_racks() -> None:
    """Where somebody has older records of the segment they come first; who drains comes not at all."""
    view = view_of()
    for chain, expected in (
        ("n8! n9!", ("n1", "n2")),
        ("n8! n2~", ("n2",)),
        ("n7! n8! n9! n2-", ("n2", "n1", "n3")),
    ):
        assert is_unavailable(segment_of("a", chain), view)
        assert available_placement(view, observation_of({"a": chain})).segments["a"] == expected
    placement = available_placement(view, observation_of({"a": "n8! n9!", "b": "n8! n9!"}), ["n1"])
    assert placement.segments == {"a": ("n2", "n3"), "b": ("n3", "n4")}
    for chain in ("n8! n2", "n8! n2~ n3-"):
        assert not is_unavailable(segment_of("a", chain), view)
    assert not is_unavailable(segment_of("a", ""), view)


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ("n2 n3 n7! n4-", ("n2", "n3", "n4")),  # n4 gave its place to n7
        ("n2 n3~ n7! n4-", ("n2", "n3", "n4")),
        ("n2 n7! n4 n1-", ("n2", "n4")),  # the rack has a copy
        ("n2 n3 n4 n1-", ("n2", "n3", "n4")),  # nobody is lost
        ("n2 n7! n4- n3-", ("n2", "n4")),  # for one that is lost
    ],
)
def test_what_was_to_leave_stays_in_the_place_of_a_lost_one(chain: str, expected: tuple[str, ...]) -> None:
    placement = available_placement(view_of(), observation_of({"a": chain}))
    assert placement.segments["a"] == expected


def test_a_host_that_was_emptied_takes_no_place() -> None:
    emptied = SegmentObservation(
        "a", (*segment_of("a", "n2 n3 n7!").replicas, *segment_of("a", "n4-", 0).replicas)
    )
    assert available_chain(emptied, view_of()) == ("n2", "n3")


def test_roles_leave_lost_hosts_for_other_racks_first_and_the_senior_first() -> None:
    roles = ServiceRoles(("n1", "n8", "n3"), ("n9",), ("n1", "n9"))
    placement = available_placement(view_of(), observation_of({"a": "n1 n2 n3"}, roles))
    assert placement.roles.layout_servers == ("n1", "n3", "n2", "n4", "n5")
    assert placement.roles.sequencers == ("n1",)
    assert placement.roles.log_units == ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("standing", "live", "then"),
    [
        ("n1 n2 n3", "n1 n2 n3 n4 n5 n6", "n1 n2 n3"),  # nobody is lost, so nothing is done
        ("n1 n2", "n1 n2 n4 n5 n6 n7", "n1 n2 n6 n4 n5"),  # of three one is lost, and not shown
        ("n1 n4 n7 n2 n9", "n1 n4 n5 n6 n7 n8", "n1 n4 n7 n5 n6"),  # no more in the first rack
        ("n1 n2 n3 n4", "n1 n2 n3 n4", "n1 n2 n3 n4"),  # of five one is lost, and nobody can take its place
    ],
)
def test_lost_layout_servers_are_replaced_in_the_racks_that_have_fewest(
    standing: str, live: str, then: str
) -> None:
    observation = observation_of({"a": "n1"}, ServiceRoles(tuple(standing.split()), ("n1",)))
    placement = available_placement(view_of(*live.split()), observation)
    assert placement.roles.layout_servers == tuple(then.split())


def test_roles_avoid_drained_hosts_unless_there_are_no_others() -> None:
    roles = ServiceRoles(("n9",), ("n9",), ())
    placement = available_placement(view_of("n1", "n2"), observation_of({}, roles), drains=["n1"])
    assert placement.roles.sequencers == ("n2",)
    placement = available_placement(view_of("n1"), observation_of({}, roles), drains=["n1"])
    assert placement.roles.sequencers == ("n1",)


@given(situations())
def test_what_is_left_is_live_and_complete_wherever_data_is_left(
    situation: tuple[HostView, Observation, Intent],
) -> None:
    view, observation, intent = situation
    placement = available_placement(view, observation, intent.drains)
    for segment in observation.segments:
        chain = placement.segments[segment.key]
        standing = {copy.host for copy in segment.replicas}
        assert chain
        assert set(chain) <= view.names
        if not is_unavailable(segment, view):
            assert set(chain) <= standing, "no copy is made"
            complete = {
                c.host for c in segment.replicas if c.state is ReplicaState.IN_SYNC and c.host in view.names
            }
            assert complete <= set(chain), "no complete live copy is given up"
            if complete:
                assert chain[0] in complete
    assert set(placement.roles.layout_servers) <= view.names
    assert set(placement.roles.sequencers) <= view.names
    assert placement.roles.sequencers
    assert placement.roles.layout_servers
    kept = [name for name in observation.roles.layout_servers if name in view.names]
    assert list(placement.roles.layout_servers[: len(kept)]) == kept
