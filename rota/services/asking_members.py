"""Asking the members of the view for what each knows of itself: all of a small cluster, some of a large one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import trio

from membership import Member, TransportError
from rota.errors import ApiError

ASKED_AT_ONCE = 16
ANSWER_TIMEOUT = 2.0
"""Seconds for one member; who is being found faulty does not answer."""

KEPT = 1.0
"""Seconds for which an answer is good for others who ask."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """What was told, by name, and who did not answer."""

    answers: dict[str, T]
    silent: list[str]


class Shared(Generic[T]):
    """What was gathered a moment ago in the same view: several consoles cost the cluster no more than one."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._gathered: T | None = None
        self._gathered_for = b""
        self._gathered_at = 0.0

    async def get(self, view_id: bytes, gather: Callable[[], Awaitable[T]]) -> T:
        """Gathered anew after `KEPT`, or in another view; who asks meanwhile waits for that."""
        async with self._lock:
            fresh = trio.current_time() - self._gathered_at < KEPT
            if self._gathered is None or not fresh or self._gathered_for != view_id:
                self._gathered_for = view_id
                self._gathered = await gather()
                self._gathered_at = trio.current_time()
            return self._gathered


async def ask_all(members: Sequence[Member], ask: Callable[[Member], Awaitable[T]]) -> Told[T]:
    """Nobody's silence is an error, nor is a refusal (:class:`ApiError`): they are named."""
    answers: dict[str, T] = {}
    silent: list[str] = []
    limit = trio.CapacityLimiter(ASKED_AT_ONCE)

    async def ask_one(member: Member) -> None:
        async with limit:
            with trio.move_on_after(ANSWER_TIMEOUT):
                try:
                    answers[member.name] = await ask(member)
                except (ApiError, TransportError):
                    pass
                else:
                    return
        silent.append(member.name)

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(ask_one, member)
    return Told(answers, sorted(silent))


def checked(answer: object, kind: type[T]) -> T:
    """Another agent's answer, if it is of this kind: it may be of any version.  Raises :class:`ApiError`."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ApiError(
            f"another agent's answer is malformed: {error}", code="malformed", status=502
        ) from error


def chosen(members: list[Member], most: int) -> list[Member]:
    """All of few, or evenly spread ones of many; the same ones as long as the view stays."""
    if len(members) <= most:
        return members
    return [members[index * len(members) // most] for index in range(most)]
