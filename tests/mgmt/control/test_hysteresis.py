"""Holding still: what is merely better waits, what is required does not, and a flapping host gets nothing new."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mgmt.control.hysteresis import HysteresisLimits
from mgmt.control.settings import ControlSettings
from mgmt.placement.flap_damping import (
    Freeze,
    FreezeLimits,
    frozen_at,
    overdue_at,
    unknown,
    with_returns,
)
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solution import Delta, ObjectiveValue
from mgmt.solving.placement_solver import Solved, SolveOutcome
from tests.budget import budgeted
from tests.mgmt.control.greedy_solver import GreedySolver
from tests.mgmt.control.harness import SETTINGS, Harness, harness, make_hosts, pack_solver

LIMITS = FreezeLimits(first=4.0, longest=60.0, window=1000.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 700)), max_size=12))
def test_a_freeze_doubles_with_every_return_in_the_window_and_is_forgotten_after_it(
    gaps: list[tuple[str, int]],
) -> None:
    """Against a record of all returns, counted anew each time."""
    freezes: tuple[Freeze, ...] = ()
    history: dict[str, list[int]] = {"a": [], "b": []}
    now = 10
    for epoch, (host, gap) in enumerate(gaps):
        now += gap
        history[host].append(now)
        freezes = with_returns(freezes, [(host, epoch)], now, LIMITS)
        assert with_returns(freezes, [(host, epoch)], now, LIMITS) == freezes, "known already"
        assert unknown(freezes, [(host, epoch)]) == []
        times = history[host]
        row = 1  # returns in a row, each within the window of the one before
        while row < len(times) and times[-row] - times[-row - 1] < LIMITS.window:
            row += 1
        freeze = next(freeze for freeze in freezes if freeze.host == host)
        assert freeze.returns == row
        assert freeze.until - freeze.since == pytest.approx(min(4.0 * 2 ** (row - 1), 60.0))
        assert host in frozen_at(freezes, now)
        assert host not in frozen_at(freezes, freeze.until)
        overdue = {seconds for seconds in range(-1, 70) if host in overdue_at(freezes, now + seconds, LIMITS)}
        assert overdue == set(range(30, math.ceil(freeze.until - now)))
    assert with_returns(freezes, [], now + 1000.0, LIMITS) == ()


def copies_to(cluster: Harness, host: str) -> int:
    started = cluster.of_kind("step-started")
    return sum(event.data["kind"] == "copy" and event.data["to"] == host for event in started)


async def test_a_flapping_host_gets_nothing_new_for_longer_and_longer(autojump_clock: object) -> None:
    async with harness(make_hosts(9, 3)) as cluster:
        n5 = cluster.hosts["n5"]
        for returns in range(1, 6):
            cluster.lose("n5")
            await cluster.settled()
            cluster.check_placement()
            before = copies_to(cluster, "n5")
            cluster.add(n5)
            came_back = trio.current_time()
            await cluster.until(lambda: "n5" in cluster.controller.status()["frozen"])
            await cluster.until(lambda before=before: copies_to(cluster, "n5") > before, within=600)  # type: ignore[misc]
            assert trio.current_time() - came_back >= 5.0 * 2 ** (returns - 1)
            await cluster.settled()
            assert cluster.load("n5") > 0
        assert [event.data["returns"] for event in cluster.of_kind("frozen")] == [1, 2, 3, 4, 5]


async def test_a_freeze_outlives_the_controller_that_saw_the_return(autojump_clock: object) -> None:
    settings = replace(SETTINGS, freezes=FreezeLimits(first=100.0))
    async with harness(make_hosts(9, 3), settings=settings) as cluster:
        n5 = cluster.hosts["n5"]
        cluster.lose("n5")
        await cluster.settled()
        cluster.add(n5)
        await cluster.until(lambda: bool(cluster.engine.intent["freezes"]))
        came_back = trio.current_time()
        before = copies_to(cluster, "n5")
        cluster.lose("n1")
        await cluster.settled()
        cluster.check_placement()
        assert cluster.load("n5") == 0
        assert "n5" in cluster.controller.status()["frozen"]
        await cluster.until(lambda: copies_to(cluster, "n5") > before, within=200)
        assert trio.current_time() - came_back >= 99.0


async def test_a_frozen_host_keeps_the_copies_it_has(autojump_clock: object) -> None:
    """Restarted so quickly that nobody had taken its copies away: nothing moves at all."""
    async with harness() as cluster:
        before = {key: cluster.engine.chain(key) for key in cluster.engine.segments}
        again = {
            name: replace(h, incarnation="2") if name == "n5" else h for name, h in cluster.hosts.items()
        }
        cluster.change(again)
        await cluster.until(lambda: "n5" in cluster.controller.status()["frozen"])
        await cluster.settled()
        assert {key: cluster.engine.chain(key) for key in cluster.engine.segments} == before
        assert cluster.engine.copied == {}


@pytest.mark.parametrize("successor", [False, True])
async def test_repairs_outrank_a_freeze_after_a_while_where_nobody_else_can_take_the_copies(
    autojump_clock: object, successor: bool
) -> None:
    settings = replace(SETTINGS, freezes=FreezeLimits(first=500.0, longest=500.0, repairs_wait=40.0))
    async with harness(settings=settings) as cluster:
        n5 = cluster.hosts["n5"]
        cluster.lose("n5")  # n2 alone is left of its rack
        await cluster.settled()
        cluster.add(n5)
        await cluster.until(lambda: bool(cluster.engine.intent["freezes"]))
        came_back = trio.current_time()
        before = copies_to(cluster, "n5")
        cluster.lose("n2")
        await cluster.until(lambda: bool(cluster.of_kind("infeasible")))
        assert copies_to(cluster, "n5") == before
        assert (await cluster.controller.requests.plan()).plan.thawed == ()
        if successor:
            cluster.engine.rate = 100.0
            await cluster.until(lambda: copies_to(cluster, "n5") > before)
            cluster.lose("n1")  # in the middle of it; the next one takes it up
        await cluster.settled(within=300)
        assert trio.current_time() - came_back >= 39.0
        cluster.check_placement()
        assert "n5" in cluster.controller.status()["frozen"], "for everything else it still is"
        plans = [event for event in cluster.of_kind("plan") if "though back for so short" in event.text]
        assert all("optional" not in event.text for event in plans)
        assert plans


class Restless(GreedySolver):
    """Always knows a placement that is a little better: exchanges the hosts of two copies of one rack."""

    gain = 1

    def solve(self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int) -> SolveOutcome:
        outcome = super().solve(state, policies, budget, seed)
        if not isinstance(outcome, Solved) or outcome.deltas:
            return outcome
        one = next(row for row in state.replicas if row.host == "n1")
        taken = {row.segment for row in state.replicas if row.host == "n1"}
        other = next(row for row in state.replicas if row.host == "n4" and row.segment not in taken)
        deltas = (
            Delta("replica", (one.segment, one.slot), "host", "n1", "n4"),
            Delta("replica", (other.segment, other.slot), "host", "n4", "n1"),
        )
        value = ObjectiveValue("even", "minimize", 1, 1, 100, 100 - self.gain, None, proven=True)
        return replace(outcome, deltas=deltas, objectives=(value,))


async def test_moves_for_balance_wait_for_the_cooldown(autojump_clock: object) -> None:
    for cooldown, most in ((30.0, 4), (300.0, 1)):
        assert 1 <= await _restless(HysteresisLimits(cooldown=cooldown), 100.0) <= most


async def test_a_gain_too_small_moves_nothing(autojump_clock: object) -> None:
    assert await _restless(HysteresisLimits(min_gain=2, cooldown=0.0), 100.0) == 0
    assert await _restless(HysteresisLimits(min_gain=1, cooldown=10.0), 100.0) >= 5


async def test_what_is_held_back_is_said_and_until_when(autojump_clock: object) -> None:
    """`rota plan` showed moves that were not made, and `rota status` that all was well."""
    for limits, why, ends in (
        (HysteresisLimits(cooldown=300.0), "balance waits ", True),
        (
            HysteresisLimits(min_gain=2, cooldown=0.0),
            "a gain of 1 is not worth moving data for (2 is)",
            False,
        ),
    ):
        settings = replace(SETTINGS, hysteresis=limits)
        async with harness(settings=settings, make_solver=Restless, placed=False) as cluster:
            cluster.change({host.name: host for host in make_hosts(6, 3)})
            await cluster.until(lambda: "plan-done" in cluster.kinds())
            for _ in range(50):
                await trio.sleep(2.0)
                cluster.engine.bytes_per_segment = 3000 - cluster.engine.bytes_per_segment
                held = cluster.controller.status()["held"]
                if held is not None:
                    break
            assert held is not None
            assert held["why"].startswith(why)
            assert (held["until"] is not None, "; until " in held["text"]) == (ends, ends)
            found = await cluster.controller.requests.plan()
            assert found.to_json()["held"]["until"] == held["until"]
            assert f"\nheld back: {why}" in found.text()
            assert found.text().endswith("; `rota apply` carries it out all the same")


async def _restless(limits: HysteresisLimits, seconds: float) -> int:
    """Plans for balance alone within so many seconds after the first placement."""
    settings = replace(SETTINGS, hysteresis=limits)
    async with harness(settings=settings, make_solver=Restless, placed=False) as cluster:
        cluster.change({host.name: host for host in make_hosts(6, 3)})
        await cluster.until(lambda: "plan-done" in cluster.kinds())
        until = trio.current_time() + seconds
        while trio.current_time() < until:  # the load changes, so the solver is asked again
            await trio.sleep(2.0)
            cluster.engine.bytes_per_segment = 3000 - cluster.engine.bytes_per_segment
        done = cluster.of_kind("plan-done")[1:]
        assert not any(event.data["required"] for event in done)
        return len(done)


async def rounds_under_load(rounds: int, seed: int) -> None:
    settings = ControlSettings(round_interval=1.0, limits=SETTINGS.limits)
    async with harness(make_hosts(6, 3), settings=settings, make_solver=pack_solver) as cluster:
        rng, chains = random.Random(seed), {k: cluster.engine.chain(k) for k in cluster.engine.segments}
        plans = len(cluster.of_kind("plan"))
        for _ in range(rounds // 10):
            cluster.engine.sizes = {
                key: rng.choice((10, 1000, 10**5, 10**7)) * rng.randint(1, 9) for key in chains
            }
            await cluster.more_rounds(10)
        assert len(cluster.of_kind("plan")) == plans
        assert {key: cluster.engine.chain(key) for key in cluster.engine.segments} == chains
        assert max(Counter(host for chain in chains.values() for host in chain).values()) == 6


@pytest.mark.slow("three hundred rounds of the loop")
async def test_no_move_without_failure_under_random_load(autojump_clock: object) -> None:
    await rounds_under_load(300, seed=1)


@pytest.mark.parametrize("seed", budgeted(range(2, 7), 0))
async def test_no_move_without_failure_in_ten_thousand_rounds(autojump_clock: object, seed: int) -> None:
    await rounds_under_load(2_000, seed)
