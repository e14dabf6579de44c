"""When the loop plans, and when it acts."""

from __future__ import annotations

from orchestrators.vsphere.balance_loop import BalanceLoop, LoopSettings
from orchestrators.vsphere.inventory import Inventory, Move
from orchestrators.vsphere.migrations import Entry, State
from orchestrators.vsphere.move_order import Order, Step
from orchestrators.vsphere.planning import Balance, Plan
from tests.orchestrators.vsphere.states import cluster, host, machine

SETTINGS = LoopSettings(every=60, settle=300, cooldown=600, rest=1000, window=100, sample=30)
LEVEL = Balance(0.5, 0.5, 0.0)


def state(cpu: int = 10, evacuated: bool = False) -> Inventory:
    return cluster([host("a", evacuated=evacuated), host("b")], [machine("p", "a", cpu=cpu)])


def plan(*moves: Move, required: bool = False) -> Plan:
    steps = tuple(Step(move, 1) for move in moves)
    reasons = {move.machine: "a rule" for move in moves if required}
    return Plan("c", None, Order(steps), reasons, LEVEL, LEVEL)  # type: ignore[arg-type]


MOVE = Move("p", "a", "b")


def test_it_plans_now_and_then_and_at_once_when_a_rule_is_broken() -> None:
    loop = BalanceLoop(SETTINGS)
    due = [loop.is_due(state(), 0), loop.is_due(state(), 30), loop.is_due(state(evacuated=True), 31)]
    assert due == [True, False, True]
    assert not loop.is_due(state(evacuated=True), 32), "the same broken rule is planned for once a minute"
    assert loop.is_due(state(evacuated=True), 91)


def test_balance_waits_until_it_was_uneven_for_a_while_and_rules_do_not() -> None:
    loop = BalanceLoop(SETTINGS)
    assert loop.why_not_yet(plan(MOVE, required=True), 0) == ""
    assert loop.why_not_yet(plan(MOVE), 0) == "balance waits another 300 s"
    assert loop.why_not_yet(plan(), 100) == "nothing to move"
    assert loop.why_not_yet(plan(MOVE), 200) == "balance waits another 300 s", "it was even in between"
    assert loop.why_not_yet(plan(MOVE), 500) == ""


def test_after_moves_balance_waits_for_the_cooldown() -> None:
    loop = BalanceLoop(SETTINGS)
    loop.carried_out([], 1000)
    assert loop.why_not_yet(plan(MOVE), 1010) == "balance waits another 590 s"
    assert loop.why_not_yet(plan(MOVE), 1600) == ""


def test_a_machine_whose_move_failed_stays_for_a_while() -> None:
    loop = BalanceLoop(SETTINGS)
    loop.carried_out([Entry("p", "a", "b", State.FAILED)], 0)
    assert loop.observed(state(), 10).machines[0].stays == "its last move failed"
    assert loop.observed(state(), 1000).machines[0].stays == ""


def test_what_failed_is_not_tried_again_without_a_pause() -> None:
    loop = BalanceLoop(SETTINGS)
    assert loop.is_due(state(evacuated=True), 0)
    loop.carried_out([Entry("p", "a", "b", State.FAILED)], 10)
    assert not loop.is_due(state(evacuated=True), 11)
    assert loop.is_due(state(evacuated=True), 70)


def test_a_short_peak_does_not_count() -> None:
    loop = BalanceLoop(LoopSettings(window=1000, sample=10))
    for number in range(19):
        loop.observed(state(10), 10 * number)
    assert loop.observed(state(99), 190).machines[0].cpu == 10


def test_the_window_keeps_a_sample_now_and_then() -> None:
    loop = BalanceLoop(SETTINGS)
    for now, cpu in ((0, 1), (10, 2), (30, 3), (60, 4), (131, 5)):
        loop.observed(state(cpu), now)
    assert loop.samples == {"p": (4, 5)}
