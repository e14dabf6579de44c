"""A placement as every export reads it: each segment once, its hosts the primary first, with what is known of them.

Segments are called by the names that the other system's data have.  Where the placement calls them otherwise, the
caller says which is which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datastore_adapter.exports.errors import CopiesError, HostTagError, NothingPlacedError, SegmentNameError

HOST = "host"
"""A tag that every host has: its own name, unless it is tagged otherwise."""


@dataclass(frozen=True, slots=True)
class PlacedHost:
    """A host and its tags."""

    name: str
    tags: Mapping[str, str]

    def tag(self, key: str, why: str) -> str:
        """The tag's value.  Raises :class:`HostTagError` when it is missing, empty or not printable."""
        value = self.tags.get(key, self.name if key == HOST else "")
        if not value:
            raise HostTagError(
                f"host {self.name!r} has no tag {key!r}, {why}; tag it there with `rota tag`, or write it "
                'under "hosts" in a file for --names'
            )
        if not value.isprintable():
            raise HostTagError(
                f"host {self.name!r}: the tag {key!r} is {value!r}; use printable characters only"
            )
        return value


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """A segment of the placement: ``key`` as the placement calls it, ``name`` as the other system does."""

    key: str
    name: str
    hosts: tuple[PlacedHost, ...]
    """The primary first."""

    def refused(self, why: str) -> SegmentNameError:
        """The error that says what its name should have been."""
        called = repr(self.key) if self.key == self.name else f"{self.key!r}, called {self.name!r},"
        return SegmentNameError(
            f'segment {called} {why}; say what it is called there under "segments" in a file for --names'
        )


def placed_segments(
    segments: Mapping[str, Sequence[str]],
    tags: Mapping[str, Mapping[str, str]],
    names: Mapping[str, str] | None = None,
) -> tuple[PlacedSegment, ...]:
    """The segments in the order given.

    ``segments``: per segment its hosts, the primary first (``Placement.segments``); ``tags``: by host; ``names``: what
    the other system calls a segment, where that is not its key.

    Raises :class:`NothingPlacedError`, :class:`CopiesError`, and :class:`SegmentNameError` for a name of no segment.
    """
    names = names or {}
    if not segments:
        raise NothingPlacedError("the placement has no segment; `rota status` says what it waits for")
    unknown = sorted(names.keys() - segments.keys())
    if unknown:
        raise SegmentNameError(
            f"{unknown[0]!r} is given a name and is no segment of the placement; leave it out"
        )
    return tuple(
        PlacedSegment(key, names.get(key, key), _hosts(key, hosts, tags)) for key, hosts in segments.items()
    )


def _hosts(key: str, hosts: Sequence[str], tags: Mapping[str, Mapping[str, str]]) -> tuple[PlacedHost, ...]:
    if not hosts:
        raise CopiesError(f"segment {key!r} has no copy; `rota plan` says what stands in the way")
    twice = [host for host in hosts if hosts.count(host) > 1]
    if twice:
        raise CopiesError(f"segment {key!r} has two copies on host {twice[0]!r}; name each host once")
    return tuple(PlacedHost(host, tags.get(host, {})) for host in hosts)
