"""Scenarios on network namespaces: real packets, dropped by the kernel."""

from __future__ import annotations

import os
import subprocess

import pytest

import chaos
from chaos.processes.namespaces import NamespaceLinks

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


def namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if f"-{os.getpid()}-" in line]


def test_one_way_in_namespaces_removes_exactly_the_deaf_and_leaves_nothing_behind() -> None:
    report = chaos.run("one-way", backend="netns", nodes=8, faulty=1, duration=20.0)
    assert report.broken == ()
    assert report.sizes == (8, 7)
    assert (report.faulty_removed, report.healthy_removed) == (1, 0)
    assert report.to_json()["bytes_per_node"]["mean"] > 0
    assert report.cpu_seconds > 0
    assert namespaces() == []


def test_namespaces_are_gone_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is asked of the members, so that they need not come to rest first.
    monkeypatch.setattr("chaos.runs.runner._STANDING", 0.0)

    def interrupt(share: float) -> None:
        assert namespaces()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chaos.run("crash", backend="netns", nodes=3, faulty=1, duration=15.0, progress=interrupt)
    assert namespaces() == []


def test_what_a_killed_run_left_is_swept_by_the_next() -> None:
    name = "rota-chaos-999999999-12345-0-n0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    links = NamespaceLinks()
    try:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert name not in listed
    finally:
        links.close()
