"""The rates, latencies and disks of one agent over the last hour: what the console draws.

A bounded account of what was measured at even times, in memory and nowhere else: it begins anew with the agent, and
is no monitoring system (`/metrics` is for one).  Pure: who measures, and when, is `rota.services.host_monitor`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from rota.http.answers import Measured

INTERVAL: Final = 10.0
"""Seconds between two measurements."""
KEPT: Final = 360
"""Measurements: an hour."""


class Measurements:
    """Counters become rates, by what was counted since the measurement before; gauges stay what they are."""

    def __init__(self, interval: float = INTERVAL, kept: int = KEPT) -> None:
        self._interval = interval
        self._series: dict[str, deque[float | None]] = {}
        self._kept = kept
        self._taken = 0
        self._at: float | None = None
        self._counters: Mapping[str, int] = {}

    def take(self, now: float, counters: Mapping[str, int], gauges: Mapping[str, float | None]) -> None:
        """What the counters and gauges say at `now`, in Unix seconds.  None: not known."""
        seconds = None if self._at is None else now - self._at
        rates: dict[str, float | None] = dict.fromkeys(counters)
        if seconds is not None and seconds > 0:  # not where the clock was set back
            for name, count in counters.items():
                before = self._counters.get(name)
                if before is not None and count >= before:  # else what counts was begun anew
                    rates[name] = (count - before) / seconds
        for name in {**self._series, **rates, **gauges}:
            self._add(name, {**rates, **gauges}.get(name))
        self._taken = min(self._taken + 1, self._kept)
        self._at, self._counters = now, dict(counters)

    def _add(self, name: str, value: float | None) -> None:
        series = self._series.get(name)
        if series is None:  # what is measured from now on was not known before
            series = self._series[name] = deque([None] * self._taken, maxlen=self._kept)
        series.append(None if value is None else float(f"{value:.4g}"))

    def told(self) -> Measured:
        """Every series has a value for each measurement, the last one at `end`."""
        return {
            "interval": self._interval,
            "end": self._at,
            "series": {name: list(values) for name, values in self._series.items()},
        }
