"""The node-scaling benchmark at a small size: every pod is placed, proven, in whole columns."""

from __future__ import annotations

from bench.policies.policy_scale import policy_scale


def test_batches_are_placed_in_whole_columns() -> None:
    result = policy_scale(nodes=30, pods=5, least_load=0, runs=2, budget=20.0, seed=0)
    assert result.ok
    assert result.figures["placed"] == 5
    assert result.figures["left_out"] == []
    stages = {
        "fetch_p50",
        "encode_p50",
        "solve_p50",
        "oracle_p50",
        "total_p50",
        "total_p99",
        "variables",
        "gap",
        "read_first",
        "read_again",
    }
    assert stages <= set(result.figures)
