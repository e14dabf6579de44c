"""What the status counts as broken is what the datastore pack's rules forbid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import Placement
from mgmt.placement.intent import Intent
from mgmt.placement.layout_report import check_placement
from mgmt.placement.losses import losses
from tests.mgmt.control.situations import ROLES, observation_of, view_of


def crowded(chain: tuple[str, ...], *names: str, copies: int = 3) -> int:
    intent = Intent(("s1",), replication_factor=copies)
    return check_placement(view_of(*names), Placement({"s1": chain}, ROLES), intent).rack_violations


@pytest.mark.parametrize(
    ("chain", "gone", "expected"),
    [
        ("n1 n2 n3", "", 0),
        ("n1 n4 n2", "", 1),
        ("n1 n4 n2", "n3 n6", 0),  # two racks are left for three copies
        ("n1 n4 n2 n5", "n3 n6", 0),  # a copy that is still to leave
        ("n1 n4", "n3 n6", 0),  # too few, and that is counted elsewhere
        ("n1 n4", "n2 n5 n3 n6", 0),  # the only rack
    ],
)
def test_copies_in_one_rack(chain: str, gone: str, expected: int) -> None:
    names = [f"n{number}" for number in range(1, 7) if f"n{number}" not in gone.split()]
    assert crowded(tuple(chain.split()), *names) == expected


@given(
    names=st.sets(st.sampled_from([f"n{number}" for number in range(1, 10)]), min_size=1),
    copies=st.integers(1, 5),
    data=st.data(),
)
def test_a_rack_holds_its_even_share(names: set[str], copies: int, data: st.DataObject) -> None:
    chain = data.draw(st.lists(st.sampled_from(sorted(names)), unique=True, max_size=6))
    rack_of = {f"n{number}": (number - 1) % 3 for number in range(1, 10)}
    racks = {rack_of[name] for name in names}
    # The least k with which so many copies fit into so many racks.
    share = next(k for k in range(1, 6) if k * len(racks) >= copies)
    expected = any(sum(rack_of[name] == rack for name in chain) > share for rack in racks)
    assert crowded(tuple(chain), *sorted(names), copies=copies) == expected


@pytest.mark.parametrize(
    ("names", "racks", "chain", "drains", "expected"),
    [
        ("n1 n2 n3 n4 n5 n6", 3, "n1 n2 n3", "", ["rack r1 r2 r3: copies would share racks, 3 of them in 2"]),
        ("n1 n2 n3 n4 n5 n6", 4, "n1 n2 n3", "", []),  # a rack to spare
        (
            "n1 n2 n3 n4 n5 n6", 3, "n1 n4", "",
            ["rack r1: no copy of s1", "rack r1 r2 r3: copies would share racks"],
        ),
        (
            "n2 n3 n4 n5 n6", 3, "n1! n5~ n3", "",
            ["host n2 n3: no majority of the layout servers", "host n3: no copy of s1",
             "rack r2 r3: copies would share racks"],
        ),
        ("n1 n2 n3", 3, "n1 n2 n3", "", ["host n1 n2 n3: 2 hosts would be left for 3 copies"]),
        ("n1 n2 n3 n4", 4, "n1 n2 n3", "n4", ["host n1 n2 n3: 2 hosts would be left for 3 copies"]),
    ],
)  # fmt: skip
def test_what_the_loss_of_one_more_would_break(
    names: str, racks: int, chain: str, drains: str, expected: list[str]
) -> None:
    intent = Intent(("s1",), replication_factor=3, drains=tuple(drains.split()))
    found = losses(view_of(*names.split(), racks=racks), observation_of({"s1": chain}), intent)
    told = [f"{each.what} {' '.join(each.names)}: {each.breaks}" for each in found]
    assert len(told) == len(expected), told
    for begin in expected:
        assert any(each.startswith(begin) for each in told), (begin, told)
