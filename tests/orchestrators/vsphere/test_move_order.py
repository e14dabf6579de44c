"""The order of moves: nothing is over its capacity on the way, whatever is to be moved."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from orchestrators.vsphere.inventory import Inventory, Move, Rule, RuleKind
from orchestrators.vsphere.move_order import Budgets, Order, ordered
from tests.orchestrators.vsphere.states import cluster, host, machine


def rounds(order: Order) -> list[list[str]]:
    return [
        [step.move.machine for step in order.steps if step.round == number]
        for number in range(1, order.rounds + 1)
    ]


def test_a_machine_waits_until_there_is_room() -> None:
    state = cluster([host("a"), host("b"), host("c")], [machine("p", "a", 60), machine("q", "b", 60)])
    order = ordered(state, [Move("p", "a", "b"), Move("q", "b", "c")], Budgets())
    assert rounds(order) == [["q"], ["p"]]


def test_two_that_wait_for_each_other_need_a_third_host() -> None:
    state = cluster([host("a"), host("b"), host("c")], [machine("p", "a", 60), machine("q", "b", 70)])
    order = ordered(state, [Move("p", "a", "b"), Move("q", "b", "a")], Budgets())
    assert [(*step.move, step.detour) for step in order.steps] == [
        ("p", "a", "c", True),
        ("q", "b", "a", False),
        ("p", "c", "b", False),
    ]


def test_without_a_third_host_they_are_left_out_and_the_reason_is_told() -> None:
    state = cluster([host("a"), host("b")], [machine("p", "a", 60), machine("q", "b", 70)])
    order = ordered(state, [Move("p", "a", "b"), Move("q", "b", "a")], Budgets())
    assert order.steps == ()
    assert [why for _, why in order.left_out] == [
        "b has no room for its memory",
        "a has no room for its memory",
    ]


def test_what_is_kept_apart_does_not_meet_on_the_way() -> None:
    rule = Rule("r", RuleKind.APART, ("p", "q"))
    state = cluster([host("a"), host("b"), host("c")], [machine("p", "a"), machine("q", "b")], rule)
    order = ordered(state, [Move("p", "a", "b"), Move("q", "b", "c")], Budgets())
    assert rounds(order) == [["q"], ["p"]]


def test_what_is_together_is_not_parted_where_a_part_of_the_moves_is_left_out() -> None:
    rule = Rule("r", RuleKind.TOGETHER, ("p", "q"))
    machines = [machine("p", "a", 10), machine("q", "a", 60), machine("s", "b", 60)]
    state = cluster([host("a"), host("b")], machines, rule)
    order = ordered(state, [Move("p", "a", "b"), Move("q", "a", "b")], Budgets())
    assert order.steps == ()
    assert [why for _, why in order.left_out] == ["those that rule r keeps together cannot all move"] * 2


def test_a_detour_keeps_the_rules_of_its_machine() -> None:
    rule = Rule("r", RuleKind.OFF, ("p",), ("c",))
    hosts = [host("a"), host("b"), host("c", 200), host("d")]
    state = cluster(hosts, [machine("p", "a", 60), machine("q", "b", 70)], rule)
    order = ordered(state, [Move("p", "a", "b"), Move("q", "b", "a")], Budgets())
    assert order.steps[0].move == Move("p", "a", "d")


def test_budgets_bound_what_moves_at_the_same_time() -> None:
    state = cluster([host("a"), host("b"), host("c")], [machine(name, "a") for name in "pqrst"])
    moves = [Move(name, "a", "bc"[number % 2]) for number, name in enumerate("pqrst")]
    assert [len(each) for each in rounds(ordered(state, moves, Budgets(2, 16)))] == [2, 2, 1]
    assert [len(each) for each in rounds(ordered(state, moves, Budgets(4, 3)))] == [3, 2]


SIZES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 60)), max_size=12)


@given(SIZES, st.integers(1, 3), st.integers(1, 6))
def test_no_host_is_over_its_capacity_at_any_step(
    drawn: list[tuple[int, int, int]], per_host: int, per_cluster: int
) -> None:
    """Replayed one by one, with each machine on both hosts during its round; hosts that are over it never get more."""
    hosts = [host(name) for name in "abcd"]
    machines = [machine(f"m{n}", "abcd"[at], size) for n, (at, _, size) in enumerate(drawn)]
    state = cluster(hosts, machines)
    moves = [Move(f"m{n}", "abcd"[at], "abcd"[to]) for n, (at, to, _) in enumerate(drawn) if at != to]
    order = ordered(state, moves, Budgets(per_host, per_cluster))
    _replay(state, order, Budgets(per_host, per_cluster))
    done = {step.move.machine: step.move.destination for step in order.steps}
    left = {move.machine for move, _ in order.left_out}
    assert all(move.machine in left or done[move.machine] == move.destination for move in moves)


def _replay(state: Inventory, order: Order, budgets: Budgets) -> None:
    place = {each.name: each.host for each in state.machines}
    size = {each.name: each.memory for each in state.machines}
    for number in range(1, order.rounds + 1):
        steps = [step.move for step in order.steps if step.round == number]
        load = Counter(dict.fromkeys("abcd", 0))
        for name, where in place.items():
            load[where] += size[name]
        arriving: Counter[str] = Counter()
        busy: Counter[str] = Counter()
        for move in steps:
            assert place[move.machine] == move.source
            arriving[move.destination] += size[move.machine]
            busy.update((move.source, move.destination))
        assert all(load[name] + more <= 100 for name, more in arriving.items())
        assert len(steps) <= budgets.per_cluster
        assert max(busy.values()) <= budgets.per_host
        place.update({move.machine: move.destination for move in steps})
