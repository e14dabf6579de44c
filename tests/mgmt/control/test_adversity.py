"""Solvers without answers, engines that stall, refuse or change behind the controller's back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from datastore_adapter.interface import AdapterError, Placement, Running, StaleIntentError, Step, StepGraph
from mgmt.control.step_scheduling import ExecutionLimits
from mgmt.errors import EngineUnreachableError, UndecidedError
from mgmt.placement.hosts import Host
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving.placement_solver import Solved, SolveOutcome, Undecided
from tests.mgmt.control.greedy_solver import GreedySolver
from tests.mgmt.control.harness import SETTINGS, Harness, harness, six_hosts


class MoodySolver(GreedySolver):
    """Greedy, unless ``mood`` has something else to say."""

    def __init__(self) -> None:
        super().__init__()
        self.mood: Callable[[SolveOutcome], SolveOutcome] = lambda outcome: outcome
        self.budgets: list[float] = []

    def solve(self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int) -> SolveOutcome:
        self.budgets.append(budget)
        return self.mood(super().solve(state, policies, budget, seed))


def solver_of(cluster: Harness, name: str = "n1") -> MoodySolver:
    solver = cluster.nodes[name].solver
    assert isinstance(solver, MoodySolver)
    return solver


def crash(outcome: SolveOutcome) -> SolveOutcome:
    raise RuntimeError("a defect")


def contradict_itself(outcome: SolveOutcome) -> SolveOutcome:
    return replace(outcome, contradictory=True) if isinstance(outcome, Solved) else outcome


def no_time(outcome: SolveOutcome) -> SolveOutcome:
    return Undecided("time is up", 2.0)


def unproven(outcome: SolveOutcome) -> SolveOutcome:
    assert isinstance(outcome, Solved)
    return replace(outcome, status="feasible", proven=False)


async def test_a_defect_of_the_solver_does_not_keep_lost_hosts_in_their_chains(
    autojump_clock: object,
) -> None:
    async with harness(make_solver=MoodySolver) as cluster:
        solver_of(cluster).mood = crash
        cluster.lose("n5")
        await cluster.until(lambda: "undecided" in cluster.kinds())
        await cluster.until(
            lambda: all("n5" not in cluster.engine.chain(key) for key in cluster.engine.segments)
        )
        assert "RuntimeError: a defect" in cluster.controller.status()["last_error"]
        with pytest.raises(UndecidedError, match="a defect"):
            await cluster.controller.requests.drain("n4")
        solver_of(cluster).mood = lambda outcome: outcome
        await cluster.settled()
        cluster.check_placement()


async def test_a_request_without_an_answer_is_tried_once_more_with_more_time(autojump_clock: object) -> None:
    async with harness(make_solver=MoodySolver) as cluster:
        solver = solver_of(cluster)
        solver.budgets.clear()
        solver.mood = lambda outcome: no_time(outcome) if solver.budgets[-1] < 16.0 else outcome
        await cluster.controller.requests.drain("n4")
        assert solver.budgets[:2] == [2.0, 16.0]


async def test_answers_in_which_a_solver_contradicts_itself_are_counted(autojump_clock: object) -> None:
    async with harness(make_solver=MoodySolver) as cluster:
        assert cluster.controller.statistics()["solver_errors"] == 0
        solver_of(cluster).mood = contradict_itself
        cluster.lose("n5")
        await cluster.settled()
        assert cluster.controller.statistics()["solver_errors"] > 0


async def test_a_solver_without_an_answer_gets_more_time_until_the_view_changes(
    autojump_clock: object,
) -> None:
    async with harness(make_solver=MoodySolver) as cluster:
        solver = solver_of(cluster)
        solver.budgets.clear()
        solver.mood = no_time
        cluster.lose("n5")
        await cluster.until(lambda: len(solver.budgets) >= 6)
        assert solver.budgets[:6] == [2.0, 4.0, 8.0, 16.0, 16.0, 16.0]
        assert len(cluster.of_kind("undecided")) == 1
        solver.budgets.clear()
        cluster.add(Host("n7", "127.0.0.1:9006", "r2"))
        await cluster.until(lambda: bool(solver.budgets))
        assert solver.budgets[0] == 2.0
        solver.mood = lambda outcome: outcome
        await cluster.settled()
        cluster.check_placement()


async def test_without_an_answer_to_the_first_question_nothing_is_placed(autojump_clock: object) -> None:
    async with harness(make_solver=MoodySolver, placed=False) as cluster:
        solver_of(cluster).mood = no_time
        cluster.change({host.name: host for host in six_hosts()})
        await cluster.until(lambda: "undecided" in cluster.kinds())
        await cluster.more_rounds(3)
        assert "plan" not in cluster.kinds()
        assert not cluster.controller.settled
        solver_of(cluster).mood = lambda outcome: outcome
        await cluster.settled()
        cluster.check_placement()


async def test_a_guess_repairs_but_does_not_balance(autojump_clock: object) -> None:
    async with harness(make_solver=MoodySolver) as cluster:
        solver = solver_of(cluster)
        solver.mood = unproven
        cluster.lose("n2")
        await cluster.settled()
        cluster.check_placement()
        cluster.add(Host("n7", "127.0.0.1:9006", "r1"))
        await cluster.settled()
        await cluster.more_rounds(5)
        assert cluster.load("n7") == 0
        assert len(solver.budgets) >= 5, "it goes on looking for a proof"
        solver.mood = lambda outcome: outcome
        await cluster.until(lambda: cluster.load("n7") == 4)
        await cluster.settled()
        cluster.check_placement()


async def test_a_transfer_that_stalls_is_cancelled_and_tried_again(autojump_clock: object) -> None:
    settings = replace(SETTINGS, limits=ExecutionLimits(transfers_per_host=4, stall=10.0))
    async with harness(settings=settings) as cluster:
        advance = cluster.engine.advance_copy
        stalled_until = trio.current_time() + 15.0

        def stall(job: object, now: float) -> object:
            return advance(job, now) if now > stalled_until else Running(1, 1000)  # type: ignore[arg-type]

        cluster.engine.advance_copy = stall  # type: ignore[method-assign, assignment]
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        assert any("stalled" in event.text for event in cluster.of_kind("step-retry"))
        assert cluster.nodes["n1"].adapter.cancelled


async def test_an_engine_that_cannot_even_cancel(autojump_clock: object) -> None:
    async with harness() as cluster:
        adapter = cluster.nodes["n1"].adapter

        async def cannot(step: Step) -> None:
            raise AdapterError("no answer")

        adapter.cancel = cannot  # type: ignore[method-assign, assignment]
        cluster.engine.rate = 500.0
        cluster.lose("n5")
        await cluster.until(cluster.copying)
        cluster.add(Host("n7", "127.0.0.1:9006", "r2"))
        await cluster.settled()
        cluster.check_placement()


async def test_an_engine_that_cannot_take_a_placement_says_so(autojump_clock: object) -> None:
    async with harness() as cluster:
        adapter = cluster.nodes["n1"].adapter
        lower = adapter.lower

        def refuse(current: object, target: Placement) -> StepGraph:
            raise ValueError("segment 's00': the stripes are fixed")

        adapter.lower = refuse  # type: ignore[method-assign, assignment]
        cluster.lose("n5")
        await cluster.until(lambda: "the stripes are fixed" in cluster.controller.status()["last_error"])
        adapter.lower = lower  # type: ignore[method-assign]
        await cluster.settled()
        cluster.check_placement()


async def test_a_plan_whose_agreement_is_lost_to_another_change_is_made_again(autojump_clock: object) -> None:
    async with harness() as cluster:
        adapter = cluster.nodes["n1"].adapter
        agree, losses = adapter.set_intent, [True, True]

        async def lose(expected_epoch: int, intent: object, fence: object) -> int:
            if losses and losses.pop():
                raise StaleIntentError(expected_epoch, expected_epoch + 1)
            return await agree(expected_epoch, intent, fence)  # type: ignore[arg-type]

        adapter.set_intent = lose  # type: ignore[method-assign, assignment]
        cluster.lose("n5")
        await cluster.settled()
        cluster.check_placement()
        assert not losses


async def test_a_drain_that_loses_every_race_is_not_acknowledged(autojump_clock: object) -> None:
    async with harness() as cluster:
        adapter = cluster.nodes["n1"].adapter

        async def lose(expected_epoch: int, intent: object, fence: object) -> int:
            raise StaleIntentError(expected_epoch, expected_epoch + 1)

        adapter.set_intent = lose  # type: ignore[method-assign, assignment]
        with pytest.raises(UndecidedError, match="nothing was changed"):
            await cluster.controller.requests.drain("n4")

        async def fail(expected_epoch: int, intent: object, fence: object) -> int:
            raise AdapterError("1 of 3 answers")

        adapter.set_intent = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(EngineUnreachableError, match="1 of 3 answers"):
            await cluster.controller.requests.drain("n4")
        assert cluster.engine.intent["drains"] == []


async def test_a_drain_decided_for_an_old_view_is_decided_again(autojump_clock: object) -> None:
    """While the drain of one host is being solved, the only other host of its rack is lost."""
    async with harness() as cluster:
        refused: list[Exception] = []

        async def ask() -> None:
            try:
                await cluster.controller.requests.drain("n6")
            except Exception as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.1)  # the solve takes 0.2 virtual seconds
            cluster.lose("n3")
        assert [type(error).__name__ for error in refused] == ["DrainRefusedError"]
        await cluster.settled()
        assert cluster.engine.intent["drains"] == []
        cluster.check_placement()


async def test_the_end_of_the_views_ends_the_loop(autojump_clock: object) -> None:
    async with harness() as cluster:
        node = cluster.nodes["n1"]
        node.views.close()
        rounds = node.controller.statistics()["rounds"]
        await trio.sleep(60.0)
        assert node.controller.statistics()["rounds"] == rounds


# Solves that take for ever

FOREVER = 1e6


def solving(cluster: Harness) -> bool:
    return bool(cluster.controller.status()["phase"] == "solving")


async def test_a_view_change_ends_the_running_solve(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.solve_seconds = FOREVER
        cluster.lose("n5")
        await cluster.until(lambda: solving(cluster))
        cluster.solve_seconds = 0.2
        cluster.lose("n6")
        await cluster.settled(within=120)
        cluster.check_placement()


@pytest.mark.parametrize("request_", ["drain", "plan"])
async def test_a_request_being_solved_when_the_view_changes_is_solved_anew(
    request_: str, autojump_clock: object
) -> None:
    async with harness() as cluster:
        begun = cluster.controller.statistics()["solves"]
        cluster.solve_seconds = FOREVER
        async with trio.open_nursery() as nursery:
            if request_ == "drain":
                nursery.start_soon(cluster.controller.requests.drain, "n4")
            else:
                nursery.start_soon(cluster.controller.requests.plan)
            await cluster.until(lambda: cluster.controller.statistics()["solves"] > begun)
            cluster.solve_seconds = 0.2
            cluster.add(Host("n7", "127.0.0.1:9006", "r1"))
            with trio.fail_after(60):
                await cluster.until(lambda: not nursery.child_tasks)
        await cluster.settled()
        cluster.check_placement()
        assert cluster.engine.intent["drains"] == (["n4"] if request_ == "drain" else [])


async def test_a_drain_gives_up_when_every_attempt_meets_another_view(autojump_clock: object) -> None:
    async with harness() as cluster:
        cluster.solve_seconds = FOREVER

        async def restless() -> None:
            while True:
                await trio.sleep(1)
                cluster.change(dict(cluster.hosts))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(restless)
            with pytest.raises(UndecidedError, match="try again"):
                await cluster.controller.requests.drain("n4")
            with pytest.raises(UndecidedError, match="the view changed under every attempt"):
                await cluster.controller.requests.plan()
            nursery.cancel_scope.cancel()
        assert cluster.engine.intent["drains"] == []
