"""Limits of the memory that solving may take: one setting, for DuckDB and for a model each.

Nothing is measured while it runs: DuckDB keeps its own account, and a model is counted in cells.
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = 10**9
"""Bytes, unless a setting says otherwise."""
LEAST_MEMORY: Final = 64 * 10**6
BYTES_PER_CELL: Final = 500
"""Of a model with the solver's copy of it: 400 to 560 for each variable, and each that a row or clause speaks of."""
