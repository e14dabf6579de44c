"""One record of the log, as those who read it see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log."""

    address: int
    stream: str
    payload: bytes
    previous: tuple[int, ...] = ()
    """Addresses of earlier records of the stream, latest first."""
