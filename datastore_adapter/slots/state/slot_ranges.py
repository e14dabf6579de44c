"""Arithmetic of slots: those a shard holds, as ascending ranges ``(first, last)`` that neither overlap nor touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from datastore_adapter.interface import SlotRange
from datastore_adapter.slots.errors import SlotRangeError

SLOTS: Final = 16384
"""A key's slot is its CRC16 modulo this many (Redis Cluster specification, "Key distribution model")."""

Ranges = tuple[SlotRange, ...]


def normalized(ranges: Iterable[Sequence[int]]) -> Ranges:
    """The same slots in normal form.  Raises :class:`SlotRangeError` where they overlap or are no slots."""
    merged: list[SlotRange] = []
    for first, last in sorted((int(entry[0]), int(entry[1])) for entry in ranges):
        if not 0 <= first <= last < SLOTS:
            raise SlotRangeError(f"{first}-{last} are no slots; they are numbered from 0 to {SLOTS - 1}")
        if merged and first <= merged[-1][1]:
            raise SlotRangeError(f"slot {first} stands there twice; give each slot to one shard only")
        if merged and first == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return tuple(merged)


def of_slots(slots: Iterable[int]) -> Ranges:
    """The ranges of single slots.  Raises :class:`SlotRangeError` for what is no slot."""
    ordered = sorted(set(slots))
    if not ordered:
        return ()
    if ordered[0] < 0 or ordered[-1] >= SLOTS:
        raise SlotRangeError(
            f"{ordered[0]} to {ordered[-1]} are not all slots; they are numbered from 0 to {SLOTS - 1}"
        )
    # The last of a range and the first of the next stand side by side.
    ends = [(last, first) for last, first in pairwise(ordered) if first != last + 1]
    return tuple(
        zip(
            [ordered[0], *(first for _, first in ends)],
            [*(last for last, _ in ends), ordered[-1]],
            strict=True,
        )
    )


def evenly(shards: int) -> list[SlotRange]:
    """All slots, in as many ranges as there are shards, as even as can be."""
    bounds = [number * SLOTS // shards for number in range(shards + 1)]
    return [(first, end - 1) for first, end in pairwise(bounds)]


def slots_of(ranges: Iterable[Sequence[int]]) -> set[int]:
    """Every single slot."""
    return {slot for first, last in ranges for slot in range(first, last + 1)}


def count(ranges: Iterable[Sequence[int]]) -> int:
    """How many slots."""
    return sum(last - first + 1 for first, last in ranges)


def overlap(one: Ranges, other: Ranges) -> int:
    """How many slots stand in both."""
    total = i = j = 0
    while i < len(one) and j < len(other):
        first, last = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        total += max(0, last - first + 1)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total


def without(one: Ranges, other: Ranges) -> Ranges:
    """The slots of ``one`` that are not in ``other``."""
    return of_slots(slots_of(one) - slots_of(other))


def common(one: Ranges, other: Ranges) -> Ranges:
    """The slots in both."""
    return of_slots(slots_of(one) & slots_of(other))


def text_of(ranges: Iterable[Sequence[int]]) -> str:
    """``0-5460, 9000``."""
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)
