"""From fractional counts to a choice: whole parts stay, greedy places the rest, single moves improve it."""

from __future__ import annotations

import time

import numpy as np

from mgmt.optimization.assignment import NONE, Amounts, Indices
from mgmt.optimization.engines.cells import Cells
from mgmt.optimization.engines.greedy import complete
from mgmt.optimization.engines.ledger import Ledger
from mgmt.optimization.engines.relaxation import Reals

_NEARLY = 1e-6


def rounded(cells: Cells, counts: Reals) -> Indices | None:
    """A choice near fractional counts that keeps the limits, or None when greedy can not finish it."""
    whole = np.floor(counts + _NEARLY).astype(np.int64)
    keeps = np.flatnonzero((whole > 0) & (cells.value >= 0))
    return complete(cells.kinds, cells.kind[keeps], cells.value[keeps], whole[keeps])


def improved(cells: Cells, choice: Indices, deadline: float) -> Indices:
    """A choice that is at least as good: rows move one at a time where that makes it cheaper, until none does."""
    kinds = cells.kinds
    assignment = kinds.assignment
    best, worth = choice, assignment.worth(choice)
    while time.monotonic() < deadline:
        found = _one_pass(cells, best, deadline)
        if found is None or any(assignment.broken(found)):
            break
        reached = assignment.worth(found)
        if reached >= worth:
            break
        best, worth = found, reached
    return best


def _one_pass(cells: Cells, choice: Indices, deadline: float) -> Indices | None:
    """Each row once offered its best value; None when none of them moves."""
    kinds = cells.kinds
    counts = cells.counts(choice)
    if counts is None:
        return None
    counts = counts.copy()
    ledger = Ledger(kinds)
    ledger.add_all(cells.kind, cells.value, counts)
    starts = np.searchsorted(cells.kind, np.arange(kinds.number + 1))
    moved = False
    missing = ledger.missing()
    for cell in _dearest_first(cells, counts):
        if time.monotonic() > deadline:
            break
        kind, value = int(cells.kind[cell]), int(cells.value[cell])
        ledger.add(kind, value, -1)
        if ledger.missing() > missing:
            ledger.add(kind, value)
            continue
        own = np.arange(starts[kind], starts[kind + 1])
        room = ledger.room(kind)
        target = np.maximum(cells.value[own], 0)
        free = (counts[own] < cells.most[own]) & ((cells.value[own] == NONE) | room[target])
        free[cell - starts[kind]] = True
        more, _ = ledger.prices(kind)
        price = np.where(cells.value[own] == NONE, 0, more[:, target]) + cells.costs[:, own]
        at = np.flatnonzero(free)
        for tier in price:
            at = at[tier[at] == tier[at].min()]
        stays = cell - starts[kind]
        target_cell = int(cell if stays in at else own[at[0]])
        ledger.add(kind, int(cells.value[target_cell]))
        if target_cell != cell:
            counts[cell] -= 1
            counts[target_cell] += 1
            moved = True
    return cells.choice(counts) if moved else None


def _dearest_first(cells: Cells, counts: Amounts) -> list[int]:
    used = np.flatnonzero(counts)
    cost = cells.costs[:, used]
    return [int(cell) for cell in used[np.lexsort(tuple(-tier for tier in cost[::-1]))]] if len(cost) else []
