"""Plans: what moves, why, in which wave; and how that reads."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import Observation, Placement, ReplicaState, ServiceRoles
from mgmt.control.hysteresis import is_for_balance
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent
from mgmt.placement.placement_rows import standing_chain
from mgmt.plans.duration_estimate import TransferSpeeds
from mgmt.plans.plan import Plan, is_reached, make_plan
from mgmt.plans.plan_report import plan_to_json, plan_to_text
from tests.mgmt.control.situations import ROLES, hosts, intent_of, observation_of, situations, view_of

DEPARTED = {host.name: host for host in hosts(12)}


def plan_of(
    observation: Observation,
    chains: dict[str, tuple[str, ...]],
    view: HostView | None = None,
    roles: ServiceRoles = ROLES,
    drains: tuple[str, ...] = (),
) -> Plan:
    intent = intent_of(list(chains), drains=drains)
    target = Placement(chains, roles)
    return make_plan(view or view_of(), observation, intent, target, plan_id="p1", departed=DEPARTED)


def moves_of(plan: Plan) -> list[tuple[str | None, str | None, bool, str]]:
    return [(move.source, move.destination, move.required, move.why) for move in plan.moves]


def test_what_stands_already_is_an_empty_plan() -> None:
    plan = plan_of(observation_of({"a": "n1 n2 n3"}), {"a": ("n1", "n2", "n3")})
    assert plan.is_empty
    assert "nothing to do" in plan_to_text(plan)


def test_a_lost_host_is_replaced_and_the_racks_are_named() -> None:
    plan = plan_of(observation_of({"a": "n1 n8! n3"}), {"a": ("n1", "n3", "n2")})
    assert moves_of(plan) == [("n8", "n2", True, "n8 is gone")]
    assert (plan.moves[0].source_rack, plan.moves[0].destination_rack) == ("r2", "r2")
    assert plan.bytes == 100
    assert plan.now.under_replicated == 1
    assert plan.after.under_replicated == 0
    assert "- n8 (r2)" in plan_to_text(plan)
    assert "+ n2 (r2)" in plan_to_text(plan)


def test_a_lost_host_nobody_remembers_has_no_rack() -> None:
    observation = observation_of({"a": "n1 x! n3"})
    plan = plan_of(observation, {"a": ("n1", "n3", "n2")})
    assert (plan.moves[0].source, plan.moves[0].source_rack) == ("x", "?")


def test_reasons() -> None:
    drained = plan_of(observation_of({"a": "n1 n2 n3"}), {"a": ("n1", "n5", "n3")}, drains=("n2",))
    assert moves_of(drained) == [("n2", "n5", True, "n2 is drained")]
    crowded = plan_of(observation_of({"a": "n1 n4 n3"}), {"a": ("n1", "n2", "n3")})
    assert moves_of(crowded) == [("n4", "n2", True, "two copies in rack r1")]
    missing = plan_of(observation_of({"a": "n1 n2"}), {"a": ("n1", "n2", "n3")})
    assert moves_of(missing) == [(None, "n3", True, "a copy is missing")]
    surplus = plan_of(observation_of({"a": "n1 n2 n3 n5-"}), {"a": ("n1", "n2", "n3")})
    assert [(move[0], move[1]) for move in moves_of(surplus)] == [("n5", None)]
    tidy = plan_of(observation_of({"a": "n1 n2 n3"}), {"a": ("n1", "n2", "n6")})
    assert moves_of(tidy) == [("n3", "n6", False, "balance")]
    half = plan_of(observation_of({"a": "n1 n2 n3~"}), {"a": ("n1", "n2", "n3")})
    assert moves_of(half) == [(None, "n3", True, "its copy is not complete")]
    new = plan_of(observation_of({}), {"a": ("n1", "n2", "n3")})
    assert {why for *_, why in moves_of(new)} == {"new segment"}


def test_a_move_that_is_under_way_is_one_move_and_keeps_its_reason() -> None:
    """`-` holds only older records, `~` only newer ones."""
    going_on = plan_of(observation_of({"a": "n1 n2 n3- n6~"}), {"a": ("n1", "n2", "n6")}, drains=("n3",))
    assert moves_of(going_on) == [("n3", "n6", True, "n3 is drained")]
    assert going_on.bytes == 100
    back = plan_of(observation_of({"a": "n1 n2 n6 n3-"}), {"a": ("n1", "n2", "n3")})
    assert moves_of(back) == [("n6", "n3", True, "its copy is not complete")]
    two = plan_of(observation_of({"a": "n1 n2- n3- n5~ n6~"}), {"a": ("n1", "n6", "n5")}, drains=("n2", "n3"))
    assert [move[:2] for move in moves_of(two)] == [("n2", "n5"), ("n3", "n6")]


def test_a_host_over_its_capacity() -> None:
    small = HostView(7, (Host("n1", "h:1", "r1", capacity_bytes=99), *view_of("n2", "n3", "n4").hosts))
    plan = plan_of(observation_of({"a": "n1 n2 n3"}), {"a": ("n4", "n2", "n3")}, view=small)
    assert moves_of(plan) == [("n1", "n4", True, "n1 is over its capacity")]


def test_replacements_stay_within_the_rack_where_possible() -> None:
    plan = plan_of(observation_of({"a": "n7! n8! n3"}), {"a": ("n3", "n5", "n4")})
    assert [(move.source, move.destination) for move in plan.moves] == [("n7", "n4"), ("n8", "n5")]


def test_required_moves_come_first_and_make_the_first_wave() -> None:
    observation = observation_of({"a": "n1 n2 n3", "b": "n4 n8! n6"})
    plan = plan_of(observation, {"a": ("n1", "n5", "n3"), "b": ("n4", "n2", "n6")})
    assert [move.segment for move in plan.moves] == ["b", "a"]
    first, last = plan.waves
    assert first.segments == {"a": ("n1", "n2", "n3"), "b": ("n4", "n2", "n6")}
    assert last == plan.target


def test_a_move_for_balance_waits_even_in_a_segment_that_is_repaired() -> None:
    plan = plan_of(observation_of({"a": "n1 n8! n3"}), {"a": ("n4", "n2", "n3")})
    assert [wave.segments["a"] for wave in plan.waves] == [("n1", "n2", "n3"), ("n4", "n2", "n3")]


def test_a_plan_of_one_kind_has_one_wave() -> None:
    assert len(plan_of(observation_of({"a": "n1 n2 n3"}), {"a": ("n4", "n2", "n3")}).waves) == 1
    assert len(plan_of(observation_of({"a": "n1 n2! n3"}), {"a": ("n1", "n5", "n3")}).waves) == 1


def test_what_fits_in_no_order_is_left_out_and_said() -> None:
    """Two full hosts of a rack cannot exchange copies, whatever the solver says of the end."""
    full = [Host(name, f"h:{name}", "r1", capacity_bytes=100) for name in ("n1", "n4")]
    view = HostView(7, (*full, *view_of("n2", "n3", "n5", "n6").hosts))
    observation = observation_of({"a": "n1 n2 n3", "b": "n4 n5 n6"})
    stuck = plan_of(observation, {"a": ("n4", "n2", "n3"), "b": ("n1", "n5", "n6")}, view=view)
    assert stuck.is_empty
    assert stuck.target.segments == {"a": ("n1", "n2", "n3"), "b": ("n4", "n5", "n6")}
    assert "left out: 1 moves of a, safe in no order: n4 holds 100 bytes more" in plan_to_text(stuck)
    assert [left["segment"] for left in plan_to_json(stuck)["left_out"]] == ["a", "b"]


def test_the_report_tells_violations_and_time_on_the_way() -> None:
    observation = observation_of({"a": "n1 n8! n3", "b": "n4 n2 n6"})
    plan = plan_of(observation, {"a": ("n1", "n3", "n2"), "b": ("n1", "n2", "n6")})
    document = plan_to_json(
        plan, speeds=TransferSpeeds(10.0, transfers=2, transfers_per_host=1, layout_seconds=1.0)
    )
    assert document["violations"]["now"]["under_replicated"] == 1
    assert document["violations"]["during"] == {"rack_violations": 0, "under_replicated": 0}
    assert (document["waves"], document["required_waves"]) == (2, 1)
    assert document["seconds"] == 2 * (2 * 1.0 + 100 / 10.0)  # one host receives 100 bytes in each wave
    text = plan_to_text(plan)
    assert "wave 1 (required): 100 bytes to 1 hosts" in text
    assert "wave 2 (balance): 100 bytes to 1 hosts" in text


def test_primaries_and_roles() -> None:
    roles = ServiceRoles(("n1", "n2", "n4"), ("n5",), ROLES.log_units)
    plan = plan_of(observation_of({"a": "n1 n2 n3"}), {"a": ("n2", "n1", "n3")}, roles=roles)
    assert [(c.old, c.new, c.required) for c in plan.primaries] == [("n1", "n2", False)]
    assert [(c.role, c.host, c.added) for c in plan.roles] == [
        ("layout_server", "n3", False),
        ("layout_server", "n4", True),
        ("sequencer", "n1", False),
        ("sequencer", "n5", True),
    ]
    lost = plan_of(observation_of({"a": "n8! n2 n3"}), {"a": ("n2", "n3", "n5")})
    assert [(c.old, c.new, c.required) for c in lost.primaries] == [("n8", "n2", True)]
    text = plan_to_text(plan)
    assert "a  primary n1 -> n2  (optional)" in text
    assert "sequencer  + n5" in text


def test_a_plan_that_only_retires_a_segment_is_one_and_named_so() -> None:
    observation = observation_of({"a": "n1 n2 n3", "b": "n4 n5 n6"})
    chains = {"a": ("n1", "n2", "n3"), "b": ("n4", "n5", "n6")}

    def planned(retired: frozenset[str] | None, observation: Observation = observation) -> Plan:
        intent = intent_of(["a"])
        return make_plan(view_of(), observation, intent, Placement(chains, ROLES, retired), plan_id="p1")

    staying, retiring = planned(frozenset()), planned(frozenset("b"))
    assert staying.is_empty
    assert not retiring.is_empty
    assert len({plan.digest for plan in (staying, retiring, planned(None))}) == 3
    assert "1 retirement change" in plan_to_text(retiring)
    assert "b  takes no more records" in plan_to_text(retiring)
    assert not is_for_balance(retiring), "somebody asked for it"
    assert plan_to_json(retiring)["retirements"] == [{"segment": "b", "retired": True}]
    a, b = observation.segments
    done = replace(observation, segments=(a, replace(b, retired=True)))
    assert planned(frozenset("b"), done).is_empty
    assert planned(None, done).is_empty
    assert "b  takes records again" in plan_to_text(planned(frozenset(), done))


def test_a_target_is_reached_when_chains_states_and_roles_are_there() -> None:
    target = Placement({"a": ("n1", "n2", "n3")}, ROLES)
    assert is_reached(observation_of({"a": "n1 n2 n3"}), target)
    assert not is_reached(observation_of({"a": "n1 n2 n3~"}), target)
    assert not is_reached(observation_of({"a": "n1 n2 n3 n4-"}), target)
    assert not is_reached(observation_of({"a": "n2 n1 n3"}), target)
    assert not is_reached(observation_of({}), target)
    assert not is_reached(observation_of({"a": "n1 n2 n3"}, ServiceRoles(("n1",), ("n1",))), target)
    assert not is_reached(
        observation_of({"a": "n1 n2 n3"}, ServiceRoles(ROLES.layout_servers, ("n2",))), target
    )


@given(situations(), st.randoms(use_true_random=False))
def test_any_plan_leads_from_what_stands_to_its_target(
    situation: tuple[HostView, Observation, Intent], rng: object
) -> None:
    view, observation, intent = situation
    names = sorted(view.names)
    count = min(intent.replication_factor, len(names))
    chains = {key: tuple(rng.sample(names, count)) for key in intent.segments}  # type: ignore[attr-defined]
    target = Placement(chains, ServiceRoles(tuple(names[:1]), tuple(names[:1]), tuple(names)))
    plan = make_plan(view, observation, intent, target, plan_id="p", departed=DEPARTED)
    json.dumps(plan_to_json(plan))
    plan_to_text(plan)
    assert not plan.left_out  # there is room for everything
    observed = {segment.key: segment for segment in observation.segments}
    for key, chain in chains.items():
        standing = {copy.host for copy in observed[key].replicas} if key in observed else set()
        moves = [move for move in plan.moves if move.segment == key]
        leaving = {move.source for move in moves} - {None}
        coming = {move.destination for move in moves} - {None}
        assert standing - leaving | coming == set(chain)
        incomplete = {
            copy.host
            for copy in (observed[key].replicas if key in observed else ())
            if copy.host in chain and copy.state is not ReplicaState.IN_SYNC
        }
        assert coming - standing == set(chain) - standing
        assert coming & standing == incomplete
    assert [move.required for move in plan.moves] == sorted((m.required for m in plan.moves), reverse=True)
    assert plan.waves[-1] == target
    for wave in plan.waves:
        for key, chain in wave.segments.items():
            assert len(set(chain)) == len(chain)
            # A wave never names a host that is neither wanted nor standing.
            allowed = set(chains[key]) | (
                {c.host for c in observed[key].replicas} if key in observed else set()
            )
            assert set(chain) <= allowed


@given(situations())
def test_the_standing_chain_is_who_takes_new_writes(situation: tuple[HostView, Observation, Intent]) -> None:
    for segment in situation[1].segments:
        chain = standing_chain(segment)
        stale = {copy.host for copy in segment.replicas if copy.state is ReplicaState.STALE}
        assert not stale & set(chain)
