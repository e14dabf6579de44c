"""Event-loop lag: how late this member's timers are served, and how much slower it should therefore go.

A machine without time to spare does every periodic thing late. Members that then do less of it stay in step with
each other; members that keep trying would only delay one another further. It is a smoothed measure, and no judgement
of anybody's health (see local_health).
"""

_NOTICED = 0.02
"""Seconds by which any timer may be late: that is how precise timers are."""
_COUNTED = 1.0
"""Seconds that one late timer counts at most: a process that was stopped for long was not busy, just stopped."""
_SHARE = 1 / 8
"""Weight of the newest measurement."""
_FORGOTTEN = 0.002
"""Seconds below which a process is as good as on time."""
_RELIEF = 4
"""Periods grow by this many times the lag, so that a small lag already takes load off."""


class LoopLag:
    """Of one member."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0
        """By how much timers are late at present; 0 on a machine with time to spare."""

    def note(self, late: float) -> None:
        """A timer was served `late` seconds after it was due."""
        if late <= _NOTICED and not self.seconds:
            return
        counted = min(max(0.0, late - _NOTICED), _COUNTED)
        self.seconds += _SHARE * (counted - self.seconds)
        if self.seconds < _FORGOTTEN:
            self.seconds = 0.0

    def stretched(self, period: float, most: float) -> float:
        """A period, longer while this process is late, though at most `most` times as long."""
        return min(period + _RELIEF * self.seconds, most * period) if self.seconds else period
