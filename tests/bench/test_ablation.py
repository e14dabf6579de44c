"""The ablation: every part it leaves out is there, and what gets worse without one is told."""

from __future__ import annotations

import pytest

from bench.policies.ablation import PARTS, ablation, named, worse


def test_every_part_that_is_left_out_is_there() -> None:
    for part, replacements in PARTS.items():
        for name in replacements:
            owner, attribute = named(name)
            assert hasattr(owner, attribute), f"{part}: {name}"


def test_what_gets_worse_is_told() -> None:
    whole = [{"cost": [3, 5], "bound": [3, 4], "cpu": 0.1}]
    assert worse(whole, [{"cost": [3, 5], "bound": [3, 4], "cpu": 0.1}]) == ""
    assert worse(whole, [{"cost": [2, 9], "bound": [3, 4], "cpu": 0.1}]) == "", "better in the tier before"
    assert (
        worse(whole, [{"cost": [3, 6], "bound": [3, 0], "cpu": 0.2}])
        == "cost 5 to 6, bound 4 to 0, 0.10 to 0.20 s"
    )
    assert worse(whole, [{"cost": None, "bound": None, "cpu": 0.1}]) == "cost [3, 5] for None"


@pytest.mark.sweep("a case is solved five times in a process of its own")
def test_a_case_is_solved_with_everything_and_without_a_part() -> None:
    result = ablation(["phrasings squares"], ["greedy"], 2.0, lambda name: None)
    (case,) = result.figures["cases"].values()
    assert case["whole"][0]["cost"] == case["without"]["greedy"][0]["cost"]
