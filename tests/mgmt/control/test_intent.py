"""The intent in the epoch document: it survives the way there and back, and nonsense is refused by field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import Placement, ServiceRoles
from mgmt.errors import IntentError
from mgmt.placement.flap_damping import Freeze
from mgmt.placement.intent import Intent, Order, PlanRecord, PolicyChoice

names = st.text("abcn0123-", min_size=1, max_size=8)
times = st.floats(0, 1e12)
freezes = st.builds(Freeze, names, st.integers(1, 99), st.integers(0, 10**9), times, times)
name_tuples = st.lists(names, max_size=4).map(tuple)
placements = st.builds(
    Placement,
    st.dictionaries(names, name_tuples, max_size=3),
    st.builds(ServiceRoles, name_tuples, name_tuples, name_tuples),
    slots=st.none()
    | st.dictionaries(names, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))).map(tuple)),
)


@st.composite
def plan_records(draw: st.DrawFn) -> PlanRecord:
    """What stood before a plan names the segments that the plan names."""
    target = draw(placements)
    previous = draw(st.none() | placements)
    if previous is not None:
        chains = {key: draw(st.just(hosts) | name_tuples) for key, hosts in target.segments.items()}
        previous = Placement(chains, previous.roles)
    view_epoch, order = draw(st.integers(-1, 10**9)), draw(st.sampled_from(Order))
    return PlanRecord(draw(names), draw(names), view_epoch, target, previous, order)


intents = st.builds(
    Intent,
    segments=st.sets(names, max_size=5).map(lambda keys: tuple(sorted(keys))),
    replication_factor=st.integers(1, 16),
    expect=st.integers(1, 1000),
    policies=st.builds(
        PolicyChoice, names, st.lists(st.tuples(names, st.text(max_size=20)), max_size=2).map(tuple)
    ),
    drains=st.sets(names, max_size=3).map(lambda hosts: tuple(sorted(hosts))),
    plan=st.none() | plan_records(),
    paused=st.booleans(),
    observing=st.booleans(),
    freezes=st.lists(freezes, max_size=2).map(tuple),
    pins=st.sets(st.tuples(names, names), max_size=3).map(lambda pins: tuple(sorted(pins))),
    moved_at=st.floats(0, 1e12),
).flatmap(
    lambda intent: (
        st.just(intent) | st.integers(1, 99).map(intent.with_even_slots)
        if intent.segments
        else st.just(intent)
    )
)


@given(intents)
def test_there_and_back_through_json(intent: Intent) -> None:
    assert Intent.from_mapping(json.loads(json.dumps(intent.to_mapping()))) == intent


@given(intents, names)
def test_a_drain_and_its_end(intent: Intent, host: str) -> None:
    drained = intent.with_drain(host)
    assert host in drained.drains
    assert drained.with_drain(host) == drained
    assert drained.without_drain(host).drains == tuple(name for name in intent.drains if name != host)
    assert list(drained.drains) == sorted(drained.drains)


def test_an_initial_intent_has_sorted_keys_of_one_width() -> None:
    assert Intent.initial(12).segments[:3] == ("s00", "s01", "s02")
    many = Intent.initial(1001).segments
    assert (many[0], many[-1]) == ("s0000", "s1000")
    assert list(many) == sorted(many)


def test_fields_of_a_later_version_go_on_as_they_are() -> None:
    document = changed(colour={"of": ["the", "sky"]}, shade=3)
    intent = Intent.from_mapping(document)
    assert intent.with_drain("n1").with_paused(True).to_mapping() == {
        **document, "drains": ["n1"], "paused": True,
    }  # fmt: skip


def test_agents_of_version_0_1_can_read_an_intent_in_which_nothing_newer_is_used() -> None:
    """They refuse unknown fields: one that is added since may only be there when it says something."""
    assert set(changed()) == {
        "version", "segments", "replication_factor", "expect", "policies", "drains", "plan", "paused", "observing",
        "freezes", "pins", "moved_at", "slots",
    }  # fmt: skip
    assert changed()["version"] == 1


def changed(**fields: Any) -> dict[str, Any]:
    return {**Intent.initial(2).to_mapping(), **fields}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({}, r"intent\.version"),
        (changed(version=2), "upgrade this agent"),
        (changed(version="1"), r"intent\.version: a whole number"),
        (changed(segments="s00"), r"intent\.segments: a list of names is needed, not str"),
        (changed(segments=["b", "a"]), "sorted and unique"),
        (changed(segments=["a", "a"]), "sorted and unique"),
        (changed(segments=["a", ""]), "not a name"),
        (changed(segments=["x" * 300]), "not a name"),
        (changed(replication_factor=0), "from 1 to 16"),
        (changed(replication_factor=True), "from 1 to 16"),
        (changed(replication_factor=17), "from 1 to 16"),
        (changed(expect=0), r"intent\.expect"),
        (changed(freezes=[1]), r"intent\.freezes: a list of mappings"),
        (changed(freezes=[{"host": "a", "returns": 0}]), r"intent\.freezes\.returns"),
        (changed(pins=[["a"]]), r"intent\.pins: a list of"),
        (changed(pins="ab"), r"intent\.pins: a list of"),
        (changed(moved_at=-1), r"intent\.moved_at: a time"),
        (changed(paused="yes"), r"intent\.paused: true or false"),
        (changed(policies=[]), r"intent\.policies: a mapping"),
        (changed(policies={"pack": ""}), r"intent\.policies\.pack"),
        (changed(policies={"pack": "p", "texts": [["a"]]}), "pairs"),
        (changed(policies={"pack": "p", "texts": "ab"}), "pairs"),
        (changed(policies={"pack": "p", "texts": [["a", "x" * ((1 << 20) + 1)]]}), "longer than"),
        (changed(drains={"n1": 1}), r"intent\.drains"),
        (changed(drains=[3]), r"intent\.drains"),
        (changed(plan={}), r"intent\.plan\.segments"),
        (changed(plan={"segments": {1: []}}), r"intent\.plan\.segments"),
        (changed(plan={"segments": {"a": 3}}), r"intent\.plan\.layout_servers"),
    ],
)
def test_nonsense_is_refused_by_field(document: dict[str, Any], complaint: str) -> None:
    with pytest.raises(IntentError, match=complaint):
        Intent.from_mapping(document)


@pytest.mark.parametrize(
    ("slots", "fault"),
    [
        ({"s00": [[0, 4]], "s01": [[4, 9]]}, "4-4 is in 0-4 of s00 and in s01"),
        ({"s00": [[0, 4]], "s01": [[6, 9]]}, "5-5 is in no segment"),
        ({"s00": [[0, 4]], "s01": [[5, 8]]}, "9-9 is in no segment"),
        ({"s00": [[0, 4]], "s01": [[5, 10]]}, "s01: 5-10 is no range of slots from 0 to 9"),
        ({"s00": [[0, 4]], "s07": [[5, 9]]}, "'s07' is no segment"),
        ({"s00": [[0, 4, 9]]}, "a list of [first, last] slots is needed"),
        ({"s00": [[0, True]]}, "a list of [first, last] slots is needed"),
        ([], None),
        ({"s00": [[0, 4]], "s01": [[5, 9]]}, None),
    ],
)
def test_every_slot_is_in_one_segment(slots: Any, fault: str | None) -> None:
    document = changed(slots=slots)
    if fault is None:
        assert dict(Intent.from_mapping(document, 10).slots).keys() == set(slots)
        return
    with pytest.raises(IntentError) as caught:
        Intent.from_mapping(document, 10)
    assert fault in str(caught.value)
    assert str(caught.value).startswith("intent.slots")
