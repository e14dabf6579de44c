"""The placement benchmark: its keys, and that what it reports is so."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.__main__ import bench
from bench.policies.placement import EVENTS, _racks

KEYS = {"status", "gap", "moves", "lower_bound", "seconds", "cpu_seconds"}


@pytest.mark.parametrize("event", EVENTS)
def test_the_keys_of_the_interface(event: str) -> None:
    arguments = ["placement", "--segments", "60", "--hosts", "12", "--racks", "4", "--event", event, "--json"]
    outcome = CliRunner().invoke(bench, [*arguments, "--runs", "1"])
    assert outcome.exit_code == 0, outcome.output
    figures = json.loads(outcome.stdout)
    assert set(figures) >= KEYS
    assert figures["moves"] == figures["lower_bound"]
    assert figures["copies_proven"] is True
    if event != "add-hosts":
        assert figures["moves"] >= figures["lost_copies"] > 0


def test_unequal_racks_differ_by_a_factor_of_three() -> None:
    sizes = [_racks(100, 5, True).count(rack) for rack in range(5)]
    assert sum(sizes) == 100
    assert sizes == sorted(sizes, reverse=True)
    assert 2.5 <= sizes[0] / sizes[-1] <= 3.5
