"""Configurations: the chain, canonical order, and bad cuts or bytes refused before anything is installed."""

from __future__ import annotations

import msgspec
import pytest

from membership.protocol.view.configuration import Configuration, ConfigurationError, ConfigurationRecord
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import by_comparison, by_cut


def begins_as(other: Member, member: Member) -> Member:
    """This member, with an incarnation that begins as the other's, by which frequent messages name it."""
    return msgspec.structs.replace(member, incarnation=other.incarnation[:8] + b"not it!!")


def test_each_cut_is_one_epoch_and_one_link_of_the_chain(lab) -> None:
    first = lab.configuration(1)
    second = first.apply(Cut.of([lab.member(1), lab.member(2)]))
    third = second.apply(Cut.of([lab.member(3)], [Removal(lab.member(1).incarnation)]))
    assert [view.epoch for view in (first, second, third)] == [0, 1, 2]
    assert len({view.id for view in (first, second, third)}) == 3
    assert {member.name for member in third.members} == {"n0", "n2", "n3"}
    assert third.member("n1") is None
    assert third.index_of("n2") == third.members.index(lab.member(2))


def test_equal_histories_have_equal_ids_and_others_do_not(lab) -> None:
    both = lab.configuration(1).apply(Cut.of([lab.member(1), lab.member(2)]))
    again = lab.configuration(1).apply(Cut.of([lab.member(2), lab.member(1)]))
    one_by_one = lab.configuration(1).apply(Cut.of([lab.member(1)])).apply(Cut.of([lab.member(2)]))
    assert both.id == again.id
    assert set(both.members) == set(one_by_one.members)
    assert both.id != one_by_one.id


def test_members_stand_in_ring_0_order(lab) -> None:
    view = lab.configuration(20)
    assert list(view.members) == list(view.rings.orders[0])


def test_seniority_is_epoch_of_joining_then_canonical_order(lab) -> None:
    view = lab.configuration(1).apply(Cut.of([lab.member(1), lab.member(2)])).apply(Cut.of([lab.member(3)]))
    oldest, *rest = view.by_seniority()
    assert oldest == lab.member(0)
    assert rest[:2] == [member for member in view.members if member.name in ("n1", "n2")]
    assert rest[2] == lab.member(3)


@pytest.mark.parametrize(
    "cut",
    [
        lambda lab: Cut.of([lab.member(0)]),
        lambda lab: Cut.of([lab.member(0, incarnation=1)]),
        lambda lab: Cut.of([lab.member(7), lab.member(7, incarnation=1)]),
        lambda lab: Cut.of([begins_as(lab.member(1), lab.member(7))]),
        lambda lab: Cut.of([begins_as(lab.member(8), lab.member(7)), lab.member(8)]),
        lambda lab: Cut.of([], [Removal(lab.member(9).incarnation)]),
        lambda lab: Cut.of([], [Removal(lab.member(number).incarnation) for number in range(3)]),
    ],
    ids=[
        "twice",
        "name taken",
        "two of one name",
        "begins as a member",
        "two that begin alike",
        "not a member",
        "everybody",
    ],
)
def test_b4_a_cut_that_does_not_fit_is_refused_whole(lab, cut) -> None:
    view = lab.configuration(3)
    before = view.members
    with pytest.raises(ConfigurationError):
        view.apply(cut(lab))
    assert view.members == before


def test_an_incarnation_can_be_replaced_in_one_cut(lab) -> None:
    view = lab.configuration(3)
    replaced = view.apply(Cut.of([lab.member(1, incarnation=1)], [Removal(lab.member(1).incarnation)]))
    assert replaced.member("n1") == lab.member(1, incarnation=1)
    assert replaced.epoch == view.epoch + 1


def test_a_decoded_configuration_is_the_same_in_every_respect(lab) -> None:
    view = lab.configuration(30)
    decoded = ConfigurationCache().decode(view.encoded(), view.id, 10)
    assert decoded.members == view.members
    assert decoded.joined_epochs == view.joined_epochs
    assert decoded.cluster_id == view.cluster_id
    for member in view.members[:5]:
        assert decoded.observers_of(member) == view.observers_of(member)
        assert decoded.subjects_of(member) == view.subjects_of(member)
    cut = Cut.of([lab.member(99)])
    assert decoded.apply(cut).id == view.apply(cut).id


def record_of(view: Configuration, **changes: object) -> bytes:
    fields = {
        "epoch": view.epoch,
        "id": view.id,
        "cluster_id": view.cluster_id,
        "members": view.members,
        "joined_epochs": view.joined_epochs,
    } | changes
    return msgspec.msgpack.encode(ConfigurationRecord(**fields))


def test_bytes_that_contradict_themselves_are_refused(lab) -> None:
    view = lab.configuration(3)
    cache = ConfigurationCache()
    for body in (
        b"",
        b"\xc1",
        view.encoded()[:-1],
        record_of(view, id=bytes(16)),
        record_of(view, joined_epochs=(0,)),
        record_of(view, members=(), joined_epochs=()),
        record_of(view, members=view.members[::-1]),
        record_of(view, members=(view.members[0],) * 3),
    ):
        with pytest.raises(ConfigurationError):
            cache.decode(body, view.id, 10)
    with pytest.raises(ConfigurationError, match="rings"):
        cache.decode(record_of(view, members=view.members[::-1]), view.id, 10)


def test_cores_of_one_process_share_configurations(lab) -> None:
    cache = ConfigurationCache()
    view = lab.configuration(5)
    cut = Cut.of([lab.member(9)])
    assert cache.apply(view, cut) is cache.apply(view, Cut.of([lab.member(9)]))
    assert cache.decode(view.apply(cut).encoded(), view.apply(cut).id, 10) is cache.apply(view, cut)


def test_b13_the_cache_and_the_memory_of_joiners_are_bounded(lab) -> None:
    cache = ConfigurationCache(capacity=4)
    view = lab.configuration(3)
    for number in range(10, 40):
        view = cache.apply(view, Cut.of([lab.member(number)]))
    assert len(cache._by_id) <= 4
    assert len(cache._by_step) <= 4
    small = lab.configuration(2)
    for number in range(5000):
        small.observers_of(lab.member(number + 10))
    assert len(small._observers) <= 4 * 2 + 4096 + 1


def test_observer_masks_merge_the_rings_of_one_observer(lab) -> None:
    """Section 3.1 of the specification: each distinct observer is asked once, ring numbers merged."""
    view = lab.configuration(3)
    masks = view.observer_masks(lab.member(50))
    assert sum(mask.bit_count() for _, mask in masks) == 10
    assert len({index for index, _ in masks}) == len(masks) <= 3
    for index, mask in masks:
        assert all(view.observers_of(lab.member(50))[k] == index for k in range(10) if mask >> k & 1)


def test_cores_that_share_a_cache_share_what_changed(lab) -> None:
    cache = ConfigurationCache(capacity=2)
    view = lab.configuration(5)
    cut = Cut.of([], [Removal(view.members[1].incarnation, left=True)])
    following = cache.apply(view, cut)
    change = cache.change(view, following, cut)
    assert change is cache.change(view, following, cut)
    assert change == by_cut(view, following, cut)
    assert cache.change(view, following, None) == by_comparison(view, following)
    assert cache.change(None, following, None) == by_comparison(None, following)
    again = cache.change(view, following, cut)
    assert again == change
    assert again is not change, "only the last few are kept"
