"""Rows of the pack, plans, and what of a plan is worth its moves."""

from __future__ import annotations

import pytest

import mgmt
from orchestrators.vsphere.inventory import Inventory, Move, Rule, RuleKind
from orchestrators.vsphere.pack_rows import ContradictoryRulesError, rows_of
from orchestrators.vsphere.planning import Planner, PlanSettings, balance_of, required_moves, worthwhile
from tests.orchestrators.vsphere.states import cluster, host, machine

HOSTS = [host("a"), host("b"), host("c")]
EXACT = PlanSettings(budget=60, gain_per_move=0)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner()


def moves(planner: Planner, state: Inventory, settings: PlanSettings = EXACT) -> dict[str, str]:
    return {step.move.machine: step.move.destination for step in planner.plan(state, settings).order.steps}


def test_rules_of_machines_and_hosts_become_the_hosts_that_each_may_use() -> None:
    rules = [
        Rule("on", RuleKind.ON, ("p",), ("a", "b")),
        Rule("off", RuleKind.OFF, ("p", "q"), ("a",)),
        Rule("should", RuleKind.ON, ("q",), ("c",), must=False),
        Rule("should not", RuleKind.OFF, ("q",), ("c",), must=False),
    ]
    rows = rows_of(cluster(HOSTS, [machine("p", "a"), machine("q", "a")], *rules))
    assert rows["allowed_host"] == [
        {"vm": "p", "host": "b"},
        {"vm": "q", "host": "b"},
        {"vm": "q", "host": "c"},
    ]
    assert rows["preferred_host"] == [{"vm": "q", "host": "c"}], "where they disagree, the first counts"


def test_rules_that_leave_a_machine_no_host_are_named() -> None:
    rules = [Rule("on", RuleKind.ON, ("p",), ("a",)), Rule("off", RuleKind.OFF, ("p",), ("a",))]
    with pytest.raises(ContradictoryRulesError, match="p may run on no host that is there: on, off together"):
        rows_of(cluster(HOSTS, [machine("p", "a")], *rules))


def test_hosts_that_are_not_connected_are_left_out_with_their_machines(planner: Planner) -> None:
    hosts = [host("a", available=False), host("b"), host("c")]
    state = cluster(hosts, [machine("p", "a"), machine("q", "b"), machine("r", "b")])
    assert [row["name"] for row in rows_of(state)["vm"]] == ["q", "r"]
    assert list(moves(planner, state).values()) == ["c"]


def test_a_host_is_emptied_in_an_order_that_has_room(planner: Planner) -> None:
    """b takes p only after q has made room; the plan says why each of them moves."""
    hosts = [host("a", 100, evacuated=True), host("b", 100), host("c", 50)]
    state = cluster(hosts, [machine("p", "a", 80), machine("q", "b", 30)])
    plan = planner.plan(state, EXACT)
    assert [(step.round, *step.move) for step in plan.order.steps] == [(1, "q", "b", "c"), (2, "p", "a", "b")]
    assert plan.required == {"p": "a is to be emptied"}


def test_what_cannot_hold_is_named(planner: Planner) -> None:
    state = cluster([host("a", evacuated=True), host("b", 50)], [machine("p", "a", 80)])
    with pytest.raises(mgmt.InfeasibleError) as caught:
        planner.plan(state, EXACT)
    assert set(caught.value.constraints) == {"memory_capacity", "hosts_in_maintenance_are_emptied"}


def test_moves_for_balance_are_the_most_effective_ones(planner: Planner) -> None:
    state = cluster(
        HOSTS[:2], [machine("p", "a", cpu=40), machine("q", "a", cpu=38), machine("r", "b", cpu=1)]
    )
    wanted = [Move("p", "a", "b"), Move("r", "b", "a")]
    assert worthwhile(state, wanted, {}, 0) == wanted
    assert worthwhile(state, wanted, {}, 0.02) == wanted[:1]
    assert worthwhile(state, wanted, {"r": "a rule"}, 0.5) == wanted[1:], "what a rule requires needs no gain"
    plan = planner.plan(state, PlanSettings(budget=60, gain_per_move=50))
    assert plan.order.steps == ()
    assert plan.held.startswith("1 further moves would bring the deviation from 38.50 to 0.50 points")


def test_machines_that_are_kept_together_move_together_or_not_at_all() -> None:
    rule = Rule("t", RuleKind.TOGETHER, ("p", "q"))
    state = cluster(
        HOSTS[:2], [machine("p", "a", cpu=30), machine("q", "a", cpu=1), machine("r", "a", cpu=31)], rule
    )
    both = [Move("p", "a", "b"), Move("q", "a", "b")]
    assert worthwhile(state, both, {}, 0.1) == both
    assert worthwhile(state, both, {}, 0.2) == []


def test_required_moves_name_the_rule() -> None:
    rules = [
        Rule("pair", RuleKind.APART, ("p", "q")),
        Rule("near", RuleKind.TOGETHER, ("q", "r")),
        Rule("licence", RuleKind.ON, ("s",), ("c",)),
    ]
    machines = [machine("p", "a"), machine("q", "a"), machine("r", "b"), machine("s", "b"), machine("t", "b")]
    assert required_moves(cluster(HOSTS, machines, *rules)) == {
        "p": "rule pair",
        "q": "rule pair",
        "r": "rule near",
        "s": "it may not run on b",
    }
    over = cluster(HOSTS, [machine("p", "a", 60), machine("q", "a", 60)])
    assert set(required_moves(over).values()) == {"a is over its memory"}


def test_balance_counts_hosts_that_may_be_used() -> None:
    hosts = [host("a"), host("b", evacuated=True), host("c")]
    balance = balance_of(cluster(hosts, [machine("p", "a", cpu=50), machine("q", "b", cpu=10)]), {"q": "c"})
    assert (balance.highest, balance.lowest, balance.deviation) == (0.5, 0.1, 0.2)
