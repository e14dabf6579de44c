"""Rows that follow others, as a selection among these."""

from __future__ import annotations

import numpy as np
import pytest

from mgmt.optimization.assignment import NONE, Assignment, Colocation, RowCost, Tier
from mgmt.optimization.engines.selection.flags import Flags


@pytest.mark.parametrize(("moved", "home"), [(0, [0, 1, 2]), (5, [0, NONE, NONE])])
def test_flags_that_do_not_hold_are_at_home_where_their_rows_are(moved: int, home: list[int]) -> None:
    """Unless it costs something to set them."""
    current = np.array([0, 1, 2, 0, NONE, NONE], np.int32)
    paid = np.array([0, 0, 0, 0, moved, 0], np.int64)
    none = np.zeros((1, 3), np.int64)
    cost = RowCost("moves", 1, np.zeros(6, np.int32), none, none[:, 0], paid)
    leader = np.array([NONE, NONE, NONE, 0, 1, 2], np.int32)
    assignment = Assignment(
        3,
        np.zeros(6, np.int32),
        np.ones((1, 3), np.bool_),
        np.arange(6) < 3,
        current,
        (),
        (Tier(1, (cost,)),),
        (Colocation("flags", leader),),
    )
    flags = Flags.of(assignment)
    assert flags is not None
    assert flags.selection.current.tolist() == home
