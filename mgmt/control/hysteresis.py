"""Hysteresis: data moves for balance only for a gain that is worth it, and not again before a cooldown is over.

Pure.  What a rule requires is never held, and neither is what an operator orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mgmt.placement.intent import Intent
from mgmt.plans.plan import Plan
from mgmt.solving.placement_solver import Solved


@dataclass(frozen=True, slots=True)
class HysteresisLimits:
    """What moves for balance have to wait for."""

    min_gain: int = 1
    """Least improvement, of the first tier of objectives that differs, for which data is moved while nothing is
    broken; in the objective's own unit.  Higher: fewer moves, less even.  The policies may say the same with
    ``SET min_gain``; both hold."""
    cooldown: float = 10.0
    """Seconds after the last plan with moves for balance before the next such one.  Longer: hosts that join one by
    one are balanced in one plan; a single one waits for nothing."""


@dataclass(frozen=True, slots=True)
class BalanceHold:
    """Why moves for balance are not made.  ``until``: Unix seconds; None: as long as nothing changes."""

    why: str
    until: float | None

    def __str__(self) -> str:
        if self.until is None:
            return self.why
        return f"{self.why}; until {datetime.fromtimestamp(self.until, UTC).isoformat(' ', 'seconds')}"

    def to_json(self) -> dict[str, Any]:
        return {"why": self.why, "until": self.until, "text": str(self)}


def balance_hold(
    plan: Plan, intent: Intent, outcome: Solved, limits: HysteresisLimits, now: float
) -> BalanceHold | None:
    """Whether the part of ``plan`` that is for balance alone has to wait."""
    if plan.previous is None or not is_for_balance(plan):
        return None
    since = now - intent.moved_at
    if 0 <= since < limits.cooldown:
        left = limits.cooldown - since
        return BalanceHold(f"balance waits {left:.0f} s: data was moved for it a short while ago", now + left)
    gain = None if outcome.breaks_rules_today else first_gain(outcome)
    if plan.required_waves == 0 and gain is not None and gain < limits.min_gain:
        return BalanceHold(f"a gain of {gain} is not worth moving data for ({limits.min_gain} is)", None)
    return None


def is_for_balance(plan: Plan) -> bool:
    """Whether any of it is not required by a rule."""
    return len(plan.waves) > plan.required_waves and not plan.is_empty


def first_gain(outcome: Solved) -> int | None:
    """How much better the first tier that differs gets; None when nothing tells."""
    gains: dict[int, int] = {}
    for value in outcome.objectives:
        if value.before is None:
            return None
        gain = value.before - value.after if value.sense == "minimize" else value.after - value.before
        gains[value.tier] = gains.get(value.tier, 0) + gain * value.weight
    return next((gains[tier] for tier in sorted(gains) if gains[tier] != 0), None)
