"""``/metrics``: what ``/v1/status`` counts, in the text format that Prometheus reads.

It is a function of the status, so agents and ensemble members show the same under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = {
    "ready": "Whether this agent can be relied on: it is in, and a majority is within reach.",
    "quorum": "Whether a majority is within reach.",
    "view_epoch": "The epoch of the latest view.",
    "view_members": "The members of the latest view.",
    "layout_epoch": "The epoch of the layout.",
    "open_moves": "Moves that the plan has still to do.",
}


def exposition(status: Mapping[str, Any], *, ready: bool) -> str:
    """The metrics of an agent with this status.  What it does not know at present is left out."""
    gauges = {
        "ready": ready,
        "quorum": status["quorum"],
        "view_epoch": status["epoch"],
        "view_members": status["size"],
        "layout_epoch": status.get("layout_epoch"),
        "open_moves": status.get("open_moves"),
    }
    return "".join(f"{line}\n" for line in (*_gauge_lines(gauges), *_counter_lines(status["statistics"])))


def _gauge_lines(gauges: Mapping[str, Any]) -> Iterator[str]:
    for name, value in gauges.items():
        if value is not None:
            yield f"# HELP rota_{name} {_GAUGES[name]}"
            yield f"# TYPE rota_{name} gauge"
            yield f"rota_{name} {int(value)}"


def _counter_lines(statistics: Mapping[str, int]) -> Iterator[str]:
    for name, count in sorted(statistics.items()):
        metric = f"rota_{re.sub('[^a-zA-Z0-9_]', '_', name)}_total"
        yield f"# TYPE {metric} counter"
        yield f"{metric} {count}"
