"""The fast round counts distinct members; twins with sets and with every possible future."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensus import FastRound, UnknownMemberError, fast_quorum

VALUES = [b"a", b"b", b"c"]


def test_it_decides_at_the_fast_quorum() -> None:
    tally = FastRound(5)
    assert tally.add(b"a", 0b00111)
    assert tally.decided() is None
    assert tally.add(b"a", 0b10000)
    assert tally.decided() == b"a"


def test_b3_a_repeated_vote_is_counted_once() -> None:
    tally = FastRound(5)
    assert tally.add(b"a", 0b00001)
    for _ in range(10):
        assert not tally.add(b"a", 0b00001)
    assert tally.votes[b"a"].bit_count() == 1
    assert tally.decided() is None


def test_a_member_that_votes_for_two_values_is_counted_once_and_reported() -> None:
    tally = FastRound(5)
    tally.add(b"a", 0b00111)
    assert tally.add(b"b", 0b11001)
    assert dict(tally.votes) == {b"a": 0b00111, b"b": 0b11000}
    assert tally.equivocators == 0b00001
    assert not tally.add(b"b", 0b00001)
    assert tally.voters == 0b11111


def test_a_split_vote_makes_a_decision_impossible() -> None:
    tally = FastRound(5)
    tally.add(b"a", 0b00011)
    assert not tally.impossible()
    tally.add(b"b", 0b01100)
    assert tally.impossible()
    assert tally.equivocators == 0, "each voted once"


@pytest.mark.parametrize("bitmap", [-1, 1 << 5, 1 << 2000])
def test_votes_of_strangers_are_refused_and_nothing_changes(bitmap: int) -> None:
    tally = FastRound(5)
    with pytest.raises(UnknownMemberError, match="another configuration"):
        tally.add(b"a", bitmap)
    assert tally.voters == 0
    assert not tally.votes


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, list[tuple[bytes, int]]]:
    n = draw(st.integers(1, 7))
    merge = st.tuples(st.sampled_from(VALUES), st.integers(0, (1 << n) - 1))
    return n, draw(st.lists(merge, max_size=8))


@pytest.mark.slow("hypothesis, a hundred scripts of votes")
@given(arrivals())
def test_twin_with_sets(case: tuple[int, list[tuple[bytes, int]]]) -> None:
    n, script = case
    tally = FastRound(n)
    counted: dict[int, bytes] = {}
    decided = None
    for value, bitmap in script:
        before = (dict(counted), decided)
        for member in range(n):
            if bitmap >> member & 1:
                counted.setdefault(member, value)
        if decided is None and list(counted.values()).count(value) >= fast_quorum(n):
            decided = value
        assert tally.add(value, bitmap) == (before != (counted, decided))
        assert tally.decided() == decided
    for value in VALUES:
        expected = sum(1 << member for member, vote in counted.items() if vote == value)
        assert tally.votes.get(value, 0) == expected


@given(arrivals())
def test_impossible_means_no_future_decides(case: tuple[int, list[tuple[bytes, int]]]) -> None:
    n, script = case
    tally = FastRound(n)
    for value, bitmap in script:
        tally.add(value, bitmap)
    silent = [member for member in range(n) if not tally.voters >> member & 1]
    possible = tally.decided() is not None
    for votes in product([*VALUES[:2], None], repeat=len(silent)):
        future = FastRound(n)
        for value, bitmap in tally.votes.items():
            future.add(value, bitmap)
        for member, vote in zip(silent, votes, strict=True):
            if vote is not None:
                future.add(vote, 1 << member)
        possible = possible or future.decided() is not None
    if VALUES[2] not in tally.votes:
        assert tally.impossible() == (not possible)
    else:
        assert not (tally.impossible() and possible)
