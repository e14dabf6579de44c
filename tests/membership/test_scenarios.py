"""Whole clusters of real cores in the simulator: what the specification promises, in virtual time.

Larger and longer runs, and random faults under invariants, are in tests/chaos.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest

from chaos import NetworkSettings
from membership.protocol import messages
from membership.protocol.context.effects import Evicted, Left, QuorumLost
from membership.protocol.core.status import Status
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings
from tests.budget import budgeted

PRESETS = {"lan": Settings.lan, "local": Settings.local}
SEEDS = range(3)
BAD_WEATHER = NetworkSettings(loss=0.2)


class TestBootstrap:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("nodes", [1, 2, 3, 5, 30])
    def test_all_come_together(self, cluster, nodes: int, seed: int) -> None:
        run = cluster(nodes, seed=seed)
        run.boot(15.0)
        sizes = {len(event.configuration) for _, _, event in run.seen(ViewChanged)}
        assert len(sizes) <= 8

    @pytest.mark.parametrize("seed", SEEDS)
    def test_two_hundred_in_few_steps(self, cluster, seed: int) -> None:
        run = cluster(200, seed=seed)
        run.boot(5.0)
        assert len({len(event.configuration) for _, _, event in run.seen(ViewChanged)}) <= 5

    @pytest.mark.parametrize("nodes", [3, 6, 40])
    def test_with_twenty_per_cent_loss(self, cluster, nodes: int) -> None:
        """Join requests are repeated by the joiner itself; waiting for whole attempts would take minutes."""
        run = cluster(nodes, seed=1, network=BAD_WEATHER)
        run.boot(12.0)

    @pytest.mark.parametrize("loss", [0.0, 0.2])
    def test_expecting_all_there_are_only_two_views(self, cluster, loss: float) -> None:
        run = cluster(12, expect=12, spread=4.0, network=NetworkSettings(loss=loss))
        run.boot(15.0)
        assert {len(event.configuration) for _, _, event in run.seen(ViewChanged)} == {1, 12}

    def test_through_the_codec(self, cluster) -> None:
        run = cluster(30, codec=messages, through_codec=True, network=BAD_WEATHER)
        run.boot(15.0)

    def test_joining_while_members_die(self, cluster) -> None:
        run = cluster(20, spread=6.0)
        run.run(3.0)
        victims = [host for host in run.hosts[1:] if host.process is not None and host.process.configuration][
            :2
        ]
        for victim in victims:
            run.simulator.crash(victim)
        assert run.run(20.0, lambda: run.together(20 - len(victims)))


class TestCrash:
    @pytest.mark.parametrize(("preset", "bound"), [("lan", 12.0), ("local", 2.5)])
    @pytest.mark.parametrize("nodes", [3, 4, 5, 6, 30])
    def test_one_view_change_removes_it_in_time(self, cluster, nodes: int, preset: str, bound: float) -> None:
        run = cluster(nodes, seed=nodes, settings=PRESETS[preset]())
        run.boot()
        run.run(3.0)
        before, since = run.epoch, run.now
        run.simulator.crash(run.hosts[-1])
        assert run.run(bound, lambda: run.together(nodes - 1))
        assert run.epoch == before + 1
        assert run.removed(since) == {f"n{nodes - 1}"}

    @pytest.mark.parametrize("seed", SEEDS)
    def test_several_at_once_are_one_cut(self, cluster, seed: int) -> None:
        run = cluster(40, seed=seed, network=BAD_WEATHER)
        run.boot()
        run.run(3.0)
        before = run.epoch
        for host in run.hosts[-4:]:
            run.simulator.crash(host)
        assert run.run(12.0, lambda: run.together(36))
        assert run.epoch == before + 1

    def test_b17_one_of_two_cannot_remove_the_other(self, cluster) -> None:
        """Two is the quorum of two. It says so, and goes on when the other comes back."""
        run = cluster(2)
        run.boot()
        run.run(2.0)
        run.simulator.crash(run.hosts[1])
        run.run(60.0)
        assert len(run.cores[0].configuration) == 2
        assert run.seen(QuorumLost)

    def test_nothing_is_installed_without_a_majority(self, cluster) -> None:
        run = cluster(6)
        run.boot()
        run.run(2.0)
        before = run.epoch
        for host in run.hosts[3:]:
            run.simulator.crash(host)
        run.run(120.0)
        assert run.epoch == before
        assert {name for _, name, _ in run.seen(QuorumLost)} == {"h0", "h1", "h2"}


class TestBadWeatherAndBadMembers:
    @pytest.mark.slow("ten simulated minutes")
    @pytest.mark.parametrize(
        ("nodes", "preset"),
        [
            (6, "lan"),
            (6, "local"),
            pytest.param(30, "lan", marks=pytest.mark.slow("thirty simulated processes")),
        ],
    )
    def test_twenty_per_cent_loss_for_ten_minutes_removes_nobody(
        self, cluster, nodes: int, preset: str
    ) -> None:
        run = cluster(nodes, seed=1, settings=PRESETS[preset](), network=BAD_WEATHER)
        run.boot()
        before = run.epoch
        run.run(600.0)
        assert run.epoch == before
        assert not run.seen(Evicted)
        assert not run.seen(QuorumLost)

    @pytest.mark.parametrize("seed", budgeted(SEEDS, 1, in_test=1))
    @pytest.mark.parametrize("fault", ["egress", "ingress"])
    @pytest.mark.parametrize("nodes", [5, 6, 50])
    def test_eighty_per_cent_loss_of_one_member_removes_it_alone(
        self, cluster, nodes: int, fault: str, seed: int
    ) -> None:
        run = cluster(nodes, seed=seed, rejoin=False)
        run.boot()
        run.run(3.0)
        victim, since = run.hosts[-1], run.now
        drop = run.simulator.network.drop_egress if fault == "egress" else run.simulator.network.drop_ingress
        drop(victim.index, 0.8)
        run.run(120.0)
        assert run.removed(since) == {f"n{nodes - 1}"}

    @pytest.mark.parametrize("nodes", [5, 30])
    def test_a_member_that_hears_nothing_every_other_while_is_removed_once(self, cluster, nodes: int) -> None:
        run = cluster(nodes, rejoin=False)
        run.boot()
        run.run(3.0)
        victim, since, before = run.hosts[-1], run.now, run.epoch
        for phase in range(6):
            share = 1.0 if phase % 2 == 0 else 0.0
            run.simulator.call_at(
                since + 20.0 * phase,
                lambda share=share: run.simulator.network.drop_ingress(victim.index, share),
            )
        run.run(120.0)
        assert run.removed(since) == {f"n{nodes - 1}"}
        assert run.epoch == before + 1

    @pytest.mark.parametrize("nodes", [3, 6, 30])
    def test_figure_12_a_blackhole_between_two_members_changes_nothing(self, cluster, nodes: int) -> None:
        run = cluster(nodes)
        run.boot()
        run.run(3.0)
        before = run.epoch
        one, two = run.hosts[1].index, run.hosts[2].index
        run.simulator.network.block(one, two)
        run.simulator.network.block(two, one)
        run.run(300.0)
        assert run.epoch == before

    @pytest.mark.parametrize("nodes", [5, 20])
    def test_delay_duplication_and_disorder_change_nothing(self, cluster, nodes: int) -> None:
        weather = NetworkSettings(loss=0.1, duplication=0.3, tail_probability=0.1, tail_delay=0.3)
        run = cluster(nodes, network=weather)
        run.boot()
        before = run.epoch
        run.run(120.0)
        assert run.epoch == before

    @pytest.mark.parametrize("pause", [1.0, 3.0])
    def test_a_short_pause_of_a_process_is_forgiven(self, cluster, pause: float) -> None:
        run = cluster(6)
        run.boot()
        run.run(2.0)
        before = run.epoch
        run.simulator.pause(run.hosts[2])
        run.run(pause)
        run.simulator.resume(run.hosts[2])
        run.run(20.0)
        assert run.epoch == before

    def test_after_a_long_pause_it_learns_that_it_is_out_and_rejoins(self, cluster) -> None:
        run = cluster(6)
        run.boot()
        run.run(2.0)
        run.simulator.pause(run.hosts[2])
        run.run(30.0)
        run.simulator.resume(run.hosts[2])
        assert run.run(5.0, lambda: run.together(6))
        assert [name for _, name, _ in run.seen(Evicted)] == ["h2"]
        assert run.removed() == {"n2"}


class TestPartition:
    @pytest.mark.parametrize(("nodes", "cut_off"), [(3, 1), (5, 2), (6, 2), (30, 8)])
    def test_a_minority_knows_it_and_rejoins_by_itself(self, cluster, nodes: int, cut_off: int) -> None:
        run = cluster(nodes)
        run.boot()
        run.run(2.0)
        since = run.now
        minority = run.hosts[-cut_off:]
        run.simulator.network.partition([[host.index for host in minority]])
        run.run(30.0)
        assert {len(host.process.configuration) for host in run.hosts[:-cut_off]} == {nodes - cut_off}
        assert {len(host.process.configuration) for host in minority} == {nodes}
        assert {name for _, name, _ in run.seen(QuorumLost, since)} == {host.name for host in minority}
        run.simulator.network.heal()
        assert run.run(10.0, lambda: run.together(nodes))

    @pytest.mark.parametrize("nodes", [4, 6, 30])
    def test_an_even_split_heals_without_any_view_change(self, cluster, nodes: int) -> None:
        run = cluster(nodes)
        run.boot()
        run.run(2.0)
        before, since = run.epoch, run.now
        run.simulator.network.partition([[host.index for host in run.hosts[: nodes // 2]]])
        run.run(40.0)
        assert len(run.seen(QuorumLost, since)) == nodes
        run.simulator.network.heal()
        run.run(60.0)
        assert run.epoch == before


class TestLeave:
    @pytest.mark.parametrize("loss", [0.0, 0.2])
    @pytest.mark.parametrize("nodes", [2, 3, 6, 30])
    def test_it_takes_one_view_change_and_is_no_failure(self, cluster, nodes: int, loss: float) -> None:
        run = cluster(nodes, seed=nodes, network=NetworkSettings(loss=loss))
        run.boot()
        run.run(2.0)
        before, since, leaver = run.epoch, run.now, run.hosts[-1]
        run.simulator.command(leaver, lambda core, now: core.leave(now))
        assert run.run(5.0, lambda: leaver.process.status is Status.LEFT)
        run.simulator.crash(leaver)
        assert run.run(10.0, lambda: run.together(nodes - 1))
        assert run.epoch == before + 1
        assert [event.decided for _, _, event in run.seen(Left)] == [True]
        changes = [event for _, _, event in run.seen(ViewChanged, since)]
        assert {member.name for change in changes for member in change.left} == {f"n{nodes - 1}"}
        assert not any(change.failed for change in changes)

    @pytest.mark.parametrize("seed", range(6))
    def test_a_leaver_that_nobody_confirms_repeats_itself_ever_more_rarely(self, cluster, seed: int) -> None:
        """It knows that its leave is decided, and its view is over: nothing in it is due any more."""
        run = cluster(4, seed=seed)
        run.boot()
        run.run(2.0)
        leaver = run.hosts[-1]
        told: list[float] = []

        def filtered(host: Any, destinations: Any, message: Any) -> Any:
            if isinstance(message, messages.EvictedNotice):
                return []
            if isinstance(message, messages.Decided) and host is leaver:
                told.append(run.now)
            return destinations

        run.simulator.before_send = filtered
        run.simulator.command(leaver, lambda core, now: core.leave(now))
        assert run.run(30.0, lambda: leaver.process.status is Status.LEFT)
        pauses = [later - earlier for earlier, later in pairwise(told[1:])]
        assert len(told) <= 10
        assert pauses == sorted(pauses)
        assert [event.decided for _, _, event in run.seen(Left)] == [True]

    def test_half_of_the_cluster_leaves_at_once(self, cluster) -> None:
        run = cluster(10)
        run.boot()
        run.run(2.0)
        leavers = run.hosts[5:]
        for leaver in leavers:
            run.simulator.command(leaver, lambda core, now: core.leave(now))
        assert run.run(10.0, lambda: all(host.process.status is Status.LEFT for host in leavers))
        for leaver in leavers:
            run.simulator.crash(leaver)
        assert run.run(10.0, lambda: run.together(5))


class TestReturn:
    def test_a_restart_in_the_middle_of_joining(self, cluster) -> None:
        """b1: the first incarnation may be reported by some observers, the second by others."""
        run = cluster(8, spread=0.5)
        run.boot()
        host = run.add(50, start_at=run.now, found=False)
        run.run(0.12)
        run.simulator.crash(host)
        run.simulator.start(host)
        assert run.run(20.0, lambda: host.process.configuration is not None and run.together(9))

    def test_b13_churn_leaves_nothing_behind(self, cluster) -> None:
        run = cluster(6, settings=Settings.local())
        run.boot()
        sizes = []
        for turn in range(12):
            host = run.hosts[1 + turn % 5]
            run.simulator.crash(host)
            run.run(0.3)
            run.simulator.start(host)
            assert run.run(20.0, lambda: run.together(6))
            core = run.hosts[0].process
            sizes.append(
                (
                    len(core._admission._waiting)
                    + len(core._admission._parked)
                    + len(core._admission._asked)
                    + len(core._instance.table.joins)
                    + len(core._catch_up._early),
                    len(core._admission._pushed) + len(core._admission._holder_checks),
                    len(core._catch_up._decisions),
                )
            )
        assert max(size[0] for size in sizes) <= 12
        assert max(size[1] for size in sizes) <= 24
        assert sizes[-1][2] <= Settings().decisions_kept


_TRACE = """
import random, sys
sys.path.insert(0, {root!r})
from chaos import NetworkSettings, Simulator
from membership.protocol import messages
from membership.address import Address
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.core import Core
from membership.protocol.view.member import Member
from membership.settings import Settings

cache = ConfigurationCache(64)
simulator = Simulator(seed=5, network=NetworkSettings(loss=0.05), codec=messages)
def factory(number):
    def make(generation, rng):
        me = Member.create(f"n{{number}}", Address("h", 1 + number), rng.randbytes(16), {{"rack": "r"}})
        return Core(me, seeds=[Address("h", 1)], settings=Settings(), rng=rng, found=number == 0, cache=cache)
    return make
for number in range(25):
    simulator.add_host(f"h{{number}}", Address("h", 1 + number), factory(number), start_at=number * 0.05)
simulator.run(6.0)
for number in (3, 7):
    simulator.crash(simulator.hosts[f"h{{number}}"])
simulator.run(16.0)
print(simulator.trace_hash, simulator.sent)
"""


@pytest.mark.slow("two interpreters are started")
def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    """Nothing depends on the order of sets or on Python's hash seed."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    traces = {
        subprocess.run(
            [sys.executable, "-c", _TRACE.format(root=root)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1


@pytest.mark.parametrize("seed", budgeted(range(20), 5))
def test_many_seeds_of_crash_and_loss(cluster, seed: int) -> None:
    nodes = 5 + seed * 3
    run = cluster(nodes, seed=seed, network=BAD_WEATHER)
    run.boot()
    run.run(60.0)
    before, since = run.epoch, run.now
    run.simulator.crash(run.hosts[-1])
    assert run.run(15.0, lambda: run.together(nodes - 1))
    assert run.epoch == before + 1
    assert run.removed(since) == {f"n{nodes - 1}"}
