"""Messages between the control loop and its solver process: values only, in length-prefixed MessagePack.

The rows of a state and the name of the policies go in, a decided outcome comes out.  Neither the compiled model nor
anything that could run code crosses the pipe, and what arrives is validated against the types below.  Pure: no pipe
and no process here.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

import msgspec

from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome, Undecided
from mgmt.solving.policy_listing import PolicyEntry

LARGEST_FRAME: Final = 1 << 28
"""Bytes.  A state of a million replicas takes a fifth of it."""
_LENGTH: Final = struct.Struct("!I")
_Message = TypeVar("_Message")


class SolverProtocolError(Exception):
    """What came over the pipe is not a message of this version.  The other side is to be ended."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``number`` comes back with the answer.  Without a ``state`` only the policies are loaded and compiled, or
    with ``listing`` listed for people."""

    number: int
    policies: PolicyChoice
    state: PlacementState | None = None
    budget: float = 0.0
    seed: int = 0
    listing: bool = False
    question: Question | None = None
    """To be answered instead of a solve."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most one of the outcomes is set; none in answer to a request without a state.  ``listing`` where asked for."""

    number: int
    solved: Solved | None = None
    infeasible: Infeasible | None = None
    undecided: Undecided | None = None
    listing: tuple[PolicyEntry, ...] | None = None
    explanation: Explanation | None = None

    @classmethod
    def of(cls, number: int, outcome: SolveOutcome | None) -> Answer:
        match outcome:
            case Solved():
                return cls(number, solved=outcome)
            case Infeasible():
                return cls(number, infeasible=outcome)
            case Undecided():
                return cls(number, undecided=outcome)
            case None:
                return cls(number)

    @property
    def outcome(self) -> SolveOutcome | None:
        return self.solved or self.infeasible or self.undecided


def encode(message: Request | Answer) -> bytes:
    """One frame."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes, kind: type[_Message]) -> _Message:
    """The message in a frame's body.  Raises :class:`SolverProtocolError`."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SolverProtocolError(f"not a {kind.__name__.lower()}: {error}") from error


class FrameReader:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """The next body, or None until more is fed.  Raises :class:`SolverProtocolError`: the frame is too long."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > LARGEST_FRAME:
            raise SolverProtocolError(f"a frame of {length} bytes; {LARGEST_FRAME} is the limit")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body
