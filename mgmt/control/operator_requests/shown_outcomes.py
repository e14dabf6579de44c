"""What dry runs decided, so that an order carries out the very plan that was shown.

To solve again is not the same: an answer that is not proven in its time leaves out what is for balance alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mgmt.control.decision import Situation, decision_key, thawed
from mgmt.solving.placement_solver import Solved, SolveOutcome

KEPT: Final = 8
"""Several people may look at once."""


class ShownOutcomes:
    """The outcomes of the last dry runs, by the digest of the plan that was made of each."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, bool, Solved]] = {}

    def keep(self, digest: str, asked: Situation, decided_for: Situation, outcome: SolveOutcome) -> None:
        """``decided_for``: ``asked``, or the same without the freezes that repairs go before."""
        if not isinstance(outcome, Solved):
            return
        self._kept.pop(digest, None)
        self._kept[digest] = (_key(asked), bool(decided_for.thawed), outcome)
        while len(self._kept) > KEPT:
            self._kept.pop(next(iter(self._kept)))

    def find(self, digest: str | None, asked: Situation) -> tuple[Situation, Solved] | None:
        """The outcome, and the situation that it is for; None where the situation is another one by now."""
        key, was_thawed, outcome = self._kept.get(digest or "", (None, False, None))
        if outcome is None or key != _key(asked):
            return None
        return (thawed(asked) if was_thawed else None) or asked, outcome


def _key(situation: Situation) -> object:
    """Whether the loop waits makes no difference to what is decided, and an order ends observing."""
    intent = situation.intent.with_paused(False).with_observing(False)
    return decision_key(replace(situation, intent=intent))
