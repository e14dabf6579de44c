"""From fractional counts to a choice: whole parts stay, greedy places the rest."""

from __future__ import annotations

import numpy as np

from mgmt.optimization.assignment import Indices
from mgmt.optimization.engines.cells import Cells
from mgmt.optimization.engines.greedy import complete
from mgmt.optimization.engines.relaxation import Reals

_NEARLY = 1e-6


def rounded(cells: Cells, counts: Reals) -> Indices | None:
    """A choice near fractional counts that keeps the limits, or None when greedy can not finish it."""
    whole = np.floor(counts + _NEARLY).astype(np.int64)
    keeps = np.flatnonzero((whole > 0) & (cells.value >= 0))
    return complete(cells.kinds, cells.kind[keeps], cells.value[keeps], whole[keeps])
