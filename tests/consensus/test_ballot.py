"""Ballots: a total order with one owner each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensus import Ballot, InvalidBallotError

ballots = st.builds(Ballot, st.integers(0, 5), st.integers(0, 4))


def test_nothing_comes_before_the_fast_round_and_every_classic_one_after() -> None:
    assert (Ballot.NONE.round, Ballot.NONE.member) == (0, 0)
    assert Ballot.NONE < Ballot.FAST < Ballot.FAST.successor(0) < Ballot.FAST.successor(1)
    assert not Ballot.NONE.is_classic
    assert not Ballot.FAST.is_classic
    assert Ballot.FAST.successor(0).is_classic


@given(ballots, st.integers(0, 4))
def test_the_successor_is_the_lowest_higher_classic_ballot_of_its_member(ballot: Ballot, member: int) -> None:
    candidates = [Ballot(number, member) for number in range(10)]
    assert ballot.successor(member) == min(c for c in candidates if c > ballot and c.is_classic)


def test_a_ballot_has_an_owner() -> None:
    with pytest.raises(InvalidBallotError):
        Ballot.FAST.successor(-1)
