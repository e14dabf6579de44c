"""Which addresses belong to which segment: striping, and how it changes at an address.

Arithmetic.  From some address on the log is striped over a list of segments: address ``a`` belongs to the ``a %
n``-th of them.  When the number of segments changes, another list holds from the log's tail on; what was written
before stays where it is.  A segment that is in no list from some address on is *retired*: it keeps its records and
takes no more.
Source: M. Balakrishnan et al., *CORFU*, NSDI 2012, section 2.1 (mapping: ranges of addresses to sets of units).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from datastore_adapter.log.errors import LayoutError


class Striping(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """From address `start` on, the segments that addresses belong to, in order."""

    start: int
    keys: tuple[str, ...]


class Stripe(NamedTuple):
    """The addresses that leave `remainder` when divided by `segments`."""

    remainder: int
    segments: int


def addresses_in(start: int, end: int, stripe: Stripe) -> range:
    """The addresses of one stripe in ``[start, end)``, ascending."""
    return range(start + (stripe.remainder - start) % stripe.segments, end, stripe.segments)


def stripes_of(striping: Striping) -> dict[str, Stripe]:
    """The stripe of each segment."""
    return {key: Stripe(index, len(striping.keys)) for index, key in enumerate(striping.keys)}


def restriped(stripings: tuple[Striping, ...], tail: int, keys: tuple[str, ...]) -> tuple[Striping, ...]:
    """The stripings when addresses from `tail` on belong to `keys`; nothing was ever written from there on."""
    before = tuple(striping for striping in stripings if striping.start < tail)
    if before and before[-1].keys == keys:
        return before
    return (*before, Striping(tail, keys))


def from_address(stripings: tuple[Striping, ...], address: int) -> tuple[Striping, ...]:
    """The stripings without those that only concern addresses below `address`."""
    ends = [striping.start for striping in stripings[1:]]
    passed = sum(end <= address for end in ends)
    return stripings[passed:]


def keys_from(stripings: tuple[Striping, ...], address: int) -> frozenset[str]:
    """The segments that addresses from `address` on belong to."""
    return frozenset(key for striping in from_address(stripings, address) for key in striping.keys)


def check_stripings(stripings: tuple[Striping, ...], known: frozenset[str]) -> None:
    """Raises LayoutError unless they follow each other and name known segments only."""
    position = -1
    for striping in stripings:
        if striping.start <= position:
            raise LayoutError(f"striping {striping.start}: stripings must be in order of address")
        if not striping.keys or len(set(striping.keys)) != len(striping.keys):
            raise LayoutError(f"striping {striping.start}: one or more different segments are needed")
        unknown = sorted(set(striping.keys) - known)
        if unknown:
            raise LayoutError(f"striping {striping.start}: there is no segment {unknown[0]!r}")
        position = striping.start
