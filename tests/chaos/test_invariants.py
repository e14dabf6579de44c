"""Each invariant, broken on purpose with real configurations."""

from __future__ import annotations

from typing import NoReturn

import pytest

from chaos.checkers.invariants import ViewInvariants
from membership.protocol.context.effects import ViewChanged
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member


class BrokenError(Exception):
    """What the checker said."""


def fail(what: str) -> NoReturn:
    raise BrokenError(what)


def member(number: int, incarnation: int = 0) -> Member:
    return Member(f"n{number}", "10.0.0.1", 1000 + number, bytes([number, incarnation] + [0] * 14))


MEMBERS = [member(number) for number in range(5)]
FOUNDED = Configuration.found(MEMBERS[0], bytes(16), 10)
FIVE = FOUNDED.apply(Cut.of(joins=MEMBERS[1:]))
FOUR = FIVE.apply(Cut.of(removals=[Removal(MEMBERS[4].incarnation)]))
OTHER_FOUR = FIVE.apply(Cut.of(removals=[Removal(MEMBERS[3].incarnation)]))
THREE = FOUR.apply(Cut.of(removals=[Removal(MEMBERS[3].incarnation, left=True)]))

TO_FIVE = ViewChanged(FIVE, FOUNDED, joined=tuple(MEMBERS[1:]))
TO_FOUR = ViewChanged(FOUR, FIVE, failed=(MEMBERS[4],))


@pytest.fixture
def checker() -> ViewInvariants:
    """n0 founded, all five are in epoch 1."""
    made = ViewInvariants(fail)
    made.installed(MEMBERS[0], ViewChanged(FOUNDED, None))
    made.installed(MEMBERS[0], TO_FIVE)
    for joiner in MEMBERS[1:]:
        made.installed(joiner, ViewChanged(FIVE, None))
    return made


def test_an_orderly_history_passes(checker: ViewInvariants) -> None:
    assert checker.installed(MEMBERS[1], TO_FOUR)
    for other in (0, 2, 3):
        assert not checker.installed(MEMBERS[other], TO_FOUR)
    assert checker.installed(MEMBERS[0], ViewChanged(THREE, FOUR, left=(MEMBERS[3],)))
    assert [view.epoch for view in checker.chain.values()] == [0, 1, 2, 3]


def test_a_laggard_may_skip_views(checker: ViewInvariants) -> None:
    for other in (0, 1, 3):
        checker.installed(MEMBERS[other], TO_FOUR)
    checker.installed(MEMBERS[0], ViewChanged(THREE, FOUR, left=(MEMBERS[3],)))
    skipping = ViewChanged(THREE, FIVE, left=(MEMBERS[3],), failed=(MEMBERS[4],))
    assert not checker.installed(MEMBERS[2], skipping)


def test_two_views_of_one_epoch(checker: ViewInvariants) -> None:
    checker.installed(MEMBERS[0], TO_FOUR)
    with pytest.raises(BrokenError, match="second view of epoch 2"):
        checker.installed(MEMBERS[1], ViewChanged(OTHER_FOUR, FIVE, failed=(MEMBERS[3],)))


def test_an_epoch_that_does_not_grow(checker: ViewInvariants) -> None:
    checker.installed(MEMBERS[0], TO_FOUR)
    with pytest.raises(BrokenError, match="from epoch 2 back to 1"):
        checker.installed(MEMBERS[0], ViewChanged(FIVE, FOUR))


def test_a_view_without_its_installer(checker: ViewInvariants) -> None:
    with pytest.raises(BrokenError, match="does not contain it"):
        checker.installed(MEMBERS[4], TO_FOUR)


def test_another_incarnation_is_not_in_the_view(checker: ViewInvariants) -> None:
    with pytest.raises(BrokenError, match="does not contain it"):
        checker.installed(member(1, incarnation=7), ViewChanged(FIVE, None))


def test_a_view_that_appears_at_somebody_who_did_not_take_part() -> None:
    checker = ViewInvariants(fail)
    checker.installed(MEMBERS[0], ViewChanged(FOUNDED, None))
    with pytest.raises(BrokenError, match="first to install epoch 1 while it had no view"):
        checker.installed(MEMBERS[1], ViewChanged(FIVE, None))


def test_a_view_out_of_nowhere(checker: ViewInvariants) -> None:
    with pytest.raises(BrokenError, match="nobody ever had epoch 2"):
        checker.installed(MEMBERS[0], ViewChanged(THREE, FIVE))


def test_a_view_decided_without_a_majority() -> None:
    checker = ViewInvariants(fail)
    checker.installed(MEMBERS[0], ViewChanged(FOUNDED, None))
    checker.installed(MEMBERS[0], TO_FIVE)
    checker.installed(MEMBERS[1], ViewChanged(FIVE, None))
    with pytest.raises(BrokenError, match="only 2 of the 5"):
        checker.installed(MEMBERS[0], TO_FOUR)


def test_a_report_that_does_not_follow_the_last_one(checker: ViewInvariants) -> None:
    with pytest.raises(BrokenError, match="not as the next of epoch 1"):
        checker.installed(MEMBERS[0], ViewChanged(FOUR, FOUNDED))


def test_a_delta_that_is_not_the_difference(checker: ViewInvariants) -> None:
    with pytest.raises(BrokenError, match="delta"):
        checker.installed(MEMBERS[0], ViewChanged(FOUR, FIVE, failed=(MEMBERS[3],)))
    with pytest.raises(BrokenError, match="delta"):
        checker.installed(MEMBERS[1], ViewChanged(FOUR, FIVE))


def test_a_laggard_may_miss_who_left(checker: ViewInvariants) -> None:
    checker.installed(MEMBERS[0], ViewChanged(FOUR, FIVE, left=(MEMBERS[4],)))
    checker.installed(MEMBERS[1], TO_FOUR)


def test_left_and_failed_are_told_apart_the_same_way_everywhere(checker: ViewInvariants) -> None:
    both = FIVE.apply(Cut.of(removals=[Removal(MEMBERS[n].incarnation, left=n == 4) for n in (3, 4)]))
    checker.installed(MEMBERS[0], ViewChanged(both, FIVE, left=(MEMBERS[4],), failed=(MEMBERS[3],)))
    with pytest.raises(BrokenError, match="another delta"):
        checker.installed(MEMBERS[1], ViewChanged(both, FIVE, left=(MEMBERS[3],), failed=(MEMBERS[4],)))


def test_a_laggard_does_not_see_who_left_when_a_new_incarnation_took_its_place(
    checker: ViewInvariants,
) -> None:
    """Found by the fuzzer, seed 3648: n4 left and was started again before its leave was decided."""
    again = member(4, incarnation=1)
    view = FIVE.apply(Cut.of([again], [Removal(MEMBERS[4].incarnation, left=True)]))
    checker.installed(MEMBERS[0], ViewChanged(view, FIVE, left=(MEMBERS[4],), replaced=(again,)))
    checker.installed(MEMBERS[1], ViewChanged(view, FIVE, replaced=(again,)))
    with pytest.raises(BrokenError, match="another delta"):
        checker.installed(MEMBERS[2], ViewChanged(view, FIVE, replaced=(again,), failed=(MEMBERS[3],)))


def test_a_replaced_incarnation_is_neither_joined_nor_failed(checker: ViewInvariants) -> None:
    newer = member(4, incarnation=1)
    replaced = FIVE.apply(Cut.of(joins=[newer], removals=[Removal(MEMBERS[4].incarnation)]))
    assert checker.installed(MEMBERS[0], ViewChanged(replaced, FIVE, replaced=(newer,)))


# Recoveries: branches of the chain

RECOVERED = FIVE.recover([MEMBERS[0].incarnation, MEMBERS[1].incarnation], bytes([1] * 16))
OTHERWISE = FIVE.recover([MEMBERS[1].incarnation, MEMBERS[2].incarnation], bytes([2] * 16))
TO_RECOVERED = ViewChanged(RECOVERED, FIVE, failed=tuple(MEMBERS[2:]))
TO_OTHERWISE = ViewChanged(OTHERWISE, FIVE, failed=(MEMBERS[0], *MEMBERS[3:]))


def test_branches_go_on_beside_each_other_and_the_old_chain(checker: ViewInvariants) -> None:
    assert checker.installed(MEMBERS[0], TO_RECOVERED)
    assert not checker.installed(MEMBERS[1], TO_RECOVERED)
    assert checker.installed(MEMBERS[2], TO_OTHERWISE)
    assert checker.installed(MEMBERS[3], TO_FOUR)
    returned = RECOVERED.apply(Cut.of(joins=[member(4, incarnation=1)]))
    to_returned = ViewChanged(returned, RECOVERED, joined=(member(4, incarnation=1),))
    assert checker.installed(MEMBERS[1], to_returned)
    assert not checker.installed(member(4, incarnation=1), ViewChanged(returned, None))
    assert checker.latest is returned
    assert checker.latest_of(OTHERWISE.lineage) is OTHERWISE
    assert checker.latest_of(()) is FOUR
    assert [checker.before(view) for view in (returned, RECOVERED, OTHERWISE, FOUR, FOUNDED)] == [
        RECOVERED, FIVE, FIVE, FIVE, None,
    ]  # fmt: skip


def test_a_process_that_goes_from_one_branch_to_the_other(checker: ViewInvariants) -> None:
    checker.installed(MEMBERS[0], TO_RECOVERED)
    checker.installed(MEMBERS[1], TO_RECOVERED)
    later = OTHERWISE.apply(Cut.of(joins=[member(4, incarnation=1)]))
    with pytest.raises(BrokenError, match="from one recovery's branch, at epoch 1000000000, to another's"):
        checker.installed(MEMBERS[1], ViewChanged(later, RECOVERED))


def test_a_process_that_goes_back_to_the_old_chain(checker: ViewInvariants) -> None:
    checker.installed(MEMBERS[0], TO_RECOVERED)
    with pytest.raises(BrokenError, match="back to 2"):
        checker.installed(MEMBERS[0], ViewChanged(FOUR, RECOVERED))


def test_who_was_no_survivor_comes_in_under_its_old_incarnation(checker: ViewInvariants) -> None:
    for survivor in MEMBERS[:2]:
        checker.installed(survivor, TO_RECOVERED)
    smuggled = RECOVERED.apply(Cut.of(joins=[MEMBERS[3]]))
    with pytest.raises(BrokenError, match="has n3, which was no survivor"):
        checker.installed(MEMBERS[0], ViewChanged(smuggled, RECOVERED, joined=(MEMBERS[3],)))


def test_who_never_heard_that_it_was_admitted_may_join_a_recovery_as_it_is() -> None:
    """Found by the fuzzer, seeds 1972 and (what comes after it has joined) 4748."""
    checker = ViewInvariants(fail)
    checker.installed(MEMBERS[0], ViewChanged(FOUNDED, None))
    checker.installed(MEMBERS[0], TO_FIVE)
    for survivor in MEMBERS[:2]:
        checker.installed(survivor, TO_RECOVERED if survivor is MEMBERS[0] else ViewChanged(RECOVERED, None))
    joined = RECOVERED.apply(Cut.of(joins=[MEMBERS[3]]))
    assert checker.installed(MEMBERS[0], ViewChanged(joined, RECOVERED, joined=(MEMBERS[3],)))
    assert not checker.installed(MEMBERS[3], ViewChanged(joined, None))
    larger = joined.apply(Cut.of(joins=[member(9)]))
    assert not checker.installed(MEMBERS[1], ViewChanged(joined, RECOVERED, joined=(MEMBERS[3],)))
    assert checker.installed(MEMBERS[0], ViewChanged(larger, joined, joined=(member(9),)))
    again = larger.recover([MEMBERS[0].incarnation, MEMBERS[3].incarnation], bytes([1] * 16))
    gone = tuple(known for known in larger.members if known not in again.members)
    checker.installed(MEMBERS[0], ViewChanged(again, larger, failed=gone))
    last = again.apply(Cut.of(joins=[member(8)]))
    with pytest.raises(BrokenError, match="only 1 of the 2 members"):  # n3 may be late, and is no stranger
        checker.installed(MEMBERS[0], ViewChanged(last, again, joined=(member(8),)))


def test_a_recovery_with_members_of_its_own(checker: ViewInvariants) -> None:
    forged = FIVE.apply(Cut.of(joins=[member(9)])).recover(
        [MEMBERS[0].incarnation, member(9).incarnation], bytes(16)
    )
    with pytest.raises(BrokenError, match="members that epoch 1 did not have"):
        checker.installed(MEMBERS[0], ViewChanged(forged, FIVE))


def test_a_recovery_out_of_nowhere() -> None:
    checker = ViewInvariants(fail)
    with pytest.raises(BrokenError, match="without a view to recover from"):
        checker.installed(member(0), ViewChanged(RECOVERED, None))


def test_an_eviction_by_a_view_of_another_branch(checker: ViewInvariants) -> None:
    for survivor in MEMBERS[:2]:
        checker.installed(survivor, TO_RECOVERED)
    checker.installed(MEMBERS[2], TO_OTHERWISE)
    checker.evicted(MEMBERS[3], RECOVERED.epoch)
    checker.evicted(MEMBERS[2], OTHERWISE.epoch + 1)  # it may be the first to know
    with pytest.raises(BrokenError, match="no branch that continues its own"):
        checker.evicted(MEMBERS[2], OTHERWISE.epoch + 2)
    with pytest.raises(BrokenError, match="out since epoch 1000000000"):
        checker.evicted(MEMBERS[2], RECOVERED.epoch)
    with pytest.raises(BrokenError, match="from no view at all"):
        checker.evicted(member(3, incarnation=7), 3)


def test_a_founder_alone_is_passed_over_by_a_view_that_there_is(checker: ViewInvariants) -> None:
    """Nobody was shown its view; what it is told must be true all the same.  Seed 3394 of the fuzzer of stores."""
    again = member(3, incarnation=7)
    unseen = Configuration.found(again, bytes(16), 10)
    checker.evicted(again, FIVE.epoch, unseen)
    with pytest.raises(BrokenError, match="no branch that continues its own"):
        checker.evicted(again, FIVE.epoch + 7, unseen)
    with pytest.raises(BrokenError, match=f"stands in epoch {unseen.epoch}"):
        checker.evicted(again, unseen.epoch, unseen)


def test_two_views_of_one_epoch_of_one_branch(checker: ViewInvariants) -> None:
    checker.installed(MEMBERS[0], TO_RECOVERED)
    same_mark = FIVE.recover([MEMBERS[1].incarnation, MEMBERS[2].incarnation], bytes([1] * 16))
    with pytest.raises(BrokenError, match="second view of epoch 1000000000"):
        checker.installed(MEMBERS[1], ViewChanged(same_mark, FIVE))
