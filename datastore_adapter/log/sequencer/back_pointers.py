"""Following a stream backwards: which of its records lie between where a reader stands and the tail.

A pure account of what the pointers read so far prove.  The sequencer tells the latest addresses of a stream, each
record those before it; every such list is complete, so that it proves which addresses between its lowest one and its
origin belong to the stream.  When every pointer leads to a hole, what lies before has to be found in another way.
Source: M. Balakrishnan et al., *Tango*, SOSP 2013, section 5 (back-pointers, and what breaks them).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class StreamTail(NamedTuple):
    """What the sequencer of an epoch tells of a stream."""

    epoch: int
    """The data epoch; the rest is of use under this one only.  What was given out and not written when it ended, a
    later sequencer gives again, to any stream."""
    tail: int
    """One above the highest address handed out."""
    latest: tuple[int, ...]
    """The latest addresses of the stream, latest first; some may be, or become, holes."""


class BackPointerWalk:
    """One walk from the tail back to `start`; `latest`: what the sequencer tells, of addresses below `tail`."""

    def __init__(self, start: int, tail: int, latest: Iterable[int]) -> None:
        self._start = start
        self._known: set[int] = set()
        self._unread: set[int] = set()
        self.covered_from = tail
        """Every record of the stream from here to the tail is known."""
        self._add(latest)

    @property
    def is_complete(self) -> bool:
        """Whether a record before `start` was met, so that nothing between is unknown.

        That the pointers end is no proof: after a trim a new sequencer knows of no record before it.
        """
        return self.covered_from <= self._start

    @property
    def unread(self) -> list[int]:
        """What may lead further back, lowest first; empty when the walk has ended."""
        return sorted(self._unread)

    @property
    def addresses(self) -> list[int]:
        """The addresses known to be of the stream, from `start` on, ascending; some may turn out to be holes."""
        return sorted(self._known)

    def learn(self, address: int, previous: Iterable[int]) -> None:
        """A record was read at `address`; a hole has no pointers."""
        self._unread.discard(address)
        self._add(previous)

    def _add(self, pointers: Iterable[int]) -> None:
        for address in pointers:
            self.covered_from = min(self.covered_from, address)
            if address >= self._start and address not in self._known:
                self._known.add(address)
                self._unread.add(address)
