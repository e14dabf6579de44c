"""Slot assignment: which segment holds which slots, and how to change that with few moves.

Pure arithmetic on ranges.  Slots are moved as whole ranges, from the end of what a segment holds, so that ranges stay
few.  Where a segment's copies are is none of its business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from math import ceil

from datastore_adapter.interface import SlotRange

Slots = Mapping[str, tuple[SlotRange, ...]]

TOLERANCE = 0.05
"""A load so far above the mean, in parts of it, is even enough.  Lower: evener, for more slots moved."""


@dataclass(frozen=True, slots=True)
class SlotMove:
    """So many slots go from one segment to another; ``source`` None: they were nowhere."""

    source: str | None
    destination: str
    slots: int
    bytes: int = 0
    """About how many there are in them: slots of a segment count as equally full."""


def number_of(ranges: Iterable[SlotRange]) -> int:
    """How many slots these are."""
    return sum(last - first + 1 for first, last in ranges)


def fault_of(slots: Slots, count: int | None = None) -> str:
    """What is wrong with it, in words, or nothing: each slot has to be in exactly one range."""
    for key in sorted(slots):
        for first, last in slots[key]:
            if not 0 <= first <= last or (count is not None and last >= count):
                most = "" if count is None else f" to {count - 1}"
                return f"{key}: {first}-{last} is no range of slots from 0{most}"
    ranges = sorted((first, last, key) for key in slots for first, last in slots[key])
    for (first, last, key), (other_first, other_last, other) in pairwise(ranges):
        if other_first <= last:
            return f"{other_first}-{min(last, other_last)} is in {first}-{last} of {key} and in {other}"
        if other_first > last + 1:
            return f"{last + 1}-{other_first - 1} is in no segment"
    if ranges and ranges[0][0] > 0:
        return f"0-{ranges[0][0] - 1} is in no segment"
    end = ranges[-1][1] + 1 if ranges else 0
    if count is not None and end < count:
        return f"{end}-{count - 1} is in no segment"
    return ""


def even(keys: Iterable[str], count: int) -> dict[str, tuple[SlotRange, ...]]:
    """``count`` slots for new segments, a range for each."""
    names = sorted(keys)
    bounds = [number * count // len(names) for number in range(len(names) + 1)]
    return {
        key: ((first, end - 1),) if end > first else ()
        for key, (first, end) in zip(names, pairwise(bounds), strict=True)
    }


def resized(slots: Slots, keys: Iterable[str]) -> dict[str, tuple[SlotRange, ...]]:
    """The same slots for other segments, with as few of them moved as can be.

    A segment that is given up loses all; one that is new gets its even share, from those that have most; what is left
    over goes to those that have least.
    """
    names = sorted(keys)
    total = sum(number_of(ranges) for ranges in slots.values())
    share = total // len(names)
    sizes = {key: number_of(slots.get(key, ())) for key in names}
    given_up = total - sum(sizes.values())
    lacking = {key: share for key in names if key not in slots}
    sizes = _lowered(sizes, max(0, sum(lacking.values()) - given_up))
    sizes = _raised({**sizes, **lacking}, total - sum({**sizes, **lacking}.values()))
    return _with_sizes(slots, sizes)


def balanced(
    slots: Slots, loads: Mapping[str, float], tolerance: float = TOLERANCE
) -> dict[str, tuple[SlotRange, ...]]:
    """The busiest segment as little busy as can be, with as few slots moved as that takes.

    The slots of a segment count as equally busy: nothing else is known of them.
    """
    sizes = {key: number_of(ranges) for key, ranges in sorted(slots.items())}
    each = {key: loads.get(key, 0.0) / size for key, size in sizes.items() if size}
    load = {key: each.get(key, 0.0) * size for key, size in sizes.items()}
    if not any(load.values()):
        return dict(slots)
    mean = sum(load.values()) / len(load)
    moves = _evened(load, each, sizes, mean * (1 + tolerance))
    peak = max(mean * (1 + tolerance), _peak(load, each, moves))
    moves = _no_more_than_needed(load, each, moves, peak)
    after = {key: [*ranges] for key, ranges in slots.items()}
    for source in sorted(moves):
        for destination, number in sorted(_counted(moves[source]).items()):
            after[destination] += _cut(after[source], number)
    return {key: _joined(ranges) for key, ranges in after.items()}


def slot_moves(before: Slots, after: Slots, sizes: Mapping[str, int]) -> tuple[SlotMove, ...]:
    """How many slots go from where to where; ``sizes``: the bytes of each segment before."""
    owners = sorted((first, last, key) for key in before for first, last in before[key])
    counts: dict[tuple[str | None, str], int] = {}
    for key in after:
        for first, last in after[key]:
            known = 0
            for other_first, other_last, owner in owners:
                shared = min(last, other_last) - max(first, other_first) + 1
                if shared > 0:
                    known += shared
                    counts[owner, key] = counts.get((owner, key), 0) + shared
            if known < last - first + 1:
                counts[None, key] = counts.get((None, key), 0) + last - first + 1 - known
    held = {key: number_of(ranges) for key, ranges in before.items()}
    return tuple(
        SlotMove(source, key, number, 0 if source is None else sizes.get(source, 0) * number // held[source])
        for (source, key), number in sorted(counts.items(), key=lambda pair: (pair[0][0] or "", pair[0][1]))
        if source != key
    )


def _lowered(sizes: Mapping[str, int], number: int) -> dict[str, int]:
    """So many slots fewer in all, each taken where there are most."""
    return {key: -size for key, size in _raised({k: -size for k, size in sizes.items()}, number).items()}


def _raised(sizes: Mapping[str, int], number: int) -> dict[str, int]:
    """So many slots more in all, each given where there are fewest."""
    heap = [(size, key) for key, size in sorted(sizes.items())]
    heapify(heap)
    for _ in range(number):
        size, key = heap[0]
        heapreplace(heap, (size + 1, key))
    return {key: size for size, key in heap}


def _with_sizes(slots: Slots, sizes: Mapping[str, int]) -> dict[str, tuple[SlotRange, ...]]:
    left = {key: list(slots.get(key, ())) for key in {*slots, *sizes}}
    loose: list[SlotRange] = []
    for key in sorted(left):
        surplus = number_of(left[key]) - sizes.get(key, 0)
        loose += _cut(left[key], surplus) if surplus > 0 else []
    after = {}
    for key in sorted(sizes):
        after[key] = _joined([*left[key], *_cut(loose, sizes[key] - number_of(left[key]))])
    return after


def _cut(ranges: list[SlotRange], number: int) -> list[SlotRange]:
    """Take so many slots off the end of ``ranges``."""
    cut: list[SlotRange] = []
    while number > 0:
        first, last = ranges.pop()
        taken = min(number, last - first + 1)
        cut.append((last - taken + 1, last))
        if taken < last - first + 1:
            ranges.append((first, last - taken))
        number -= taken
    return cut


def _joined(ranges: Iterable[SlotRange]) -> tuple[SlotRange, ...]:
    """Ascending, and neighbours made one."""
    found: list[SlotRange] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)


Moves = dict[str, list[str]]
"""Of each busy segment where its slots go, one by one."""


def _evened(
    load: Mapping[str, float], each: Mapping[str, float], sizes: Mapping[str, int], bound: float
) -> Moves:
    """Slot by slot from the busiest to the least busy, as long as the busiest of the two gets less so."""
    mean = sum(load.values()) / len(load)
    busy = [(-load[key], key) for key in sorted(load) if load[key] > mean]
    idle = [(load[key], key) for key in sorted(load) if load[key] <= mean]
    heapify(busy)
    heapify(idle)
    moves: Moves = {key: [] for _, key in busy}
    while busy and -busy[0][0] > bound:
        (most, source), (least, destination) = busy[0], idle[0]
        if least + each[source] >= -most or len(moves[source]) == sizes[source]:
            break
        moves[source].append(destination)
        heapreplace(idle, (least + each[source], destination))
        heapreplace(busy, (most + each[source], source))
    return moves


def _peak(load: Mapping[str, float], each: Mapping[str, float], moves: Moves) -> float:
    after = dict(load)
    for source, destinations in moves.items():
        after[source] -= len(destinations) * each[source]
        for destination in destinations:
            after[destination] += each[source]
    return max(after.values())


def _no_more_than_needed(
    load: Mapping[str, float], each: Mapping[str, float], moves: Moves, peak: float
) -> Moves:
    """Without the moves that a segment need not make to be no busier than ``peak``."""
    needed = {
        source: max(0, ceil((load[source] - peak) / each[source] - 1e-9))
        for source, destinations in moves.items()
        if destinations
    }
    return {source: moves[source][:number] for source, number in needed.items()}


def _counted(names: Sequence[str]) -> dict[str, int]:
    return {name: names.count(name) for name in sorted(set(names))}
