"""The fuzzer: clean seeds, a planted error that is found and shrunk, scripts that are replayed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import chaos
from chaos.checkers.store_outcome import LogOutcome
from chaos.faults import At, Crash, Heal, Recover, RestoreDisk
from chaos.fuzzing.fuzz import shrink
from chaos.fuzzing.generator import random_script
from chaos.script import parse
from chaos.simulated_cluster.cluster import Cluster
from chaos.store.cluster import StoreCluster
from datastore_adapter.log.storage.disk_identity import DiskIdentity, open_identity
from membership.protocol.view.configuration import RECOVERY_STRIDE
from membership.settings import Settings
from tests.budget import budgeted

FOUND = Path(__file__).parent / "found_by_fuzz"
"""Scripts that random faults once broke something with."""


@pytest.mark.slow("six random scripts of clusters")
def test_a_few_seeds_are_clean() -> None:
    shares: list[float] = []
    report = chaos.fuzz(6, progress=shares.append)
    assert report.ok, report.text()
    assert report.runs == 6
    assert report.views > 30
    assert shares[-1] == 1.0
    assert report.text().startswith("clean: 6 runs")


@pytest.mark.parametrize("first", budgeted(range(0, 200, 10), 1))
def test_two_hundred_seeds_are_clean(first: int) -> None:
    report = chaos.fuzz(10, first=first)
    assert report.ok, report.text()


@pytest.mark.parametrize("first", budgeted(range(2, 402, 40), 1))
def test_members_that_remember_are_one_cluster_in_the_end_and_never_two(first: int) -> None:
    """Power cuts, disks that fail or are lost, addresses that change hands, cold starts."""
    scripts = [random_script(seed) for seed in range(first, first + 40, 4)]
    assert all(script.remember for script in scripts)
    for script in scripts:
        result = chaos.replay(script)
        assert result.ok, result.text()


@pytest.mark.first
@pytest.mark.parametrize("first", budgeted(range(10_000, 10_030, 5), 1))
@pytest.mark.parametrize("nodes", [2, 25])
def test_small_and_larger_clusters_are_clean(nodes: int, first: int) -> None:
    report = chaos.fuzz(5, first=first, nodes=nodes)
    assert report.ok, report.text()


@pytest.mark.slow("twenty random scripts, and the search for a small one")
def test_a_planted_error_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who votes decides alone: sooner or later two views of one epoch, or one without a majority."""
    monkeypatch.setattr("consensus.fast_round.fast_quorum", lambda n: 1)
    monkeypatch.setattr("chaos.fuzzing.fuzz._SHRINKING_RUNS", 30)  # smaller will do
    report = chaos.fuzz(20, first=4, nodes=7)
    assert not report.ok
    assert report.failing_seed is not None
    assert report.script is not None
    original = random_script(report.failing_seed)
    assert len(report.script.schedule) < len(original.schedule)
    again = chaos.replay(str(report.script))
    assert not again.ok
    assert again.broken == report.broken
    assert f"seed {report.failing_seed} fails" in report.text()
    assert str(report.script) in report.text()
    assert report.to_json()["script"] == str(report.script)


def test_a_core_that_raises_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    from membership.protocol.core import Core

    def stumble(self: Core, now: float) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Core, "tick", stumble)
    result = chaos.replay("nodes 3")
    assert not result.ok
    assert "ZeroDivisionError: planted" in str(result.broken)


def test_shrinking_keeps_only_what_is_needed() -> None:
    schedule = tuple(
        At(float(second), Crash((f"n{second}",)) if second % 3 else Heal()) for second in range(40)
    )
    script = chaos.Script(50, 1, 60.0, schedule)
    needed = {schedule[7], schedule[23]}
    runs = 0

    def fails(candidate: chaos.Script) -> bool:
        nonlocal runs
        runs += 1
        return needed <= set(candidate.schedule)

    assert set(shrink(script, fails).schedule) == needed
    assert runs < 100


def test_a_script_must_start_a_host_before_it_hurts_it() -> None:
    with pytest.raises(chaos.BadArgumentError, match="no host n7 yet"):
        chaos.replay("nodes 5\nat 1s crash n7")
    assert chaos.replay("nodes 5\nduration 9s\nat 1s start n7\nat 5s crash n7").ok


def test_a_crash_may_be_skipped_to_keep_the_quorum() -> None:
    crashes = "nodes 5\nduration 20s\nat 5s crash n0 n1 n2 n3\n"
    assert chaos.replay(crashes).quorum_lost_for_good
    kept = chaos.replay(crashes + "quorum keep\n")
    assert kept.ok
    assert not kept.quorum_lost_for_good
    assert kept.views[-1].size == 3


def test_a_view_that_dies_with_its_only_holder_is_lost_for_good() -> None:
    """Found by the fuzzer, seed 1664: the founder admits two who never hear of it, and forgets it all."""
    founder = """
        nodes 7
        seed 1664
        settings lan
        at 0.422s drop-egress 100% n0 n1
        at 9.043s restart n0
    """
    assert chaos.replay(founder).quorum_lost_for_good
    kept = chaos.replay(founder + "quorum keep")
    assert kept.ok
    assert not kept.quorum_lost_for_good


def test_what_replay_tells() -> None:
    result = chaos.replay("nodes 4\nduration 15s\nat 5s crash n2")
    assert result.text().splitlines()[-1] == "ok"
    assert "-n2" in result.text()
    document = result.to_json()
    assert document["ok"] is True
    assert document["views"][-1]["size"] == 3
    assert chaos.replay(document["script"]).trace_hash == result.trace_hash


def test_the_cluster_tells_who_stands_where() -> None:
    cluster = Cluster(4, seed=3)
    cluster.start()
    assert not cluster.converged()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and len(cluster.running()) == 4)
    assert cluster.agreed()
    assert cluster.quorum_alive()
    cluster.apply(Crash(("n1", "n2")))
    assert not cluster.converged()
    assert not cluster.quorum_alive()
    assert [host.name for host in cluster.running()] == ["n0", "n3"]
    with pytest.raises(chaos.BadArgumentError, match="no host n9"):
        cluster.apply(Crash(("n9",)))


# Recoveries

TWO_RECOVERIES = """
    nodes 7
    seed 6
    duration 40s
    at 5s partition n0 n1 | n2 n3 | n4 n5 n6
    at 5s crash n4 n5 n6
    at 15s recover n0 n1
    at 16s tag further n0
    at 17s tag further-still n0
    at 19s delay 1s n0 n1         # what it says of the others' old view arrives when they have recovered too
    at 20s heal
    at 21.2s recover n2 n3
    at 30s delay 0s n0 n1
    at 32s start n4 n5 n6
"""


def test_an_operator_recovers_and_the_killed_join_as_new() -> None:
    result = chaos.replay(
        "nodes 5\nduration 40s\nat 5s crash n2 n3 n4\nat 15s recover n1 n0\nat 25s start n2 n3 n4"
    )
    assert result.ok
    assert not result.quorum_lost_for_good
    recovered = next(view for view in result.views if view.epoch == RECOVERY_STRIDE)
    assert (recovered.size, set(recovered.removed)) == (2, {"n2", "n3", "n4"})
    assert result.views[-1].size == 5


def test_a_recovery_that_makes_no_sense_is_refused_and_changes_nothing() -> None:
    healthy = (
        "nodes 5\nduration 20s\nat 5s recover n0 n1\nat 6s recover n0 n1 n2 n3 n4\nat 7s recover n0 n1 n2"
    )
    result = chaos.replay(healthy)
    assert result.ok
    assert all(view.epoch < RECOVERY_STRIDE for view in result.views)
    forced = chaos.replay(healthy + "\nat 8s recover by-force n0 n1")
    assert forced.ok
    assert [view.size for view in forced.views if view.epoch == RECOVERY_STRIDE] == [2]
    assert forced.views[-1].size == 5, "those who were alive are told, and join as new incarnations"


def test_two_recoveries_stay_apart_until_an_operator_ends_one() -> None:
    result = chaos.replay(TWO_RECOVERIES)
    assert result.ok
    assert [set(view.removed) for view in result.views if view.epoch == RECOVERY_STRIDE] == [
        {"n2", "n3", "n4", "n5", "n6"},
        {"n0", "n1", "n4", "n5", "n6"},
    ]
    assert result.views[-1].size == 7


def test_recoveries_that_merge_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted error: whoever is further counts, whatever recovery it comes from."""
    monkeypatch.setattr("membership.protocol.core.view_installation.continues", lambda lineage, mine: True)
    result = chaos.replay(TWO_RECOVERIES)
    assert not result.ok
    assert "which no branch that continues its own has reached without it" in str(result.broken)


def test_a_recovery_comes_on_top_of_what_a_seed_says_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {seed: random_script(seed) for seed in range(120)}
    recovering = [
        seed
        for seed, script in scripts.items()
        if any(isinstance(at.fault, Recover) for at in script.schedule)
    ]
    assert 10 < len(recovering) < 30
    monkeypatch.setattr("chaos.fuzzing.generator._RECOVERY", 0.0)
    for seed, script in scripts.items():
        without = random_script(seed)
        assert (without == script) == (seed not in recovering)
        assert set(without.schedule) <= set(script.schedule)


DECIDED_BY_THE_DEAD = """\
nodes 4
seed 41
duration 24s
settings local
at 2.372s evict n0 -> n1
at 4.613s jump-clock 34.798s n1 n3
at 6.158s start n4
at 6.696s leave n4
at 7.393s drop-ingress 100% n2 n4
at 16.793s drop-egress 80% n0 n3
at 18.067s crash-on FullConfiguration n3
at 18.725s start n5
"""


def test_a_view_that_died_with_the_only_one_who_knew_it_obliges_nobody() -> None:
    """n3 alone learned that n5 was admitted, and crashed: n0, one of two members, may not decide without it."""
    report = chaos.replay(DECIDED_BY_THE_DEAD)
    assert report.ok, report.broken
    assert report.quorum_lost_for_good


def test_a_founder_that_waits_for_others_decides_nothing_alone() -> None:
    """Found by the fuzzer, seed 246: its metadata changed meanwhile, so that it remembered a view of its own as one
    that was in force, and went on alone from there when it was started again: there were two clusters."""
    report = chaos.replay((FOUND / "246.txt").read_text())
    assert report.ok, report.broken
    assert report.views[-1].size == 4


def test_who_is_told_to_leave_between_two_incarnations_just_stops() -> None:
    """Found by the fuzzer, seed 732: the checker took it for one that stands in a view that it did not report."""
    report = chaos.replay((FOUND / "732.txt").read_text())
    assert report.ok, report.broken


# With a store


@pytest.mark.slow("four long scripts of clusters with a log")
@pytest.mark.parametrize("seed", [2061, 63, 243, 3074])
def test_what_random_faults_with_lost_disks_once_found(seed: int) -> None:
    """63: one who lived on kept a view without a majority, for it took one without its disk for any other joiner.
    243: a replica that had joined the next epoch on a new disk doubted itself, and that epoch stood on it alone.
    2061: two healthy members were removed soon after a partition had healed, while the log was read in the end.
    3074: four of five were removed at once, and went on without the fifth, which went on without them."""
    report = chaos.replay((FOUND / f"{seed}.txt").read_text())
    assert report.ok, report.broken
    assert report.script.keep_disks
    assert not report.quorum_lost_for_good


@pytest.mark.slow("a cluster with a log")
def test_a_store_without_a_majority_for_a_while_is_settled_again() -> None:
    """Shrunk from seed 2061: no view changed, and the controller said for ever that the engine did not answer."""
    report = chaos.replay(
        "nodes 6\nseed 2061\nduration 20s\nsettings local\nstore yes\ndisks keep\n"
        "at 15s partition n4 n5 | n0 n3 | n1 n2\n"
    )
    assert report.ok, report.broken
    assert not any(view.removed for view in report.views)


@pytest.mark.slow("a cluster with a log")
def test_a_host_lost_while_the_log_is_read_back_is_made_good_first() -> None:
    """The store is judged when it has done what the view asks for, not at whatever moment the reading ends."""
    cluster = StoreCluster(5, seed=3, settings=Settings.local(), count_bytes=False)
    with closing(cluster):
        cluster.start()
        cluster.begin_use(20.0)
        cluster.run(20.0)
        read_back = cluster._clients.read_back

        async def read_back_and_lose_a_host() -> None:
            await read_back()
            cluster.apply(Crash(("n4",)))

        cluster._clients.read_back = read_back_and_lose_a_host  # type: ignore[method-assign]
        outcome = cluster.conclude(0.0)
    assert not outcome.broken(everything=True), outcome.findings
    assert cluster.views[-1].removed == ("n4",)


AN_OLD_COPY = """\
nodes 4
duration 26s
settings local
store yes
disks keep
copies 3
at 8s copy-disk n1
at 14s crash n1
at 14.1s restore-disk n1
at 14.2s start n1
at 18s crash n2
at 21s start n2
"""


@pytest.mark.slow("three scripts of clusters with a log")
def test_a_store_that_takes_an_old_copy_for_the_disk_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted error: a disk's identity is that of its host."""

    def of_the_host(*arguments: Any, **options: Any) -> DiskIdentity:
        return DiskIdentity(bytes(16), (), open_identity(*arguments, **options).set_aside)

    script = parse(AN_OLD_COPY)
    assert chaos.replay(script).ok
    monkeypatch.setattr("datastore_adapter.log.host.node.open_identity", of_the_host)
    assert "epoch 6 names n1 for s00, which lacks" in str(chaos.replay(script).broken)
    unhurt = [at for at in script.schedule if not isinstance(at.fault, RestoreDisk)]
    assert chaos.replay(replace(script, schedule=tuple(unhurt))).ok


@pytest.mark.slow("a cluster with a log, twice emptied")
def test_what_is_lost_beyond_repair_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk is emptied: nothing acknowledged can be given any more, and no answer pretends otherwise."""
    everything = "nodes 4\nduration 30s\nstore yes\nat 15s crash n0 n1 n2 n3\nat 16s wipe-disk n0 n1 n2 n3\n"
    outcomes: list[LogOutcome] = []
    conclude = StoreCluster.conclude

    def kept(self: StoreCluster, began: float) -> LogOutcome:
        outcomes.append(conclude(self, began))
        return outcomes[-1]

    monkeypatch.setattr(StoreCluster, "conclude", kept)
    assert chaos.replay(everything).ok
    (outcome,) = outcomes
    assert outcome.lost_disks == 4
    assert outcome.unreadable_writes == outcome.acknowledged_writes > 50
    assert outcome.broken(everything=True)
    assert chaos.replay(everything + "disks keep\n").ok
    assert outcomes[1].lost_disks == 1


@pytest.mark.slow("a cluster with a store")
def test_a_sync_that_fails_once_stops_nobody() -> None:
    """Found by the fuzzer: the log unit refused everything from then on, and no segment with a copy there went on."""
    result = chaos.replay(
        "nodes 5\nseed 1\nduration 20s\nstore yes\ndisks keep\nat 8s fail-call EIO fdatasync n1"
    )
    assert result.ok, result.broken
