"""The value rule: a table of cases, and a twin that enumerates what the silent members may have voted."""

from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensus import (
    Ballot,
    Forced,
    Free,
    InvalidGroupError,
    Promise,
    choose,
    classic_quorum,
    fast_quorum,
)

TABLE = Path(__file__).parent / "testdata" / "value_rule.txt"
ROUND = Ballot(9, 0)


def cases() -> list[object]:
    found: list[object] = []
    for number, line in enumerate(TABLE.read_text().splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            n, promises, answer = (field.strip() for field in line.split("|"))
            found.append(pytest.param(int(n), promises.split(), answer, id=f"line {number}"))
    return found


def promise(text: str) -> Promise:
    if text == "-":
        return Promise(ROUND, Ballot.NONE, None)
    ballot, value = text.split(":")
    accepted = Ballot.FAST if ballot == "fast" else Ballot(*map(int, ballot.split(".")))
    return Promise(ROUND, accepted, value.encode())


def words(choice: Forced | Free) -> str:
    values = [choice.value] if isinstance(choice, Forced) else choice.candidates
    return " ".join(["forced" if isinstance(choice, Forced) else "free", *(v.decode() for v in values)])


@pytest.mark.parametrize(("n", "promises", "answer"), cases())
def test_the_table(n: int, promises: list[str], answer: str) -> None:
    assert words(choose([promise(text) for text in promises], n)) == answer
    assert words(choose([promise(text) for text in reversed(promises)], n)) == answer


def possibly_decided(votes: list[bytes | None], n: int) -> list[bytes]:
    """Every value with a fast quorum in at least one completion by the members not heard of."""
    values = sorted({vote for vote in votes if vote is not None})
    return [
        value
        for value in values
        if any(
            (votes + list(rest)).count(value) >= fast_quorum(n)
            for rest in combinations_with_replacement([None, *values], n - len(votes))
        )
    ]


@st.composite
def fast_votes(draw: st.DrawFn) -> tuple[int, list[bytes | None]]:
    n = draw(st.integers(1, 9))
    heard = draw(st.integers(classic_quorum(n), n))
    vote = st.sampled_from([None, b"a", b"b", b"c"])
    return n, draw(st.lists(vote, min_size=heard, max_size=heard))


@given(fast_votes())
def test_after_the_fast_round_exactly_a_value_that_may_be_decided_is_forced(
    case: tuple[int, list[bytes | None]],
) -> None:
    n, votes = case
    promises = [Promise(ROUND, Ballot.FAST if vote else Ballot.NONE, vote) for vote in votes]
    possible = possibly_decided(votes, n)
    choice = choose(promises, n)
    assert len(possible) <= 1
    if possible:
        assert choice == Forced(possible[0])
    else:
        assert isinstance(choice, Free)
        assert sorted(choice.candidates) == sorted({vote for vote in votes if vote is not None})


@given(
    st.lists(
        st.tuples(
            st.sampled_from([Ballot.FAST, Ballot(2, 0), Ballot(2, 1), Ballot(3, 0)]), st.binary(max_size=1)
        ),
        min_size=3,
        max_size=5,
    )
)
def test_after_a_classic_round_its_value_is_forced(accepted: list[tuple[Ballot, bytes]]) -> None:
    # One classic ballot has one owner, hence one value.
    values = {ballot: value for ballot, value in accepted if ballot.is_classic}
    promises = [Promise(ROUND, ballot, values.get(ballot, value)) for ballot, value in accepted]
    if values:
        assert choose(promises, 5) == Forced(values[max(values)])


def test_less_than_a_quorum_or_more_than_everybody_is_refused() -> None:
    with pytest.raises(InvalidGroupError, match="wait for 3"):
        choose([promise("-")] * 2, 5)
    with pytest.raises(InvalidGroupError, match="count each member once"):
        choose([promise("-")] * 6, 5)
