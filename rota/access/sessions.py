"""Sessions of browsers: a token that was typed once is remembered under a random number, which is the cookie.

They are kept in the agent's memory only.  A session ends when its holder logs out, after its lifetime, when its token
is taken away, and when the agent ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.access.tokens import Token, Tokens, digest_of

LIFETIME: Final = 12 * 3600.0
"""Seconds: a working day."""
KEPT: Final = 1000
"""The oldest gives way."""
LONGEST_COOKIE: Final = 128


@dataclass(frozen=True, slots=True)
class _Session:
    token_digest: bytes
    ends: float


class Sessions:
    """The open sessions, by the hash of their number: what is compared takes no time that tells of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, kept: int = KEPT) -> None:
        self._clock = clock
        self._kept = kept
        self._sessions: dict[bytes, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, token: Token) -> str:
        """A new session; its number, to be given to the browser and nobody else."""
        number = secrets.token_urlsafe(32)
        while len(self._sessions) >= self._kept:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[digest_of(number)] = _Session(token.digest, self._clock() + LIFETIME)
        return number

    def find(self, number: str, tokens: Tokens) -> Token | None:
        """Whose session this is, if it has not ended."""
        if not number or len(number) > LONGEST_COOKIE:
            return None
        key = digest_of(number)
        session = self._sessions.get(key)
        token = None if session is None else tokens.with_digest(session.token_digest)
        if session is not None and (token is None or self._clock() >= session.ends):
            del self._sessions[key]
            return None
        return token

    def close(self, number: str) -> None:
        self._sessions.pop(digest_of(number), None)
