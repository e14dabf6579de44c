"""What the status counts as broken is what the datastore pack's rules forbid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import Placement
from mgmt.placement.intent import Intent
from mgmt.placement.layout_report import check_placement
from tests.mgmt.control.situations import ROLES, view_of


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
