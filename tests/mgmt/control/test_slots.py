"""Slots: every one is in exactly one segment, and few of them move.  Held against every division that there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgmt.placement.hash_slot_assignment import (
    Slots,
    balanced,
    even,
    fault_of,
    number_of,
    resized,
    slot_moves,
)

KEYS = "abcd"


def ranges_of(owners: str) -> dict[str, tuple[tuple[int, int], ...]]:
    """``"aab"``: slots 0 and 1 are in a, slot 2 is in b."""
    found: dict[str, list[tuple[int, int]]] = {}
    for slot, key in enumerate(owners):
        ranges = found.setdefault(key, [])
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1] = (ranges[-1][0], slot)
        else:
            ranges.append((slot, slot))
    return {key: tuple(ranges) for key, ranges in found.items()}


def owners_of(slots: Slots, count: int) -> str:
    owners = [""] * count
    for key, ranges in slots.items():
        for first, last in ranges:
            for slot in range(first, last + 1):
                owners[slot] += key
    assert all(len(owner) == 1 for owner in owners), "each slot is in one range"
    return "".join(owners)


def moved(before: str, after: str) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def divisions(count: int, keys: str) -> Iterator[str]:
    return ("".join(owners) for owners in product(keys, repeat=count))


@given(st.integers(1, 9), st.integers(1, 40))
def test_new_segments_share_evenly(keys: int, count: int) -> None:
    names = [f"s{number:02}" for number in range(keys)]
    slots = even(names, count)
    assert fault_of(slots, count) == ""
    sizes = [number_of(slots[name]) for name in names]
    assert max(sizes) - min(sizes) <= 1
    assert all(len(ranges) <= 1 for ranges in slots.values())


@given(st.text("abc", min_size=1, max_size=6), st.sets(st.sampled_from(KEYS), min_size=1))
def test_other_segments_take_the_fewest_moves_and_share_them_evenly(before: str, wanted: set[str]) -> None:
    """New segments get their even share, those given up lose all; of all such divisions with the fewest moves one that
    is as even as any."""
    count, keys = len(before), "".join(sorted(wanted))
    slots = ranges_of(before)
    after = owners_of(resized(slots, wanted), count)
    assert resized(slots, wanted).keys() == wanted
    new = wanted - slots.keys()
    share = count // len(wanted)
    allowed = [o for o in divisions(count, keys) if all(o.count(key) >= share for key in new)]
    assert after in allowed
    fewest = min(moved(before, owners) for owners in allowed)
    assert moved(before, after) == fewest

    def unevenness(owners: str) -> int:
        return sum(owners.count(key) ** 2 for key in keys)

    assert unevenness(after) == min(unevenness(o) for o in allowed if moved(before, o) == fewest)


@given(
    st.text("abc", min_size=1, max_size=6),
    st.fixed_dictionaries(dict.fromkeys("abc", st.integers(0, 30))),
    st.sampled_from((0.0, 0.05, 0.5)),
)
def test_loads_are_evened_with_the_fewest_moves(before: str, loads: dict[str, int], tolerance: float) -> None:
    """The busiest is within one slot's load of the best there is, and no division as good as ours takes fewer moves."""
    count, slots = len(before), {**dict.fromkeys("abc", ()), **ranges_of(before)}
    each = {key: loads[key] / before.count(key) if key in before else 0.0 for key in "abc"}
    mean = sum(each[key] for key in before) / 3

    def peak(owners: str) -> float:
        load: Counter[str] = Counter()
        for old, new in zip(before, owners, strict=True):
            load[new] += each[old]  # type: ignore[assignment]
        return max(load.values())

    after = owners_of(balanced(slots, loads, tolerance), count)
    best = min(peak(owners) for owners in divisions(count, "abc"))
    assert peak(after) <= max(mean * (1 + tolerance), best + max(each.values())) + 1e-6
    assert peak(after) <= max(peak(before), 0) + 1e-6
    as_good = max(peak(after), mean * (1 + tolerance))
    fewest = min(moved(before, o) for o in divisions(count, "abc") if peak(o) <= as_good + 1e-6)
    assert moved(before, after) == fewest


def test_a_cluster_of_three_gets_a_fourth_and_gives_it_up_again() -> None:
    three = even(["s00", "s01", "s02"], 16384)
    four = resized(three, ["s00", "s01", "s02", "s03"])
    assert fault_of(four, 16384) == ""
    assert {key: number_of(ranges) for key, ranges in four.items()} == dict.fromkeys(four, 4096)
    assert len(four["s03"]) == 3
    sizes = dict.fromkeys(three, 10**6)
    moves = slot_moves(three, four, sizes)
    assert [(move.source, move.destination, move.slots) for move in moves] == [
        ("s00", "s03", 1365),
        ("s01", "s03", 1365),
        ("s02", "s03", 1366),
    ]
    assert moves[0].bytes == 10**6 * 1365 // 5461
    again = resized(four, ["s00", "s01", "s02"])
    assert sum(move.slots for move in slot_moves(four, again, sizes)) == 4096
    assert {number_of(ranges) for ranges in again.values()} == {5461, 5462}


def test_a_busy_segment_gives_what_makes_it_even() -> None:
    three = even(["s00", "s01", "s02"], 16384)
    evened = balanced(three, {"s00": 8000.0, "s01": 1000.0, "s02": 3000.0}, tolerance=0.0)
    given_away = slot_moves(three, evened, {})
    assert {(m.source, m.destination): m.slots for m in given_away} == {
        ("s00", "s01"): 2048,
        ("s00", "s02"): 683,
    }
    assert balanced(three, {"s00": 102.0, "s01": 100.0, "s02": 99.0}) == three, "even enough"
    assert balanced(three, {}) == three


@pytest.mark.parametrize(
    ("slots", "fault"),
    [
        ({"a": ((0, 4),), "b": ((5, 9),)}, ""),
        ({"a": ((0, 4),), "b": ((4, 9),)}, "4-4 is in 0-4 of a and in b"),
        ({"a": ((0, 9),), "b": ((2, 3),)}, "2-3 is in 0-9 of a and in b"),
        ({"a": ((0, 3),), "b": ((5, 9),)}, "4-4 is in no segment"),
        ({"a": ((1, 9),)}, "0-0 is in no segment"),
        ({"a": ((0, 8),)}, "9-9 is in no segment"),
        ({}, "0-9 is in no segment"),
        ({"a": ((0, 10),)}, "a: 0-10 is no range of slots from 0 to 9"),
        ({"a": ((4, 3),)}, "a: 4-3 is no range of slots from 0 to 9"),
    ],
)
def test_what_is_wrong_with_a_division(slots: Mapping[str, tuple[tuple[int, int], ...]], fault: str) -> None:
    assert fault_of(slots, 10) == fault


@given(st.text("abc", min_size=1, max_size=12), st.text("abc", min_size=12, max_size=12))
def test_moves_are_counted_slot_by_slot(before: str, after: str) -> None:
    after = after[: len(before)]
    counts = Counter((old, new) for old, new in zip(before, after, strict=True) if old != new)
    moves = slot_moves(ranges_of(before), ranges_of(after), {})
    assert {(move.source, move.destination): move.slots for move in moves} == counts
    (nowhere,) = slot_moves({}, {"a": ((0, 3),)}, {})
    assert (nowhere.source, nowhere.slots) == (None, 4)
