"""The incumbent: the best choice so far, and what bounds it.

Whatever finds choices offers them here, and whatever proves bounds raises them here; where both meet the search ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mgmt.errors import SolveTimeout
from mgmt.optimization.assignment import UNKNOWN, Assignment, Indices, Placement


@dataclass(slots=True, eq=False)
class Incumbent:
    """The best choice, what it is worth, and per tier what no choice goes below."""

    assignment: Assignment
    bounds: list[int | None]
    """Per tier; from the second on they hold among the choices that are as good as this one in those before."""
    notes: list[str] = field(default_factory=list)
    choice: Indices | None = None
    worth: tuple[int, ...] = ()
    found_by: str = ""

    @property
    def gap(self) -> float:
        """How far the first tier that is not proven is above its bound, as a share of what it is."""
        tier = self.open_tier
        if tier is None or self.choice is None:
            return 0.0
        floor, reached = self.bounds[tier], self.worth[tier]
        return 1.0 if floor is None else (reached - floor) / max(1, abs(reached))

    @property
    def proven(self) -> bool:
        return self.choice is not None and self.worth == tuple(self.bounds)

    @property
    def open_tier(self) -> int | None:
        """The first tier whose bound is not met; None when there is no choice, or all are met."""
        tiers = enumerate(zip(self.worth, self.bounds, strict=False))
        return next((at for at, (worth, bound) in tiers if worth != bound), None)

    def meets(self, tier: int) -> bool:
        """Whether there is a choice that meets the bound of a tier."""
        return self.choice is not None and self.worth[tier] == self.bounds[tier]

    def begin(self, known: tuple[Indices, tuple[int, ...]] | None) -> None:
        """Offer what there is: ``known`` is a choice, and bounds of the first tiers."""
        if known is not None:
            self.offer(known[0], "min-cost flow")
            self.bounds[: len(known[1])] = known[1]
        self.offer(self.assignment.current, "today's choice")

    def offer(self, choice: Indices | None, by: str, *, quietly: bool = False) -> bool:
        """Take a choice if it keeps everything and is the best so far."""
        if choice is None or any(self.assignment.broken(choice)):
            return False
        worth = self.assignment.worth(choice)
        if self.choice is not None and worth >= self.worth:
            return False
        self.choice, self.worth, self.found_by = choice, worth, by
        if not quietly:
            self._tell()
        return True

    def offer_all(self, choices: Iterable[Indices], by: str) -> None:
        """Take what is better of choices that come one after the other, until the bounds are met."""
        begun = self.worth
        for choice in choices:
            self.offer(choice, by, quietly=True)
            if self.proven:
                break
        if self.worth != begun:
            self._tell()

    def raise_bound(self, tier: int, bound: int | None) -> None:
        known = self.bounds[tier]
        if bound is not None and (known is None or bound > known):
            self.bounds[tier] = bound

    def placement(self, proof: str, variables: int = 0) -> Placement:
        """The best choice, with what there is of bounds; raises SolveTimeout when there is none."""
        if self.choice is None:
            raise SolveTimeout("no placement was found in the time given")
        bounds = zip(self.bounds, self.worth, strict=True)
        known = tuple(UNKNOWN if bound is None else min(bound, worth) for bound, worth in bounds)
        engine = f"{self.found_by}; bounds by {proof}"
        return Placement(self.choice, self.worth, known, engine, tuple(self.notes), variables)

    def _tell(self) -> None:
        costs = "costs " + ", ".join(map(str, self.worth)) if self.worth else "keeps the limits"
        self.notes.append(f"{self.found_by}: {costs}")
