"""Anything less than one half of the members may die at once: the others remove it.

Each seed here once stood still for ever: observers with mostly dead subjects blamed themselves, and a subject
stayed unstable because its silent observers were dead too, but reported by too few.
"""

import pytest

import chaos

ONCE_STUCK = [(11, 5, 1), (11, 5, 2), (11, 5, 3), (20, 8, 1), (20, 9, 1), (50, 20, 1), (50, 24, 2)]


@pytest.mark.parametrize(("nodes", "faulty", "seed"), ONCE_STUCK)
def test_just_less_than_half_may_die_at_once(nodes: int, faulty: int, seed: int) -> None:
    report = chaos.run("crash", nodes=nodes, faulty=faulty, seed=seed, duration=40)
    assert report.sizes[-1] == nodes - faulty
    assert report.faulty_removed == faulty
    assert report.healthy_removed == 0
    assert report.agreement
