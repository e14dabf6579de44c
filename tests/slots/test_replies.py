"""Answers of servers, of whatever is not one, and what they are read as."""

from __future__ import annotations

import contextlib
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.slots.errors import MalformedReplyError, SlotRangeError, SlotsError
from datastore_adapter.slots.state.nodes_table import parse_nodes
from datastore_adapter.slots.state.server_info import parse_info
from datastore_adapter.slots.state.slot_ranges import (
    common,
    count,
    normalized,
    of_slots,
    overlap,
    slots_of,
    without,
)

A, B, C = "a" * 40, "b" * 40, "c" * 40
NODES = f"""\
{A} 10.0.0.1:7000@17000,host-a,shard-id=1 myself,master - 0 0 5 connected 0-99 200 [200->-{B}] [300-<-{C}]
{B} [::1]:7001@17001 slave,fail? {A} 1 2 5 disconnected
{C} :0@0 master,noaddr - 1 2 7 disconnected 100-199
""".encode()
INFO = (
    b"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:cluster\r\n"
    b"run_id:r1\r\nrole:slave\r\nmaster_link_status:up\r\nmaster_replid:x\r\nslave_repl_offset:42\r\n"
    b"used_memory_dataset:1000\r\ninstantaneous_ops_per_sec:7\r\ndb0:keys=12,expires=3,avg_ttl=0\r\n"
)


def test_what_a_server_knows_of_the_others() -> None:
    table = parse_nodes(NODES)
    me, replica, lost = table.nodes[A], table.nodes[B], table.nodes[C]
    assert table.me is me
    assert (me.address, me.bus_port, me.host_name, me.slots) == (
        "10.0.0.1:7000",
        17000,
        "host-a",
        ((0, 99), (200, 200)),
    )
    assert (me.migrating, me.importing, table.open_slots) == ({200: B}, {300: C}, ((200, 200), (300, 300)))
    assert (replica.address, replica.primary_id, replica.is_suspect, replica.is_failed) == (
        "[::1]:7001",
        A,
        True,
        False,
    )
    assert (lost.is_known, lost.has_address, lost.is_suspect, lost.is_failed) == (True, False, True, False)


def test_what_a_server_says_of_itself() -> None:
    info = parse_info(INFO)
    assert (info.software, info.version, info.is_cluster, info.is_primary) == ("valkey", (9, 1), True, False)
    assert (info.offset, info.link_up, info.memory, info.keys) == (42, True, 1000, 12)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (NODES.replace(b"7000@", b"x@"), "is no line of a node"),
        (NODES.replace(b"0-99", b"0-99999"), "'99999'"),
        (NODES.replace(b"0-99", "0-9²".encode()), "is no slot"),
        (NODES.replace(b"myself,", b""), "does not say which node answers"),
        (b"", "does not say which node answers"),
        (7, "is no text"),
    ],
)
def test_a_table_that_is_none_is_refused_with_what_is_wrong(answer: object, said: str) -> None:
    with pytest.raises(MalformedReplyError, match=said):
        parse_nodes(answer)


@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_damaged_answers_are_refused_or_read_and_nothing_else(chance: random.Random, damages: int) -> None:
    for parse, answer in ((parse_nodes, NODES), (parse_info, INFO)):
        damaged = bytearray(answer)
        for _ in range(damages):
            place = chance.randrange(len(damaged))
            damaged[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        with contextlib.suppress(SlotsError):
            parse(bytes(damaged))


slot_sets = st.sets(st.integers(0, 40), max_size=20)


@given(slot_sets, slot_sets)
def test_ranges_are_sets_of_slots(one: set[int], other: set[int]) -> None:
    a, b = of_slots(one), of_slots(other)
    assert slots_of(a) == one
    assert count(a) == len(one)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(a))
    assert overlap(a, b) == len(one & other)
    assert slots_of(common(a, b)) == one & other
    assert slots_of(without(a, b)) == one - other


@pytest.mark.parametrize("ranges", [[(0, 5), (5, 9)], [(3, 2)], [(-1, 2)], [(0, 16384)]])
def test_slots_that_there_are_not_or_twice_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(SlotRangeError):
        normalized(ranges)


@pytest.mark.parametrize("slots", [{-1}, {5, 16384}, {-1, 0}])
def test_numbers_that_are_no_slots_are_refused(slots: set[int]) -> None:
    with pytest.raises(SlotRangeError):
        of_slots(slots)
