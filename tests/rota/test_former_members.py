"""Who is gone, and how: the list that each agent keeps for `rota members --all`, the status and the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from membership import Change, ClusterStatus, Configuration, Member
from membership.protocol.view.cut import Cut
from rota.services.former_members import KEPT, KEPT_FOR, FormerMembers
from rota.services.view_report import majority_losses, short_racks
from tests.membership.conftest import Laboratory

LAB = Laboratory()


def change(
    view: Configuration,
    failed: Sequence[Member] = (),
    left: Sequence[Member] = (),
    evicted: Sequence[Member] = (),
) -> Change:
    gone = {"failed": tuple(failed), "left": tuple(left), "evicted": tuple(evicted)}
    return replace(Change(view, ClusterStatus.MEMBER, True), **gone)


def told(former: FormerMembers) -> list[tuple[str, str]]:
    return [(each["name"], each["how"]) for each in former.latest()]


def test_who_went_is_told_the_last_one_first_until_it_is_back(tmp_path: Path) -> None:
    now = [1000.0]
    former = FormerMembers(tmp_path / "former", clock=lambda: now[0])
    five, others = LAB.configuration(5), LAB.members(8)
    former.see(change(five, failed=[others[5]], left=[others[6]]))
    now[0] += 10
    former.see(change(five, evicted=[others[7]]))
    assert told(former) == [("n7", "evicted"), ("n6", "left"), ("n5", "failed")]
    former.see(change(LAB.configuration(6)))
    assert told(former) == [("n7", "evicted"), ("n6", "left")]
    now[0] = 1000.0 + KEPT_FOR + 1
    assert told(former) == [("n7", "evicted")]


def test_it_is_bounded(tmp_path: Path) -> None:
    former = FormerMembers(tmp_path / "former")
    for number in range(1, KEPT + 50):
        former.see(change(LAB.configuration(1), failed=[LAB.member(number)]))
    assert len(told(former)) == KEPT
    assert told(former)[0] == (f"n{KEPT + 49}", "failed")


async def test_the_next_process_knows_it_too_and_believes_nothing_damaged(tmp_path: Path) -> None:
    path = tmp_path / "former"
    former = FormerMembers(path)
    gone = [LAB.member(number, metadata={"rack": "r1"}) for number in (2, 3)]
    former.see(change(LAB.configuration(2), failed=gone))
    await former.write()
    assert FormerMembers(path).latest() == former.latest() != []
    kept = path.read_bytes()
    for damaged in (
        b"",
        b"{",
        b"[1, {}]",
        b'{"name": 3}',
        kept.replace(b"failed", b"fallen"),
        kept.replace(b'"r1"', b"5"),
    ):
        path.write_bytes(damaged)
        assert FormerMembers(path).latest() == []


def in_racks(*racks: str) -> Configuration:
    """A view of n0, n1, ... in these racks."""
    first, *others = (LAB.member(number, metadata={"rack": rack}) for number, rack in enumerate(racks))
    view = Configuration.found(first, b"c" * 16, 10)
    return view.apply(Cut.of(others)) if others else view


def test_which_racks_are_short_of_whom(tmp_path: Path) -> None:
    former, view = FormerMembers(tmp_path / "former"), in_racks("r1", "r1", "r2")
    gone = [LAB.member(8, metadata={"rack": "r1"}), LAB.member(9, metadata={"rack": "r3"}), LAB.member(7)]
    former.see(change(view, failed=gone))
    assert short_racks(view, former.latest()) == [
        {"rack": "r1", "hosts": 2, "gone": ["n8"]},
        {"rack": "r3", "hosts": 0, "gone": ["n9"]},
    ]


def test_whose_loss_would_take_the_majority() -> None:
    def named(*racks: str) -> list[tuple[str, list[str]]]:
        return [(each["what"], each["names"]) for each in majority_losses(in_racks(*racks))]

    assert named("r1", "r1", "r2", "r2", "r3", "r3") == []
    assert named("r1", "r1", "r2", "r3") == [("rack", ["r1"])]
    assert named("r1", "r2") == [("host", ["n0", "n1"])]
    assert named("r1") == [], "there are no others"
