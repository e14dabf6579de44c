"""Extents and layout changes, against a twin that remembers the chain of every single address."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import LayoutError
from datastore_adapter.document import (
    EpochDocument,
    Extent,
    Layout,
    Segment,
    decode_document,
    encode_document,
    genesis_document,
)
from datastore_adapter.layout_change import (
    Wish,
    close_layout,
    concerns_writers,
    merge,
    open_layout,
    quiet_layout,
)
from datastore_adapter.striping import Stripe, addresses_in

HOSTS = ("a", "b", "c", "d", "e")
KEYS = ("s00", "s01", "s02", "s03")
LIMIT = 60  # addresses that the twin remembers

Chain = tuple[str, ...]
chains = st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3, unique=True).map(tuple)


@dataclass(frozen=True)
class Change:
    chains: dict[str, Chain]
    written: frozenset[str]
    grow: int
    gone: frozenset[str]
    close: bool
    trim: int


changes = st.builds(
    Change,
    st.fixed_dictionaries(dict.fromkeys(KEYS, chains)),
    st.frozensets(st.sampled_from(KEYS), min_size=1),
    st.integers(0, 12),
    st.frozensets(st.sampled_from(HOSTS), max_size=2),
    st.booleans(),
    st.integers(0, LIMIT),
)


def wish(chains_by_key: dict[str, Chain], retired: frozenset[str] = frozenset()) -> Wish:
    return Wish(chains_by_key, ("a",), ("a",), HOSTS, retired)


def shrunk(chain: Chain, gone: frozenset[str]) -> Chain:
    return tuple(host for host in chain if host not in gone) or chain


class Twin:
    """For every single address the segment it belongs to and its chain."""

    def __init__(self) -> None:
        self.places: list[tuple[str, Chain]] = []

    def open(self, wanted: Wish, tail: int, gone: frozenset[str]) -> None:
        before = [(key, shrunk(chain, gone)) for key, chain in self.places[:tail]]
        keys = wanted.written
        after = [keys[address % len(keys)] for address in range(len(before), LIMIT)]
        self.places = before + [(key, tuple(wanted.chains[key])) for key in after]

    def change_closed(self, layout: Layout, change: Callable[[str, Chain], Chain]) -> None:
        starts = {segment.key: segment.open_extent.start for segment in layout.segments}
        self.places = [
            (key, change(key, chain) if key in starts and address < starts[key] else chain)
            for address, (key, chain) in enumerate(self.places)
        ]

    def check(self, layout: Layout) -> None:
        layout.validate()
        for address in range(layout.trimmed_below, LIMIT):
            segment = layout.segment_of(address)
            assert (segment.key, segment.extent_of(address).chain) == self.places[address], address
        for segment in layout.segments:
            for left, right in pairwise(segment.extents):
                stripes = [layout.stripe_of(segment.key, extent.start) for extent in (left, right)]
                assert left.chain != right.chain or stripes[0] != stripes[1], "equal neighbours merge"


@given(st.lists(changes, min_size=1, max_size=8))
def test_random_changes_agree_with_the_twin(sequence: list[Change]) -> None:
    layout, twin, tail = Layout(layout_servers=("a",)), Twin(), 0
    for epoch, change in enumerate(sequence, start=1):
        tail = min(LIMIT - 1, tail + change.grow) if twin.places else 0
        settled = layout.settled_below
        keys = change.written.union(segment.key for segment in layout.segments)
        wanted = wish({key: change.chains[key] for key in sorted(keys)}, keys - change.written)
        if twin.places and not concerns_writers(layout, wanted):
            twin.change_closed(layout, lambda key, chain, gone=change.gone: shrunk(chain, gone))
            layout = quiet_layout(layout, wanted, gone=change.gone, activated=True)
        else:
            before = layout
            layout = open_layout(layout, wanted, epoch=epoch, tail=tail, gone=change.gone, activated=True)
            assert layout.settled_below == before.base
            assert layout.retired == wanted.retired
            twin.open(wanted, tail, change.gone)
        assert layout.settled_below >= settled
        twin.check(layout)
        if change.close:
            trimmed = max(layout.trimmed_below, min(change.trim, tail))
            twin.change_closed(layout, lambda key, chain, wanted=wanted: tuple(wanted.chains[key]))
            layout = close_layout(layout, wanted.chains, trimmed_below=trimmed)
            twin.check(layout)
            named = {key for key, _ in twin.places[trimmed:]}
            assert named <= {segment.key for segment in layout.segments}


def test_what_is_retired_stays_until_its_last_record_is_trimmed() -> None:
    layout = open_layout(
        Layout(layout_servers=("a",)),
        wish({"s00": ("a",), "s01": ("b",), "s02": ("c",)}),
        epoch=1, tail=0, gone=(), activated=True,
    )  # fmt: skip
    fewer = wish({"s00": ("a",), "s01": ("b",), "s02": ("d",)}, frozenset({"s02"}))
    assert concerns_writers(layout, fewer)
    layout = open_layout(layout, fewer, epoch=2, tail=100, gone=(), activated=True)
    assert layout.retired == {"s02"}
    assert [layout.segment_of(address).key for address in (98, 99, 100, 101)] == ["s02", "s00", "s00", "s01"]
    layout = close_layout(layout, fewer.chains, trimmed_below=99)
    assert layout.segment("s02").closed_extents == (Extent(0, 100, ("d",)),)  # type: ignore[union-attr]
    layout = close_layout(layout, {}, trimmed_below=100)
    assert [segment.key for segment in layout.segments] == ["s00", "s01"]
    assert layout.segment_of(100).key == "s00"
    more = wish({"s00": ("a",), "s01": ("b",), "s02": ("e",)})
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
        wish({"s00": ("a", "b", "c")}),
        epoch=1,
        tail=0,
        gone=(),
        activated=True,
    )
    layout = open_layout(
        layout, wish({"s00": ("a", "c", "d")}), epoch=2, tail=100, gone={"b"}, activated=True
    )
    (segment,) = layout.segments
    assert segment.extents == (Extent(0, 100, ("a", "c")), Extent(100, None, ("a", "c", "d")))
    assert close_layout(layout, {"s00": ("a", "c", "d")}).segments[0].extents == (
        Extent(0, None, ("a", "c", "d")),
    )


def test_a_drained_replica_serves_until_the_copy_is_there() -> None:
    before = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a", "b")),)),), ("a",), ("a",), HOSTS)
    opened = open_layout(before, wish({"s00": ("a", "c")}), epoch=2, tail=7, gone=(), activated=True)
    assert opened.segments[0].extents == (Extent(0, 7, ("a", "b")), Extent(7, None, ("a", "c")))


def test_the_last_copy_stays_named_although_its_host_is_dead() -> None:
    before = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a",)),)),), ("b",), ("b",), HOSTS)
    opened = open_layout(before, wish({"s00": ("b",)}), epoch=2, tail=7, gone={"a"}, activated=True)
    assert opened.segments[0].extents == (Extent(0, 7, ("a",)), Extent(7, None, ("b",)))
    assert opened.unresponsive == ("a",)


def test_an_emptied_disk_begins_anew_in_the_same_chain() -> None:
    before = Layout(1, 0, 0, (Segment("s00", (Extent(0, None, ("a", "b")),)),), ("a",), ("a",), HOSTS)
    same = wish({"s00": ("a", "b")})
    opened = open_layout(before, same, epoch=2, tail=7, gone=(), activated=True, forgetful={"s00": ("b",)})
    assert opened.segments[0].extents == (Extent(0, 7, ("a",)), Extent(7, None, ("a", "b")))


def test_settled_means_what_the_epoch_before_had_activated() -> None:
    layout = open_layout(
        Layout(layout_servers=("a",)), wish({"s00": ("a",)}), epoch=1, tail=0, gone=(), activated=True
    )
    layout = open_layout(layout, wish({"s00": ("b",)}), epoch=2, tail=10, gone=(), activated=True)
    assert (layout.base, layout.settled_below) == (10, 0)
    failed = open_layout(layout, wish({"s00": ("c",)}), epoch=3, tail=10, gone=(), activated=False)
    assert (failed.base, failed.settled_below) == (10, 0)
    worked = open_layout(layout, wish({"s00": ("c",)}), epoch=3, tail=20, gone=(), activated=True)
    assert (worked.base, worked.settled_below) == (20, 10)


def test_what_is_refused() -> None:
    layout = Layout(1, 5, 5, (Segment("s00", (Extent(0, None, ("a",)),)),), ("a",), ("a",), HOSTS)
    with pytest.raises(LayoutError, match="retire it"):
        open_layout(layout, wish({"s01": ("a",)}), epoch=2, tail=9, gone=(), activated=True)
    retired = wish({"s00": ("a",)}, frozenset({"s00"}))
    with pytest.raises(LayoutError, match="all segments are retired"):
        open_layout(layout, retired, epoch=2, tail=9, gone=(), activated=True)
    with pytest.raises(LayoutError, match="at least one host"):
        open_layout(layout, wish({"s00": ()}), epoch=2, tail=9, gone=(), activated=True)
    with pytest.raises(LayoutError, match="below the epoch's base"):
        open_layout(layout, wish({"s00": ("b",)}), epoch=2, tail=4, gone=(), activated=True)
    with pytest.raises(LayoutError, match="sealed first"):
        quiet_layout(layout, wish({"s00": ("b",)}), gone=(), activated=True)


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
        ((Extent(0, None, ("a", "a")),), "stands twice"),
    ],
)
def test_a_malformed_segment_is_named(extents: tuple[Extent, ...], complaint: str) -> None:
    layout = Layout(0, 0, 0, (Segment("s00", extents),), ("a",), ("a",))
    with pytest.raises(LayoutError, match=complaint):
        layout.validate()


def test_equal_documents_have_equal_bytes() -> None:
    layout = Layout(layout_servers=("a",))
    one = EpochDocument(1, "id", layout, {"a": "h:1", "b": "h:2"}, {"x": 1, "y": [1, {"p": 1, "q": 2}]})
    other = EpochDocument(1, "id", layout, {"b": "h:2", "a": "h:1"}, {"y": [1, {"q": 2, "p": 1}], "x": 1})
    assert encode_document(one) == encode_document(other)
    assert decode_document(encode_document(one)) == one


@given(st.binary(max_size=200))
def test_garbage_is_no_document(data: bytes) -> None:
    with pytest.raises(LayoutError):
        decode_document(data)


@given(st.data())
def test_a_mutated_document_is_refused_or_valid(data: st.DataObject) -> None:
    encoded = bytearray(encode_document(genesis_document("id", "a", "h:1")))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LayoutError):
        decode_document(bytes(encoded)).validate()
