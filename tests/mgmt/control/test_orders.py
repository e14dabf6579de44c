"""What operators order: pause, resume, abort, apply; agreed before it is acknowledged, and outliving controllers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgmt.errors import NothingToAbortError, PlanChangedError, RefusedError, UndecidedError
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving.placement_solver import Solved, SolveOutcome
from tests.mgmt.control.greedy_solver import GreedySolver
from tests.mgmt.control.harness import Harness, harness, make_hosts
from tests.mgmt.control.test_succession import check_copies, die_at

Chains = dict[str, tuple[str, ...]]


def chains(cluster: Harness) -> Chains:
    return {key: cluster.engine.chain(key) for key in cluster.engine.segments}


def is_paused(cluster: Harness) -> bool:
    return bool(cluster.controller.status()["phase"] == "paused")


async def start_a_drain(cluster: Harness, host: str = "n4") -> Chains:
    """A drain whose copies take a while, in the middle of them; what stood before."""
    before = chains(cluster)
    cluster.engine.rate = 500.0
    cluster.engine.copied.clear()
    await cluster.controller.requests.drain(host)
    await cluster.until(lambda: bool(cluster.engine.copied))
    return before


async def test_while_paused_no_data_moves_and_a_drain_waits(autojump_clock: object) -> None:
    async with harness() as cluster:
        before = chains(cluster)
        await cluster.controller.requests.pause()
        await cluster.controller.requests.drain("n4")
        await cluster.until(lambda: is_paused(cluster))
        await cluster.more_rounds(5)
        assert chains(cluster) == before
        assert cluster.engine.copied == {}
        assert not cluster.controller.settled
        await cluster.controller.requests.resume()
        await cluster.settled()
        assert cluster.load("n4") == 0
        cluster.check_placement()


async def test_a_pause_stops_what_runs(autojump_clock: object) -> None:
    async with harness() as cluster:
        await start_a_drain(cluster)
        await cluster.controller.requests.pause()
        await cluster.until(lambda: is_paused(cluster))
        sent = dict(cluster.engine.copied)
        await cluster.more_rounds(5)
        assert cluster.engine.copied == sent
        assert cluster.controller.status()["paused"] is True
        assert any(name.startswith("copy") for name in cluster.nodes["n1"].adapter.cancelled)
        await cluster.controller.requests.resume()
        await cluster.settled()
        assert cluster.load("n4") == 0
        check_copies(cluster)


async def test_lost_hosts_are_taken_out_while_paused_and_nothing_is_copied(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.controller.requests.pause()
        cluster.lose("n5")
        await cluster.until(lambda: all("n5" not in chain for chain in chains(cluster).values()))
        await cluster.until(lambda: is_paused(cluster))
        assert cluster.engine.copied == {}
        assert cluster.controller.status()["under_replicated"] > 0
        await cluster.controller.requests.resume()
        await cluster.settled()
        cluster.check_placement()


async def test_a_pause_outlives_its_controller(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        await cluster.controller.requests.pause()
        cluster.lose("n1")
        await cluster.until(lambda: is_paused(cluster))
        await cluster.more_rounds(3)
        assert cluster.engine.copied == {}
        await cluster.controller.requests.resume()
        await cluster.settled()
        cluster.check_placement()


async def test_each_is_harmless_twice(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.controller.requests.resume()
        await cluster.controller.requests.pause()
        agreed = cluster.engine.intents_agreed
        await cluster.controller.requests.pause()
        assert cluster.engine.intents_agreed == agreed
        assert cluster.kinds().count("pause") == 1
        assert "resume" not in cluster.kinds()


async def test_an_abort_goes_back_and_then_holds(autojump_clock: object) -> None:
    async with harness() as cluster:
        before = await start_a_drain(cluster)
        plan_id = await cluster.controller.requests.abort()
        await cluster.until(lambda: is_paused(cluster))
        assert chains(cluster) == before
        assert all(len(cluster.engine.in_sync(key)) == 3 for key in before)
        assert (await cluster.controller.reports.outcome(plan_id))["state"] == "done"
        await cluster.more_rounds(3)
        assert chains(cluster) == before
        await cluster.controller.requests.resume()  # the drain is wanted still
        await cluster.settled()
        assert cluster.load("n4") == 0


async def test_an_abort_is_refused_when_nothing_is_under_way(autojump_clock: object) -> None:
    async with harness() as cluster:
        before = chains(cluster)
        with pytest.raises(NothingToAbortError, match="no plan is under way"):
            await cluster.controller.requests.abort()
        assert not cluster.engine.intent["paused"]
        assert chains(cluster) == before


async def test_a_host_that_died_meanwhile_is_not_gone_back_to(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        before = await start_a_drain(cluster)
        lost = next(host for chain in before.values() for host in chain if host not in ("n1", "n4"))
        await cluster.controller.requests.abort()
        cluster.lose(lost)
        await cluster.until(lambda: is_paused(cluster))
        after = chains(cluster)
        for key, chain in before.items():
            assert set(chain) - {lost} <= set(after[key])
            assert lost not in after[key]
            assert set(after[key]) == set(cluster.engine.in_sync(key))


@pytest.mark.parametrize("call", range(0, 60, 2))
async def test_an_abort_outlives_its_controller(autojump_clock: object, call: int) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        await cluster.controller.requests.drain("n1")
        await cluster.settled()  # the controller's own host holds nothing: going back does not need it
        before = await start_a_drain(cluster)
        await cluster.controller.requests.abort()
        died = die_at(cluster, "n1", call)
        await cluster.until(lambda: bool(died) or is_paused(cluster))
        if not died:
            cluster.kill("n1")
        cluster.remove("n1")
        await cluster.until(lambda: is_paused(cluster))
        assert chains(cluster) == before
        check_copies(cluster)


async def test_apply_carries_out_what_is_held_by_a_pause_and_the_pause_stays(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.controller.requests.pause()
        await cluster.controller.requests.drain("n4")
        await cluster.until(lambda: is_paused(cluster))
        shown = await cluster.controller.requests.plan()
        assert shown.paused
        assert "rota apply" in shown.text()
        plan = await cluster.controller.requests.apply()
        assert plan is not None
        assert plan.target == shown.plan.target
        await cluster.until(lambda: is_paused(cluster) and cluster.load("n4") == 0)
        cluster.check_placement()
        assert (await cluster.controller.reports.outcome(plan.agreed_as))["state"] == "done"
        assert cluster.engine.intent["paused"] is True


async def test_what_is_carried_out_is_what_was_shown(autojump_clock: object) -> None:
    async with harness() as cluster:
        requests = cluster.controller.requests
        await requests.pause()
        await requests.drain("n4")
        shown = await requests.plan()
        await requests.drain("n2")
        before = cluster.engine.intent
        with pytest.raises(PlanChangedError, match=rf"\({shown.plan.digest}\); nothing was changed"):
            await requests.apply(shown.plan.digest)
        assert cluster.engine.intent == before
        await requests.undrain("n2")
        await cluster.until(lambda: is_paused(cluster))
        plan = await requests.apply(shown.plan.digest)
        assert plan is not None
        again = await requests.plan()
        assert (again.plan.agreed_as, again.plan.digest) == (plan.agreed_as, plan.digest), (
            "its copies are under way"
        )
        assert f"plan {plan.agreed_as} (agreed before): " in again.text()
        assert await requests.apply(shown.plan.digest) is not None, "it is this one"
        await cluster.until(lambda: is_paused(cluster) and cluster.load("n4") == 0)
        with pytest.raises(PlanChangedError):
            await requests.apply("another")


class HastySolver(GreedySolver):
    """On a busy machine: from some time on it proves nothing."""

    is_busy = False

    def solve(self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int) -> SolveOutcome:
        outcome = super().solve(state, policies, budget, seed)
        return replace(outcome, proven=not self.is_busy) if isinstance(outcome, Solved) else outcome


async def test_what_was_shown_is_not_solved_again_where_nothing_changed(autojump_clock: object) -> None:
    async with harness(make_solver=HastySolver) as cluster:
        requests, solver = cluster.controller.requests, cluster.nodes["n1"].solver
        assert isinstance(solver, HastySolver)
        await requests.drain("n4")
        await cluster.settled()
        await requests.undrain("n4")
        await requests.pause()
        await cluster.until(lambda: is_paused(cluster))
        shown = await requests.plan()
        assert shown.plan.optional_moves > 0
        solver.is_busy = True
        assert (await requests.plan()).plan.is_empty, "without a proof nothing moves for balance"
        solved = solver.solves
        other = requests.on_behalf_of("n5")
        plan = await other.apply(shown.plan.digest)
        assert plan is not None
        assert (plan.digest, plan.moves) == (shown.plan.digest, shown.plan.moves)
        assert solver.solves == solved
        await cluster.until(lambda: is_paused(cluster) and cluster.load("n4") > 0)


async def test_what_was_shown_is_solved_again_where_something_changed(autojump_clock: object) -> None:
    async with harness(make_solver=HastySolver) as cluster:
        requests, solver = cluster.controller.requests, cluster.nodes["n1"].solver
        assert isinstance(solver, HastySolver)
        await requests.pause()
        await requests.drain("n4")
        shown = await requests.plan()
        await requests.drain("n2")
        solved = solver.solves
        with pytest.raises(PlanChangedError):
            await requests.apply(shown.plan.digest)
        assert solver.solves == solved + 1


async def test_apply_has_nothing_to_do_or_is_refused(autojump_clock: object) -> None:
    async with harness() as cluster:
        assert await cluster.controller.requests.apply() is None
        cluster.lose("n3", "n6")  # a whole rack of three
        await cluster.until(lambda: cluster.controller.status()["phase"] == "infeasible")
        with pytest.raises(RefusedError, match="one_replica_per_rack"):
            await cluster.controller.requests.apply()


async def test_apply_of_a_plan_under_way_is_that_plan(autojump_clock: object) -> None:
    async with harness() as cluster:
        await start_a_drain(cluster)
        await cluster.controller.requests.pause()
        under_way = cluster.engine.intent["plan"]["plan_id"]
        plan = await cluster.controller.requests.apply()
        assert plan is not None
        assert plan.agreed_as == under_way
        assert (await cluster.controller.reports.outcome(under_way))["state"] == "open"
        await cluster.until(lambda: is_paused(cluster) and cluster.load("n4") == 0)
        assert (await cluster.controller.reports.outcome(under_way))["state"] == "done"
        check_copies(cluster)


async def test_a_plan_that_lost_a_host_is_replaced_and_says_so(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        await cluster.controller.requests.pause()
        await cluster.controller.requests.drain("n4")
        cluster.engine.rate = 200.0
        plan = await cluster.controller.requests.apply()
        assert plan is not None
        await cluster.until(cluster.copying)
        progress = (await cluster.controller.reports.outcome(plan.agreed_as))["progress"]
        assert progress["bytes"] == plan.bytes
        assert 0 <= progress["bytes_done"] < progress["bytes"]
        coming = next(move.destination for move in plan.moves if move.destination not in (None, "n1"))
        assert coming is not None
        cluster.lose(coming)
        await cluster.until(lambda: is_paused(cluster))
        await cluster.controller.requests.resume()
        await cluster.settled()
        assert (await cluster.controller.reports.outcome(plan.agreed_as))["state"] == "replaced"
        cluster.check_placement()


async def test_the_first_placement_waits_for_its_hosts_whatever_is_ordered(autojump_clock: object) -> None:
    async with harness(placed=False) as cluster:
        cluster.change({host.name: host for host in make_hosts(6, 3)[:4]})
        await cluster.until(lambda: cluster.controller.status()["phase"] == "waiting for hosts")
        with pytest.raises(UndecidedError, match="waits for 2 more hosts"):
            await cluster.controller.requests.apply()


async def test_the_history_says_who_asked_for_what_and_why_plans_were_made(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.controller.requests.on_behalf_of("n5").drain("n4")
        await cluster.settled()
        versions = (await cluster.controller.reports.history())["versions"]
        asked = [each for each in versions if each["asked_at"]]
        assert [(each["asked_at"], each["by"], each["what"]) for each in asked] == [
            ("n5", "n1", "drained +n4")
        ]
        (plan,) = (each for each in versions if each["epoch"] == asked[0]["epoch"] + 1)
        assert f"plan {plan['plan_id']}: " in plan["why"], "one that the policies decided"
        steps = [each for each in versions if each["plan_id"] == plan["plan_id"] and each is not plan]
        assert steps, "each change of the layout names the plan it belongs to"
        before, after = asked[0]["epoch"], versions[0]["epoch"]
        report = await cluster.controller.reports.difference(before, after)
        emptied = [each for each in report["difference"]["segments"] if "n4" in each["removed"]]
        assert emptied
        assert all(len(each["added"]) == len(each["removed"]) for each in report["difference"]["segments"])


async def test_a_request_taken_back_at_once_leaves_a_settled_system(autojump_clock: object) -> None:
    """Everything is again as it was when there was nothing to do, and that is what is told."""
    async with harness() as cluster:
        requests = cluster.controller.requests
        await cluster.more_rounds()
        cluster.solve_seconds = 3.0
        await requests.drain("n4")
        await requests.undrain("n4")  # while the loop solves for the drain
        await cluster.settled(within=30.0)
        cluster.check_placement()
