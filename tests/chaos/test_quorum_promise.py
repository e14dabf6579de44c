"""When a member must have said that it lost its majority, and when that is not judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.checkers.quorum_promise import QuorumPromise, Standing, quorum_lost_bound
from membership.settings import Settings
from tests.chaos.test_invariants import FIVE, FOUR, MEMBERS

SETTINGS = Settings.local()
LATE = quorum_lost_bound(SETTINGS) + 3 * SETTINGS.probe_interval
ALL = {member.name: Standing(member.incarnation, 0.0, FIVE, has_quorum=True) for member in MEMBERS}


def links(*open_links: str) -> dict[str, list[str]]:
    """`01`: n0 reaches n1."""
    return {name: [f"n{link[1]}" for link in open_links if f"n{link[0]}" == name] for name in ALL}


@pytest.fixture
def found() -> list[str]:
    return []


@pytest.fixture
def promise(found: list[str]) -> QuorumPromise:
    return QuorumPromise(SETTINGS, found.append)


@pytest.mark.parametrize(
    ("open_links", "sure"),
    [
        (links("01", "10", "12", "21", "34", "43"), {"n3", "n4"}),  # n0 reaches n2 through n1
        (links("01", "12", "20"), {"n3", "n4"}),  # in a circle
        (links("01", "02", "03", "04"), {"n0", "n1", "n2", "n3", "n4"}),  # all hear n0, which hears nobody
        (links("10", "20", "30", "40"), {"n0", "n1", "n2", "n3", "n4"}),  # n0 hears all
        (links("01", "10", "23", "32"), {"n0", "n1", "n2", "n3", "n4"}),
    ],
)
def test_a_side_that_reaches_no_majority_both_ways_must_say_so(
    promise: QuorumPromise, found: list[str], open_links: dict[str, list[str]], sure: set[str]
) -> None:
    promise.look(0.0, ALL, open_links)
    promise.look(LATE - 2 * SETTINGS.probe_interval, ALL, open_links)
    assert not found
    promise.look(LATE, ALL, open_links)
    assert {text.split()[0] for text in found} == sure
    found.clear()
    said = {name: replace(one, has_quorum=name not in sure) for name, one in ALL.items()}
    promise.look(LATE, said, open_links)
    assert not found


def test_members_that_are_down_or_of_another_incarnation_count_for_nobody(
    promise: QuorumPromise, found: list[str]
) -> None:
    three = {name: ALL[name] for name in ("n0", "n1", "n2")}
    three["n2"] = replace(three["n2"], incarnation=b"x" * 16, view=None)
    everybody = {name: list(three) for name in three}
    promise.look(0.0, three, everybody)
    promise.look(LATE, three, everybody)
    assert [text.split()[0] for text in found] == ["n0", "n1"]


def test_whatever_changes_for_it_the_time_counts_from_then(promise: QuorumPromise, found: list[str]) -> None:
    alone, two = links(), links("01", "10")
    other_view = {**ALL, "n0": replace(ALL["n0"], view=FOUR)}
    leapt = {**ALL, "n0": replace(ALL["n0"], clock=1.0)}
    now = 0.0
    for standing, open_links in [
        (ALL, alone),
        (ALL, two),
        (other_view, alone),
        (leapt, alone),
        (leapt, None),
        (leapt, alone),
    ]:
        promise.look(now, standing, open_links)
        now += LATE - 2 * SETTINGS.probe_interval
        promise.look(now, standing, open_links)
        assert "n0" not in " ".join(found)
    promise.look(now + LATE, leapt, alone)
    assert "n0" in " ".join(found)


def test_what_happens_to_others_makes_no_difference(promise: QuorumPromise, found: list[str]) -> None:
    one = {"n0": ALL["n0"]}
    promise.look(0.0, ALL, links("01", "02", "12", "21"))
    promise.look(1.0, one, {"n0": []})
    promise.look(LATE, ALL, links("10"))
    assert [text.split()[0] for text in found] == ["n0"]
