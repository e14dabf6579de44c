"""The report of a scenario: what happened, in the words of the command line's JSON document.

A frozen value with `to_json` and `ok`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chaos.checkers.store_outcome import StoreOutcome
from chaos.faults import Hosts, Span
from chaos.recording.cluster_under_test import SizeSamples
from chaos.recording.traffic import Rate
from chaos.recording.views import View


@dataclass(frozen=True, slots=True)
class Report:
    """What a scenario showed. Times are virtual seconds from the first fault (bootstrap: the first start)."""

    scenario: str
    backend: str
    nodes: int
    faulty: int
    seed: int
    duration: float
    views: tuple[View, ...]
    """The view changes, in order; the view in place at the beginning is none."""
    sizes: tuple[int, ...]
    """Sizes of the views in order, the one at the beginning included."""
    faulty_removed: int
    healthy_removed: int
    readded: int
    agreement: bool
    detection_seconds: float | None
    """Until the first view without a faulty host; None when none was removed."""
    settle_seconds: float | None
    """Until the last member installed the last view; None without agreement or without a change."""
    received: Rate
    """KB/s of each running member and second."""
    sent: Rate
    cpu_seconds: float
    broken: tuple[str, ...]
    """The promises that were not kept; empty is good."""
    hurt: Hosts = ()
    """The faulty hosts by name."""
    spans: tuple[Span, ...] = ()
    """When which fault was in force."""
    samples: SizeSamples = field(default_factory=SizeSamples)
    """Every member's own view size, each second."""

    store: StoreOutcome | None = None
    """What the store showed, if there was one."""
    story: tuple[tuple[float, str], ...] = ()
    """With a store: what happened when, in words."""

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.broken

    def to_json(self) -> dict[str, Any]:
        """The report as the JSON document of `rota chaos run --json`."""
        return {
            "scenario": self.scenario,
            "backend": self.backend,
            "nodes": self.nodes,
            "faulty": self.faulty,
            "seed": self.seed,
            "duration": self.duration,
            "views": [
                {"epoch": view.epoch, "size": view.size, "seconds": round(view.seconds, 3)}
                for view in self.views
            ],
            "unique_sizes": len(set(self.sizes)),
            "sizes": list(self.sizes),
            "faulty_removed": self.faulty_removed,
            "healthy_removed": self.healthy_removed,
            "readded": self.readded,
            "agreement": self.agreement,
            "detection_seconds": self.detection_seconds,
            "settle_seconds": self.settle_seconds,
            "bytes_per_node": _rate(self.received) | {"sent": _rate(self.sent)},
            "cpu_seconds": round(self.cpu_seconds, 3),
            **({} if self.store is None else self.store.to_json()),
            "story": [{"seconds": round(seconds, 3), "text": text} for seconds, text in self.story],
            "broken": list(self.broken),
        }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"mean": rate.mean, "p99": rate.p99, "max": rate.max}
