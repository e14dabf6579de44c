"""Engines for assignment structure: rows that choose values under loads, solved without a boolean per cell.

``solve`` picks the engine; ``decision_table`` says which one is for what.
"""

from __future__ import annotations

from mgmt.optimization.engines.decision_table import solve
from mgmt.optimization.engines.model.cost_functions import UnsuitableError

__all__ = ["UnsuitableError", "solve"]
