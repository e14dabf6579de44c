"""Rows of the pack, plans, and what of a plan is worth its moves."""

from __future__ import annotations

import pytest

import mgmt
from orchestrators.vsphere.balance_loop import BalanceLoop
from orchestrators.vsphere.inventory import Inventory, Rule, RuleKind
from orchestrators.vsphere.migrations import Entry, State
from orchestrators.vsphere.pack_rows import ContradictoryRulesError, rows_of
from orchestrators.vsphere.planning import (
    Planner,
    PlanSettings,
    balance_of,
    best_single_moves,
    required_moves,
)
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


def test_moves_for_balance_are_worth_it(planner: Planner) -> None:
    machines = [machine("p", "a", cpu=40), machine("q", "a", cpu=38), machine("r", "b", cpu=1)]
    state = cluster(HOSTS[:2], machines)
    assert [len(best_single_moves(state, least)) for least in (0.0, 0.02, 0.5)] == [1, 1, 0]
    assert moves(planner, state, PlanSettings(budget=60, gain_per_move=2)) == {"q": "b"}
    assert moves(planner, state, PlanSettings(budget=60, gain_per_move=50)) == {}


def test_where_time_ends_too_soon_the_best_single_moves_are_made(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is played: it has found nothing but today.  A machine that may not be moved stays."""
    machines = [machine(f"m{n}", "a", 1, 1 + n, stays="" if n else "pinned") for n in range(9)]
    state = cluster(HOSTS, machines)
    today = mgmt.Solution(mgmt.SolveStatus.FEASIBLE, 0, (), (), {})
    monkeypatch.setattr(planner.model, "solve", lambda *_: today)
    plan = planner.plan(state, PlanSettings(gain_per_move=0.02))
    assert (plan.before.spread, plan.after.spread) == (0.45, 0.0)
    assert "m0" not in {step.move.machine for step in plan.order.steps}
    cramped = cluster([host("a"), host("b", 2), host("c", 1)], machines)
    assert len(planner.plan(cramped, PlanSettings(gain_per_move=0.02)).order.steps) == 3, (
        "as many as have room"
    )


def test_rules_are_kept_with_few_moves_and_balance_begins_from_there(planner: Planner) -> None:
    rule = Rule("apart", RuleKind.APART, ("p", "q"))
    state = cluster(
        HOSTS, [machine("p", "a", cpu=30), machine("q", "a", cpu=30), machine("r", "a", cpu=30)], rule
    )
    plan = planner.plan(state, PlanSettings(budget=60, gain_per_move=50))
    assert len(plan.order.steps) == 1, "as many as the rule takes, and none for balance"
    assert len(planner.plan(state, EXACT).order.steps) == 2


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


def test_a_rule_does_not_let_balance_go_before_it_is_due_and_nobody_rests_where_it_cannot_be_kept_otherwise(
    planner: Planner,
) -> None:
    hosts = [host("a"), host("b"), host("c", evacuated=True), host("d")]
    machines = [machine("p", "c", cpu=1), *(machine(name, "a", cpu=20) for name in "qrst")]
    loop = BalanceLoop()
    loop.carried_out([Entry("p", "c", "a", State.FAILED)], 0)
    part = loop.observed(cluster(hosts, machines), 10)
    assert part.machines[0].stays
    plan = loop.planned(part, 10, lambda state, balance: planner.plan(state, EXACT, balance=balance))
    assert [step.move.machine for step in plan.order.steps] == ["p"]
