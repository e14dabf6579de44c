"""A model as MiniZinc text, over the rows that there are: to be given to other solvers, or to a reader.

Only the tiers before the one that is asked for are solved.
"""

from __future__ import annotations

from collections import Counter

from mgmt.compiler.encoding.encoder import Encoder
from mgmt.compiler.model import Model
from mgmt.errors import DataError
from mgmt.optimization.minizinc import minizinc
from mgmt.optimization.optimize import tier_objectives


def minizinc_text(model: Model, *, tier: int | None = None, budget: float = 2.0, seed: int = 0) -> str:
    """The text of one tier, the first if none is named; those before it are solved, and kept as good.

    Raises UnsupportedConstructError when there are too many rows to write them cell by cell, DataError when there is no
    such tier; and what ``Model.solve`` raises.
    """
    model = model.at()
    with model.database.snapshot() as snapshot, snapshot.scratch():
        problem = Encoder(snapshot).encode(model.program, model.catalog).problem
    tiers = sorted(tier_objectives(problem))
    if tier is not None and tier not in tiers:
        known = ", ".join(map(str, tiers)) or "none"
        raise DataError(f"there is no tier {tier}", hint=f"the tiers of the objectives: {known}")
    reached: Counter[int] = Counter()
    if tier is not None and tier != tiers[0]:
        for objective in model.solve(budget, seed).objectives:
            if objective.tier < tier:
                sign = -1 if objective.sense == "maximize" else 1
                reached[objective.tier] += sign * objective.weight * objective.after
    return minizinc(problem, tier=tier, reached=reached)
