"""The control loop with the product's own solver and policy pack, on the fake engine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import trio
import trio.testing

from datastore_adapter.interface import ServiceRoles
from mgmt.errors import DrainRefusedError
from mgmt.placement.hosts import Host
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import HostRow, PlacementState, ReplicaRow, SegmentRow
from mgmt.solving.async_solver import WorkerThread
from mgmt.solving.placement_solver import Infeasible, PolicySolver, Solved, Undecided
from tests.mgmt.control.harness import SETTINGS, harness, make_hosts, pack_solver

# A busy machine must not change what is decided here.
PATIENT = replace(SETTINGS, solve_budget=60.0, longest_solve_budget=60.0)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what is said of it: copies are looked at one by one, for as long as that takes."""
    monkeypatch.setattr("mgmt.solving.required_moves._LONGEST", 60.0)


@pytest.mark.slow("the pack is solved at each step")
async def test_the_life_of_a_small_cluster(autojump_clock: object) -> None:
    """Placed, a host lost, a host joined, one drained, an impossible drain refused, a rack lost and back."""
    async with harness(make_solver=pack_solver, settings=PATIENT) as cluster:
        cluster.check_placement()
        assert [cluster.load(host) for host in cluster.hosts] == [6] * 6
        primaries = [cluster.engine.chain(key)[0] for key in cluster.engine.segments]
        assert {host: primaries.count(host) for host in cluster.hosts} == dict.fromkeys(cluster.hosts, 2)

        lost = cluster.load("n5")
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        assert [plan.data["moves"] for plan in cluster.of_kind("plan-done")[1:]] == [lost]
        assert len(cluster.engine.roles.layout_servers) == 5

        cluster.add(Host("n7", "127.0.0.1:9006", "r2"))
        await cluster.settled()
        cluster.check_placement()
        assert cluster.load("n7") == 6
        assert cluster.of_kind("plan-done")[-1].data["required"] == 0

        await cluster.controller.requests.drain("n6")
        await cluster.settled()
        cluster.check_placement()
        before = dict(cluster.engine.segments)
        with pytest.raises(DrainRefusedError) as refused:
            await cluster.controller.requests.drain("n3")
        assert set(refused.value.policies) == {"drained_hosts_are_empty", "one_replica_per_rack"}
        assert refused.value.relaxations[0] == "let n6 be used again (`rota undrain n6`)"
        assert refused.value.relaxations[1].startswith("add a host like n")
        assert f"it would help to {refused.value.relaxations[0]}; or add a host like " in str(refused.value)
        asked = cluster.controller.status()["last_solve"]
        assert (asked["status"], asked["asked"]) == ("infeasible", "draining n3")
        assert {each["policy"] for each in asked["clashing"]} == set(refused.value.policies)
        assert any("segment s" in each["rows"] for each in asked["clashing"])
        assert asked["seconds_ago"] >= 0
        listing = await cluster.controller.requests.policies()
        assert (listing["pack"], len(listing["policies"])) == ("datastore", 36)
        assert cluster.engine.segments == before

        cluster.lose("n3")  # rack r3 has nobody usable left
        await cluster.until(lambda: "infeasible" in cluster.kinds())
        await cluster.until(
            lambda: all("n3" not in cluster.engine.chain(key) for key in cluster.engine.segments)
        )
        await cluster.controller.requests.undrain("n6")
        await cluster.settled()
        cluster.check_placement()


@pytest.mark.slow("the pack is solved at each step")
async def test_a_lost_rack_takes_one_plan_and_one_more_when_it_is_back(autojump_clock: object) -> None:
    """The first solve knows the dead hosts, for copies still name them: their rack must not be waited for."""
    async with harness(make_solver=pack_solver, settings=PATIENT) as cluster:
        lost = [cluster.hosts[name] for name in ("n3", "n6")]
        cluster.lose("n3", "n6")
        await cluster.settled()
        assert ["(" in event.text.partition(":")[0] for event in cluster.of_kind("plan")[1:]] == [False]
        assert all(len(cluster.engine.in_sync(key)) == 3 for key in cluster.engine.segments)
        for host in lost:
            cluster.add(host)
        await cluster.until(lambda: cluster.controller.status()["rack_violations"] == 0, within=600)
        await cluster.settled()
        cluster.check_placement()


async def test_a_cluster_that_has_three_layout_servers_gets_five_and_no_data_moves(
    autojump_clock: object,
) -> None:
    """An earlier version made it so, and its controller may come back before the last host is upgraded."""
    async with harness(make_solver=pack_solver, settings=PATIENT) as cluster:
        engine = cluster.engine
        started = len(engine.started)
        three = engine.roles.layout_servers[:3]
        engine.roles = replace(engine.roles, layout_servers=three)
        await cluster.until(lambda: len(engine.roles.layout_servers) == 5)
        await cluster.settled()
        assert set(three) < set(engine.roles.layout_servers)
        cluster.check_placement()
        assert not any("copy" in step for step in engine.started[started:])


@pytest.mark.slow("the pack is solved in each round")
async def test_a_settled_cluster_stays_as_it_is(autojump_clock: object) -> None:
    """With the real policies, too, data that grows moves nothing."""
    async with harness(make_solver=pack_solver, settings=PATIENT) as cluster:
        started = list(cluster.engine.started)
        for _ in range(20):
            cluster.engine.bytes_per_segment *= 2
            await cluster.more_rounds()
        assert cluster.engine.started == started
        assert cluster.controller.settled


# What the hosts' clocks show in a harness begins at 2001-09-09 01:46:40.
CLOSING = """
CREATE CONSTRAINT closed AS
SELECT * FROM replica CHECK controllable__host <> 'n4' OR now() < TIMESTAMP '2001-09-09 02:00:00'
"""


@pytest.mark.slow("the pack is solved many times in a virtual day")
async def test_policies_that_ask_for_the_time_are_followed_as_it_goes_by(autojump_clock: object) -> None:
    """No view and no state changes, and yet a host is to be empty from two o'clock on."""
    closing = PolicyChoice(texts=(("closing.sql", CLOSING),))
    hosts = make_hosts(9, 3)
    async with harness(hosts, make_solver=PolicySolver, settings=PATIENT, policies=closing) as cluster:
        assert cluster.load("n4") == 4
        await trio.sleep(600.0 - trio.current_time())
        assert cluster.load("n4") == 4
        before = cluster.controller.statistics()["solves"]
        await cluster.until(lambda: cluster.load("n4") == 0, within=300)
        assert 800.0 <= trio.current_time() < 800.0 + 60.0 + 60.0
        assert cluster.controller.statistics()["solves"] - before <= 6
        assert "4 required moves, " in cluster.of_kind("plan")[-1].text
        cluster.check_placement()


def small_state(racks: int) -> PlacementState:
    hosts = tuple(HostRow(f"n{i}", f"r{i % racks}", "", 10**9, True, False, i == 0, i == 0) for i in range(4))
    rows = tuple(ReplicaRow("s00", slot, None, False) for slot in range(3))
    return PlacementState(hosts, (SegmentRow("s00", 10, 3),), rows, ServiceRoles(("n0",), ("n0",)))


def test_the_solver_answers_in_values() -> None:
    solver = PolicySolver()
    solver.prepare(PolicyChoice())
    assert isinstance(solver.solve(small_state(3), PolicyChoice(), 5.0, 0), Solved)
    assert isinstance(solver.solve(small_state(2), PolicyChoice(), 5.0, 0), Solved), "two and one"
    two_hosts = replace(small_state(2), hosts=small_state(2).hosts[:2])
    clash = solver.solve(two_hosts, PolicyChoice(), 5.0, 0)
    assert isinstance(clash, Infeasible)
    assert clash.policies == ("replicas_on_distinct_hosts",)
    assert any("10_rules.sql" in detail for detail in clash.details)


@pytest.mark.slow("the pack is prepared and solved")
def test_what_is_prepared_is_not_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every view change has the controller prepare its solver, which most often is."""
    solver, rehearsed = PolicySolver(), []
    solve = PolicySolver.solve

    def count(
        self: PolicySolver, state: PlacementState, policies: PolicyChoice, budget: float, seed: int
    ) -> object:
        rehearsed.append(policies)
        return solve(self, state, policies, budget, seed)

    monkeypatch.setattr(PolicySolver, "solve", count)
    mine = "CREATE CONSTRAINT not_on_n3 AS SELECT segment FROM replica CHECK controllable__host <> 'n3'"
    more = PolicyChoice(texts=(("mine.sql", mine),))
    for policies in (PolicyChoice(), PolicyChoice(), more, more):
        solver.prepare(policies)
    assert rehearsed == [PolicyChoice(), more]


def test_a_policy_with_a_typo_is_no_answer_and_says_where() -> None:
    solver = PolicySolver()
    typo = PolicyChoice(texts=(("mine.sql", "CREATE CONSTRAINT x AS\nSELECT nome FROM host CHECK nome = 1"),))
    answer = solver.solve(small_state(3), typo, 5.0, 0)
    assert isinstance(answer, Undecided)
    assert "mine.sql:2:8" in answer.reason
    assert isinstance(solver.solve(small_state(3), PolicyChoice(), 5.0, 0), Solved), "and does not stick"


def test_a_further_policy_is_obeyed() -> None:
    mine = "CREATE CONSTRAINT not_on_n3 AS SELECT segment FROM replica CHECK controllable__host <> 'n3'"
    answer = PolicySolver().solve(small_state(3), PolicyChoice(texts=(("mine.sql", mine),)), 5.0, 0)
    assert isinstance(answer, Solved)
    assert {delta.new for delta in answer.deltas if delta.column == "host"} == {"n0", "n1", "n2"}


def test_a_further_policy_may_speak_of_the_labels_of_hosts() -> None:
    state = small_state(3)
    labelled = tuple(
        replace(host, labels=(("disk", "hdd" if host.name == "n3" else "ssd"),)) for host in state.hosts
    )
    mine = """CREATE CONSTRAINT on_ssd AS
        SELECT segment FROM replica JOIN host_label AS label ON replica.controllable__host = label.host
        WHERE label.key = 'disk' CHECK label.value = 'ssd'"""
    choice = PolicyChoice(texts=(("mine.sql", mine),))
    answer = PolicySolver().solve(replace(state, hosts=labelled), choice, 5.0, 0)
    assert isinstance(answer, Solved)
    assert {delta.new for delta in answer.deltas if delta.column == "host"} == {"n0", "n1", "n2"}


def test_an_unknown_pack_is_no_answer() -> None:
    answer = PolicySolver().solve(small_state(3), PolicyChoice("nosuch"), 5.0, 0)
    assert isinstance(answer, Undecided)
    assert "nosuch" in answer.reason


async def test_the_worker_thread_runs_one_call_at_a_time_and_lets_go_of_a_cancelled_caller() -> None:
    worker = WorkerThread()
    running: list[int] = []
    most: list[int] = []
    gate = trio.lowlevel.current_trio_token()
    release = trio.Event()

    def work() -> None:
        running.append(1)
        most.append(len(running))
        trio.from_thread.run(release.wait, trio_token=gate)
        running.pop()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(worker, work)
        await trio.testing.wait_all_tasks_blocked()
        release.set()
    assert most == [1, 1, 1]


def test_importing_the_control_loop_does_not_load_the_solver() -> None:
    code = (
        "import sys, mgmt.control.controller\n"
        "print([m for m in ('ortools', 'pandas', 'numpy', 'sqlglot', 'duckdb') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
