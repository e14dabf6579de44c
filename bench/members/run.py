"""One run of a membership benchmark, and the summary of several: medians and worst.

The common shape of what the simulator and real processes measure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from membership.protocol.messages import (
    IndirectAnswer,
    IndirectProbe,
    Probe,
    ProbeAcknowledged,
    StreamProbe,
    StreamProbeAcknowledged,
)

DETECTION: Final = (
    Probe,
    ProbeAcknowledged,
    IndirectProbe,
    IndirectAnswer,
    StreamProbe,
    StreamProbeAcknowledged,
)
"""The messages of failure detection: they go on all the time, whatever else happens."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed."""

    seed: int
    nodes: int
    ok: bool
    """Whether what was to be measured happened."""
    seconds: float | None
    """After the last start, or after the crash, until the last member stood in the final view; None: never."""
    cpu_seconds: float
    """Of all members together."""
    unique_sizes: int
    """Different sizes of views that any member has seen."""
    messages_per_node: float
    """Sent, one for each destination."""
    bytes_per_node: float
    max_rss: int
    """Bytes; of the largest process."""
    more: Mapping[str, Any] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """As in the JSON document."""
        return {
            "nodes": self.nodes,
            "seed": self.seed,
            "ok": self.ok,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "unique_sizes": self.unique_sizes,
            "messages_per_node": round(self.messages_per_node, 1),
            "bytes_per_node": round(self.bytes_per_node),
            "max_rss": self.max_rss,
            **self.more,
        }


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """One run: its figures. Several: medians under the same names, the highest of each under ``worst``, and all."""
    each = [run.figures() for run in runs]
    if len(each) == 1:
        return each[0]
    numbers = [
        key
        for key, value in each[0].items()
        if isinstance(value, int | float | None) and key not in ("seed", "ok")
    ]
    fixed = ("nodes", "faulty", "processes")
    known = {key: [run[key] for run in each if run[key] is not None] for key in numbers}
    return {
        **{key: statistics.median(values) if values else None for key, values in known.items()},
        **{key: each[0][key] for key in fixed if key in each[0]},
        "ok": all(run.ok for run in runs),
        "seeds": [run.seed for run in runs],
        "worst": {key: max(values) if values else None for key, values in known.items() if key not in fixed},
        "runs": each,
    }
