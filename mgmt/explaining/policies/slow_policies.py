"""SlowPart policies: statements whose variable columns are solved cell by cell, and how to write them instead.

One statement that is of no known form takes with it all others that speak of the same columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mgmt.compiler.partition import Formulation, Part
from mgmt.source_text import Position

_FASTER = (
    (
        r"^several variable columns",
        "demand something of one column at a time; what follows from another, compute in a view",
    ),
    (
        r"is a number$",
        "have few rows with a number each: one for a kind of thing instead of one for each thing",
    ),
    (r"outer join|LEFT join", "join by equal columns, or say it with EXISTS or NOT EXISTS"),
    (
        r"choice|pairs",
        "compare attributes of both in a CHECK, or one of them by = or <> in an objective of its own",
    ),
    (
        r"grouped view|groups of groups|over groups",
        "group once, and compare each group with constants that a view computes",
    ),
    (r"alternatives|\bOR\b", "make each alternative a constraint of its own, and what is constant a WHERE"),
    (r"NULL", "declare the columns NOT NULL, or leave out the rows without a value in WHERE"),
    (r"[Tt]ext", "compare texts by = and <>, and use numbers for what is larger or smaller"),
    (r"bits|too large", "use a larger unit, so that the numbers are smaller"),
    (r"kinds of|rows that", "compute what rows have in common in a view, so that more of them are alike"),
)
_ELSE = "write it as a GROUP BY whose sums and counts are compared with constants"


@dataclass(frozen=True, slots=True)
class SlowPart:
    """Variable columns that are solved cell by cell: because of which statements, and ``others`` that go with them."""

    columns: tuple[str, ...]
    statements: tuple[tuple[str, Position], ...]
    reason: str
    faster: str
    others: tuple[str, ...]


def slow_parts(cell_by_cell: Mapping[Part, str]) -> Iterator[SlowPart]:
    """What makes each of the parts slow, given why it is."""
    for part, why in cell_by_cell.items():
        name, _, rest = why.partition(": ")
        named = [each for each in part.formulations if each.demand.name == name]
        because = (
            named or [each for each in part.formulations if _connects(each, part)] or list(part.formulations)
        )
        reason = rest if named else why
        names = {each.demand.name for each in because}
        yield SlowPart(
            tuple(f"{table}.{column}" for table, column in sorted(part.columns)),
            tuple((each.demand.name, each.demand.position) for each in because),
            reason,
            next((advice for pattern, advice in _FASTER if re.search(pattern, reason)), _ELSE),
            tuple(each.demand.name for each in part.formulations if each.demand.name not in names),
        )


def _connects(formulation: Formulation, part: Part) -> bool:
    """Whether it speaks of several columns, or of one that is a number."""
    return len(formulation.columns) > 1 or bool(formulation.columns & part.quantities)
