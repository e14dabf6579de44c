"""Which branch of the chain can go on."""

from __future__ import annotations

from chaos.checkers.branches import some_branch_goes_on
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member


def _member(number: int) -> Member:
    return Member(f"n{number}", "10.0.0.1", 1000 + number, bytes([number]) * 16)


A, B, C, D = (_member(number) for number in range(4))
TWO = Configuration.found(A, bytes(16), 10).apply(Cut.of(joins=[B]))
THREE = TWO.apply(Cut.of(joins=[C]))
FOUR = THREE.apply(Cut.of(joins=[D]))


def test_the_latest_view_needs_a_majority_that_runs() -> None:
    assert some_branch_goes_on({A: THREE, B: THREE}, lambda _: THREE)
    assert not some_branch_goes_on({A: THREE}, lambda _: THREE)


def test_where_only_the_dead_knew_the_latest_the_one_before_must_decide_it_again() -> None:
    assert not some_branch_goes_on({A: TWO, C: None}, lambda _: THREE)  # two of three run, but one of TWO
    assert some_branch_goes_on({A: THREE, C: THREE, D: None}, lambda _: FOUR)


def test_one_who_has_the_latest_tells_those_who_lag() -> None:
    assert some_branch_goes_on({A: TWO, C: THREE}, lambda _: THREE)


def test_a_branch_in_which_nobody_stands_does_not_go_on() -> None:
    assert not some_branch_goes_on({A: None, B: None}, lambda _: THREE)
