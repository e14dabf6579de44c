"""What operators ask of the controller: a dry run, a drain, the end of one.

A request is solved *first*, then agreed in the epoch document, then acknowledged: one that is acknowledged
survives every controller, and one that cannot be satisfied changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from datastore_adapter.interface import (
    AdapterError,
    FencedError,
    Observation,
    StaleIntentError,
    StepGraph,
)
from mgmt.control.consultation import Consultation, describe
from mgmt.control.decision import decided_plan, hosts_missing
from mgmt.control.events import ControlEvents
from mgmt.control.settings import ControlSettings
from mgmt.control_errors import (
    DrainRefusedError,
    EngineUnreachableError,
    NotControllerError,
    UndecidedError,
    UnknownHostError,
)
from mgmt.placement.hosts import controller_of
from mgmt.placement.intent import Intent
from mgmt.placement.plan import Plan
from mgmt.placement.plan_report import plan_to_json, plan_to_text
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome


@dataclass(frozen=True, slots=True)
class DryRun:
    """What the controller would do now.  Without a full placement, ``plan`` holds what availability needs."""

    plan: Plan
    steps: StepGraph
    outcome: SolveOutcome
    hosts_missing: int = 0

    @property
    def feasible(self) -> bool:
        return isinstance(self.outcome, Solved)

    def to_json(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            **plan_to_json(self.plan, self.steps),
            "feasible": self.feasible,
            "clashing": list(outcome.policies) if isinstance(outcome, Infeasible) else [],
            "hosts_missing": self.hosts_missing,
            "solve": solve_to_json(outcome),
            "text": self.text(),
        }

    def text(self) -> str:
        lines = [f"solve: {describe(self.outcome)}"]
        if self.hosts_missing:
            lines.append(f"the first placement waits for {self.hosts_missing} more hosts")
        if self.feasible or not self.plan.is_empty:
            lines.append(plan_to_text(self.plan))
        else:
            lines.append("nothing can be done about it until a host comes or a rule is relaxed")
        return "\n".join(lines)


def solve_to_json(outcome: SolveOutcome | None) -> dict[str, Any] | None:
    """For status displays; None when nothing was solved yet."""
    if outcome is None:
        return None
    document: dict[str, Any] = {
        "status": outcome.status,
        "seconds": outcome.seconds,
        "text": describe(outcome),
    }
    if isinstance(outcome, Infeasible):
        rows = outcome.rows or ("",) * len(outcome.policies)
        document["clashing"] = [
            {"policy": policy, "rows": words} for policy, words in zip(outcome.policies, rows, strict=True)
        ]
    if isinstance(outcome, Solved):
        document["gap"] = outcome.gap
        document["objectives"] = [
            {
                "name": value.name,
                "tier": value.tier,
                "before": value.before,
                "after": value.after,
                "bound": value.bound,
            }
            for value in outcome.objectives
        ]
    return document


class Requests:
    """The requests of one controller.  ``changed`` is called when wishes were agreed, to wake the loop."""

    def __init__(
        self,
        me: str,
        consultation: Consultation,
        settings: ControlSettings,
        events: ControlEvents,
        changed: Callable[[], None],
    ) -> None:
        self._me = me
        self._consultation = consultation
        self._settings = settings
        self._events = events
        self._changed = changed
        # One request at a time: two drains that are possible each may be impossible together.
        self._one_at_a_time = trio.Lock()

    async def plan(self) -> DryRun:
        """Solve and compare; change nothing."""
        for _ in range(self._settings.intent_attempts):
            observation, intent = await self._consult()
            situation = self._consultation.situation(observation, intent)
            outcome = await self._consultation.solve(situation, asked="a dry run")
            if self._consultation.view is not situation.view:
                continue  # solved for hosts that are no longer those of the view, or not at all
            plan = decided_plan(situation, outcome)
            steps = self._consultation.lower(observation, plan.waves[0])
            return DryRun(plan, steps, outcome, hosts_missing(situation))
        raise UndecidedError("the view changed under every attempt; try again")

    async def policies(self) -> dict[str, Any]:
        """The policies in force, read from their texts."""
        _, intent = await self._consult()
        return await self._consultation.policies(intent.policies)

    async def drain(self, host: str) -> None:
        """Empty ``host``, if the policies allow it.  Asking again is harmless."""
        if host not in self._consultation.view.names:
            raise UnknownHostError(host, sorted(self._consultation.view.names))
        async with self._one_at_a_time:
            if await self._change(lambda intent: intent.with_drain(host), draining=host):
                self._events.add("drain", f"{host} is to be emptied", host=host)
                self._changed()

    async def undrain(self, host: str) -> None:
        """Let ``host`` be used again.  Asking again is harmless."""
        async with self._one_at_a_time:
            if await self._change(lambda intent: intent.without_drain(host)):
                self._events.add("undrain", f"{host} may be used again", host=host)
                self._changed()

    async def _change(self, change: Callable[[Intent], Intent], draining: str | None = None) -> bool:
        """Compare-and-set with retries; says whether anything changed."""
        for _ in range(self._settings.intent_attempts):
            view = self._consultation.view
            observation, intent = await self._consult()
            wished = change(intent)
            if wished == intent:
                return False
            outcome = (
                None if draining is None else await self._solve(observation, wished, f"drain {draining}")
            )
            if self._consultation.view is not view:
                continue  # decided for hosts that are no longer those of the view
            if draining is not None and outcome is not None:
                self._check(draining, outcome)
            try:
                await self._consultation.agree(view, observation, wished)
            except (StaleIntentError, FencedError):
                continue
            except AdapterError as error:
                raise EngineUnreachableError(f"the engine did not agree: {error}; try again") from error
            return True
        raise UndecidedError("the epoch document changed under every attempt; nothing was changed, try again")

    async def _solve(self, observation: Observation, wished: Intent, asked: str) -> SolveOutcome:
        return await self._consultation.solve(self._consultation.situation(observation, wished), asked=asked)

    def _check(self, host: str, outcome: SolveOutcome) -> None:
        """Whether ``host`` may be drained, by what the solver said.  Raises what :meth:`drain` raises."""
        if isinstance(outcome, Infeasible):
            refused = DrainRefusedError(host, outcome.policies, outcome.details)
            self._events.add("drain-refused", str(refused), host=host, policies=list(outcome.policies))
            raise refused
        if not isinstance(outcome, Solved):
            raise UndecidedError(
                f"no decision about draining {host}: {describe(outcome)}; nothing was changed"
            )

    async def _consult(self) -> tuple[Observation, Intent]:
        controller = controller_of(self._consultation.view)
        if controller != self._me:
            raise NotControllerError(controller)
        answer = await self._consultation.observe()
        if not isinstance(answer, Observation):
            raise EngineUnreachableError(f"the engine does not answer: {answer.reason}; try again")
        if self._consultation.intent is None:
            raise UndecidedError("the cluster has no wishes agreed yet; try again in a moment")
        return answer, self._consultation.intent
