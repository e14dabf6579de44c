"""Scenarios with a store on the simulator: what they promise, that runs can be had again, and what the report says."""

from __future__ import annotations

import math
import random

import pytest

import chaos
from chaos.faults import At, Crash, Heal, LoseFile, Pause, Restart, RestoreDisk, Resume, Start, WipeDisk
from chaos.scenarios import ScenarioContext, find_scenario, with_lost_disks
from chaos.simulated_cluster.fast_forward import FastForward
from chaos.store.cluster import StoreCluster
from datastore_adapter import LogClient
from datastore_adapter.log.errors import LayoutError
from membership.settings import Settings
from tests.budget import budgeted
from tests.membership.conftest import Laboratory

WITH_A_STORE = ("kill-host", "kill-two", "kill-sequencer", "kill-controller", "rack-loss")


@pytest.mark.parametrize("scenario", budgeted(WITH_A_STORE, 4, in_test=1))
def test_every_scenario_keeps_its_promises(scenario: str) -> None:
    report = chaos.run(scenario, seed=1)
    assert report.broken == ()
    assert report.store is not None
    assert report.store.acknowledged_writes > 100
    assert report.store.operations > 100
    assert report.store.repair_seconds is not None, "what was killed held copies"


@pytest.mark.parametrize("disks", budgeted(["any", "one"], 1))
def test_a_storm_loses_nothing(disks: str) -> None:
    report = chaos.run("storm", seed=4, duration=400.0, disks=disks)
    assert report.broken == ()
    assert len(report.views) > 2
    assert report.store is not None
    assert report.store.acknowledged_writes > 500
    assert report.store.lost_disks > 0


@pytest.mark.slow("six disks are lost and copied one after the other")
def test_one_disk_after_the_other_is_lost_and_made_good() -> None:
    report = chaos.run("lost-disks", seed=1)
    assert report.broken == ()
    assert report.store is not None
    assert report.store.lost_disks == 6


def test_disks_are_lost_where_hosts_come_back() -> None:
    schedule = [
        At(1.0, Crash(("n1",))),
        At(2.0, Restart(("n2",))),
        At(3.0, Start(("n1", "n6"))),
        At(4.0, Heal()),
    ]
    lost: set[str] = set()
    for seed in range(20):
        found = with_lost_disks(schedule, ("n1", "n2"), random.Random(seed))
        down: set[str] = set()
        for at in found:
            match at.fault:
                case Crash(hosts):
                    down.update(hosts)
                case WipeDisk(hosts) | RestoreDisk(hosts) | LoseFile(hosts):
                    assert down.issuperset(hosts)
                    lost.update(hosts)
                case Start(hosts):
                    down.difference_update(hosts)
        assert not down
    assert lost == {"n1", "n2"}
    unhurt = [At(1.0, Crash(("n1",))), At(3.0, Start(("n6",)))]
    assert with_lost_disks(unhurt, ("n1",), random.Random(0)) == tuple(unhurt)


@pytest.mark.parametrize("seed", [*range(20), 107])
def test_a_storm_leaves_a_majority_alone_until_whom_it_removed_is_back(seed: int) -> None:
    """Seed 107 let two of six pause until they were removed, and killed two of the other four as they went on: what
    was left of the view could never agree on anything again."""
    plan = find_scenario("storm").plan
    assert plan is not None
    view = Laboratory().configuration(6)
    stage = ScenarioContext(view, 6, 2, 86400.0, Settings.lan(), random.Random(seed))
    hurt: dict[str, float] = {}
    for at in plan(stage).schedule:
        match at.fault:
            case Crash(hosts) | Pause(hosts):
                away = {name for name, until in hurt.items() if until > at.seconds}
                assert len(away.union(hosts)) <= 2
                hurt.update(dict.fromkeys(hosts, math.inf))
            case Start(hosts) | Resume(hosts):
                hurt.update(dict.fromkeys(hosts, at.seconds + 10.0))


@pytest.mark.slow("clients write for five simulated minutes")
def test_while_the_members_leap_the_store_is_used_and_watched_as_ever() -> None:
    """A leap ends before the fault, and what it does to the log is seen at its time.

    Four seconds: the clients of the log do not leap; they write for five minutes.
    """
    cluster = StoreCluster(6, seed=3, settings=Settings.lan())
    cluster.start()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and cluster.placed())
    cluster.begin_use(300.0)
    began = cluster.now
    cluster.schedule([At(200.0, Crash(("n4",)))], offset=began)
    forward = FastForward(cluster, random.Random(3))
    forward.run(began + 300.0)
    assert forward.leapt > 200.0
    written = [
        append.completed - began for append in cluster._clients.record.appends if append.address is not None
    ]
    per_minute = [sum(start <= moment < start + 60 for moment in written) for start in (20, 80, 140, 240)]
    assert min(per_minute) > 0.8 * max(per_minute) > 100
    ((lost, repaired),) = cluster.watch.spans
    assert lost - began == pytest.approx(200.0, abs=0.3)
    assert repaired - lost < 30.0
    outcome = cluster.conclude(began)
    assert (outcome.lost_writes, outcome.out_of_order, outcome.not_linearizable, outcome.trouble) == (
        0,
        (),
        (),
        (),
    )
    cluster.close()


@pytest.mark.slow("clients write for a simulated minute")
def test_clients_that_give_up_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that nobody uses any more loses nothing, which would prove nothing.

    Longer than 5 s: the others write on for a minute.
    """
    append = LogClient.append

    async def fail(self: LogClient, stream: str, payload: bytes, *, timeout: float | None = None) -> int:
        if payload.startswith(b"writer0 20 "):
            raise LayoutError("agents of two clusters answered")
        return await append(self, stream, payload, timeout=timeout)

    monkeypatch.setattr(LogClient, "append", fail)
    report = chaos.run("kill-controller", seed=1)
    assert report.broken == ("clients and control loops go on to the end",)
    assert report.store is not None
    assert "two clusters" in report.store.trouble[0]


@pytest.mark.parametrize(
    "scenario", budgeted(["quorum-loss", "pause", "disk-full", "rolling-restart", "churn"], 4)
)
def test_what_comes_and_goes_again_loses_nothing(scenario: str) -> None:
    report = chaos.run(scenario, seed=1, store="log")
    assert report.broken == ()
    assert report.store is not None
    assert report.store.acknowledged_writes > 100


@pytest.mark.slow("two whole scenarios with a log")
@pytest.mark.parametrize("scenario", ["disk-fails", "disk-slow"])
def test_one_disk_that_is_not_in_order_holds_nobody_up(scenario: str) -> None:
    """Nothing but the disk is at fault: its host answers everybody, and stays a member."""
    report = chaos.run(scenario, seed=1)
    assert report.broken == ()
    assert report.store is not None
    assert report.store.acknowledged_writes > 100


@pytest.mark.parametrize("seed", [15, 56])
def test_a_host_lost_while_everything_is_placed_for_the_first_time_is_not_waited_for(seed: int) -> None:
    """It once was, for ever: with all hosts there the placement had been decided, but it did not stand yet."""
    cluster = StoreCluster(6, seed=seed, settings=Settings.lan())
    cluster.start()
    assert cluster.run(60.0, stop=cluster.placing)
    cluster.apply(Crash((f"n{seed % 5 + 1}",)))
    assert cluster.run(cluster.now + 60.0, stop=lambda: cluster.converged() and cluster.placed())
    assert cluster.latest is not None
    assert len(cluster.latest) == 5
    cluster.close()


@pytest.mark.slow("three clusters with a log")
def test_the_same_seed_gives_the_same_story() -> None:
    first, again, other = (chaos.run("kill-host", seed=seed) for seed in (5, 5, 6))
    assert first.story == again.story
    assert first.store == again.store
    assert first.story != other.story


@pytest.mark.slow("a whole scenario with a log")
def test_the_report_tells_what_came_of_the_store() -> None:
    report = chaos.run("kill-controller", seed=2).to_json()
    assert report["nodes"] == 6
    assert report["lost_writes"] == report["unreadable_writes"] == 0
    assert report["linearizable"] is report["log_in_order"] is report["rule_holds"] is True
    assert report["plans_per_view_change"] == [1]
    texts = [entry["text"] for entry in report["story"]]
    assert any(text.startswith("crash n") for text in texts)
    assert any("plan-done" in text for text in texts)


def test_members_alone_have_no_store_to_report() -> None:
    report = chaos.run("crash", nodes=5)
    assert report.store is None
    assert "lost_writes" not in report.to_json()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scenario": "kill-host", "store": "none"}, "shows nothing without a store"),
        ({"scenario": "crash", "store": "log", "ensemble": 3}, "centralised"),
        ({"scenario": "rack-loss", "backend": "netns"}, "a store does not run on backend netns"),
        (
            {"scenario": "crash", "store": "valkey"},
            "servers of valkey do not run on backend sim; use --backend process",
        ),
        (
            {"scenario": "minority", "store": "redis", "backend": "process"},
            "the faults of minority do not reach servers of redis; these do: crash, quorum-loss, pause",
        ),
        ({"scenario": "crash", "store": "valkey", "backend": "process", "disks": "one"}, "not lost yet"),
        ({"scenario": "crash", "store": "mysql"}, "a store is one of none, log, valkey, redis, not 'mysql'"),
        ({"scenario": "storm", "disks": "some"}, "disks are lost as one of none, one, any"),
        ({"scenario": "storm", "disks": "any", "backend": "process"}, "use --backend sim, or --disks one"),
    ],
)
def test_a_store_where_there_can_be_none_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(chaos.ChaosError, match=words):
        chaos.run(**arguments)  # type: ignore[arg-type]


def test_what_is_promised_of_a_store_is_said() -> None:
    for name in WITH_A_STORE:
        assert find_scenario(name).needs_store
