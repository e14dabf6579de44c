"""Is a majority within reach? The answer is a warning to the host, never an input of the protocol.

What it is: the last time each neighbour (subject or observer) was heard, and a time-out on too few of them or
on a vote without a decision. In clusters of up to about ten, the neighbours are everybody.
What it is not: a lease; a member learns for certain that a view stands only by a decision.
"""

from consensus import classic_quorum
from membership.context import NEVER, Context
from membership.effects import QuorumLost, QuorumRegained

_SILENCE = 2
"""A neighbour not heard for this many probe intervals is out of reach."""


class QuorumWatch:
    """Raises QuorumLost and QuorumRegained."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heard: dict[int, float] = {}
        self._missing_since: float | None = None
        self.lost = False
        self.deadline = NEVER

    def on_view_change(self, now: float) -> None:
        """Watch the neighbours of the new view. Installing a view proves that a quorum was there."""
        view = self._context.view
        neighbours = {*view.subjects_of(self._context.me), *view.observers_of(self._context.me)}
        self._heard = {index: now for index in sorted(neighbours) if index != self._context.index}
        self._missing_since = None
        self.deadline = now + self._context.settings.probe_interval
        self._set_lost(False)

    def heard(self, index: int, now: float) -> None:
        """A message of this member arrived."""
        if index in self._heard:
            self._heard[index] = now

    def tick(self, now: float, deciding_since: float | None) -> None:
        """Judge. `deciding_since`: since when a view change is under way, if one is."""
        if now < self.deadline:
            return
        settings = self._context.settings
        self.deadline = now + settings.probe_interval / 2
        horizon = now - _SILENCE * settings.probe_interval
        reachable = 1 + sum(1 for at in self._heard.values() if at >= horizon)
        if reachable >= classic_quorum(len(self._heard) + 1):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        starts = [since for since in (self._missing_since, deciding_since) if since is not None]
        self._set_lost(bool(starts) and now - min(starts) >= settings.quorum_timeout)

    def _set_lost(self, lost: bool) -> None:
        if lost != self.lost:
            self.lost = lost
            self._context.publish(QuorumLost() if lost else QuorumRegained())
