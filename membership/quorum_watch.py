"""Is a majority within reach? The answer warns the host, and makes this member slow to accuse others.

What it is: the last time each neighbour (subject or observer) was heard, and a time-out on too few of them or
on a view change that comes to no decision. Neighbours are a small sample of a large cluster, and may all be on this
side of a partition; when a quarter of them are silent, or that many members say that they count no majority, this
member calls the roll (see roll_call). So nobody takes another's word, and nobody is left unaware. A member that was
late itself does not call: it may just not have read the answers. While this member rests (see monitor) its
neighbours count as heard, for they may rest too; afterwards those that are not heard are asked.
What it is not: a lease; a member learns for certain that a view stands only by a decision.
"""

from consensus import classic_quorum
from membership.context import NEVER, Context
from membership.effects import QuorumLost, QuorumRegained
from membership.messages import Probe
from membership.roll_call import RAREST_CALL, SILENCE, RollCall, is_unsure

_ALARM_LIFETIME = RAREST_CALL + SILENCE
"""Probe intervals for which an alarm counts: until the next one is due."""
_UNHEARD = 1.25
"""Probe intervals after which a neighbour that is not heard is asked. Who does not rest probes at every interval."""


class QuorumWatch:
    """Raises QuorumLost and QuorumRegained."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._neighbours: dict[int, float] = {}
        self._alarms: dict[int, float] = {}
        self._installed_at = 0.0
        self._roll = RollCall(context)
        self._missing = False
        self._missed_at = -NEVER
        self._thinned_at = NEVER
        """Since when a quarter of the neighbours or more have been silent."""
        self._unsure_since: float | None = None
        self.lost = False
        self.deadline = NEVER

    def on_view_change(self, now: float) -> None:
        """Watch the neighbours of the new view. Installing a view proves that a quorum was there."""
        view = self._context.view
        neighbours = {*view.subjects_of(self._context.me), *view.observers_of(self._context.me)}
        self._neighbours = {index: now for index in sorted(neighbours) if index != self._context.index}
        self._installed_at = now
        self._alarms.clear()
        self._roll.stop()
        self._missing = False
        self._thinned_at = NEVER
        self._unsure_since = None
        self.deadline = now + self._context.settings.probe_interval
        self._set_lost(False)

    def heard(self, index: int, now: float) -> None:
        """A message of this member arrived."""
        if index in self._neighbours:
            self._neighbours[index] = now
        else:
            self._roll.heard(index, now)

    def on_alarm(self, index: int, now: float) -> None:
        """This member counts no majority within its reach."""
        self._alarms[index] = now
        if self._unsure_since is None:
            self._unsure_since = now

    @property
    def missing(self) -> bool:
        """Whether a majority is out of reach at present, or has been for so long that it is said to be lost."""
        return self.lost or self._missing

    def in_doubt(self, now: float) -> bool:
        """Whether a majority is missing, or may be: accusations would then lead nowhere, or astray."""
        interval = self._context.settings.probe_interval
        asking = self._roll.active and self._thinned_at <= now  # alarms alone are no reason to wait
        if self._missing or (asking and now - self._thinned_at < (SILENCE + 1) * interval):
            return True
        # When a partition heals, the last failures on the edges are still fresh: let new probes replace them.
        return now - self._missed_at < (SILENCE + 1) * interval

    def tick(self, now: float, deciding_since: float | None, *, resting: bool = False) -> None:
        """Judge. `deciding_since`: since when a view change is under way, if one is. `resting`: see the monitor."""
        if now < self.deadline:
            return
        settings = self._context.settings
        late = now - self.deadline > settings.probe_interval / 4
        self.deadline = now + settings.probe_interval / 2
        horizon = now - SILENCE * settings.probe_interval
        if resting and not self._alarms and self._thinned_at > now:
            self._neighbours = dict.fromkeys(self._neighbours, now)
        else:
            self._ask_unheard(horizon, now)
        reached = 1 + sum(1 for at in self._neighbours.values() if at >= horizon)
        asked = 1 + len(self._neighbours)
        alarmed = self._doubts(asked - reached, now)
        unsure = False
        if alarmed or self._thinned_at <= now:
            answered, called = self._roll.count(now)
            reached, asked = reached + answered, asked + called
            unsure = is_unsure(reached, asked, len(self._context.view))
            unsure |= (
                alarmed and not self._roll.settled and 1 + len(self._neighbours) < len(self._context.view)
            )
            if not late:
                missing = self._roll.settled and reached < classic_quorum(asked)
                self._roll.call(self._neighbours, now, missing=missing, unsure=unsure, alarmed=alarmed)
        else:
            self._roll.stop()
        self._judge(now, missing=reached < classic_quorum(asked), unsure=unsure)
        since = self._unsure_since if self._missing else None
        starts = [start for start in (since, deciding_since) if start is not None]
        self._set_lost(bool(starts) and now - min(starts) >= settings.quorum_timeout)

    def _ask_unheard(self, horizon: float, now: float) -> None:
        """Probe neighbours that may rest, before they count as silent."""
        view = self._context.view
        unheard = now - _UNHEARD * self._context.settings.probe_interval
        asked = [view.addresses[index] for index, at in self._neighbours.items() if horizon <= at < unheard]
        self._context.send_all(asked, Probe(*self._context.short_header, 0, None))

    def _doubts(self, silent: int, now: float) -> bool:
        """Note whether so many neighbours are silent that others must be asked; whether alarms, too, are a reason."""
        enough = len(self._neighbours)
        if 4 * silent >= enough > 0:
            self._thinned_at = min(self._thinned_at, now)
        elif self._thinned_at <= now:
            self._thinned_at = NEVER
            self._alarms.clear()  # they are back: what others could not reach before says nothing now
        fresh = now - _ALARM_LIFETIME * self._context.settings.probe_interval
        self._alarms = {index: at for index, at in self._alarms.items() if at >= fresh}
        return bool(self._alarms) and 4 * (silent + len(self._alarms)) >= enough > 0

    def _judge(self, now: float, *, missing: bool, unsure: bool) -> None:
        """Keep whether a majority is missing, and since when that could not be excluded: the wait counts from then,
        so that the verdict is not late because a large cluster took long to count."""
        self._missing = missing
        if missing:
            self._missed_at = now
        if not (missing or unsure):
            self._unsure_since = None
        elif self._unsure_since is None:
            self._unsure_since = now

    def _set_lost(self, lost: bool) -> None:
        if lost != self.lost:
            self.lost = lost
            if lost:
                unheard = sum(1 for at in self._neighbours.values() if at == self._installed_at)
                self._context.publish(QuorumLost(unheard, len(self._neighbours)))
            else:
                self._context.publish(QuorumRegained())
