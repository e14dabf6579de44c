"""Addresses, members, cuts and settings: canonical forms, and what is refused at the edge."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.address import Address, AddressError
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import RECORD_LIMIT, Member, MemberError
from membership.settings import Settings, SettingsError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.5:7946", "10.0.0.5", 7946),
        ("node1.example:1", "node1.example", 1),
        ("[::1]:65535", "::1", 65535),
        (" localhost:80 ", "localhost", 80),
    ],
)
def test_an_address_has_one_text_form(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == Address(host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:x", "::1:80", "h:70000", "a b:1", "h:-1"])
def test_a_bad_address_says_what_to_write(text: str) -> None:
    with pytest.raises(AddressError, match=r"(host:port|brackets|port)"):
        Address.parse(text)


def test_metadata_has_one_order() -> None:
    address = Address("h", 1)
    one = Member.create("a", address, bytes(16), {"rack": "r1", "disk": "ssd"})
    two = Member.create("a", address, bytes(16), [("disk", "ssd"), ("rack", "r1")])
    assert one == two
    assert one.attributes == {"rack": "r1", "disk": "ssd"}


@pytest.mark.parametrize(
    "metadata", [{"port": 8080}, {"rack": None}, {1: "x"}, {"a": "\ud800"}, {"a": "b", 2: "c"}]
)
def test_metadata_is_text(metadata: dict) -> None:
    with pytest.raises(MemberError, match="write numbers as text"):
        Member.create("a", Address("h", 1), bytes(16), metadata)


def test_a_record_must_fit_a_datagram() -> None:
    with pytest.raises(MemberError, match=f"at most {RECORD_LIMIT}"):
        Member.create("a", Address("h", 1), bytes(16), {"blob": "x" * RECORD_LIMIT})


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_a_name_is_short_and_printable(name: str) -> None:
    with pytest.raises(MemberError, match="printable"):
        Member.create(name, Address("h", 1), bytes(16))


def test_b1_the_hash_of_a_cut_covers_incarnations_and_metadata(lab) -> None:
    """A value named without them lets members install different views under one decision."""
    original = lab.member(1)
    same_place = lab.member(1, incarnation=1)
    other_data = lab.member(1, metadata={"rack": "r2"})
    hashes = {Cut.of([member]).hash for member in (original, same_place, other_data)}
    assert len(hashes) == 3
    identity = original.incarnation
    assert Cut.of([], [Removal(identity)]).hash != Cut.of([], [Removal(identity, left=True)]).hash


@given(st.permutations(range(6)))
def test_the_hash_of_a_cut_does_not_depend_on_the_order_of_reports(order: list[int]) -> None:
    members = [Member.create(f"n{i}", Address("h", i + 1), bytes([i]) * 16) for i in range(6)]
    removals = [Removal(bytes([100 + i]) * 16) for i in range(6)]
    shuffled = Cut.of([members[i] for i in order], [removals[i] for i in order])
    assert shuffled.hash == Cut.of(members, removals).hash


@pytest.mark.parametrize("preset", [Settings.lan, Settings.wan, Settings.local])
def test_presets_are_consistent(preset) -> None:
    settings = preset()
    assert settings.rings == 10
    assert settings.report_lifetime < settings.noise_lifetime
    assert settings.noise_lifetime == pytest.approx(10 * settings.probe_window * settings.probe_interval)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"low_watermark": 9}, "high_watermark > low_watermark"),
        ({"high_watermark": 11}, "rings >= high_watermark"),
        ({"rings": 61, "high_watermark": 60}, "at most 60 rings"),
        ({"probe_failures": 11}, "probe_failures <= probe_window"),
        ({"probe_attempts": 6}, "must fit probe_interval"),
        ({"gossip_fanout": 0}, "gossip_fanout must be positive"),
        ({"rings": 10.5}, "rings is a whole number"),
        ({"gossip_fanout": True}, "gossip_fanout is a number"),
        ({"probe_interval": "1"}, "probe_interval is a number"),
        ({"probe_interval": math.inf}, "probe_interval must be positive and finite"),
        ({"leave_timeout": math.nan}, "leave_timeout must be positive and finite"),
        ({"datagram_payload": 1281}, "datagram_payload is at most 1280"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(SettingsError, match=rule):
        replace(Settings(), **change)


def test_the_probe_settings_tell_bad_weather_from_a_bad_member() -> None:
    """Section 3.2 of the specification: 20 % loss everywhere evicts nobody, 80 % one way does."""
    from math import comb

    settings = Settings()

    def edge_fails(probe_fails: float) -> float:
        window, failures = settings.probe_window, settings.probe_failures
        return sum(
            comb(window, k) * probe_fails**k * (1 - probe_fails) ** (window - k)
            for k in range(failures, window + 1)
        )

    weather = edge_fails((1 - 0.8 * 0.8) ** settings.probe_attempts)
    illness = edge_fails(0.8**settings.probe_attempts)
    assert weather < 1e-6
    assert illness > 0.4
