"""What goes over the solver's pipe: the same values come out, and nothing else gets through."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import ServiceRoles
from mgmt import PolicyChoice
from mgmt.placement.placement_rows import HostRow, PlacementState, ReplicaRow, SegmentRow
from mgmt.solution import Delta, ObjectiveValue
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome, Undecided
from mgmt.solving.policy_listing import PolicyEntry
from mgmt.solving.solver_messages import (
    LARGEST_FRAME,
    Answer,
    FrameReader,
    Request,
    SolverProtocolError,
    decode,
    encode,
)
from mgmt.solving.solver_worker import Worker

TEXT = st.text(max_size=8)
BOOLEAN = st.booleans()
NUMBER = st.integers(0, 2**62)
POLICIES = st.builds(PolicyChoice, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple))
NAMES = st.lists(TEXT, max_size=2).map(tuple)
STATES = st.builds(
    PlacementState,
    st.lists(
        st.builds(HostRow, TEXT, TEXT, TEXT, NUMBER, BOOLEAN, BOOLEAN, BOOLEAN, BOOLEAN), max_size=3
    ).map(tuple),
    st.lists(st.builds(SegmentRow, TEXT, NUMBER, st.integers(1, 16)), max_size=3).map(tuple),
    st.lists(st.builds(ReplicaRow, TEXT, NUMBER, st.none() | TEXT, BOOLEAN), max_size=3).map(tuple),
    st.builds(ServiceRoles, NAMES, NAMES, NAMES),
)
VALUE = st.none() | st.integers(-(2**62), 2**62) | TEXT | BOOLEAN
DELTAS = st.builds(Delta, TEXT, st.lists(VALUE, max_size=2).map(tuple), TEXT, VALUE, VALUE, TEXT)
OBJECTIVES = st.builds(
    ObjectiveValue, TEXT, st.sampled_from(["minimize", "maximize"]), NUMBER, NUMBER, st.none() | NUMBER,
    NUMBER, st.none() | NUMBER, BOOLEAN,
)  # fmt: skip
SECONDS = st.floats(0, 1e6)
OUTCOMES: st.SearchStrategy[SolveOutcome] = st.one_of(
    st.builds(
        Solved, TEXT, st.lists(DELTAS, max_size=3).map(tuple), st.lists(OBJECTIVES, max_size=2).map(tuple),
        SECONDS, SECONDS, BOOLEAN,
    ),
    st.builds(Infeasible, NAMES, NAMES, SECONDS),
    st.builds(Undecided, TEXT, SECONDS),
)  # fmt: skip
REQUESTS = st.builds(Request, NUMBER, POLICIES, st.none() | STATES, SECONDS, NUMBER, BOOLEAN,
    st.none() | st.builds(Question, TEXT, TEXT, TEXT, TEXT),
)  # fmt: skip


def bodies(reader: FrameReader, pieces: Sequence[bytes]) -> list[bytes]:
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (body := reader.next()) is not None:
            found.append(body)
    return found


@given(REQUESTS)
def test_a_request_comes_out_as_it_went_in(request: Request) -> None:
    (body,) = bodies(FrameReader(), [encode(request)])
    assert decode(body, Request) == request


@given(NUMBER, st.none() | OUTCOMES)
def test_an_answer_comes_out_as_it_went_in(number: int, outcome: SolveOutcome | None) -> None:
    (body,) = bodies(FrameReader(), [encode(Answer.of(number, outcome))])
    assert decode(body, Answer).outcome == outcome
    assert type(decode(body, Answer).outcome) is type(outcome)


@given(st.lists(REQUESTS, max_size=4), st.lists(st.integers(1, 40), min_size=1))
def test_frames_may_come_in_any_pieces(requests: list[Request], sizes: list[int]) -> None:
    stream = b"".join(map(encode, requests))
    pieces = []
    while stream:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[:size])
        stream = stream[size:]
    assert [decode(body, Request) for body in bodies(FrameReader(), pieces)] == requests


SPOILED = st.builds(
    lambda request, length, tail: encode(request)[4:][:length] + tail,
    REQUESTS,
    st.integers(0, 60),
    st.binary(max_size=4),
)


@given(st.binary(max_size=64) | SPOILED)
def test_nonsense_raises_nothing_but_the_protocol_s_own_error(data: bytes) -> None:
    for kind in (Request, Answer):
        with suppress(SolverProtocolError):
            decode(data, kind)


def test_a_frame_has_a_limit() -> None:
    reader = FrameReader()
    reader.feed((LARGEST_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(SolverProtocolError, match="is the limit"):
        reader.next()


# The worker behind the pipe


class Recorder:
    """A solver that notes what it is asked, and may fail."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._failure = failure

    def prepare(self, policies: PolicyChoice) -> None:
        self.calls.append(("prepare", policies.pack))

    def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        self.calls.append(("policies", policies.pack))
        return ()

    def solve(self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int) -> SolveOutcome:
        self.calls.append(("solve", policies.pack, budget, seed))
        if self._failure is not None:
            raise self._failure
        return Undecided("no time", budget)

    def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation:
        if self._failure is not None:
            raise self._failure
        return Explanation((question.kind, question.segment))


EMPTY = PlacementState((), (), (), ServiceRoles())


def test_the_worker_answers_questions_and_a_defect_is_an_answer_too() -> None:
    request = Request(1, PolicyChoice("a"), EMPTY, 1.5, 7, question=Question("why", "s1"))
    assert Worker(Recorder()).answer(request).explanation == Explanation(("why", "s1"))
    failed = Worker(Recorder(ValueError("oops"))).answer(request).explanation
    assert failed is not None
    assert "ValueError: oops" in failed.error


def test_the_worker_compiles_policies_when_they_are_new() -> None:
    recorder = Recorder()
    worker = Worker(recorder)
    assert worker.answer(Request(1, PolicyChoice("a"))) == Answer(1)
    assert worker.answer(Request(2, PolicyChoice("a"), EMPTY, 1.5, 7)).undecided == Undecided("no time", 1.5)
    worker.answer(Request(3, PolicyChoice("b"), EMPTY, 2.5, 7))
    worker.answer(Request(4, PolicyChoice("b"), EMPTY, 2.5, 7))
    assert recorder.calls == [
        ("prepare", "a"), ("solve", "a", 1.5, 7), ("prepare", "b"), ("solve", "b", 2.5, 7), ("solve", "b", 2.5, 7),
    ]  # fmt: skip


def test_the_worker_lists_policies_without_compiling_them() -> None:
    recorder = Recorder()
    assert Worker(recorder).answer(Request(5, PolicyChoice("a"), listing=True)) == Answer(5, listing=())
    assert recorder.calls == [("policies", "a")]


def test_a_defect_is_an_answer_and_the_worker_goes_on() -> None:
    worker = Worker(Recorder(ZeroDivisionError("a defect")))
    for number in (1, 2):
        answer = worker.answer(Request(number, PolicyChoice(), EMPTY))
        assert answer.undecided == Undecided("internal error of the solver: ZeroDivisionError: a defect", 0.0)


def test_out_of_memory_ends_the_worker() -> None:
    with pytest.raises(MemoryError):
        Worker(Recorder(MemoryError())).answer(Request(1, PolicyChoice(), EMPTY))
