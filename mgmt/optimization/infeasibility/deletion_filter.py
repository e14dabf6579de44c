"""A minimal set of parts that clash, by deletion: each is left out once, and stays out if the others still clash.

Whatever is explained is explained by this: constraints, rows of constraints, buckets of limits.  One solve of what is
left is paid for each part, or for each kind of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from mgmt.optimization.deadline import Deadline

_Part = TypeVar("_Part", bound=Hashable)


def _unlike(parts: Sequence[_Part]) -> Mapping[_Part, Hashable]:
    return {part: part for part in parts}


def minimal_core(
    parts: Sequence[_Part],
    clashes: Callable[[list[_Part]], bool | None],
    deadline: Deadline,
    *,
    kinds_of: Callable[[Sequence[_Part]], Mapping[_Part, Hashable]] = _unlike,
) -> tuple[list[_Part], bool]:
    """The parts that the clash of all of them takes, and whether each was shown to be needed before the deadline.

    ``clashes`` says whether some of them clash; None when that was not found out.  ``kinds_of`` says which of some
    parts are interchangeable: if one of a kind is needed, so is each.
    """
    kept, minimal = list(parts), True
    kinds = kinds_of(kept)
    needed: set[_Part] = set()
    for part in parts:
        if part in needed or part not in kinds:
            continue
        if deadline.passed:
            return kept, False
        fewer = [other for other in kept if other != part]
        found = clashes(fewer)
        if found:
            # Where one of a kind is needless all are, mostly.
            others = [other for other in fewer if kinds[other] != kinds[part]]
            kept = others if len(others) < len(fewer) and clashes(others) else fewer
            kinds = kinds_of(kept)
        elif found is None:
            minimal = False
        else:
            needed |= {other for other in kept if kinds[other] == kinds[part]}
    return kept, minimal
