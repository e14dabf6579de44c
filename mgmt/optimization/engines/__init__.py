"""Engines for assignment structure: rows that choose values under loads, solved without a boolean per cell.

``solve`` picks the engine; ``table`` says which one is for what.
"""

from __future__ import annotations

from mgmt.optimization.engines.load_costs import UnsuitableError
from mgmt.optimization.engines.table import solve

__all__ = ["UnsuitableError", "solve"]
