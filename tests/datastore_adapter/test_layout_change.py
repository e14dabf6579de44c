"""Extents and layout changes, against a twin that remembers the chain of every single address."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import LayoutError
from datastore_adapter.log.layout.change import (
    LayoutTarget,
    absent_layout_server,
    close_layout,
    concerns_writers,
    merge,
    open_layout,
    quiet_layout,
)
from datastore_adapter.log.layout.document import (
    EpochDocument,
    Extent,
    ExtentState,
    Layout,
    Segment,
    decode_document,
    encode_document,
    genesis_document,
)
from datastore_adapter.log.layout.extent_states import forgotten_with
from datastore_adapter.log.layout.striping import Stripe, addresses_in

HOSTS = ("a", "b", "c", "d", "e")
KEYS = ("s00", "s01", "s02", "s03")
LIMIT = 60  # addresses that the twin remembers

HELD, AWAY, FORGOTTEN = ExtentState.HELD, ExtentState.AWAY, ExtentState.FORGOTTEN
Chain = tuple[str, ...]
Holders = tuple[Chain, ExtentState]
chains = st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3, unique=True).map(tuple)


@dataclass(frozen=True)
class Change:
    chains: dict[str, Chain]
    written: frozenset[str]
    grow: int
    gone: frozenset[str]
    sealed: bool
    """Whether the hosts that are there are sealed, and what was away can be taken back."""
    close: bool
    trim: int


changes = st.builds(
    Change,
    st.fixed_dictionaries(dict.fromkeys(KEYS, chains)),
    st.frozensets(st.sampled_from(KEYS), min_size=1),
    st.integers(0, 12),
    st.frozensets(st.sampled_from(HOSTS), max_size=2),
    st.booleans(),
    st.booleans(),
    st.integers(0, LIMIT),
)


def target(chains_by_key: dict[str, Chain], retired: frozenset[str] = frozenset()) -> LayoutTarget:
    return LayoutTarget(chains_by_key, ("a",), ("a",), HOSTS, retired)


def after(holders: Holders, gone: frozenset[str], sealed: bool) -> Holders:
    """Who holds an address when hosts are gone, and whether it can be read then."""
    chain, state = holders
    there = tuple(host for host in chain if host not in gone)
    if not there:
        return chain, AWAY
    return (there, HELD) if state is HELD or sealed else holders


class Twin:
    """For every single address the segment it belongs to, its chain, and whether it is away."""

    def __init__(self) -> None:
        self.places: list[tuple[str, Holders]] = []
        self.settled: list[bool] = [False] * LIMIT

    def open(self, wanted: LayoutTarget, tail: int, change: Change) -> None:
        before = [(key, after(holders, change.gone, change.sealed)) for key, holders in self.places[:tail]]
        keys = wanted.written
        fresh = [keys[address % len(keys)] for address in range(len(before), LIMIT)]
        self.places = before + [(key, (tuple(wanted.chains[key]), HELD)) for key in fresh]

    def change_closed(self, layout: Layout, change: Callable[[str, Holders], Holders]) -> None:
        starts = {segment.key: segment.open_extent.start for segment in layout.segments}
        self.places = [
            (key, change(key, holders) if key in starts and address < starts[key] else holders)
            for address, (key, holders) in enumerate(self.places)
        ]

    def settle(self, base: int) -> None:
        """An activation settles what can be read."""
        for address, (_, (_, state)) in enumerate(self.places[:base]):
            self.settled[address] |= state is HELD

    def check(self, layout: Layout) -> None:
        layout.validate()
        for address in range(layout.trimmed_below, LIMIT):
            segment = layout.segment_of(address)
            extent = segment.extent_of(address)
            assert (segment.key, (extent.chain, extent.state)) == self.places[address], address
            assert self.settled[address] or address >= layout.settled_below, "it was never settled"
            assert extent.is_held or address < layout.pointers_from, "pointers may lead past it"
        for segment in layout.segments:
            for left, right in pairwise(segment.extents):
                stripes = [layout.stripe_of(segment.key, extent.start) for extent in (left, right)]
                different = (left.chain, left.state) != (right.chain, right.state)
                assert different or stripes[0] != stripes[1], "equal neighbours merge"


@given(st.lists(changes, min_size=1, max_size=8))
def test_random_changes_agree_with_the_twin(sequence: list[Change]) -> None:
    layout, twin, tail = Layout(layout_servers=("a",)), Twin(), 0
    for epoch, change in enumerate(sequence, start=1):
        tail = min(LIMIT - 1, tail + change.grow) if twin.places else 0
        settled = layout.settled_below
        keys = change.written.union(segment.key for segment in layout.segments)
        wanted = target({key: change.chains[key] for key in sorted(keys)}, keys - change.written)
        twin.settle(layout.base)
        if twin.places and not concerns_writers(layout, wanted):
            twin.change_closed(layout, lambda key, holders, gone=change.gone: after(holders, gone, False))
            layout = quiet_layout(layout, wanted, gone=change.gone, activated=True)
        else:
            before = layout
            sealed = dict.fromkeys(keys, frozenset(HOSTS) - change.gone) if change.sealed else {}
            layout = open_layout(
                layout, wanted, epoch=epoch, tail=tail, gone=change.gone, activated=True, sealed=sealed
            )
            assert layout.settled_below == before.base or any(before.away())
            assert layout.retired == wanted.retired
            twin.open(wanted, tail, change)
        assert layout.settled_below >= settled
        twin.check(layout)
        if change.close:
            trimmed = max(layout.trimmed_below, min(change.trim, tail))
            twin.settle(layout.base)
            twin.change_closed(
                layout,
                lambda key, holders, wanted=wanted: (
                    (tuple(wanted.chains[key]), HELD) if holders[1] is HELD else holders
                ),
            )
            layout = close_layout(layout, wanted.chains, trimmed_below=trimmed)
            twin.check(layout)
            named = {key for key, _ in twin.places[trimmed:]}
            assert named <= {segment.key for segment in layout.segments}


def test_what_is_retired_stays_until_its_last_record_is_trimmed() -> None:
    layout = open_layout(
        Layout(layout_servers=("a",)),
        target({"s00": ("a",), "s01": ("b",), "s02": ("c",)}),
        epoch=1, tail=0, gone=(), activated=True,
    )  # fmt: skip
    fewer = target({"s00": ("a",), "s01": ("b",), "s02": ("d",)}, frozenset({"s02"}))
    assert concerns_writers(layout, fewer)
    layout = open_layout(layout, fewer, epoch=2, tail=100, gone=(), activated=True)
    assert layout.retired == {"s02"}
    assert [layout.segment_of(address).key for address in (98, 99, 100, 101)] == ["s02", "s00", "s00", "s01"]
    layout = close_layout(layout, fewer.chains, trimmed_below=99)
    assert layout.segment("s02").closed_extents == (Extent(0, 100, ("d",)),)  # type: ignore[union-attr]
    layout = close_layout(layout, {}, trimmed_below=100)
    assert [segment.key for segment in layout.segments] == ["s00", "s01"]
    assert layout.segment_of(100).key == "s00"
    more = target({"s00": ("a",), "s01": ("b",), "s02": ("e",)})
    layout = open_layout(layout, more, epoch=4, tail=120, gone=(), activated=True)
    assert [layout.segment_of(address).key for address in (119, 120, 122)] == ["s01", "s00", "s02"]


@given(st.integers(0, 50), st.integers(0, 60), st.integers(1, 12), st.data())
def test_the_addresses_of_a_stripe(start: int, length: int, stripes: int, data: st.DataObject) -> None:
    stripe = data.draw(st.integers(0, stripes - 1))
    expected = [a for a in range(start, start + length) if a % stripes == stripe]
    assert list(addresses_in(start, start + length, Stripe(stripe, stripes))) == expected


def test_a_dead_replica_leaves_and_its_replacement_begins_at_the_tail() -> None:
    layout = open_layout(
        Layout(layout_servers=("a",)),
        target({"s00": ("a", "b", "c")}),
        epoch=1,
        tail=0,
        gone=(),
        activated=True,
    )
    layout = open_layout(
        layout, target({"s00": ("a", "c", "d")}), epoch=2, tail=100, gone={"b"}, activated=True
    )
    (segment,) = layout.segments
    assert segment.extents == (Extent(0, 100, ("a", "c")), Extent(100, None, ("a", "c", "d")))
    assert close_layout(layout, {"s00": ("a", "c", "d")}).segments[0].extents == (
        Extent(0, None, ("a", "c", "d")),
    )


def test_a_drained_replica_serves_until_the_copy_is_there() -> None:
    before = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a", "b")),)),), ("a",), ("a",), HOSTS)
    opened = open_layout(before, target({"s00": ("a", "c")}), epoch=2, tail=7, gone=(), activated=True)
    assert opened.segments[0].extents == (Extent(0, 7, ("a", "b")), Extent(7, None, ("a", "c")))


def test_the_last_copy_stays_named_although_its_host_is_dead() -> None:
    before = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a",)),)),), ("b",), ("b",), HOSTS)
    opened = open_layout(before, target({"s00": ("b",)}), epoch=2, tail=7, gone={"a"}, activated=True)
    assert opened.segments[0].extents == (Extent(0, 7, ("a",), AWAY), Extent(7, None, ("b",)))
    assert opened.unresponsive == ("a",)


def test_what_is_away_is_taken_back_by_hosts_that_are_sealed_and_have_it() -> None:
    extents = (Extent(0, 7, ("a", "b", "c"), AWAY), Extent(7, None, ("d",)))
    before = Layout(2, 7, 0, (Segment("s00", extents),), ("d",), ("d",), HOSTS)

    def closed(gone: tuple[str, ...], sealed: tuple[str, ...], forgetful: tuple[str, ...] = ()) -> Extent:
        layout = open_layout(
            before,
            target({"s00": ("d", "e")}),
            epoch=3,
            tail=9,
            gone=gone,
            activated=True,
            sealed={"s00": sealed},
            forgetful={"s00": forgetful},
        )
        assert layout.settled_below == 0
        return layout.segments[0].extents[0]

    assert closed(("a", "c"), ("b",)) == Extent(0, 7, ("b",))
    assert closed((), ("a", "b", "c")) == Extent(0, 7, ("a", "b", "c"))
    assert closed((), ("a", "b")) == extents[0], (
        "c is there, and may still be written by who knows the old layout"
    )
    assert closed(("a", "b", "c"), ()) == extents[0]
    assert closed(("c",), ("a",), ("b",)) == Extent(0, 7, ("a",))


def test_a_host_that_lost_its_disk_is_no_longer_counted_on_once_it_is_a_replica_again() -> None:
    extents = (Extent(0, 7, ("a",), AWAY), Extent(7, None, ("d",)))
    before = Layout(2, 7, 7, (Segment("s00", extents),), ("d",), ("d",), HOSTS)

    def closed(chain: Chain) -> Extent:
        layout = open_layout(
            before,
            target({"s00": chain}),
            epoch=3,
            tail=9,
            gone=(),
            activated=True,
            forgetful={"s00": ("a",)},
        )
        return layout.segments[0].extents[0]

    assert closed(("d", "e")) == extents[0], "its disk may be put back"
    assert closed(("d", "a")) == Extent(0, 7, (), AWAY)


def test_what_only_forgotten_hosts_held_is_forgotten() -> None:
    extents = (Extent(0, 7, ("a", "b"), AWAY), Extent(7, 9, ("a", "c")), Extent(9, None, ("a",)))
    layout = Layout(2, 9, 7, (Segment("s00", extents),), ("d",), ("d",), HOSTS).validate()
    assert forgotten_with(layout, ("a",), ("a", "b")).segments == layout.segments
    layout = forgotten_with(layout, ("a", "b"), ("a", "b")).validate()
    assert [extent.state for extent in layout.segments[0].extents] == [FORGOTTEN, HELD, HELD]
    assert (layout.forgotten, layout.forgotten_below, layout.pointers_from) == (("a", "b"), 7, 7)
    assert "b" not in layout.segments[0].hosts()
    opened = open_layout(layout, target({"s00": ("c",)}), epoch=3, tail=20, gone=("a", "b"), activated=True)
    assert opened.segments[0].extents == (
        Extent(0, 7, ("a", "b"), FORGOTTEN),
        Extent(7, 9, ("c",)),
        Extent(9, 20, ("a",), FORGOTTEN),
        Extent(20, None, ("c",)),
    )
    back = open_layout(opened, target({"s00": ("a",)}), epoch=4, tail=30, gone=("b",), activated=True)
    assert back.forgotten == ("b",)
    assert back.segments[0].extents[0].state is FORGOTTEN


def test_an_emptied_disk_begins_anew_in_the_same_chain() -> None:
    before = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a", "b")),)),), ("a",), ("a",), HOSTS)
    same = target({"s00": ("a", "b")})
    opened = open_layout(before, same, epoch=2, tail=7, gone=(), activated=True, forgetful={"s00": ("b",)})
    assert opened.segments[0].extents == (Extent(0, 7, ("a",)), Extent(7, None, ("a", "b")))


def test_settled_means_what_the_epoch_before_had_activated() -> None:
    layout = open_layout(
        Layout(layout_servers=("a",)), target({"s00": ("a",)}), epoch=1, tail=0, gone=(), activated=True
    )
    layout = open_layout(layout, target({"s00": ("b",)}), epoch=2, tail=10, gone=(), activated=True)
    assert (layout.base, layout.settled_below) == (10, 0)
    failed = open_layout(layout, target({"s00": ("c",)}), epoch=3, tail=10, gone=(), activated=False)
    assert (failed.base, failed.settled_below) == (10, 0)
    worked = open_layout(layout, target({"s00": ("c",)}), epoch=3, tail=20, gone=(), activated=True)
    assert (worked.base, worked.settled_below) == (20, 10)


def test_what_is_refused() -> None:
    layout = Layout(1, 5, 5, (Segment("s00", (Extent(0, None, ("a",)),)),), ("a",), ("a",), HOSTS)
    with pytest.raises(LayoutError, match="retire it"):
        open_layout(layout, target({"s01": ("a",)}), epoch=2, tail=9, gone=(), activated=True)
    retired = target({"s00": ("a",)}, frozenset({"s00"}))
    with pytest.raises(LayoutError, match="all segments are retired"):
        open_layout(layout, retired, epoch=2, tail=9, gone=(), activated=True)
    with pytest.raises(LayoutError, match="at least one host"):
        open_layout(layout, target({"s00": ()}), epoch=2, tail=9, gone=(), activated=True)
    with pytest.raises(LayoutError, match="below the epoch's base"):
        open_layout(layout, target({"s00": ("b",)}), epoch=2, tail=4, gone=(), activated=True)
    with pytest.raises(LayoutError, match="sealed first"):
        quiet_layout(layout, target({"s00": ("b",)}), gone=(), activated=True)


@pytest.mark.parametrize(
    ("servers", "live", "stays"),
    [("abc", "ab", "c"), ("abc", "a", None), ("abc", "abc", None), ("abc", "", None), ("abcd", "ab", "c")],
)
def test_an_absent_layout_server_stays_where_the_others_would_be_even(
    servers: str, live: str, stays: str | None
) -> None:
    assert absent_layout_server(tuple(servers), live) == stays


def test_of_an_even_number_wanted_one_that_is_gone_still_votes() -> None:
    layout = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a",)),)),), ("a", "b", "c"), ("a",), HOSTS)

    def voting(wanted: str, gone: str) -> tuple[str, ...]:
        target_layout = replace(target({"s00": ("a",)}), layout_servers=tuple(wanted))
        return quiet_layout(layout, target_layout, gone=tuple(gone), activated=True).layout_servers

    assert voting("ab", "c") == ("a", "b", "c")
    assert voting("ab", "") == ("a", "b"), "c is there, and was not wanted"
    assert voting("ad", "c") == ("a", "d"), "with d, c has never voted"
    assert voting("a", "bc") == ("a",)


def test_writers_are_concerned_by_the_sequencer_in_office_not_by_its_spares() -> None:
    layout = Layout(
        1, 0, 0, (Segment("s00", (Extent(0, None, ("a",)),)),), ("a",), ("a", "b"), HOSTS
    ).validate()

    def sequenced(*hosts: str) -> LayoutTarget:
        return replace(LayoutTarget.as_is(layout), sequencers=hosts)

    assert not concerns_writers(layout, LayoutTarget.as_is(layout))
    assert not concerns_writers(layout, sequenced("a", "c"))
    assert concerns_writers(layout, sequenced("b", "a"))


def test_a_target_without_dead_hosts() -> None:
    wanted = LayoutTarget({"s01": ("c",), "s00": ("d", "e")}, ("a", "b"), ("a", "b"), HOSTS)
    assert wanted.without({"a"}).sequencers == ("b",), "the spare"
    assert wanted.without({"a", "b"}).sequencers == ("d",), "the head of the first chain"
    left = wanted.without({"a", "d"})
    assert left.chains == {"s01": ("c",), "s00": ("e",)}
    assert (left.layout_servers, left.log_units) == (("b",), ("b", "c", "e"))


def test_a_striping_that_goes_without_saying_is_not_written_down() -> None:
    """The document stays small: over all segments from the first address on."""
    both = target({"s00": ("a",), "s01": ("b",)})
    empty = Layout(layout_servers=("a",))
    assert open_layout(empty, both, epoch=1, tail=0, gone=(), activated=True).stripings == ()
    later = open_layout(empty, both, epoch=1, tail=3, gone=(), activated=True)
    assert later.all_stripings[-1].keys == ("s00", "s01")


def test_merging_joins_only_equal_neighbours() -> None:
    a, b = ("a",), ("b",)
    extents = (Extent(0, 4, a), Extent(4, 6, a), Extent(6, 9, b), Extent(9, None, a))
    assert merge(Layout(), "s00", extents) == (Extent(0, 6, a), Extent(6, 9, b), Extent(9, None, a))


@pytest.mark.parametrize(
    ("extents", "complaint"),
    [
        ((), "has no extent"),
        ((Extent(0, 4, ("a",)), Extent(5, None, ("a",))), "must follow each other"),
        ((Extent(0, 4, ("a",)),), "only the last one open"),
        ((Extent(0, 0, ("a",)), Extent(0, None, ("a",))), "is empty"),
        ((Extent(0, None, ()),), "has no replica"),
        ((Extent(0, None, ("a",), AWAY),), "the open extent must be held"),
        ((Extent(0, None, ("a", "a")),), "stands twice"),
    ],
)
def test_a_malformed_segment_is_named(extents: tuple[Extent, ...], complaint: str) -> None:
    layout = Layout(0, 0, 0, (Segment("s00", extents),), ("a",), ("a",))
    with pytest.raises(LayoutError, match=complaint):
        layout.validate()


def test_equal_documents_have_equal_bytes() -> None:
    layout = Layout(layout_servers=("a",))
    one_disks, other_disks = {"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}
    one_intent, other_intent = {"x": 1, "y": [1, {"p": 1, "q": 2}]}, {"y": [1, {"q": 2, "p": 1}], "x": 1}
    one = EpochDocument(1, "id", layout, {"a": "h:1", "b": "h:2"}, one_disks, one_intent)
    other = EpochDocument(1, "id", layout, {"b": "h:2", "a": "h:1"}, other_disks, other_intent)
    assert encode_document(one) == encode_document(other)
    assert decode_document(encode_document(one)) == one


@given(st.binary(max_size=200))
def test_garbage_is_no_document(data: bytes) -> None:
    with pytest.raises(LayoutError):
        decode_document(data)


@given(st.data())
def test_a_mutated_document_is_refused_or_valid(data: st.DataObject) -> None:
    encoded = bytearray(encode_document(genesis_document("id", "a", "h:1", b"disk")))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LayoutError):
        decode_document(bytes(encoded)).validate()
