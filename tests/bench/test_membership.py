"""The membership benchmarks: what they measure is what they say, on the simulator and on real sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from bench.__main__ import bench
from bench.members import membership, presets
from bench.members.alerts import alerts_complete, observers_of
from bench.members.backends import RealSockets, Simulated
from bench.members.run import Run, summary
from bench.members.simulated import Alert, Counted

KEYS = {"nodes", "seconds", "cpu_seconds", "unique_sizes", "messages_per_node", "bytes_per_node", "max_rss"}
CRASH_KEYS = KEYS | {"view_changes", "seconds_after_alerts"}
HIGH = 9


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(bench, arguments)


def test_a_simulated_bootstrap_has_the_keys_of_the_interface() -> None:
    outcome = invoke("membership-bootstrap", "--nodes", "40", "--json")
    figures = json.loads(outcome.stdout)
    assert set(figures) >= KEYS
    assert figures["nodes"] == 40
    assert figures["ok"]
    assert 0 <= figures["seconds"] <= figures["seconds_from_first_start"]
    assert 2 <= figures["unique_sizes"] <= 8


def test_a_simulated_crash_counts_from_the_crash() -> None:
    figures = membership.crash(40, 3, [1]).figures
    assert set(figures) >= CRASH_KEYS
    assert figures["ok"]
    assert figures["view_changes"] == 1
    assert figures["healthy_removed"] == 0
    assert figures["unique_sizes"] == 2
    assert 0 < figures["seconds_after_alerts"] < figures["seconds"]
    assert 0 < figures["messages_after_alerts"] <= figures["messages_per_node"]


@pytest.mark.slow("four bootstraps of forty")
def test_loss_and_codec_reach_the_simulator() -> None:
    calm = membership.bootstrap(40, [0]).figures
    assert membership.bootstrap(40, [0]).figures["messages_per_node"] == calm["messages_per_node"]
    coded = membership.bootstrap(40, [0], Simulated(codec=True)).figures
    assert coded["messages_per_node"] == calm["messages_per_node"], "the same run, byte by byte"
    lossy = membership.bootstrap(40, [0], Simulated(loss=0.2)).figures
    assert lossy["messages_per_node"] > calm["messages_per_node"]


@pytest.mark.slow("three clusters of ten, the widest for minutes of virtual time")
def test_the_presets_take_the_longer_the_farther_their_members_are_apart() -> None:
    figures = presets.presets([1]).figures["medians"]
    for event in presets.EVENTS:
        local, lan, wan = (figures[name][event] for name in ("local", "lan", "wan"))
        assert 0 < local < lan < wan
    for name, (settings, _) in presets.NETWORKS.items():
        assert figures[name]["crash"] < 7 * settings.probe_interval


def run(seed: int, seconds: float | None) -> Run:
    return Run(seed, 10, seconds is not None, seconds, 1.0, 3, 1.0, 1.0, 1)


def test_several_seeds_give_medians_and_the_worst() -> None:
    figures = summary([run(0, 1.0), run(1, 9.0), run(2, 2.0)])
    assert figures["seconds"] == 2.0
    assert figures["worst"]["seconds"] == 9.0
    assert figures["nodes"] == 10
    assert figures["seeds"] == [0, 1, 2]
    assert figures["ok"]
    failed = summary([run(0, 1.0), run(1, None)])
    assert failed["seconds"] == 1.0
    assert not failed["ok"]


def test_the_alerts_are_complete_when_the_last_subject_has_h_rings() -> None:
    counted = Counted(30, 0, 0.0, False)
    assert counted.come_together()
    view = counted.cluster.latest
    assert view is not None
    subject = view.members[0]
    observers = [(view.members[index].name, mask.bit_count()) for index, mask in view.observer_masks(subject)]
    edges = [Alert(float(second), name, subject.name, 0, 0) for second, (name, _) in enumerate(observers)]
    rings = 0
    needed = 0
    while rings < HIGH:
        rings += observers[needed][1]
        needed += 1
    edge = edges[needed - 1]
    watching = observers_of(view, {subject.name})
    assert alerts_complete(watching, edges, HIGH) == edge
    assert alerts_complete(watching, [edges[0], *edges], HIGH) == edge, "who repeats itself counts once"
    assert alerts_complete(watching, edges[:2], HIGH) is None
    # A faulty observer's ring counts by itself: one report less is needed.
    first = {subject.name, observers[0][0]}
    assert alerts_complete(observers_of(view, first), edges[1:], HIGH) is None, (
        "nobody has reported the observer"
    )


def test_the_options_of_one_backend_are_refused_by_the_other() -> None:
    outcome = invoke("membership-bootstrap", "--backend", "process", "--loss", "0.1")
    assert outcome.exit_code == 2
    assert "simulator" in outcome.stderr
    outcome = invoke("membership-crash", "--nodes", "10", "--faulty", "5")
    assert outcome.exit_code == 2
    assert "survive" in outcome.stderr


@pytest.mark.sweep("forty real members in two processes")
@pytest.mark.socket
def test_real_members_in_two_processes_join_and_lose_three_in_one_view_change() -> None:
    figures = membership.crash(40, 3, [0], RealSockets()).figures
    assert set(figures) >= CRASH_KEYS
    assert figures["ok"]
    assert figures["processes"] == 2
    assert figures["view_changes"] == 1
    assert figures["probes_per_node"] > figures["messages_per_node"] / 100
    assert figures["max_rss"] > 1e6


@pytest.mark.socket
def test_real_members_bootstrap() -> None:
    outcome = invoke(
        "membership-bootstrap", "--nodes", "30", "--backend", "process", "--spread", "0.2", "--json"
    )
    figures = json.loads(outcome.stdout)
    assert set(figures) >= KEYS
    assert figures["ok"]
    assert figures["sizes"][-1] == 30
    assert outcome.exit_code == 0
