"""How far the plan that is carried out is, over all its waves: for progress bars, never for decisions."""

from __future__ import annotations

from typing import Any

from datastore_adapter.interface import StepGraph
from mgmt.control.execution import Progress
from mgmt.placement.plan import Plan


class PlanProgress:
    """``now`` is seconds of one clock.  Bytes are what there is to copy as it was known at the beginning."""

    def __init__(self, plan: Plan, now: float) -> None:
        self._waves = len(plan.waves)
        self._wave = 0
        self._bytes = plan.bytes
        self._bytes_before = 0  # of the waves that are done
        self._wave_bytes = 0
        self._began = now

    def wave_begins(self, graph: StepGraph) -> None:
        self._bytes_before += self._wave_bytes
        self._wave_bytes = sum(step.bytes for step in graph.steps)
        self._wave += 1

    def report(self, steps: Progress | None, now: float) -> dict[str, Any]:
        """``steps``: those of the present wave, if it runs."""
        done = self._bytes_before + (0 if steps is None else steps.bytes_done)
        total = max(self._bytes, done)
        seconds = max(0.0, now - self._began)
        rate = done / seconds if seconds > 0 else 0.0
        return {
            "wave": self._wave,
            "waves": self._waves,
            "steps": 0 if steps is None else steps.steps,
            "steps_done": 0 if steps is None else steps.steps_done,
            "bytes": total,
            "bytes_done": done,
            "rate": rate,
            "eta": (total - done) / rate if rate > 0 else None,
        }
