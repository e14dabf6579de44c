"""Scenarios on the simulator, the report's keys, and clear refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import chaos
from chaos import faults
from chaos.recording.views import View
from chaos.scenarios import find_scenario
from chaos.scenarios.model import EXACTLY_THE_FAULTY, NOT_READDED, Outcome
from membership.settings import Settings
from tests.budget import budgeted

KEYS = {
    "scenario", "backend", "nodes", "faulty", "seed", "duration", "views", "unique_sizes", "sizes",
    "faulty_removed", "healthy_removed", "readded", "agreement", "detection_seconds", "settle_seconds",
    "bytes_per_node", "cpu_seconds",
}  # fmt: skip


@pytest.mark.parametrize("seed", budgeted(range(3), 0, in_test=1))
@pytest.mark.parametrize(
    "scenario", [name for name in chaos.list_scenarios() if not find_scenario(name).needs_store]
)
def test_every_scenario_keeps_its_promises_at_twenty_nodes(scenario: str, seed: int) -> None:
    duration = {"flip-flop": 90.0, "ambient-loss": 60.0, "blackhole-pair": 40.0, "churn": 120.0}.get(scenario)
    report = chaos.run(scenario, nodes=20, seed=seed, duration=duration)
    assert report.broken == ()
    assert report.ok


@pytest.mark.slow("five hundred simulated processes")
def test_bootstrap_of_five_hundred() -> None:
    report = chaos.run("bootstrap", nodes=500)
    assert report.broken == ()
    assert report.to_json()["unique_sizes"] <= 8
    assert report.sizes[-1] == 500
    assert report.agreement


@pytest.mark.slow("two hundred simulated processes")
def test_crash_of_five_in_two_hundred_is_one_view_change() -> None:
    report = chaos.run("crash", nodes=200, faulty=5)
    assert report.broken == ()
    assert report.sizes == (200, 195)
    assert len(report.views) == 1
    assert (report.faulty_removed, report.healthy_removed, report.readded) == (5, 0, 0)
    assert report.detection_seconds is not None
    assert 3 < report.detection_seconds <= report.settle_seconds < 12  # type: ignore[operator]


@pytest.mark.parametrize("scenario", ["flip-flop", "one-way"])
@pytest.mark.parametrize("seed", budgeted(range(3), 1))
def test_only_the_faulty_leave_two_hundred(scenario: str, seed: int) -> None:
    report = chaos.run(scenario, nodes=200, seed=seed)
    assert report.broken == ()
    assert report.faulty_removed == report.faulty == 4
    assert (report.healthy_removed, report.readded) == (0, 0)


def test_the_report_has_the_promised_keys() -> None:
    document = chaos.run("crash", nodes=10, faulty=1).to_json()
    assert document.keys() >= KEYS
    assert document["bytes_per_node"].keys() >= {"mean", "p99", "max"}
    assert document["views"][0].keys() >= {"epoch", "size", "seconds"}
    assert document["unique_sizes"] == len(set(document["sizes"]))
    assert json.loads(json.dumps(document)) == document


def test_the_same_arguments_give_the_same_report() -> None:
    def report(seed: int) -> chaos.Report:
        return replace(chaos.run("loss-egress", nodes=6, seed=seed, duration=45), cpu_seconds=0.0)

    assert report(4) == report(4)
    assert report(4) != report(5)


def test_every_message_through_the_codec_changes_nothing() -> None:
    def report(through_codec: bool) -> chaos.Report:
        return replace(chaos.run("crash", nodes=15, through_codec=through_codec), cpu_seconds=0.0)

    assert report(True) == report(False)


def test_progress_only_grows_and_ends_at_one() -> None:
    shares: list[float] = []
    chaos.run("crash", nodes=8, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_broken_promise_is_in_the_report() -> None:
    """Half of all datagrams lost is more than the protocol promises to bear."""
    report = chaos.run("ambient-loss", nodes=10, loss=0.7, duration=60)
    assert not report.ok
    assert "the view does not change" in report.broken or "did not come together" in report.broken[0]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"scenario": "flipflop"}, chaos.UnknownScenarioError, "did you mean flip-flop?"),
        ({"scenario": "minority", "duration": 1.0}, chaos.BadArgumentError, "use --duration 60 or more"),
        ({"backend": "process", "nodes": 500, "faulty": 1}, chaos.BadArgumentError, "at most 200 nodes"),
        ({"backend": "cloud"}, chaos.UnknownBackendError, "sim, process, netns"),
        ({"nodes": 0}, chaos.BadArgumentError, "needs 3 to 20000 nodes"),
        ({"faulty": 60}, chaos.BadArgumentError, "can not be faulty"),
        ({"faulty": 25}, chaos.BadArgumentError, "no majority is left"),
        ({"scenario": "quorum-loss", "faulty": 9}, chaos.BadArgumentError, "use --faulty 25 or more"),
        ({"loss": 1.0}, chaos.BadArgumentError, "probability"),
        ({"duration": 0.0}, chaos.BadArgumentError, "more than 0"),
        ({"scenario": "blackhole-pair", "nodes": 4}, chaos.BadArgumentError, "use more nodes"),
    ],
)
def test_nonsense_is_refused_in_one_line(
    arguments: dict[str, object], error: type[chaos.ChaosError], words: str
) -> None:
    with pytest.raises(error) as caught:
        chaos.run(**{"scenario": "crash", **arguments})  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def outcome(*views: View, faulty: tuple[str, ...] = ("n1", "n2")) -> Outcome:
    return Outcome(5, faulty, 5, views, True, True, (), Settings())


def view(epoch: int, size: int, joined: tuple[str, ...] = (), removed: tuple[str, ...] = ()) -> View:
    return View(epoch, size, float(epoch), joined, removed)


def test_who_was_removed_and_who_came_back() -> None:
    both = outcome(view(2, 3, removed=("n1", "n2")))
    assert both.sizes == (5, 3)
    assert both.faulty_removed == ("n1", "n2")
    assert EXACTLY_THE_FAULTY.holds(both)
    assert NOT_READDED.holds(both)

    healthy = outcome(view(2, 4, removed=("n3",)), view(3, 5, joined=("n3",)))
    assert healthy.healthy_removed == ("n3",)
    assert healthy.readded == ("n3",)
    assert not EXACTLY_THE_FAULTY.holds(healthy)
    assert not NOT_READDED.holds(healthy)

    replaced = outcome(view(2, 5, joined=("n1",), removed=("n1",)))
    assert replaced.readded == ("n1",)
    assert not EXACTLY_THE_FAULTY.holds(replaced), "n2 is still in"


def test_who_comes_back_after_its_fault_is_not_readded() -> None:
    gone_and_back = (view(2, 4, removed=("n1",)), view(9, 5, joined=("n1",)))
    deaf = faults.At(0.0, faults.DropIngress(1.0, ("n1",)))

    def readded(*schedule: faults.At) -> tuple[str, ...]:
        return replace(outcome(*gone_and_back), schedule=schedule).readded

    assert readded(deaf) == ("n1",)
    assert readded(deaf, faults.At(8.0, faults.DropIngress(0.0, ("n1",)))) == ()
    assert readded(deaf, faults.At(9.5, faults.DropIngress(0.0, ("n1",)))) == ("n1",)
    assert readded(deaf, faults.At(8.0, faults.DropIngress(0.0, ("n2",)))) == ("n1",)
    cut_off = faults.At(0.0, faults.Partition((("n1", "n2"),)))
    assert readded(cut_off) == ("n1",)
    assert readded(cut_off, faults.At(3.0, faults.Heal())) == ()
    assert readded(faults.At(0.0, faults.Crash(("n1",))), faults.At(5.0, faults.Start(("n1",)))) == ()


def test_every_scenario_says_what_it_shows() -> None:
    for name, summary in chaos.list_scenarios().items():
        assert summary.endswith(
            (
                "removed",
                "size",
                "them",
                "go",
                "once",
                "others of",
                "afterwards",
                "themselves",
                "change",
                "lost",
                "after",
            )
        ), name
        assert find_scenario(name).promises
