"""Is a majority within reach? The answer warns the host, and makes this member slow to accuse others.

What it is: the last time each neighbour (subject or observer) was heard, and a time-out on too few of them or
on a view change that comes to no decision. Neighbours are a small sample of a large cluster; when a quarter of
them are silent, this member calls the roll: it probes everybody, or a large sample, and counts again, ever more
rarely while nothing gets better. A member that was late itself does not call: it may just not have read the answers.
What it is not: a lease; a member learns for certain that a view stands only by a decision.
"""

from consensus import classic_quorum
from membership.context import NEVER, Context
from membership.effects import QuorumLost, QuorumRegained
from membership.messages import Probe

_SILENCE = 2
"""A member not heard for this many probe intervals is out of reach."""
_ROLL_CALL = 80
"""Members called besides the neighbours, at most; a majority of a hundred is known within five per cent."""
_RAREST_CALL = 8
"""Probe intervals between two calls, at most. When a thousand members on few cores are all late, their calls are more
than their whole other traffic, and must not be what keeps them late."""


class QuorumWatch:
    """Raises QuorumLost and QuorumRegained."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._neighbours: dict[int, float] = {}
        self._installed_at = 0.0
        self._called: dict[int, float] = {}
        self._call_again_at = 0.0
        self._first_called_at = -NEVER
        self._called_at = -NEVER
        self._called_before = -NEVER
        self._call_pause = 0.0
        self._missing_since: float | None = None
        self._missed_at = -NEVER
        self.lost = False
        self.deadline = NEVER

    def on_view_change(self, now: float) -> None:
        """Watch the neighbours of the new view. Installing a view proves that a quorum was there."""
        view = self._context.view
        neighbours = {*view.subjects_of(self._context.me), *view.observers_of(self._context.me)}
        self._neighbours = {index: now for index in sorted(neighbours) if index != self._context.index}
        self._installed_at = now
        self._called = {}
        self._missing_since = None
        self.deadline = now + self._context.settings.probe_interval
        self._set_lost(False)

    def heard(self, index: int, now: float) -> None:
        """A message of this member arrived."""
        if index in self._neighbours:
            self._neighbours[index] = now
        elif index in self._called:
            self._called[index] = now

    @property
    def missing(self) -> bool:
        """Whether a majority is out of reach at present, or has been for so long that it is said to be lost."""
        return self.lost or self._missing_since is not None

    def in_doubt(self, now: float) -> bool:
        """Whether a majority is missing, or may be: accusations would then lead nowhere, or astray."""
        interval = self._context.settings.probe_interval
        if self._missing_since is not None or (
            self._called and now - self._first_called_at < (_SILENCE + 1) * interval
        ):
            return True
        # When a partition heals, the last failures on the edges are still fresh: let new probes replace them.
        return now - self._missed_at < (_SILENCE + 1) * interval

    def tick(self, now: float, deciding_since: float | None) -> None:
        """Judge. `deciding_since`: since when a view change is under way, if one is."""
        if now < self.deadline:
            return
        settings = self._context.settings
        late = now - self.deadline > settings.probe_interval / 4
        self.deadline = now + settings.probe_interval / 2
        horizon = now - _SILENCE * settings.probe_interval
        reachable = sum(1 for at in self._neighbours.values() if at >= horizon)
        silent = len(self._neighbours) - reachable
        if 4 * silent < len(self._neighbours) or not self._neighbours:
            self._called = {}
        elif not late:
            self._call_the_roll(now)
        answers_count_from = self._called_at if self._called_at <= horizon else self._called_before
        reachable += 1 + sum(1 for at in self._called.values() if at > answers_count_from)
        if reachable >= classic_quorum(1 + len(self._neighbours) + len(self._called)):
            self._missing_since = None
        else:
            self._missed_at = now
            if self._missing_since is None:
                self._missing_since = now
        starts = [since for since in (self._missing_since, deciding_since) if since is not None]
        self._set_lost(bool(starts) and now - min(starts) >= settings.quorum_timeout)

    def _call_the_roll(self, now: float) -> None:
        members = self._context.view.members
        if not self._called:
            others = [
                index
                for index in range(len(members))
                if index not in self._neighbours and index != self._context.index
            ]
            if len(others) > _ROLL_CALL:
                others = self._context.rng.sample(others, _ROLL_CALL)
            self._called = dict.fromkeys(others, now)  # in reach until shown otherwise
            self._call_again_at = self._first_called_at = now
            self._called_at = -NEVER
            self._call_pause = self._context.settings.probe_interval
        if now >= self._call_again_at:
            self._call_again_at = now + self._call_pause
            self._call_pause = min(2 * self._call_pause, _RAREST_CALL * self._context.settings.probe_interval)
            self._called_before, self._called_at = self._called_at, now
            probe = Probe(*self._context.short_header, 0, None)
            self._context.send_all([members[index].address for index in self._called], probe)

    def _set_lost(self, lost: bool) -> None:
        if lost != self.lost:
            self.lost = lost
            if lost:
                unheard = sum(1 for at in self._neighbours.values() if at == self._installed_at)
                self._context.publish(QuorumLost(unheard, len(self._neighbours)))
            else:
                self._context.publish(QuorumRegained())
