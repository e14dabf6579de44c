"""The scheduler's state machine: no pod bound twice, none forgotten, whatever happens in between."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgmt import ObjectiveValue, Solution, SolveStatus
from orchestrators.kubernetes.placement import Placement, Preemption
from orchestrators.kubernetes.scheduling.effects import Bind, Evict, Mark, Report
from orchestrators.kubernetes.scheduling.scheduler import Batch, Outcome, Scheduler, SchedulingSettings
from tests.orchestrators.kubernetes.control_plane import node, pod

FOREVER = float("inf")


def identified(item: dict[str, Any], uid: str = "", **metadata: Any) -> dict[str, Any]:
    item["metadata"] |= {"uid": uid or item["metadata"]["name"], **metadata}
    return item


def scheduler(*pods: Mapping[str, Any], nodes: tuple[str, ...] = ("n1", "n2")) -> Scheduler:
    found = Scheduler(["nodes", "pods"], SchedulingSettings(gather=0.0))
    found.lead(FOREVER, 0)
    found.listed("nodes", [identified(node(name)) for name in nodes], 0)
    found.listed("pods", [identified(copy.deepcopy(dict(each))) for each in pods], 0)
    return found


def all_on(batch: Batch, name: str) -> Placement:
    return Placement(dict.fromkeys(batch.pending, name))


def taken(found: Scheduler, now: float) -> Batch:
    batch = found.batch(now)
    assert batch is not None
    return batch


def names(batch: Batch) -> set[str]:
    return {name for _, name in batch.pending}


def test_a_pod_that_is_decided_counts_on_its_node_until_the_watch_shows_it() -> None:
    found = scheduler(pod("a"))
    first = taken(found, 0)
    assert found.placed(first, all_on(first, "n1"), 1) == [Bind(("default", "a"), "a", "n1")]
    found.explained(first, {}, 1)
    found.changed("pods", identified(pod("b")), 2)
    second = taken(found, 2)
    assert names(second) == {"b"}
    assert [each["spec"].get("nodeName") for each in second.objects.pods] == ["n1", None]


def test_that_a_decision_is_carried_out_is_no_news() -> None:
    found = scheduler(pod("a"), pod("b"))
    batch = taken(found, 0)
    found.placed(batch, Placement({("default", "a"): "n1"}, left_out=(("default", "b"),)), 0)
    found.explained(batch, {}, 0)
    found.changed("pods", identified(pod("a", nodeName="n1")), 1)
    assert found.batch(2) is None
    found.changed("pods", identified(pod("a", nodeName="n1")), 3, deleted=True)
    assert names(taken(found, 3)) == {"b"}


def test_nothing_is_done_before_everything_is_listed_and_while_another_one_leads() -> None:
    found = Scheduler(["nodes", "pods"], SchedulingSettings(gather=0.0))
    found.listed("pods", [identified(pod("a"))], 0)
    found.lead(FOREVER, 0)
    assert found.batch(1) is None
    found.listed("nodes", [identified(node("n1"))], 1)
    found.lead(5, 1)
    assert found.batch(6) is None
    found.lead(FOREVER, 7)
    assert names(taken(found, 7)) == {"a"}


def test_what_was_decided_while_it_led_is_not_bound_afterwards() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    found.lead(1, 0)
    assert found.placed(batch, all_on(batch, "n1"), 2) == []


def test_a_node_that_goes_between_solve_and_binding_gets_nothing() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    found.changed("nodes", identified(node("n1")), 1, deleted=True)
    assert found.placed(batch, all_on(batch, "n1"), 2) == []
    found.explained(batch, {}, 2)
    assert names(taken(found, 2)) == {"a"}


def test_a_node_of_the_same_name_is_another_node() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    found.listed("nodes", [identified(node("n1"), "another"), identified(node("n2"))], 1)
    assert found.placed(batch, all_on(batch, "n1"), 2) == []


def test_a_conflict_waits_for_the_watch_and_tries_again() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    (bind,) = found.placed(batch, all_on(batch, "n1"), 0)
    found.explained(batch, {}, 0)
    assert isinstance(bind, Bind)
    assert found.bound(bind, Outcome.CONFLICT, 1) == []
    assert found.batch(1) is None
    assert names(taken(found, found.wake_at() or FOREVER)) == {"a"}


def test_a_binding_without_an_answer_keeps_its_place() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    (bind,) = found.placed(batch, all_on(batch, "n1"), 0)
    found.explained(batch, {}, 0)
    assert isinstance(bind, Bind)
    found.bound(bind, Outcome.UNKNOWN, 1)
    found.changed("pods", identified(pod("b")), 2)
    assert names(taken(found, 2)) == {"b"}


def test_a_list_after_a_lost_watch_finds_what_has_gone() -> None:
    found = scheduler(pod("a"), pod("b"))
    batch = taken(found, 0)
    found.listed("pods", [identified(pod("b"))], 1)
    assert [effect.pod for effect in found.placed(batch, all_on(batch, "n1"), 2)] == [("default", "b")]


def test_why_a_pod_is_left_out_is_told_once() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    nowhere = Placement({}, left_out=(("default", "a"),))
    told = []
    for now in (0.0, 1.0):
        found.placed(batch, nowhere, now)
        told.append(found.explained(batch, {("default", "a"): "0/2 nodes are available."}, now))
    assert [type(effect) for effect in told[0]] == [Report, Mark]
    assert told[1] == []


def test_a_pod_for_which_others_make_way_is_nominated_and_asks_no_more() -> None:
    low = pod("low", priority=0, nodeName="n1")
    found = scheduler(pod("high", priority=10), low)
    batch = taken(found, 0)
    key = ("default", "high")
    cleared = Placement({}, left_out=(key,), preemptions={key: Preemption("n1", (("default", "low"),))})
    assert found.placed(batch, cleared, 0) == [Evict(("default", "low"), "low", key)]
    _, mark = found.explained(batch, {key: "0/2"}, 0)
    assert isinstance(mark, Mark)
    assert mark.nominated == "n1"
    ending = {
        **low,
        "metadata": {**low["metadata"], "uid": "low", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    found.changed("pods", ending, 1)
    found.changed("pods", identified(pod("other")), 1)
    others = taken(found, 1)
    assert names(others) == {"other"}
    assert [each["spec"].get("nodeName") for each in others.objects.pods] == ["n1", "n1", None]
    robbing = Placement(
        {}, (("default", "other"),), preemptions={("default", "other"): Preemption("n1", (key,))}
    )
    assert found.placed(others, robbing, 1) == []
    found.explained(others, {}, 1)
    found.changed("pods", ending, 2, deleted=True)
    assert names(taken(found, 2)) == {"high", "other"}


def test_an_eviction_that_a_budget_forbids_is_tried_again_later() -> None:
    found = scheduler(pod("high", priority=10), pod("low", priority=0, nodeName="n1"))
    batch, key = taken(found, 0), ("default", "high")
    (evict,) = found.placed(
        batch, Placement({}, (key,), preemptions={key: Preemption("n1", (("default", "low"),))}), 0
    )
    found.explained(batch, {}, 0)
    assert isinstance(evict, Evict)
    (report,) = found.evicted(evict, Outcome.REFUSED, 1, "the budget is used up")
    assert isinstance(report, Report)
    assert report.reason == "EvictionRefused"
    assert names(taken(found, found.wake_at() or FOREVER)) == {"high"}


def test_a_refusal_after_a_lost_answer_keeps_the_place() -> None:
    found = scheduler(pod("a"))
    batch = taken(found, 0)
    (bind,) = found.placed(batch, all_on(batch, "n1"), 0)
    found.explained(batch, {}, 0)
    assert isinstance(bind, Bind)
    found.bound(bind, Outcome.UNKNOWN, 1)
    found.bound(bind, Outcome.CONFLICT, 1)
    found.changed("pods", identified(pod("b")), 2)
    assert [each["spec"].get("nodeName") for each in taken(found, 2).objects.pods] == ["n1", None]


def test_pods_that_fit_nowhere_do_not_keep_others_from_their_turn() -> None:
    found = scheduler(
        pod("gated", priority=9, schedulingGates=[{"name": "x"}]),
        *(pod(f"large{number}", priority=9) for number in range(3)),
        pod("small"),
    )
    found.settings = SchedulingSettings(gather=0.0, batch=2)
    turns = []
    for now in (0.0, 1.0, 2.0):
        batch = taken(found, now)
        turns.append(names(batch))
        found.placed(batch, Placement({}, tuple(batch.pending)), now)
        found.explained(batch, {}, now)
    assert turns == [{"large0", "large1"}, {"large2", "small"}, {"large0", "large1"}]


@pytest.mark.parametrize(("proven", "pauses"), [(True, [60, 60]), (False, [0.5, 1])])
def test_pods_that_are_left_out_are_tried_again_though_nothing_happens(
    proven: bool, pauses: list[float]
) -> None:
    found = scheduler(pod("a"))
    value = ObjectiveValue("pods_left_out", "minimize", 1, 1, None, 1, None, proven)
    solution = Solution(SolveStatus.FEASIBLE, 0, (), (value,), {}, 0.0, 0.0)
    now = 0.0
    for pause in pauses:
        batch = taken(found, now)
        found.placed(batch, Placement({}, tuple(batch.pending), solution=solution), now)
        found.explained(batch, {}, now)
        assert found.wake_at() == now + pause
        now += pause


# A server that does as the API's does, and a scheduler that sees what it does later, or not at all.


class Server:
    """Binds once; the watch is a list of news that have not come yet."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.bindings: list[str] = []
        self.news: list[tuple[dict[str, Any], bool]] = []

    def create(self, name: str, uid: str) -> None:
        if name not in self.pods:
            self.pods[name] = identified(pod(name), uid)
            self.news.append((copy.deepcopy(self.pods[name]), False))

    def delete(self, name: str) -> None:
        if name in self.pods:
            self.news.append((self.pods.pop(name), True))

    def bind(self, effect: Bind) -> Outcome:
        held = self.pods.get(effect.pod[1])
        if held is None:
            return Outcome.GONE
        if held["metadata"]["uid"] != effect.uid or held["spec"].get("nodeName"):
            return Outcome.CONFLICT
        held["spec"]["nodeName"] = effect.node
        self.bindings.append(effect.uid)
        self.news.append((copy.deepcopy(held), False))
        return Outcome.DONE


STEPS = st.one_of(
    st.tuples(st.sampled_from(["create", "delete"]), st.integers(0, 4)),
    st.tuples(
        st.sampled_from(["news", "relist", "solve", "place", "bind", "lost", "depose", "lead"]), st.just(0)
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_no_pod_is_bound_twice_and_none_is_forgotten(steps: list[tuple[str, int]]) -> None:
    found, server = scheduler(), Server()
    batch: Batch | None = None
    asked: list[Bind] = []
    now = 0.0

    def act(step: str, which: int) -> None:
        nonlocal batch, now
        now += 0.25
        match step:
            case "create":
                server.create(f"p{which}", f"p{which}-{now}")
            case "delete":
                server.delete(f"p{which}")
            case "news" if server.news:
                item, deleted = server.news.pop(0)
                found.changed("pods", item, now, deleted=deleted)
            case "relist":
                server.news.clear()
                found.listed("pods", copy.deepcopy(list(server.pods.values())), now)
            case "solve" if batch is None:
                batch = found.batch(now)
            case "place" if batch is not None:
                asked.extend(e for e in found.placed(batch, all_on(batch, "n1"), now) if isinstance(e, Bind))
                found.explained(batch, {}, now)
                batch = None
            case "bind" | "lost" if asked:
                effect = asked.pop(0)
                outcome = server.bind(effect)
                if step == "lost":  # done, and the answer does not come: it is asked for again
                    found.bound(effect, Outcome.UNKNOWN, now)
                    asked.append(effect)
                else:
                    found.bound(effect, outcome, now)
            case "depose":
                found.lead(-FOREVER, now)
            case "lead":
                found.lead(FOREVER, now)

    for step, which in steps:
        act(step, which)
    for _ in range(20):  # whatever it was, it passes
        now += 60
        for step in ("lead", "relist", "solve", "place", *["bind"] * len(server.pods)):
            act(step, 0)
    assert all(each["spec"].get("nodeName") for each in server.pods.values())
    assert len(server.bindings) == len(set(server.bindings))
