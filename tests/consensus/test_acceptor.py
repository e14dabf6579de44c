"""The acceptor keeps its promises, also over a restart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensus import Accepted, Acceptor, AcceptorState, Ballot, InvalidBallotError, Promise, Reject

LOW = Ballot(2, 0)
HIGH = Ballot(3, 1)


def test_it_promises_a_higher_ballot_and_rejects_a_lower_one() -> None:
    acceptor = Acceptor()
    assert acceptor.prepare(HIGH) == Promise(HIGH, Ballot.NONE, None, changed=True)
    assert acceptor.prepare(LOW) == Reject(LOW, HIGH)
    assert acceptor.accept(LOW, b"a") == Reject(LOW, HIGH)


def test_a_repeated_request_gets_the_same_answer_and_changes_nothing() -> None:
    acceptor = Acceptor()
    acceptor.prepare(LOW)
    assert acceptor.prepare(LOW) == Promise(LOW, Ballot.NONE, None, changed=False)
    assert acceptor.accept(LOW, b"a") == Accepted(LOW, b"a", changed=True)
    assert acceptor.accept(LOW, b"a") == Accepted(LOW, b"a", changed=False)
    assert acceptor.state == AcceptorState(LOW, LOW, b"a")


def test_a_promise_reports_what_was_accepted() -> None:
    acceptor = Acceptor()
    acceptor.accept(LOW, b"a")
    assert acceptor.prepare(HIGH) == Promise(HIGH, LOW, b"a", changed=True)


def test_accepting_a_higher_ballot_without_a_promise_promises_it() -> None:
    acceptor = Acceptor()
    acceptor.prepare(LOW)
    assert acceptor.accept(HIGH, b"b") == Accepted(HIGH, b"b", changed=True)
    assert acceptor.prepare(LOW) == Reject(LOW, HIGH)


def test_one_ballot_never_gets_two_values() -> None:
    acceptor = Acceptor()
    acceptor.accept(LOW, b"a")
    assert acceptor.accept(LOW, b"b") == Reject(LOW, LOW)
    assert acceptor.state.accepted_value == b"a"


def test_b2_no_fast_vote_after_a_classic_promise() -> None:
    acceptor = Acceptor()
    acceptor.prepare(LOW)
    assert not acceptor.vote_fast(b"a")
    assert acceptor.state == AcceptorState(promised=LOW)


def test_it_votes_once_in_the_fast_round() -> None:
    acceptor = Acceptor()
    assert acceptor.vote_fast(b"a")
    assert not acceptor.vote_fast(b"b")
    assert not acceptor.vote_fast(b"a")
    assert acceptor.prepare(LOW) == Promise(LOW, Ballot.FAST, b"a", changed=True)


@pytest.mark.parametrize("ballot", [Ballot.NONE, Ballot.FAST, Ballot(1, 3), Ballot(2, -1)])
def test_only_classic_ballots_are_prepared_or_accepted(ballot: Ballot) -> None:
    acceptor = Acceptor()
    with pytest.raises(InvalidBallotError):
        acceptor.prepare(ballot)
    with pytest.raises(InvalidBallotError):
        acceptor.accept(ballot, b"a")
    assert acceptor.state == AcceptorState()


steps = st.one_of(
    st.tuples(st.just("prepare"), st.integers(2, 4), st.integers(0, 2), st.none()),
    st.tuples(st.just("accept"), st.integers(2, 4), st.integers(0, 2), st.sampled_from([b"a", b"b"])),
    st.tuples(st.just("vote"), st.none(), st.none(), st.sampled_from([b"a", b"b"])),
)


@given(st.lists(steps, max_size=20))
def test_changed_says_exactly_when_the_record_must_be_saved(script: list[tuple]) -> None:  # type: ignore[type-arg]
    """An acceptor rebuilt from its last saved record can not be told from one that never stopped."""
    steady, saved = Acceptor(), AcceptorState()
    for what, number, member, value in script:
        restarted = Acceptor(saved)
        if what == "vote":
            answer = steady.vote_fast(value)
            assert restarted.vote_fast(value) == answer
            changed = answer
        elif what == "prepare":
            promise = steady.prepare(Ballot(number, member))
            assert restarted.prepare(Ballot(number, member)) == promise
            changed = isinstance(promise, Promise) and promise.changed
        else:
            accepted = steady.accept(Ballot(number, member), value)
            assert restarted.accept(Ballot(number, member), value) == accepted
            changed = isinstance(accepted, Accepted) and accepted.changed
        assert changed == (steady.state != saved)
        assert steady.state.promised >= saved.promised
        assert steady.state.accepted_ballot >= saved.accepted_ballot
        saved = steady.state
