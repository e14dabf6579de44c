"""The proposer, one rule at a time."""

import pytest

from consensus import (
    Accepted,
    Acceptor,
    AcceptRequest,
    Ballot,
    InvalidBallotError,
    InvalidGroupError,
    Phase,
    Promise,
    Proposer,
    Reject,
    UnknownMemberError,
    WrongPhaseError,
)


def empty(ballot: Ballot) -> Promise:
    return Promise(ballot, Ballot.NONE, None)


def test_alone_against_empty_acceptors_it_decides_its_own_value() -> None:
    proposer = Proposer(3, 1, b"mine")
    ballot = proposer.start()
    assert ballot == Ballot(2, 1)
    assert proposer.on_promise(0, empty(ballot)) is None
    assert proposer.waiting_for() == (1, 2)
    assert proposer.on_promise(2, empty(ballot)) == AcceptRequest(ballot, b"mine")
    assert proposer.waiting_for() == (0, 1, 2)
    assert proposer.on_accepted(0, Accepted(ballot, b"mine")) is None
    assert proposer.on_accepted(1, Accepted(ballot, b"mine")) == b"mine"
    assert proposer.phase is Phase.DECIDED
    assert proposer.waiting_for() == ()
    with pytest.raises(WrongPhaseError):
        proposer.start()


def test_b3_repeated_answers_of_one_member_are_counted_once() -> None:
    proposer = Proposer(5, 0, b"mine")
    ballot = proposer.start()
    for _ in range(5):
        assert proposer.on_promise(1, empty(ballot)) is None
    proposer.on_promise(2, empty(ballot))
    assert proposer.on_promise(3, empty(ballot)) is not None
    for _ in range(5):
        assert proposer.on_accepted(1, Accepted(ballot, b"mine")) is None
    assert proposer.waiting_for() == (0, 2, 3, 4)


def test_it_proposes_what_the_value_rule_forces_not_its_own() -> None:
    proposer = Proposer(5, 0, b"mine")
    ballot = proposer.start()
    for member in range(2):
        proposer.on_promise(member, Promise(ballot, Ballot.FAST, b"theirs"))
    request = proposer.on_promise(2, empty(ballot))
    assert request == AcceptRequest(ballot, b"theirs")
    assert proposer.request == request


def test_given_the_choice_it_takes_the_value_with_most_votes() -> None:
    proposer = Proposer(9, 0, b"mine")
    ballot = proposer.start()
    for member, value in enumerate([b"b", b"b", b"a"]):
        proposer.on_promise(member, Promise(ballot, Ballot.FAST, value))
    proposer.on_promise(3, empty(ballot))
    assert proposer.on_promise(4, empty(ballot)) == AcceptRequest(ballot, b"b")


def test_without_any_value_it_waits_for_one() -> None:
    proposer = Proposer(3, 0)
    ballot = proposer.start()
    proposer.on_promise(0, empty(ballot))
    assert proposer.on_promise(1, empty(ballot)) is None
    assert proposer.phase is Phase.CHOOSING
    assert proposer.propose(b"late") == AcceptRequest(ballot, b"late")
    assert proposer.propose(b"later") is None
    assert proposer.phase is Phase.ACCEPTING


def test_a_rejection_teaches_it_a_higher_ballot() -> None:
    proposer = Proposer(3, 1, b"mine")
    first = proposer.start()
    assert proposer.on_reject(Reject(first, Ballot(7, 2))) == Ballot(8, 1)
    assert proposer.ballot == first
    assert proposer.start() == Ballot(8, 1)
    assert proposer.on_promise(0, empty(first)) is None  # too late: another round has begun
    assert proposer.waiting_for() == (0, 1, 2)


def test_acceptances_of_an_earlier_round_do_not_count_in_a_later_one() -> None:
    """They are of another ballot, and perhaps of another value."""
    proposer = Proposer(3, 0, b"mine")
    first = proposer.start()
    for member in (0, 1):
        proposer.on_promise(member, empty(first))
    assert proposer.on_accepted(0, Accepted(first, b"mine")) is None
    second = proposer.start()
    for member in (1, 2):
        proposer.on_promise(member, empty(second))
    assert proposer.on_accepted(1, Accepted(second, b"mine")) is None
    assert proposer.on_accepted(2, Accepted(first, b"mine")) is None
    assert proposer.on_accepted(2, Accepted(second, b"mine")) == b"mine"


def test_it_starts_above_the_promise_it_made_before_a_restart() -> None:
    acceptor = Acceptor()
    acceptor.prepare(Ballot(4, 1))
    assert Proposer(3, 1, b"mine").start(above=acceptor.state.promised) == Ballot(5, 1)


@pytest.mark.parametrize(
    ("accepted_ballot", "value"),
    [(Ballot.NONE, b"a"), (Ballot.FAST, None), (Ballot(2, 0), b"a"), (Ballot(3, 0), b"a")],
)
def test_a_promise_that_contradicts_itself_is_refused(accepted_ballot: Ballot, value: bytes | None) -> None:
    proposer = Proposer(3, 0, b"mine")
    ballot = proposer.start()
    with pytest.raises(InvalidBallotError, match="contradicts itself"):
        proposer.on_promise(1, Promise(ballot, accepted_ballot, value))
    assert proposer.waiting_for() == (0, 1, 2)


def test_strangers_are_refused() -> None:
    with pytest.raises(InvalidGroupError):
        Proposer(0, 0)
    with pytest.raises(UnknownMemberError):
        Proposer(3, 3)
    proposer = Proposer(3, 0, b"mine")
    ballot = proposer.start()
    with pytest.raises(UnknownMemberError):
        proposer.on_promise(3, empty(ballot))
    with pytest.raises(UnknownMemberError):
        proposer.on_accepted(-1, Accepted(ballot, b"mine"))
