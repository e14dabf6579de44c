"""A host with 100 copies is drained on the real log, and the controller's host dies at any step of it.

Here at some of the moments; all of them take five CPU minutes.  `test_succession` has every call of a smaller one.
"""

from __future__ import annotations

import pytest

from mgmt.control.events import ControlEvent
from tests.budget import budgeted
from tests.mgmt.control.log_harness import LogHarness

SEGMENTS, HOSTS = 167, 5
"""Three copies of each: each host holds 100 or 101."""
DRAINED = "n4"
MOMENTS = 1 + 2 * (1 + 101 + 1) + 1
"""The plan is made; chains are opened, some 100 copies made, chains closed, each begun and ended; the plan is done."""


def die_at(cluster: LogHarness, number: int) -> list[str]:
    """Have the controller's host die as soon as it has begun or ended so many steps; what it was at."""
    died: list[str] = []
    left = number

    def count(name: str, event: ControlEvent) -> None:
        nonlocal left
        if name != "n1" or died or event.kind not in ("plan", "step-started", "step-done", "plan-done"):
            return
        if left == 0:
            died.append(event.text)
            cluster.kill("n1")
        left -= 1

    cluster.on_event = count
    return died


def drain_with_a_death(number: int) -> tuple[str, int]:
    """What the controller was at when it died, and how often one record was copied to one host at most."""
    with LogHarness(HOSTS, HOSTS, SEGMENTS, seed=number) as cluster:
        cluster.settle()
        cluster.write(2 * SEGMENTS)
        before = cluster.chains()
        assert sum(DRAINED in chain for chain in before.values()) >= 100
        died = die_at(cluster, number)
        cluster.requests("n1", "drain", DRAINED)
        cluster.run_until(lambda: bool(died) or cluster.is_settled())
        if not died:
            cluster.kill("n1")
        cluster.change("n1")
        cluster.settle()
        chains = cluster.chains()
        assert not any(DRAINED in chain or "n1" in chain for chain in chains.values())
        assert all(len(chain) == 3 for chain in chains.values())
        return (died[0] if died else "nothing"), max(cluster.received.values())


@pytest.mark.parametrize("number", budgeted([82, 0, 205, 41, 123, 164], 3))
def test_the_drain_completes_and_nothing_is_copied_more_than_twice(number: int) -> None:
    _, copied = drain_with_a_death(number)
    assert copied <= 2
