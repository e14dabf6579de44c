"""First fit decreasing: rows by what they weigh, each into the first value with room, the roomiest values first.

For costs of using values at all, where greedy sees no difference between values that are not used yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgmt.optimization.assignment import Indices
from mgmt.optimization.engines.cells import bounds_of
from mgmt.optimization.engines.kinds import Kinds
from mgmt.optimization.engines.partial_solution import PartialSolution


def first_fit(kinds: Kinds) -> Iterator[Indices]:
    """Choices that keep upper limits, one for each way to say what is large, and what is roomy.

    Roomy is what has much of everything, or for many rows in what it has least of.
    """
    rows, rooms, numbers = [], [], []
    for limit in kinds.assignment.limits:
        load, total = limit.load, int(limit.load.weight.sum())
        if load.groups == 1 and load.buckets == kinds.assignment.values and total:
            room = np.minimum(bounds_of(limit)[1][0], total)[load.bucket]
            rows.append(
                np.where(kinds.group(load) >= 0, kinds.weight(load), 0) / max(1.0, float(room.mean()))
            )
            rooms.append(room / max(1.0, float(room.mean())))
            mean = float(load.weight[load.group >= 0].mean())
            numbers.append(room / max(1.0, mean))
    if not rows:
        return
    for size in (*rows, np.maximum.reduce(rows), np.add.reduce(rows)):
        for room in (np.add.reduce(rooms), np.minimum.reduce(numbers)):
            values = np.argsort(-room, kind="stable").astype(np.int32)
            found = _placed(kinds, np.argsort(-size, kind="stable").tolist(), values)
            if found is not None:
                yield found


def _placed(kinds: Kinds, order: list[int], values: Indices) -> Indices | None:
    partial = PartialSolution(kinds)
    chosen: list[tuple[int, int]] = []
    for kind in order:
        for _ in range(int(kinds.count[kind])):
            room = partial.room(kind)[values]
            if not bool(room.any()):
                return None
            value = int(values[int(room.argmax())])
            partial.add(kind, value)
            chosen.append((kind, value))
    kind_of, value_of = (np.array(part, np.int32) for part in zip(*chosen, strict=True))
    return kinds.spread(kind_of, value_of, np.ones(len(chosen), np.int64))
