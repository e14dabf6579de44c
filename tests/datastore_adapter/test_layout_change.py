"""Extents and layout changes, against a twin that remembers the chain of every single address."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import LayoutError
from datastore_adapter.document import (
    EpochDocument,
    Extent,
    Layout,
    Segment,
    addresses_in,
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

HOSTS = ("a", "b", "c", "d", "e")
KEYS = ("s00", "s01", "s02")
LIMIT = 60  # addresses that the twin remembers

Chain = tuple[str, ...]
chains = st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3, unique=True).map(tuple)


@dataclass(frozen=True)
class Change:
    chains: dict[str, Chain]
    grow: int
    gone: frozenset[str]
    close: bool


changes = st.builds(
    Change,
    st.fixed_dictionaries(dict.fromkeys(KEYS, chains)),
    st.integers(0, 12),
    st.frozensets(st.sampled_from(HOSTS), max_size=2),
    st.booleans(),
)


def wish(chains_by_key: dict[str, Chain]) -> Wish:
    return Wish(chains_by_key, ("a",), ("a",), HOSTS)


def shrunk(chain: Chain, gone: frozenset[str]) -> Chain:
    return tuple(host for host in chain if host not in gone) or chain


def check_against(layout: Layout, twin: dict[str, list[Chain]]) -> None:
    for key in KEYS:
        segment = layout.segment(key)
        assert segment is not None
        assert [segment.extent_of(address).chain for address in range(LIMIT)] == twin[key]
        neighbours = zip(segment.extents, segment.extents[1:], strict=False)
        assert all(left.chain != right.chain for left, right in neighbours), "equal neighbours merge"
    layout.validate()


@given(st.lists(changes, min_size=1, max_size=8))
def test_random_changes_agree_with_the_twin(sequence: list[Change]) -> None:
    layout, tail, epoch = Layout(layout_servers=("a",)), 0, 0
    twin: dict[str, list[Chain]] = {}
    for change in sequence:
        tail, epoch = min(LIMIT - 1, tail + change.grow) if twin else 0, epoch + 1
        settled = layout.settled_below
        if twin and not concerns_writers(layout, wish(change.chains)):
            layout = quiet_layout(layout, wish(change.chains), gone=change.gone, activated=True)
            for key in KEYS:
                start = layout.segment(key).open_extent.start  # type: ignore[union-attr]  # the key is there
                twin[key][:start] = [shrunk(chain, change.gone) for chain in twin[key][:start]]
        else:
            before = layout
            layout = open_layout(
                layout, wish(change.chains), epoch=epoch, tail=tail, gone=change.gone, activated=True
            )
            assert layout.settled_below == before.base
            for key in KEYS:
                old = twin.get(key, [change.chains[key]] * LIMIT)
                segment = before.segment(key)
                kept = segment is not None and segment.open_extent.chain == change.chains[key]
                kept = kept and not change.gone.intersection(change.chains[key])
                # Where the open chain stays as it is, nothing of the open extent is touched.
                closed = segment.open_extent.start if segment is not None and kept else tail
                twin[key] = [
                    (old[a] if kept else change.chains[key]) if a >= closed else shrunk(old[a], change.gone)
                    for a in range(LIMIT)
                ]
        assert layout.settled_below >= settled
        check_against(layout, twin)
        if change.close:
            layout = close_layout(layout, change.chains)
            for key in KEYS:
                segment = layout.segment(key)
                assert segment is not None
                twin[key] = [
                    change.chains[key] if a < segment.open_extent.start else segment.open_extent.chain
                    for a in range(LIMIT)
                ]
            check_against(layout, twin)


@given(st.integers(0, 50), st.integers(0, 60), st.integers(1, 12), st.data())
def test_the_addresses_of_a_stripe(start: int, length: int, stripes: int, data: st.DataObject) -> None:
    stripe = data.draw(st.integers(0, stripes - 1))
    expected = [a for a in range(start, start + length) if a % stripes == stripe]
    assert list(addresses_in(start, start + length, stripe, stripes)) == expected


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
    with pytest.raises(LayoutError, match="number of stripes is fixed"):
        open_layout(layout, wish({"s00": ("a",), "s01": ("a",)}), epoch=2, tail=9, gone=(), activated=True)
    with pytest.raises(LayoutError, match="at least one host"):
        open_layout(layout, wish({"s00": ()}), epoch=2, tail=9, gone=(), activated=True)
    with pytest.raises(LayoutError, match="below the epoch's base"):
        open_layout(layout, wish({"s00": ("b",)}), epoch=2, tail=4, gone=(), activated=True)
    with pytest.raises(LayoutError, match="sealed first"):
        quiet_layout(layout, wish({"s00": ("b",)}), gone=(), activated=True)


def test_merging_joins_only_equal_neighbours() -> None:
    a, b = ("a",), ("b",)
    extents = (Extent(0, 4, a), Extent(4, 6, a), Extent(6, 9, b), Extent(9, None, a))
    assert merge(extents) == (Extent(0, 6, a), Extent(6, 9, b), Extent(9, None, a))


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
