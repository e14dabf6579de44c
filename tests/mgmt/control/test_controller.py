"""The control loop on a fake engine: what it does when hosts come and go, and what it never does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import trio

from datastore_adapter.interface import (
    AdapterError,
    DiskState,
    DiskTrouble,
    Done,
    Failed,
    FencedError,
    Step,
)
from mgmt.errors import (
    DrainRefusedError,
    EngineUnreachableError,
    NotControllerError,
    UnknownHostError,
)
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import PolicyChoice
from mgmt.plans.safety import WaveLimits
from mgmt.solving.async_solver import ThreadSolver
from tests.mgmt.control.greedy_solver import GreedySolver
from tests.mgmt.control.harness import SETTINGS, harness, make_hosts


async def test_the_first_placement_waits_for_the_expected_hosts(autojump_clock: object) -> None:
    async with harness(placed=False) as cluster:
        hosts = {host.name: host for host in make_hosts(6, 3)}
        cluster.change({"n1": hosts["n1"]})
        await cluster.until(lambda: "waiting" in cluster.kinds())
        assert cluster.engine.intent["segments"][0] == "s00", (
            "the intent is agreed before all hosts are there"
        )
        cluster.change({name: hosts[name] for name in ("n1", "n2", "n3", "n4", "n5")})
        await cluster.until(lambda: len(cluster.of_kind("waiting")) == 2)
        assert not cluster.engine.segments
        assert not cluster.controller.settled
        cluster.change(hosts)
        await cluster.settled()
        cluster.check_placement()
        assert len(cluster.of_kind("plan-done")) == 1
        assert [cluster.load(host) for host in hosts] == [6] * 6


async def test_a_lost_host_gives_one_plan_that_moves_exactly_its_copies(autojump_clock: object) -> None:
    async with harness() as cluster:
        before = {key: cluster.engine.chain(key) for key in cluster.engine.segments}
        lost = cluster.load("n5")
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        plans = cluster.of_kind("plan-done")[1:]
        assert [plan.data["moves"] for plan in plans] == [lost]
        assert plans[0].data["required"] == lost
        assert set(cluster.engine.copied) == {
            (key, (set(cluster.engine.chain(key)) - set(before[key])).pop())
            for key in before
            if "n5" in before[key]
        }


async def test_chains_survivors_keep_their_order_and_a_lost_primary_is_followed_by_a_complete_copy(
    autojump_clock: object,
) -> None:
    async with harness() as cluster:
        before = {key: cluster.engine.chain(key) for key in cluster.engine.segments}
        cluster.lose("n2")
        await cluster.settled()
        for key, chain in before.items():
            survivors = [host for host in chain if host != "n2"]
            now = cluster.engine.chain(key)
            if chain[0] != "n2":
                assert [host for host in now if host in survivors] == survivors
            else:
                assert now[0] in survivors


@pytest.mark.slow("a thousand rounds of the loop")
async def test_a_settled_system_never_moves(autojump_clock: object) -> None:
    settings = replace(SETTINGS, round_interval=0.1, standby_interval=60.0)
    async with harness(settings=settings) as cluster:
        started = list(cluster.engine.started)
        agreed = cluster.engine.intents_agreed
        rounds = cluster.controller.statistics()["rounds"]
        size = 1000
        while cluster.controller.statistics()["rounds"] < rounds + 1000:
            # Data grows for ever; the solver is asked again, and again finds nothing to do.
            size = size * 2 if size < 1 << 34 else 1000
            cluster.engine.bytes_per_segment = size
            await cluster.more_rounds()
            assert cluster.controller.settled
        assert cluster.controller.statistics()["solves"] > 900
        assert cluster.engine.started == started
        assert cluster.engine.intents_agreed == agreed
        assert len(cluster.of_kind("settled")) == 1


async def test_a_look_at_an_unchanged_system_asks_no_solver(autojump_clock: object) -> None:
    async with harness() as cluster:
        solves = cluster.controller.statistics()["solves"]
        await cluster.more_rounds(20)
        assert cluster.controller.statistics()["solves"] == solves


async def test_a_standby_looks_when_it_is_asked_and_else_hardly_ever(autojump_clock: object) -> None:
    async with harness() as cluster:
        standby = cluster.nodes["n5"].controller
        asked = standby.statistics()["observations"]
        await trio.sleep(600.0)
        assert standby.statistics()["observations"] - asked == 10
        cluster.engine.disks = {"n3": DiskTrouble(DiskState.FULL, "it takes no more records")}
        assert standby.status()["full"] == []
        await trio.sleep(SETTINGS.round_interval)
        await standby.reports.look()
        assert standby.status()["full"] == ["n3"]
        asked = standby.statistics()["observations"]
        await standby.reports.look()
        assert standby.statistics()["observations"] == asked, "it was done just now"


async def test_at_a_view_change_the_controller_looks_first(autojump_clock: object) -> None:
    async with harness() as cluster:
        standbys = [node.controller for name, node in cluster.nodes.items() if name not in ("n1", "n2")]
        await trio.sleep(2 * SETTINGS.intent_interval)  # until they know the intent
        asked = [standby.statistics()["observations"] for standby in standbys]
        cluster.lose("n2")
        await trio.sleep(0.9 * SETTINGS.intent_interval)
        assert cluster.of_kind("step-started")
        assert [standby.statistics()["observations"] for standby in standbys] == asked
        await trio.sleep(0.2 * SETTINGS.intent_interval)
        assert [standby.statistics()["observations"] for standby in standbys] == [n + 1 for n in asked]


async def test_a_status_does_not_wait_for_an_engine_that_does_not_answer(autojump_clock: object) -> None:
    async with harness() as cluster:
        standby = cluster.nodes["n5"].controller
        await trio.sleep(SETTINGS.round_interval)
        cluster.nodes["n5"].adapter.observe = trio.sleep_forever  # type: ignore[assignment]
        began = trio.current_time()
        await standby.reports.look()
        assert trio.current_time() - began <= 1.0
        assert standby.status()["layout_epoch"] >= 0


async def test_a_new_host_gets_its_share_by_optional_moves(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.add(Host("n7", "127.0.0.1:9006", "r1"))
        await cluster.settled()
        cluster.check_placement()
        plan = cluster.of_kind("plan-done")[-1]
        assert plan.data["moves"] == 4
        assert plan.data["required"] == 0
        assert cluster.load("n7") == 4


async def test_required_moves_are_finished_before_optional_ones_start(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.kill("n2")
        joined = Host("n7", "127.0.0.1:9006", "r1", seniority=50)
        cluster.engine.up.add("n7")
        cluster.start("n7")
        hosts = {name: host for name, host in cluster.hosts.items() if name != "n2"}
        cluster.change({**hosts, "n7": joined})
        await cluster.settled()
        cluster.check_placement()
        moved = [event for event in cluster.of_kind("step-started") if event.data["kind"] == "copy"]
        to_new = [index for index, event in enumerate(moved) if event.data["to"] == "n7"]
        repairs = [index for index, event in enumerate(moved) if event.data["to"] != "n7"]
        assert to_new
        assert repairs
        assert max(repairs) < min(to_new)


async def test_two_views_in_quick_succession_end_in_one_good_placement(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        cluster.engine.rate = 500.0  # two seconds a copy
        cluster.lose("n5")
        await cluster.until(cluster.copying)
        cluster.lose("n9")
        await cluster.settled()
        cluster.check_placement()
        assert cluster.of_kind("plan-superseded")
        # What was half copied when the second view came is gone on with, not begun again.
        assert {k: v for k, v in cluster.engine.copied.items() if v > 1000.001} == {}


async def test_transfers_to_a_host_that_left_are_cancelled(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        cluster.engine.rate = 100.0
        cluster.lose("n5")
        await cluster.until(cluster.copying)
        victim = max(event.data["to"] for event in cluster.of_kind("step-started") if event.data["to"])
        assert victim != "n1"
        controller = cluster.nodes["n1"]
        cluster.lose(victim)
        await cluster.settled()
        assert any(text.endswith(f"to {victim}") for text in controller.adapter.cancelled)
        cluster.check_placement()


async def test_a_join_during_a_repair_does_not_begin_it_again(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.rate = 500.0
        cluster.lose("n5")
        await cluster.until(cluster.copying)
        cluster.add(Host("n7", "127.0.0.1:9006", "r2"))
        await cluster.settled()
        cluster.check_placement()
        assert [event for event in cluster.of_kind("plan") if "(agreed before)" in event.text]
        assert {k: v for k, v in cluster.engine.copied.items() if v > 1000.001} == {}


async def test_losing_a_rack_leaves_shorter_chains_and_names_the_rules(autojump_clock: object) -> None:
    async with harness() as cluster:
        before = {key: cluster.engine.chain(key) for key in cluster.engine.segments}
        cluster.lose("n3", "n6")
        await cluster.until(lambda: "infeasible" in cluster.kinds())
        await cluster.until(lambda: all(not {"n3", "n6"} & set(c) for c in map(cluster.engine.chain, before)))
        for key, chain in before.items():
            assert cluster.engine.chain(key) == tuple(host for host in chain if host not in ("n3", "n6"))
        assert not {"n3", "n6"} & {*cluster.engine.roles.layout_servers, *cluster.engine.roles.sequencers}
        event = cluster.of_kind("infeasible")[0]
        assert "one_replica_per_rack" in event.data["policies"]
        await cluster.more_rounds(10)
        status = cluster.controller.status()
        assert status["phase"] == "infeasible"
        assert not status["settled"]
        assert "one_replica_per_rack" in status["last_error"]
        assert status["under_replicated"] == 12
        assert len(cluster.of_kind("infeasible")) == 1, "a standing complaint is said once"
        cluster.add(Host("n8", "127.0.0.1:9008", "r3"))
        await cluster.settled()
        cluster.check_placement()
        assert cluster.controller.status()["last_error"] == ""


async def test_a_dead_majority_of_copies_keeps_the_last_one_serving(autojump_clock: object) -> None:
    async with harness() as cluster:
        victims = cluster.engine.chain("s00")[:2]
        cluster.lose(*victims)
        await cluster.settled()
        cluster.check_placement()


async def test_a_segment_without_a_live_copy_is_left_as_it_is(autojump_clock: object) -> None:
    async with harness() as cluster:
        before = cluster.engine.chain("s00")
        cluster.lose(*before)
        await cluster.until(lambda: "unavailable" in cluster.kinds())
        assert "s00" in cluster.of_kind("unavailable")[0].data["segments"]
        assert cluster.engine.chain("s00") == before


async def test_an_unreachable_engine_is_waited_for(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.unreachable = "1 of 3 layout servers answers"
        cluster.lose("n5")
        await cluster.until(lambda: cluster.controller.status()["phase"] == "engine unreachable")
        with pytest.raises(EngineUnreachableError, match="1 of 3"):
            await cluster.controller.requests.plan()
        with pytest.raises(EngineUnreachableError, match="1 of 3"):
            await cluster.controller.requests.drain("n4")
        await cluster.more_rounds(5)
        cluster.engine.unreachable = ""
        await cluster.settled()
        cluster.check_placement()
        assert "engine-reachable" in cluster.kinds()


async def test_an_engine_that_was_unreachable_for_a_while_is_settled_again(autojump_clock: object) -> None:
    """Nothing else happened: no view changed, and it shows what it showed before."""
    async with harness() as cluster:
        cluster.engine.unreachable = "1 of 3 layout servers answers"
        await cluster.until(lambda: cluster.controller.status()["phase"] == "engine unreachable")
        assert not cluster.controller.settled
        cluster.engine.unreachable = ""
        await cluster.settled()
        status = cluster.controller.status()
        assert (status["phase"], status["last_error"]) == ("settled", "")
        assert len(cluster.of_kind("settled")) == 2


async def test_an_engine_that_vanishes_in_mid_plan(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.rate = 1000.0

        def vanish(step: Step) -> None:
            cluster.engine.unreachable = "nobody answers" if step.kind == "copy" else ""

        cluster.engine.on_start = vanish
        cluster.lose("n5")
        await cluster.until(lambda: bool(cluster.engine.unreachable))
        cluster.engine.on_start = lambda step: None
        await cluster.until(lambda: "engine-unreachable" in cluster.kinds())
        cluster.engine.unreachable = ""
        await cluster.settled()
        cluster.check_placement()


async def test_a_step_that_fails_retryably_is_tried_again(autojump_clock: object) -> None:
    async with harness() as cluster:
        failures = {"left": 5}

        def fail(step: Step) -> Failed | None:
            if step.kind == "copy" and failures["left"] > 0:
                failures["left"] -= 1
                return Failed("busy", "no free slot", retryable=True)
            return None

        cluster.engine.fail_step = fail
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        assert len(cluster.of_kind("step-retry")) == 5
        assert len(cluster.of_kind("plan-done")) == 2


async def test_a_step_that_cannot_be_started_is_tried_again(autojump_clock: object) -> None:
    async with harness() as cluster:
        errors: list[Exception | None] = [AdapterError("time-out"), AdapterError("time-out")]
        cluster.engine.refuse_start = lambda step: errors.pop() if errors else None
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        assert not errors


async def test_a_plan_that_fails_for_good_is_solved_again_after_a_pause(autojump_clock: object) -> None:
    async with harness() as cluster:
        broken = {"s03"}
        cluster.engine.fail_step = lambda step: (
            Failed("checksum", "the source is corrupt", retryable=False) if step.segment in broken else None
        )
        cluster.lose(cluster.engine.chain("s03")[1])
        await cluster.until(lambda: len(cluster.of_kind("step-failed")) >= 3)
        assert "checksum" in cluster.controller.status()["last_error"]
        broken.clear()
        await cluster.settled()
        cluster.check_placement()


async def test_a_plan_that_does_not_help_is_not_repeated_at_full_speed(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.change_layout = lambda step, fence: Done()  # type: ignore[method-assign]
        cluster.engine.advance_copy = lambda job, now: Done()  # type: ignore[method-assign]
        cluster.lose("n5")
        rounds = cluster.rounds()
        await trio.sleep(60.0)
        assert cluster.rounds() - rounds < 60
        assert len(cluster.of_kind("plan")) <= 4
        assert cluster.controller.status()["phase"] == "trouble"


async def test_what_the_engine_left_open_is_repaired_first(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.left_open = True

        def close(step: Step) -> None:
            if step.kind == "finish":
                cluster.engine.left_open = False

        cluster.engine.on_start = close
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        started = [event.data["kind"] for event in cluster.of_kind("step-started")]
        assert started[started.index("finish") + 1] == "open"


async def test_a_drain_empties_the_host_and_an_undrain_brings_it_back(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.controller.requests.drain("n4")
        assert not cluster.controller.settled
        assert cluster.engine.intent["drains"] == ["n4"], "acknowledged means agreed"
        await cluster.settled()
        cluster.check_placement()
        assert cluster.load("n4") == 0
        assert cluster.controller.status()["drains"] == {"n4": 0}
        await cluster.controller.requests.drain("n4")
        assert len(cluster.of_kind("drain")) == 1, "asking again is harmless"
        await cluster.controller.requests.undrain("n4")
        await cluster.settled()
        assert cluster.load("n4") == 6
        assert cluster.engine.intent["drains"] == []


async def test_an_impossible_drain_is_refused_by_name_and_changes_nothing(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.controller.requests.drain("n6")
        await cluster.settled()
        epoch, intent, started = cluster.engine.epoch, cluster.engine.intent, list(cluster.engine.started)
        with pytest.raises(DrainRefusedError, match="one_replica_per_rack") as refused:
            await cluster.controller.requests.drain("n3")
        assert refused.value.policies == ("one_replica_per_rack", "only_live_hosts")
        await cluster.until(lambda: cluster.controller.settled)
        assert (cluster.engine.epoch, cluster.engine.intent, cluster.engine.started) == (
            epoch,
            intent,
            started,
        )
        assert "drain-refused" in cluster.kinds()


async def test_a_drain_during_a_repair_is_agreed_and_done_after_it(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        cluster.engine.rate = 500.0
        cluster.lose("n5")
        await cluster.until(cluster.copying)
        await cluster.controller.requests.drain("n4")
        await cluster.settled()
        cluster.check_placement()
        assert cluster.load("n4") == 0


async def test_two_drains_at_once_that_are_impossible_together(autojump_clock: object) -> None:
    async with harness() as cluster:
        outcomes: dict[str, str] = {}

        async def ask(host: str) -> None:
            try:
                await cluster.controller.requests.drain(host)
                outcomes[host] = "agreed"
            except DrainRefusedError:
                outcomes[host] = "refused"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "n3")
            nursery.start_soon(ask, "n6")
        assert sorted(outcomes.values()) == ["agreed", "refused"]
        await cluster.settled()
        cluster.check_placement()


async def test_requests_to_others_than_the_controller_name_it(autojump_clock: object) -> None:
    async with harness() as cluster:
        standby = cluster.nodes["n2"].controller
        with pytest.raises(NotControllerError, match="n1 is the controller"):
            await standby.requests.drain("n4")
        with pytest.raises(NotControllerError):
            await standby.requests.plan()
        with pytest.raises(UnknownHostError, match="n77"):
            await cluster.controller.requests.drain("n77")
        assert standby.status()["role"] == "standby"
        assert len((await standby.reports.layout())["segments"]) == 12


async def test_only_the_controller_says_whether_it_is_settled_and_of_the_latest_view_alone(
    autojump_clock: object,
) -> None:
    async with harness() as cluster:
        first, second = (cluster.nodes[name].controller for name in ("n1", "n2"))
        assert [first.settled_in(epoch) for epoch in (cluster.epoch, cluster.epoch + 1)] == [True, False]
        assert second.settled_in(cluster.epoch) is None
        cluster.lose("n5")
        await cluster.until(lambda: not first.status()["settled"])
        assert first.settled_in(cluster.epoch) is False


async def test_the_next_in_line_prepares_its_solver(autojump_clock: object) -> None:
    async with harness() as cluster:
        solvers = {name: node.solver for name, node in cluster.nodes.items()}
        assert all(isinstance(solver, GreedySolver) for solver in solvers.values())
        await cluster.until(lambda: solvers["n2"].prepared == 1)  # type: ignore[attr-defined]
        assert solvers["n3"].prepared == 0  # type: ignore[attr-defined]


async def test_whoever_may_solve_next_has_a_solver_when_a_member_is_suspected(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver's process may have ended since: each time one is asked to be ready it is looked at."""
    async with harness(settings=replace(SETTINGS, keep_solver=False)) as cluster:
        asked: list[str] = []
        names = {id(node.solver): name for name, node in cluster.nodes.items()}

        async def prepare(solver: ThreadSolver, policies: PolicyChoice) -> None:
            asked.append(names[id(solver._solver)])

        await cluster.until(lambda: cluster.controller.settled)
        await trio.sleep(600)
        monkeypatch.setattr(ThreadSolver, "prepare", prepare)
        await trio.sleep(600)
        assert asked == []
        for node in cluster.nodes.values():
            node.controller.expect_change()
        await trio.sleep(0.1)
        assert sorted(asked) == ["n1", "n2"]


async def test_the_controller_and_the_next_in_line_keep_their_solvers(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness() as cluster:
        asked: set[str] = set()
        names = {id(node.solver): name for name, node in cluster.nodes.items()}

        async def prepare(solver: ThreadSolver, policies: PolicyChoice) -> None:
            asked.add(names[id(solver._solver)])

        await trio.sleep(600)
        monkeypatch.setattr(ThreadSolver, "prepare", prepare)
        await trio.sleep(SETTINGS.round_interval + 1)
        assert asked == {"n1", "n2"}


async def test_at_a_view_change_the_controller_loads_its_solver_while_it_looks_at_the_engine(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver's process may have ended since the last solve."""
    async with harness() as cluster:
        solves = cluster.controller.statistics()["solves"]
        seen: list[int] = []

        async def prepare(solver: ThreadSolver, policies: PolicyChoice) -> None:
            if solver._solver is cluster.nodes["n1"].solver:
                seen.append(cluster.controller.statistics()["solves"])

        monkeypatch.setattr(ThreadSolver, "prepare", prepare)
        cluster.lose("n5")
        await cluster.settled()
        assert seen == [solves]
        assert cluster.controller.statistics()["solves"] > solves


async def test_a_dry_run_changes_nothing_and_says_why(autojump_clock: object) -> None:
    async with harness() as cluster:
        epoch = cluster.engine.epoch
        run = await cluster.controller.requests.plan()
        assert run.feasible
        assert run.to_json()["moves"] == []
        standing = {key: list(cluster.engine.chain(key)) for key in cluster.engine.segments}
        assert run.to_json()["target"] == standing
        assert "nothing to do" in run.text()
        cluster.kill("n5")
        # The controller has not seen the view yet when the operator asks: make it so by holding its loop.
        cluster.engine.on_start = lambda step: None
        cluster.remove("n5")
        run = await cluster.controller.requests.plan()
        document = run.to_json()
        assert document["required_moves"] == 6
        assert {move["from"] for move in document["moves"]} == {"n5"}
        assert {move["from_rack"] for move in document["moves"]} == {"r2"}
        assert {move["why"] for move in document["moves"]} == {"n5 is gone"}
        assert document["violations"]["after"] == {"rack_violations": 0, "under_replicated": 0}
        assert document["violations"]["now"]["under_replicated"] == 6
        assert document["steps"][0]["kind"] == "open"
        gained = {(move["segment"], move["to"]) for move in document["moves"]}
        for key, hosts in document["target"].items():
            assert set(hosts) == {*standing[key], *(to for segment, to in gained if segment == key)} - {"n5"}
        assert "- n5 (r2)" in run.text()
        assert cluster.engine.epoch == epoch


async def test_a_dry_run_of_an_impossible_placement_names_the_rules(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.lose("n3", "n6")
        run = await cluster.controller.requests.plan()
        assert not run.feasible
        assert run.to_json()["clashing"] == ["one_replica_per_rack", "only_live_hosts"]
        assert "one_replica_per_rack" in run.text()
        await cluster.until(
            lambda: all(len(cluster.engine.chain(key)) == 2 for key in cluster.engine.segments)
        )
        assert "until a host comes or a rule is relaxed" in (await cluster.controller.requests.plan()).text()


async def test_what_was_in_the_way_is_not_told_any_more_while_it_is_put_right(autojump_clock: object) -> None:
    async with harness() as cluster:
        lost = cluster.hosts["n3"]
        cluster.lose("n3", "n6")
        await cluster.until(lambda: "infeasible" in cluster.kinds())
        await cluster.more_rounds(2)
        assert "one_replica_per_rack" in cluster.controller.status()["last_error"]
        cluster.engine.rate = 500.0
        cluster.add(lost)
        await cluster.until(cluster.copying)
        status = cluster.controller.status()
        assert (status["phase"], status["last_error"]) == ("executing", "")


async def test_a_deposed_controller_stops_at_once(autojump_clock: object) -> None:
    """It hears of the new view late, and meanwhile is fenced."""
    async with harness() as cluster:
        cluster.engine.rate = 100.0
        old = cluster.nodes["n1"]
        cluster.lose("n5")
        await cluster.until(cluster.copying)
        # A view without the manager role of n1 is agreed, but n1 does not hear of it.
        demoted = HostView(
            cluster.epoch + 1,
            tuple(
                Host(h.name, h.address, h.rack, is_manager=h.name != "n1", seniority=h.seniority)
                for h in cluster.hosts.values()
            ),
        )
        cluster.epoch, cluster.hosts = demoted.epoch, demoted.by_name
        for name, node in cluster.nodes.items():
            if name != "n1":
                node.views.send_nowait(demoted)
        cluster.engine.rate = 10_000.0
        await cluster.settled()
        cluster.check_placement()
        await cluster.until(lambda: any(name == "n1" and e.kind == "fenced" for name, e in cluster.events))
        epoch = cluster.engine.epoch
        old.views.send_nowait(demoted)
        await cluster.until(lambda: old.controller.status()["role"] == "standby")
        rounds = old.controller.statistics()["rounds"]
        await trio.sleep(30.0)
        assert old.controller.statistics()["rounds"] == rounds
        assert cluster.engine.epoch == epoch


async def test_being_fenced_is_reported_and_not_fought(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.refuse_start = lambda step: FencedError("view 99 was here")
        cluster.lose("n5")
        await cluster.until(lambda: "fenced" in cluster.kinds())
        started = len(cluster.engine.started)
        rounds = cluster.rounds()
        await trio.sleep(30.0)
        assert len(cluster.engine.started) == started
        assert cluster.rounds() - rounds < 30


async def test_an_older_view_is_ignored(autojump_clock: object) -> None:
    async with harness() as cluster:
        stale = HostView(cluster.epoch - 1, tuple(cluster.hosts.values())[:2])
        cluster.nodes["n1"].views.send_nowait(stale)
        await cluster.more_rounds()
        assert cluster.controller.status()["view_epoch"] == cluster.epoch


async def test_an_unreadable_intent_is_reported_and_nothing_is_touched(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.engine.intent = {**cluster.engine.intent, "version": 99}
        started = list(cluster.engine.started)
        cluster.lose("n5")
        await cluster.until(lambda: cluster.controller.status()["phase"] == "trouble")
        assert "version: 99" in cluster.controller.status()["last_error"]
        assert cluster.engine.started == started


async def test_status_and_events_are_plain_data_and_bounded(autojump_clock: object) -> None:
    async with harness() as cluster:
        json.dumps(cluster.controller.status())
        events = cluster.controller.events.after()
        json.dumps([event.to_json() for event in events])
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert cluster.controller.events.after(events[-2].number) == events[-1:]


async def test_a_drain_goes_in_waves_of_the_size_that_is_allowed(autojump_clock: object) -> None:
    limits = replace(SETTINGS.limits, bytes_per_second=800.0)
    settings = replace(SETTINGS, waves=WaveLimits(moves_per_host=2), limits=limits)
    async with harness(make_hosts(9, 3), settings=settings) as cluster:
        moved = cluster.load("n4")
        assert moved == 4
        opens: list[int] = []
        copies: list[str] = []

        def count(step: Step) -> None:
            if step.kind == "open":
                opens.append(len(copies))
            elif step.destination is not None:
                copies.append(step.description)
                assert step.bytes_per_second == 100.0

        cluster.engine.on_start = count
        await cluster.controller.requests.drain("n4")
        await cluster.settled()
        cluster.check_placement()
        assert cluster.load("n4") == 0
        assert [b - a for a, b in pairwise([*opens, len(copies)])] == [2, 2]
