"""Who is the controller is a pure function of the agreed view."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from mgmt.placement.hosts import EMPTY_VIEW, Host, HostView, controller_of, host_view, managers_of


def test_the_most_senior_manager_is_the_controller() -> None:
    view = HostView(
        1,
        (
            Host("a", "h:1", is_manager=False, seniority=0),
            Host("b", "h:2", seniority=2),
            Host("c", "h:3", seniority=1),
        ),
    )
    assert controller_of(view) == "c"
    assert [host.name for host in managers_of(view)] == ["c", "b"]


def test_the_order_in_which_hosts_are_listed_does_not_matter() -> None:
    hosts = [Host(f"n{i}", f"h:{i}", seniority=i // 2) for i in range(8)]
    for seed in range(20):
        random.Random(seed).shuffle(hosts)
        assert controller_of(HostView(1, tuple(hosts))) == "n0"


def test_without_managers_nobody_is() -> None:
    assert controller_of(HostView(1, (Host("a", "h:1", is_manager=False),))) is None
    assert controller_of(EMPTY_VIEW) is None


def test_a_host_without_a_rack_is_a_failure_domain_of_its_own() -> None:
    assert Host("a", "h:1").failure_domain == "a"
    assert Host("a", "h:1", "r1").failure_domain == "r1"


def test_tags_without_a_meaning_are_labels() -> None:
    @dataclass(frozen=True)
    class Member:
        metadata: tuple[tuple[str, str], ...]
        name: str = "a"
        address: str = "h:1"
        incarnation: bytes = b""

    tags = (
        ("zone", "z"),
        ("rack", "r"),
        ("disk", "ssd"),
        ("capacity", "9"),
        ("engine", "h:2"),
        ("cpu", "arm"),
    )
    (host,) = host_view(1, [Member(tags)]).hosts
    assert (host.rack, host.zone, host.labels) == ("r", "z", (("cpu", "arm"), ("disk", "ssd")))


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' stands twice in view 3"):
        HostView(3, (Host("a", "h:1"), Host("a", "h:2")))
