"""The roll call: is a majority of a large cluster alive, when the few neighbours of a member leave it open?

What it is: probes to others than the neighbours, first to a random sample, and to ever more as long as the sample is
too small for a verdict, in the end to all; and the count of those who answer. Asked again ever more rarely. While the
count finds no majority, each call is an alarm, to the neighbours too: whoever receives several counts for itself.
What it is not: the verdict, nor what an alarm leads to (see quorum_watch).
"""

from collections.abc import Collection
from math import sqrt

from membership.context import NEVER, Context
from membership.messages import Probe, QuorumAlarm

SILENCE = 2
"""A member not heard for this many probe intervals is out of reach."""
_SAMPLE = 80
"""Members called at first, at most: with the neighbours a share of a hundred, known within fifteen per cent."""
_GROWTH = 4
_MOST_AT_ONCE = 2048
RAREST_CALL = 8
"""Probe intervals between two calls, at most. When a thousand members on few cores are all late, their calls are more
than their whole other traffic, and must not be what keeps them late."""
_CERTAINTY = 5.0
"""Standard errors between a share and one half at which a sample is believed: wrong once in three million samples. Whom
a sample shows in reach stays in reach, so a member whose sample was lucky would believe it for ever."""


class RollCall:
    """One episode of doubt: begins with `call`, ends with `stop`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._order: list[int] = []
        self._heard: dict[int, float] = {}
        self._asked = 0
        self._settled = 0
        self._asked_at = -NEVER
        self._again_at = 0.0
        self._pause = 0.0
        self._count_from = -NEVER
        self._count_from_before = -NEVER
        self._neighbours: Collection[int] = ()
        self._alarming = False

    @property
    def active(self) -> bool:
        """Whether anybody has been called."""
        return bool(self._asked)

    @property
    def settled(self) -> bool:
        """Whether some of those called have had the time to answer."""
        return bool(self._settled)

    def stop(self) -> None:
        """There is no doubt any more."""
        self._order, self._heard = [], {}
        self._asked = self._settled = 0
        self._alarming = False

    def heard(self, index: int, now: float) -> None:
        """A message of this member arrived."""
        if index in self._heard:
            self._heard[index] = now

    def count(self, now: float) -> tuple[int, int]:
        """How many have answered, of how many that had the time to. The first count as in reach until then."""
        if self._asked and self._asked_at <= now - self._silence:
            self._settled = self._asked
        if not self._settled:
            return self._asked, self._asked
        called_again_of_late = self._count_from > now - self._silence
        since = self._count_from_before if called_again_of_late else self._count_from
        return sum(1 for index in self._order[: self._settled] if self._heard[index] > since), self._settled

    def call(
        self, neighbours: Collection[int], now: float, *, missing: bool, unsure: bool, alarmed: bool
    ) -> None:
        """Call the first, or more if the count so far leaves it open (`unsure`), or all again when it is time.

        Who counts no majority (`missing`) says so at once. Who was `alarmed`, and so counts later than others, calls
        all the rest at a time.
        """
        news = missing and not self._alarming
        self._alarming = missing
        self._neighbours = neighbours
        if not self._asked:
            self._begin(now)
        elif self._settled < self._asked:
            if now >= self._again_at and self._settled == 0:
                self._ask_again(now)
        elif unsure and self._asked < len(self._order):
            more = _MOST_AT_ONCE if alarmed else min(self._asked * _GROWTH, _MOST_AT_ONCE)
            self._ask(self._asked, more, now)
        elif news or now >= self._again_at:
            self._ask_again(now)

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
        called = self._order[first : first + count]
        self._heard.update(dict.fromkeys(called, -NEVER))
        self._asked = first + len(called)
        self._asked_at = now
        self._send(called)

    def _ask_again(self, now: float) -> None:
        self._pause = min(2 * self._pause, RAREST_CALL * self._context.settings.probe_interval)
        self._again_at = now + self._pause
        self._count_from_before, self._count_from = self._count_from, now
        self._send(self._order[: self._asked])

    def _send(self, called: list[int]) -> None:
        addresses = self._context.view.addresses
        kind = QuorumAlarm if self._alarming else Probe
        told = [*self._neighbours, *called] if self._alarming else called
        self._context.send_all(
            [addresses[index] for index in told], kind(*self._context.short_header, 0, None)
        )

    @property
    def _silence(self) -> float:
        return SILENCE * self._context.settings.probe_interval


def is_unsure(reached: int, asked: int, size: int) -> bool:
    """Whether a random sample of `asked` among `size` members leaves open on which side of one half the share is."""
    if asked >= size:
        return False
    error = sqrt((1 - asked / size) / asked) / 2
    return abs(reached / asked - 0.5) < _CERTAINTY * error
