"""The fuzzer: clean seeds, a planted error that is found and shrunk, scripts that are replayed."""

from __future__ import annotations

from typing import Any

import pytest

import chaos
from chaos.cluster import Cluster
from chaos.faults import At, Crash, Heal
from chaos.fuzz import shrink
from chaos.generator import random_script


def test_twenty_seeds_are_clean() -> None:
    shares: list[float] = []
    report = chaos.fuzz(20, progress=shares.append)
    assert report.ok, report.text()
    assert report.runs == 20
    assert report.views > 100
    assert shares[-1] == 1.0
    assert report.text().startswith("clean: 20 runs")


@pytest.mark.slow
def test_two_hundred_seeds_are_clean() -> None:
    report = chaos.fuzz(200)
    assert report.ok, report.text()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 25])
def test_small_and_larger_clusters_are_clean(nodes: int) -> None:
    report = chaos.fuzz(30, first=10_000, nodes=nodes)
    assert report.ok, report.text()


def test_a_planted_error_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who votes decides alone: sooner or later two views of one epoch, or one without a majority."""
    monkeypatch.setattr("consensus.fast_round.fast_quorum", lambda n: 1)
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
    from membership.core import Core

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
