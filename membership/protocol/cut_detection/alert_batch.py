"""Batching of this member's own alerts, so that what happens together is reported together.

Removals wait a short fixed time. Joins wait until no further joiner has come for a while, up to a limit, because many
processes start at about the same time.
Source: Rapid, section 6 (alerts are batched for 100 ms).
"""

from membership.protocol.context.context import NEVER
from membership.protocol.context.loop_lag import LoopLag
from membership.protocol.messages import Alert, AlertKind
from membership.protocol.view.member import Member
from membership.settings import Settings

_PRECEDENCE = (AlertKind.REMOVE, AlertKind.EVICT, AlertKind.LEAVE)
"""Of several reports about one member the last of these is sent."""


_LONGEST_STRETCH = 4
"""A member whose event loop lags waits at most this many times longer for further joiners: those lag, too."""

_STORM = 4
"""Times the usual cap while more processes wait here than there are members. A cut that takes in a part of such a
storm lets the rest join a view many times as large, which costs as many times the work."""


class AlertBatch:
    """Own alerts that wait to be sent."""

    def __init__(self, settings: Settings, members: int, loop_lag: LoopLag) -> None:
        self._settings = settings
        self._members = members
        self._loop_lag = loop_lag
        # A member that is alone would have to send the whole view to every joiner. The first few then share that work.
        self._most_joins = settings.first_joiners if members == 1 else settings.joins_kept
        self._removals: dict[int, tuple[AlertKind, int]] = {}
        self._joins: dict[bytes, tuple[AlertKind, Member, int]] = {}
        self._removals_due = NEVER
        self._joins_due = NEVER
        self._joins_since = NEVER

    @property
    def deadline(self) -> float:
        """When the next flush is due."""
        return min(self._removals_due, self._joins_due)

    def add_removal(self, kind: AlertKind, subject: int, rings: int, now: float) -> None:
        """Report a member on these rings."""
        pending = self._removals.get(subject)
        if pending is not None:
            kind = max(kind, pending[0], key=_PRECEDENCE.index)
            rings |= pending[1]
        self._removals[subject] = (kind, rings)
        self._removals_due = min(self._removals_due, now + self._settings.remove_batch)

    def add_join(
        self,
        member: Member,
        rings: int,
        now: float,
        kind: AlertKind = AlertKind.JOIN,
        *,
        at_once: bool = False,
    ) -> None:
        """Report a joiner, or a member's new record, on these rings.

        `at_once`: whatever the bound, and without waiting for more.
        """
        if at_once:
            self._joins[member.incarnation] = (kind, member, rings)
            self._joins_due = now
            return
        if member.incarnation in self._joins or len(self._joins) >= self._most_joins:
            return
        if not self._joins:
            self._joins_since = now
        self._joins[member.incarnation] = (kind, member, rings)
        if len(self._joins) == self._most_joins:
            self._joins_due = now
            return
        cap = self._settings.join_batch_cap * (_STORM if len(self._joins) > self._members else 1)
        self._joins_due = min(
            now + self._loop_lag.stretched(self._settings.join_batch_quiet, _LONGEST_STRETCH),
            self._joins_since + self._loop_lag.stretched(cap, _LONGEST_STRETCH),
        )

    def take_due(self, now: float) -> list[Alert]:
        """The alerts whose time has come."""
        alerts: list[Alert] = []
        if now >= self._removals_due:
            alerts.extend(Alert(kind, subject, rings) for subject, (kind, rings) in self._removals.items())
            self._removals.clear()
            self._removals_due = NEVER
        if now >= self._joins_due:
            alerts.extend(Alert(kind, -1, rings, 0, member) for kind, member, rings in self._joins.values())
            self._joins.clear()
            self._joins_due = self._joins_since = NEVER
        return alerts
