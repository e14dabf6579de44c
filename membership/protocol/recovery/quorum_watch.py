"""Is a majority within reach? The answer warns the host, and makes this member slow to accuse others.

A member is *in touch* with another when that one answers its probes: both ways are open. To be heard is not enough. A
member that hears all and is heard by none can neither vote nor lead a round, nor does a deaf one's voice make a
majority. A member that is in touch with fewer than a majority of its view, itself included, for `quorum_timeout`
says so. What that promises, whatever the links do, in terms of who reaches whom through any number of others:

- A side is a set of members that all reach each other. If it is no majority, no decision is made on it, and each of its
  members says so: it is in touch with members of its side at most.
- Who is in touch with a majority does not, unless a view change hangs: it can lead a classic round, which goes from
  its coordinator to each member directly.
- Who belongs to a majority through others only (a host at the end of a star) may say so. Gossip brings it what the
  others decide, but it can lead no round, and a fast round needs more than a majority.

A member watches its neighbours, the subjects and observers it has anyway, and a view change that comes to no decision.
Subjects answer its probes; of observers it is enough to hear them as long as all subjects answer, so that nobody is
asked for nothing. In a large cluster its neighbours are a small sample, and may all be on its side of a partition. So
when a quarter of them are silent, or as many others raise an alarm, it polls a random sample of all members, and ever
more of them until the answer is sure (`QuorumPoll`). A member that finds no majority raises an alarm itself; everybody
who hears several alarms polls for itself. A member whose event loop lagged does not poll: the answers may wait unread.
While this member is idle (see monitor) its neighbours may be, too, and count as in touch; afterwards those not heard
are asked.

This is no lease: only a decision proves that a view still stands.
"""

from collections.abc import Collection, Iterable
from math import ceil, sqrt

from consensus import classic_quorum
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import QuorumLost, QuorumRegained
from membership.protocol.messages import Probe, QuorumAlarm
from membership.protocol.monitoring.indirect_probe import HELPED_SEQUENCE

SILENCE = 2
"""A member not heard for this many probe intervals is out of reach."""
_SAMPLE = 80
"""Members polled at first, at most: with the neighbours a share of a hundred, known within fifteen per cent."""
_REPEATED = 20
"""Silent members asked again at a time, at most, while those that answered are no majority: one answer may be lost."""
_GROWTH = 4
_MOST_AT_ONCE = 2048
RAREST_POLL = 8
"""Probe intervals between two polls, at most. When a thousand members on few cores are all late, their polls are more
than all their other traffic, and must not be what keeps them late."""
_CERTAINTY = 5.0
"""Standard errors between a share and one half at which a sample is believed: wrong once in three million samples. Whom
a sample shows in reach stays in reach, so a member whose sample was lucky would believe it for ever."""
_ALARM_LIFETIME = RAREST_POLL + SILENCE
"""Probe intervals for which an alarm counts: until the next one is due."""
_UNHEARD = 1.25
"""Probe intervals after which a neighbour that is not heard is asked. Unless idle, members probe at every one."""
_UNASKED = 0.75
"""The same while some neighbour is silent, when only answers count: two attempts or three within `SILENCE`."""
_POLL_SEQUENCE = 1 << 60
"""Sequences from here up to those of indirect probes are this module's. They say when the probe was sent, as the
timestamps of TCP do (RFC 7323), so that an answer that was long on its way proves nothing about now."""
_TICKS = 64
"""Units of those timestamps per second."""


def ask(context: Context, members: Iterable[int], now: float, kind: type[Probe] = Probe) -> None:
    """Probe these members, by index."""
    addresses = context.view.addresses
    probe = kind(*context.short_header, _POLL_SEQUENCE + ceil(now * _TICKS), None)
    context.send_all([addresses[index] for index in members], probe)


def polled_at(sequence: int, now: float) -> float | None:
    """When the probe of this sequence was sent, if `ask` sent it; `now`: when its answer came."""
    if not _POLL_SEQUENCE <= sequence < HELPED_SEQUENCE:
        return None
    return min(now, (sequence - _POLL_SEQUENCE) / _TICKS)


class QuorumPoll:
    """One episode of doubt: begins with `advance`, ends with `stop`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._order: list[int] = []
        self._answered: dict[int, float] = {}
        self._asked = 0
        self._settled = 0
        self._asked_at = -NEVER
        self._again_at = 0.0
        self._pause = 0.0
        self._count_from = -NEVER
        self._count_from_before = -NEVER
        self._neighbours: Collection[int] = ()
        self._alarming = False
        self._silent_neighbours = 0

    @property
    def active(self) -> bool:
        """Whether anybody has been polled."""
        return bool(self._asked)

    @property
    def settled(self) -> bool:
        """Whether some of those polled have had the time to answer."""
        return bool(self._settled)

    def stop(self) -> None:
        """There is no doubt any more."""
        self._order, self._answered = [], {}
        self._asked = self._settled = 0
        self._alarming = False

    def answered(self, index: int, asked_at: float) -> None:
        """This member answered a probe that was sent then."""
        if index in self._answered:
            self._answered[index] = max(self._answered[index], asked_at)

    def count(self, now: float) -> tuple[int, int]:
        """How many have answered, of how many that had the time to. The first count as in reach until then."""
        if self._asked and self._asked_at <= now - self._silence:
            self._settled = self._asked
        if not self._settled:
            return self._asked, self._asked
        return self._settled - len(self._silent(self._settled, self._count_since(now))), self._settled

    def silent(self, now: float) -> list[int]:
        """Those of whom `count` says that they have not answered."""
        self.count(now)
        return self._silent(self._settled, self._count_since(now)) if self._settled else []

    def _count_since(self, now: float) -> float:
        polled_again_lately = self._count_from > now - self._silence
        return self._count_from_before if polled_again_lately else self._count_from

    def _silent(self, polled: int, since: float) -> list[int]:
        """Who of the first so many has answered nothing that was sent since then."""
        return [index for index in self._order[:polled] if self._answered[index] < since]

    def advance(
        self,
        neighbours: Collection[int],
        now: float,
        *,
        silent: int,
        wanted: int,
        missing: bool,
        unsure: bool,
        alarmed: bool,
    ) -> None:
        """Poll the first sample, or more if the count so far leaves it open (`unsure`), or all again when it is time.

        `silent`: how many neighbours are; when there are more of them, the last poll is out of date. `wanted`: how
        many answers make a majority. Who counts none (`missing`) says so at once. Who was `alarmed`, and so counts
        later than others, polls all the rest at a time.
        """
        news = missing and not self._alarming
        worse = silent > self._silent_neighbours
        self._alarming = missing
        self._neighbours = neighbours
        if self._ask_what_is_due(now, news=news, worse=worse, unsure=unsure, alarmed=alarmed):
            self._silent_neighbours = silent
        else:
            self._repeat(wanted, now)

    def _ask_what_is_due(self, now: float, *, news: bool, worse: bool, unsure: bool, alarmed: bool) -> bool:
        """Poll whom it is time for; whether there was anybody."""
        if not self._asked:
            self._begin(now)
        elif self._settled < self._asked:
            if now < self._again_at or self._settled:
                return False
            self._ask_again(now)
        elif unsure and self._asked < len(self._order):
            more = _MOST_AT_ONCE if alarmed else min(self._asked * _GROWTH, _MOST_AT_ONCE)
            self._ask(self._asked, more, now)
        elif worse and now >= self._count_from + self._context.settings.probe_interval:
            self._pause = self._context.settings.probe_interval / 2
            self._ask_again(now)
        elif news or now >= self._again_at:
            self._ask_again(now)
        else:
            return False
        return True

    def _repeat(self, wanted: int, now: float) -> None:
        """Ask some of the silent again, while those that answered the last poll are not as many as wanted."""
        silent = self._silent(self._asked, self._count_from)
        if self._asked - len(silent) < wanted:
            chosen = self._context.rng.sample(silent, min(_REPEATED, len(silent)))
            ask(self._context, chosen, now)

    def _begin(self, now: float) -> None:
        context = self._context
        left_out = {context.index, *self._neighbours}
        others = [index for index in range(len(context.view)) if index not in left_out]
        context.rng.shuffle(others)
        self._order = others
        self._pause = context.settings.probe_interval
        self._again_at = now + self._pause
        self._count_from = now
        self._count_from_before = -NEVER
        self._ask(0, _SAMPLE, now)

    def _ask(self, first: int, count: int, now: float) -> None:
        polled = self._order[first : first + count]
        self._answered.update(dict.fromkeys(polled, -NEVER))
        self._asked = first + len(polled)
        self._asked_at = now
        self._send(polled, now)

    def _ask_again(self, now: float) -> None:
        self._pause = min(2 * self._pause, RAREST_POLL * self._context.settings.probe_interval)
        self._again_at = now + self._pause
        self._count_from_before, self._count_from = self._count_from, now
        self._send(self._order[: self._asked], now)

    def _send(self, polled: list[int], now: float) -> None:
        if self._alarming:
            ask(self._context, [*self._neighbours, *polled], now, QuorumAlarm)
        else:
            ask(self._context, polled, now)

    @property
    def _silence(self) -> float:
        return SILENCE * self._context.settings.probe_interval


class QuorumWatch:
    """Raises QuorumLost and QuorumRegained."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heard: dict[int, float] = {}
        """When each neighbour was last heard."""
        self._in_touch: dict[int, float] = {}
        """Until when each neighbour was surely in touch."""
        self._subjects: frozenset[int] = frozenset()
        self._alarms: dict[int, float] = {}
        self._installed_at = 0.0
        self._poll = QuorumPoll(context)
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
        self._subjects = frozenset(view.subjects_of(self._context.me)) - {self._context.index}
        neighbours = sorted({*self._subjects, *view.observers_of(self._context.me)} - {self._context.index})
        self._heard = dict.fromkeys(neighbours, now)
        self._in_touch = dict.fromkeys(neighbours, now)
        self._installed_at = now
        self._alarms.clear()
        self._poll.stop()
        self._missing = False
        self._thinned_at = NEVER
        self._unsure_since = None
        self.deadline = now + self._context.settings.probe_interval
        self._set_lost(False)

    def heard(self, index: int, now: float) -> None:
        """A message of this member arrived."""
        if index in self._heard:
            self._heard[index] = now

    def answered(self, index: int, asked_at: float) -> None:
        """This member answered a probe that was sent then."""
        if index in self._in_touch:
            self._in_touch[index] = max(self._in_touch[index], asked_at)
        else:
            self._poll.answered(index, asked_at)

    def on_alarm(self, index: int, now: float) -> None:
        """This member counts no majority within its reach."""
        self._alarms[index] = now
        if self._unsure_since is None:
            self._unsure_since = now

    @property
    def missing(self) -> bool:
        """Whether a majority is out of reach at present, or has been for so long that it is said to be lost."""
        return self.lost or self._missing

    def silent(self, now: float) -> list[int]:
        """Who does not answer, of those that were asked lately; in a large view these are some of all."""
        horizon = now - SILENCE * self._context.settings.probe_interval
        neighbours = [index for index, until in self._in_touch.items() if until < horizon]
        return sorted((*neighbours, *self._poll.silent(now)))

    def in_doubt(self, now: float) -> bool:
        """Whether a majority is missing, or may be: accusations would then lead nowhere, or astray."""
        interval = self._context.settings.probe_interval
        asking = self._poll.active and self._thinned_at <= now  # alarms alone are no reason to wait
        if self._missing or (asking and now - self._thinned_at < (SILENCE + 1) * interval):
            return True
        # When a partition heals, the last failures on the edges are still fresh: let new probes replace them.
        return now - self._missed_at < (SILENCE + 1) * interval

    def tick(self, now: float, deciding_since: float | None, *, idle: bool = False) -> None:
        """Judge. `deciding_since`: since when a view change is under way, if one is. `idle`: see the monitor."""
        if now < self.deadline:
            return
        settings = self._context.settings
        late = now - self.deadline > settings.probe_interval / 4
        self.deadline = now + settings.probe_interval / 2
        silent = self._count_silent(now, idle=idle)
        reached, asked = 1 + len(self._in_touch) - silent, 1 + len(self._in_touch)
        alarmed = self._doubts(silent, now)
        unsure = False
        if alarmed or self._thinned_at <= now:
            near = reached
            answered, polled = self._poll.count(now)
            reached, asked = reached + answered, asked + polled
            unsure = is_unsure(reached, asked, len(self._context.view))
            unsure |= alarmed and not self._poll.settled and 1 + len(self._in_touch) < len(self._context.view)
            if not late:
                self._poll.advance(
                    self._in_touch,
                    now,
                    silent=silent,
                    wanted=classic_quorum(asked) - near,
                    missing=self._poll.settled and reached < classic_quorum(asked),
                    unsure=unsure,
                    alarmed=alarmed,
                )
        else:
            self._poll.stop()
        self._judge(now, missing=reached < classic_quorum(asked), unsure=unsure)
        since = self._unsure_since if self._missing else None
        starts = [start for start in (since, deciding_since) if start is not None]
        self._set_lost(bool(starts) and now - min(starts) >= settings.quorum_timeout)

    def _count_silent(self, now: float, *, idle: bool) -> int:
        """How many neighbours are out of touch, as far as is known. Asks those that are about to count so."""
        interval = self._context.settings.probe_interval
        if idle and not self._alarms and self._thinned_at > now:
            self._in_touch = dict.fromkeys(self._in_touch, now)
            return 0
        # Rounds of a member that lags are longer, and so are the times between answers.
        horizon = now - self._context.loop_lag.stretched(SILENCE * interval, SILENCE)
        suspicious = bool(self._alarms) or any(self._in_touch[index] < horizon for index in self._subjects)
        if not suspicious:  # observers need not be asked: that they are heard is enough
            for index, at in self._heard.items():
                if index not in self._subjects:
                    self._in_touch[index] = max(self._in_touch[index], at)
        unheard = now - (_UNASKED if suspicious else _UNHEARD) * interval
        ask(self._context, [index for index, at in self._in_touch.items() if at < unheard], now)
        return sum(1 for at in self._in_touch.values() if at < horizon)

    def _doubts(self, silent: int, now: float) -> bool:
        """Note whether so many neighbours are silent that others must be asked; whether alarms, too, are a reason."""
        enough = len(self._in_touch)
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
                unheard = sum(1 for at in self._heard.values() if at == self._installed_at)
                self._context.publish(QuorumLost(unheard, len(self._heard)))
            else:
                self._context.publish(QuorumRegained())


def is_unsure(reached: int, asked: int, size: int) -> bool:
    """Whether a random sample of `asked` among `size` members leaves open on which side of one half the share is."""
    if asked >= size:
        return False
    error = sqrt((1 - asked / size) / asked) / 2
    return abs(reached / asked - 0.5) < _CERTAINTY * error
