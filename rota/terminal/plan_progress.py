"""A plan's progress, as the controller tells it, in words and as a share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.terminal.output import size


def share_of(progress: Mapping[str, Any] | None) -> tuple[float, str]:
    """How much is done, 0 to 1, and ``wave 1 of 2, 3.0 MB of 12.0 MB, 1.0 MB/s, 9 s left``; 0 and nothing without a
    plan under way."""
    if progress is None:
        return 0.0, ""
    total, done = progress["bytes"], progress["bytes_done"]
    if total > 0:
        share = done / total
    else:  # nothing to copy: only the layout changes
        share = progress["steps_done"] / max(1, progress["steps"])
    words = f"wave {progress['wave']} of {progress['waves']}, {size(done)} of {size(total)}"
    if progress["rate"] > 0:
        words += f", {size(progress['rate'])}/s"
    if progress["eta"] is not None:
        words += f", {progress['eta']:.0f} s left"
    return share, words
