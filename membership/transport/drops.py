"""What is dropped on arrival: counted by reason, and the first of each reason logged in one line.

So nobody can fill a log by sending rubbish. The decision to drop is in `membership.wire`.
"""

from __future__ import annotations

import logging
from collections import Counter

from membership.address import Address
from membership.wire.frames import FrameError

log = logging.getLogger("membership")


class Drops:
    """Counts drops as `KIND_dropped_REASON`, where KIND is datagrams, streams or frames."""

    def __init__(self, counters: Counter[str], me: Address | None) -> None:
        self._counters = counters
        self._me = me
        self._told: set[str] = set()

    def count(self, kind: str, error: FrameError, source: object = None) -> None:
        """Something arrived that was refused; `source` as far as it is known."""
        name = f"{kind}_dropped_{error.reason}"
        self._counters[name] += 1
        if name not in self._told:
            self._told.add(name)
            who = source if source is not None else error.sender
            log.warning(
                "%s: dropped %s of %s (%s): %s; further ones are only counted", self._me, kind, who or "somebody",
                error.reason, error,
            )  # fmt: skip
