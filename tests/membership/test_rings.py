"""Rings against a twin that sorts naively. Source: Rapid section 4.1."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from membership.address import Address
from membership.protocol.view.member import Member
from membership.protocol.view.rings import Rings, ring_keys


def member(number: int) -> Member:
    identity = hashlib.blake2b(number.to_bytes(4, "big"), digest_size=16).digest()
    return Member.create(f"n{number}", Address("10.0.0.1", 1 + number), identity)


def naive_neighbour(members: list[Member], subject: Member, ring: int, step: int) -> Member:
    """The twin: sort everybody, find the place, step forwards or back."""
    everybody = sorted({*members, subject}, key=lambda m: ring_keys(m, 10)[ring])
    position = everybody.index(subject)
    neighbour = everybody[(position + step) % len(everybody)]
    return subject if len(everybody) == 1 else neighbour


numbers = st.sets(st.integers(0, 500), min_size=1, max_size=40)


@given(numbers, st.integers(0, 500))
def test_observers_are_successors_and_subjects_are_predecessors(chosen: set[int], newcomer: int) -> None:
    members = [member(number) for number in sorted(chosen)]
    rings = Rings.build(members, 10)
    for subject in {*members[:3], members[-1]}:
        assert rings.successors(subject) == [naive_neighbour(members, subject, k, 1) for k in range(10)]
        assert rings.predecessors(subject) == [naive_neighbour(members, subject, k, -1) for k in range(10)]
    joiner = member(newcomer)
    if joiner not in members:
        assert rings.successors(joiner) == [naive_neighbour(members, joiner, k, 1) for k in range(10)]


@given(numbers, st.data())
def test_editing_the_rings_equals_building_them(chosen: set[int], data: st.DataObject) -> None:
    members = [member(number) for number in sorted(chosen)]
    joins = [member(number) for number in data.draw(st.sets(st.integers(501, 600), max_size=3))]
    removals = data.draw(st.lists(st.sampled_from(members), unique=True, max_size=3))
    kept = [m for m in members if m not in removals]
    built = Rings.build([*kept, *joins], 10)
    for base in (Rings.build(members, 10), Rings.build([*members, *map(member, range(700, 800))], 10)):
        extra = [m for m in base.orders[0] if m not in members]
        changed = base.changed(joins, removals)
        expected = Rings.build([*kept, *joins, *extra], 10) if extra else built
        assert [list(order) for order in changed.orders] == [list(order) for order in expected.orders]
        assert [list(keys) for keys in changed.keys] == [list(keys) for keys in expected.keys]


def test_b10_the_last_member_of_a_ring_is_observed_by_the_first() -> None:
    members = [member(number) for number in range(7)]
    rings = Rings.build(members, 10)
    for k in range(10):
        assert rings.successors(rings.orders[k][-1])[k] == rings.orders[k][0]
        assert rings.predecessors(rings.orders[k][0])[k] == rings.orders[k][-1]
    # ... and a newcomer at either end of a ring takes the place over at once.
    later = rings.changed([member(100)], [])
    for k in range(10):
        assert later.successors(later.orders[k][-1])[k] == later.orders[k][0]


def test_keys_are_the_same_in_every_process() -> None:
    """Nothing may depend on Python's hash seed: these are the keys of all releases with this wire format."""
    keys = ring_keys(Member.create("a", Address("10.0.0.1", 7946), bytes(range(16))), 10)
    assert len(set(keys)) == 10
    assert hex(keys[0]) == "0x91c297a898325a54"
    assert ring_keys(Member.create("a", Address("10.0.0.1", 7946), bytes(range(16))), 3) == keys[:3]


def test_metadata_moves_nobody() -> None:
    plain = Member.create("a", Address("h", 1), bytes(16))
    decorated = Member.create("a", Address("h", 1), bytes(16), {"rack": "r1"})
    assert ring_keys(plain, 10) == ring_keys(decorated, 10)
