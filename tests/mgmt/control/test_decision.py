"""Decisions: wait for hosts, resume or replace a plan, trust a solution, or only keep things available."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from datastore_adapter.interface import Observation, Placement, ServiceRoles
from mgmt.control.decision import (
    Situation,
    decided_plan,
    decision_key,
    hosts_missing,
    resumable,
    resumed_plan,
    situation_of,
    thawed,
)
from mgmt.placement.hosts import HostView
from mgmt.placement.intent import Intent, PlanRecord
from mgmt.plans.plan import PlanKind
from mgmt.solution import Delta
from mgmt.solving.placement_solver import Infeasible, Solved, Undecided
from tests.mgmt.control.situations import ROLES, hosts, intent_of, observation_of, situations, view_of

TARGET = Placement({"a": ("n1", "n5", "n3")}, ROLES)
RECORD = PlanRecord("p3-n9", "n9", 6, TARGET)


def situation(
    chains: dict[str, str], view: HostView | None = None, intent: Intent | None = None
) -> Situation:
    intent = intent or intent_of(["a"])
    departed = {host.name: host for host in hosts(12)}
    return situation_of("n1", view or view_of(), observation_of(chains), intent, departed)


def test_the_first_placement_waits_for_the_hosts_expected() -> None:
    intent = Intent(("a",), expect=5)
    assert hosts_missing(situation({}, view_of("n1", "n2"), intent)) == 3
    assert hosts_missing(situation({}, view_of(), intent)) == 0
    assert hosts_missing(situation({"a": "n1 n2 n3"}, view_of("n1"), intent)) == 0


def test_who_was_there_when_the_first_placement_was_decided_is_not_waited_for_again() -> None:
    intent = Intent(("a",), expect=5).with_plan(RECORD)
    assert hosts_missing(situation({}, view_of("n1", "n2", "n3", "n4"), intent)) == 0


@pytest.mark.parametrize(
    ("chains", "asked_again"), [("n1 n2 n3", False), ("n1 n2", True), ("n1 n2 n3!", True)]
)
def test_only_where_copies_are_lacking_it_matters_that_a_freeze_is_overdue(
    chains: str, asked_again: bool
) -> None:
    cold = situation({"a": chains})
    overdue = replace(cold, overdue=frozenset({"n5"}))
    assert (decision_key(cold) != decision_key(overdue)) is asked_again
    assert (thawed(overdue) is not None) is asked_again


def test_a_plan_in_flight_is_resumed_under_new_step_identities() -> None:
    going_on = situation({"a": "n1 n2 n3 n5~"}, intent=intent_of(["a"]).with_plan(RECORD))
    record = resumable(going_on)
    assert record == RECORD
    plan = resumed_plan(going_on, RECORD)
    assert (plan.kind, plan.target) == (PlanKind.RESUMED, TARGET)
    assert (plan.agreed_as, plan.plan_id) == ("p3-n9", "p4-n1")


@pytest.mark.parametrize(
    ("chains", "view", "intent"),
    [
        ({"a": "n1 n5 n3"}, view_of(), intent_of(["a"])),  # it is done
        ({"a": "n1 n2 n3"}, view_of("n1", "n2", "n3", "n4"), intent_of(["a"])),  # a host it wants is gone
        ({"a": "n1 n2 n3"}, view_of(), intent_of(["a"], drains=["n5"])),  # a host it wants is drained
        ({"a": "n1 n2 n3"}, view_of(), intent_of(["a"], drains=["n2"])),  # so is one with a role in it
        ({"a": "n1 n2 n3"}, view_of(), intent_of(["a", "b"])),  # other segments are wanted
        ({"a": "n1 n2 n3"}, view_of(), intent_of(["a"], 2)),  # fewer copies are wanted
    ],
)
def test_a_plan_that_cannot_or_need_not_be_had_any_more_is_not(
    chains: dict[str, str], view: HostView, intent: Intent
) -> None:
    assert resumable(situation(chains, view, intent.with_plan(RECORD))) is None


def test_without_a_plan_there_is_nothing_to_resume() -> None:
    assert resumable(situation({"a": "n1 n2 n3"})) is None


def test_a_proven_solution_is_followed_in_full() -> None:
    deltas = (Delta("replica", ("a", 1), "host", "n2", "n5"),)
    plan = decided_plan(situation({"a": "n1 n2 n3"}), Solved("optimal", deltas, (), 0.1))
    assert plan.kind is PlanKind.SOLVED
    assert plan.target.segments["a"] == ("n1", "n3", "n5")


def test_of_an_unproven_solution_only_what_is_required_is_taken() -> None:
    deltas = (
        Delta("replica", ("a", 1), "host", "n2", "n5"),
        Delta("replica", ("b", 1), "host", "n8", "n5"),
        Delta("host", ("n3",), "layout_server", True, False),
        Delta("host", ("n4",), "layout_server", False, True),
    )
    intent = intent_of(["a", "b"])
    guess = Solved("feasible", deltas, (), 0.1, proven=False)
    plan = decided_plan(situation({"a": "n1 n2 n3", "b": "n1 n8! n3"}, intent=intent), guess)
    assert [(move.segment, move.destination) for move in plan.moves] == [("b", "n5")]
    assert plan.target.roles == ROLES
    calm = decided_plan(
        situation({"a": "n1 n2 n3", "b": "n1 n8 n3"}, view_of(*(f"n{i}" for i in range(1, 9))), intent), guess
    )
    assert calm.is_empty


def test_of_an_unproven_solution_roles_still_leave_lost_hosts() -> None:
    roles = ServiceRoles(("n1", "n2", "n9"), ("n1",), ROLES.log_units)
    departed = {host.name: host for host in hosts(12)}
    lost = situation_of("n1", view_of(), observation_of({"a": "n1 n2 n3"}, roles), intent_of(["a"]), departed)
    deltas = (Delta("host", ("n3",), "layout_server", False, True),)
    plan = decided_plan(lost, Solved("feasible", deltas, (), 0.1, proven=False))
    assert plan.target.roles.layout_servers == ("n1", "n2", "n3")


@pytest.mark.parametrize("answer", [Infeasible(("rule",), ("rule",), 0.1), Undecided("time is up", 2.0)])
def test_without_a_solution_lost_hosts_only_leave(answer: Infeasible | Undecided) -> None:
    plan = decided_plan(situation({"a": "n8! n2 n3"}), answer)
    assert plan.kind is PlanKind.AVAILABILITY
    assert plan.target.segments["a"] == ("n2", "n3")


@given(situations())
def test_unproven_and_unchanged_is_never_a_reason_to_touch_a_good_placement(
    drawn: tuple[HostView, Observation, Intent],
) -> None:
    view, observation, intent = drawn
    departed = {host.name: host for host in hosts(8, 3)}
    found = situation_of("n1", view, observation, intent, departed)
    if any(row.host is None for row in found.state.replicas):
        return
    plan = decided_plan(found, Solved("feasible", (), (), 0.1, proven=False))
    for move in plan.moves:
        assert move.required or move.destination is None
