"""The alert table: all reports known about the running view change, merged per subject into a bitmask of rings.

Gossip spreads it and the cut detector reads it. Merging is a union, so order, repetition and detours do not matter. A
digest summarises it for anti-entropy. The table does not judge; H and L are the cut detector's.
Source: Rapid, section 4.2 (tallies). Added to the paper: reports about members carry their age, so that noise can be
forgotten everywhere at about the same time and does not come back from a slower peer.
"""

from collections.abc import Iterable, Iterator
from math import inf

from membership.protocol.messages import Alert, AlertKind, Digest
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member, is_valid
from membership.settings import Settings

_DIGEST_BOUND = (1 << 32) - 1
_AGES_PER_SECOND = 16
_REQUESTED = (AlertKind.LEAVE, AlertKind.EVICT)
_REFRESH_SHARE = 6
"""A report that is younger by this share of the report lifetime is news, although its bit is known."""
_ALIKE_SHARE = 8
"""Reports of one subject whose ages differ by no more than this share of it travel as one alert, as old as the oldest.
It is the smaller share, or each of them would be news again where it arrives with its own age."""


class RemovalReport:
    """Rings that reported a member, those of them with LEAVE and with EVICT, and when each reported."""

    __slots__ = ("accusers", "evictions", "leaves", "oldest", "raised", "rings", "silent", "subject")

    def __init__(self, subject: int) -> None:
        self.subject = subject
        self.rings = 0
        self.leaves = 0
        self.evictions = 0
        self.raised: dict[int, float] = {}
        self.oldest = inf
        """When the first of the rings reported."""
        self.accusers: tuple[int, ...] = ()
        """The observers that reported, each once."""
        self.silent: tuple[int, ...] = ()
        """The other observers."""

    @property
    def requested(self) -> bool:
        """Whether its removal was requested, by itself or an operator: unlike a failure, that is no opinion."""
        return bool(self.leaves | self.evictions)

    def knows(self, alert: Alert, raised_at: float) -> bool:
        """Whether a removal alert raised at this time tells nothing new, neither rings nor younger reports."""
        if alert.rings & ~self.rings or raised_at > self.oldest:
            return False
        kind = alert.kind
        if kind is AlertKind.REMOVE:
            return True
        return kind in _REQUESTED and not alert.rings & ~(
            self.leaves if kind is AlertKind.LEAVE else self.evictions
        )

    def sort_observers(self, masks: tuple[tuple[int, int], ...]) -> None:
        """Tell accusers from silent observers anew; `masks`: each observer with its rings."""
        rings = self.rings
        self.accusers = tuple(observer for observer, mask in masks if mask & rings)
        self.silent = tuple(observer for observer, mask in masks if not mask & rings)


class JoinReport:
    """Rings that reported a joiner, and the members whose name or address it claims.

    A member's new metadata are reported in the same way: the record of somebody who is in already.
    """

    __slots__ = ("_alert", "conflicts", "kind", "member", "overdue", "rings", "salt", "unstable_since")

    def __init__(self, kind: AlertKind, member: Member, conflicts: tuple[int, ...]) -> None:
        self.kind = kind
        self.member = member
        self.rings = 0
        self.conflicts = conflicts
        self.unstable_since = 0.0
        self.overdue = False
        """Whether others need not wait for it any more, because it takes a member's place and does not come on."""
        self.salt = _salt(member.incarnation, 0)
        self._alert: Alert | None = None

    @property
    def alert(self) -> Alert:
        """This report as it travels, built once: it is forwarded several times."""
        if self._alert is None or self._alert.rings != self.rings:
            self._alert = Alert(self.kind, -1, self.rings, 0, self.member)
        return self._alert


class AlertTable:
    """The merged reports of one configuration."""

    def __init__(self, configuration: Configuration, settings: Settings) -> None:
        self._configuration = configuration
        self._low = settings.low_watermark
        self._high = settings.high_watermark
        self._lifetime = settings.noise_lifetime
        self._refresh = settings.report_lifetime / _REFRESH_SHARE
        self._transit = settings.probe_retransmit / 2
        """Seconds that a datagram may be on its way: a report arrives at least so much older as it was sent."""
        self._alike = int(settings.report_lifetime / _ALIKE_SHARE * _AGES_PER_SECOND)
        self._every_ring = (1 << settings.rings) - 1
        self._joins_kept = settings.joins_kept
        self.removals: dict[int, RemovalReport] = {}
        self.joins: dict[bytes, JoinReport] = {}
        self.unstable_joins: dict[bytes, JoinReport] = {}
        self.stable_joins: dict[bytes, JoinReport] = {}
        self.contested_joins: dict[bytes, JoinReport] = {}
        """Joiners whose name or address is taken, at L or more; they are in neither of the two above."""
        self.alert_bits = 0
        self._digest = 0
        self._changed: dict[int | bytes, None] = {}
        self._forgotten: dict[tuple[int, int], float] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is reported."""
        return not self.removals and not self.joins

    @property
    def checksum(self) -> int:
        """Over all that is known: the first part of the digest."""
        return self._digest

    @property
    def has_news(self) -> bool:
        """Whether there is news that `take_changed` has not taken yet."""
        return bool(self._changed)

    def digest(self, vote_bits: int) -> Digest:
        """Summary of this table and of that many known votes."""
        return Digest(self._digest, self.alert_bits, vote_bits)

    def refusal(self, alert: Alert) -> str | None:
        """Why an alert cannot be about this configuration, or None."""
        if not alert.rings or alert.rings & ~self._every_ring:
            return "alert about rings that do not exist"
        if alert.kind is AlertKind.JOIN:
            if alert.member is None:
                return "join alert without a record"
            if alert.member.incarnation not in self.joins and alert.member in self._configuration:
                return "join alert about a member"
        elif alert.kind is AlertKind.UPDATE:
            if alert.member is None or not self._is_update(alert.member):
                return "update alert without the record of a member"
        elif alert.member is not None:
            return "removal alert with a record"
        elif not 0 <= alert.subject < len(self._configuration):
            return "alert about a subject outside the view"
        return None

    def merge(self, alert: Alert, now: float, *, spread: bool = True) -> bool:
        """Add a valid alert; whether it told anything new. With `spread` that is news to tell."""
        if alert.member is not None:
            key: int | bytes = alert.member.incarnation
            changed = self._merge_join(alert.member, alert.rings, now)
        else:
            key = alert.subject
            changed = self._merge_removal(alert, now)
        if changed and spread:
            self._changed[key] = None
        return changed

    def _is_update(self, record: Member) -> bool:
        index = self._configuration.index_of_incarnation(record.incarnation)
        if index is None or not is_valid(record):
            return False
        known = self._configuration.members[index]
        return (known.name, known.address) == (record.name, record.address)

    def possible_news(self, alerts: Iterable[Alert], now: float) -> list[Alert]:
        """Those of the alerts that may tell something new: most of what gossip brings is known."""
        joins, removals = self.joins, self.removals
        news = []
        for alert in alerts:
            member = alert.member
            if member is not None:
                report = joins.get(member.incarnation)
                if report is not None and not alert.rings & ~report.rings:
                    continue
            else:
                removal = removals.get(alert.subject)
                if removal is not None and removal.knows(alert, now - alert.age / _AGES_PER_SECOND):
                    continue
            news.append(alert)
        return news

    def _merge_join(self, member: Member, rings: int, now: float) -> bool:
        incarnation = member.incarnation
        report = self.joins.get(incarnation)
        if report is None:
            if len(self.joins) >= self._joins_kept:
                return False
            kind = AlertKind.UPDATE if member in self._configuration else AlertKind.JOIN
            report = self.joins[incarnation] = JoinReport(kind, member, self._conflicts(member))
        before = report.rings
        fresh = rings & ~before
        if not fresh:
            return False
        report.rings = after = before | fresh
        self._account(fresh, report.salt)
        tally = after.bit_count()
        if tally >= self._low:
            self._sort_join(incarnation, report, tally, now)
        return True

    def _sort_join(self, incarnation: bytes, report: JoinReport, tally: int, now: float) -> None:
        if report.conflicts:
            kept = self.contested_joins
        elif tally < self._high:
            kept = self.unstable_joins
        else:
            kept = self.stable_joins
            if self.unstable_joins.pop(incarnation, None) is not None:
                kept[incarnation] = report
                return
        if incarnation not in kept:
            report.unstable_since = now
            kept[incarnation] = report

    def _conflicts(self, member: Member) -> tuple[int, ...]:
        if member in self._configuration:
            return ()  # its own record, with new metadata
        return tuple(
            index
            for other in self._configuration.conflicts(member)
            if (index := self._configuration.index_of_incarnation(other.incarnation)) is not None
        )

    def _merge_removal(self, alert: Alert, now: float) -> bool:
        raised_at = now - alert.age / _AGES_PER_SECOND
        rings = self._without_forgotten(alert, raised_at) if self._forgotten else alert.rings
        if not rings or now - raised_at >= self._lifetime:
            return False
        report = self.removals.get(alert.subject)
        if report is None:
            report = self.removals[alert.subject] = RemovalReport(alert.subject)
        subject = self._configuration.members[alert.subject]
        incarnation = subject.incarnation
        changed = self._merge_ages(report, rings, raised_at)
        fresh = rings & ~report.rings
        if fresh:
            report.rings |= fresh
            report.sort_observers(self._configuration.observer_masks(subject))
            self._account(fresh, _salt(incarnation, 0))
            changed = True
        if alert.kind is AlertKind.LEAVE and (fresh := rings & ~report.leaves):
            report.leaves |= fresh
            self._account(fresh, _salt(incarnation, 8))
            changed = True
        if alert.kind is AlertKind.EVICT and (fresh := rings & ~report.evictions):
            report.evictions |= fresh
            self._account(fresh, _salt(incarnation, 4))
            changed = True
        return changed

    def _without_forgotten(self, alert: Alert, raised_at: float) -> int:
        """The rings of an alert less those that were forgotten here and come back from a slower peer."""
        rings = alert.rings
        for ring in ring_numbers(alert.rings):
            forgotten = self._forgotten.get((alert.subject, ring))
            if forgotten is not None and raised_at <= forgotten + self._refresh:
                rings &= ~(1 << ring)
        return rings

    def _merge_ages(self, report: RemovalReport, rings: int, raised_at: float) -> bool:
        refreshed = False
        for ring in ring_numbers(rings):
            known = report.raised.get(ring)
            if known is None or raised_at > known:
                report.raised[ring] = raised_at
                refreshed |= known is not None and raised_at - known > self._refresh
        report.oldest = min(report.raised.values())
        return refreshed

    def forget(self, report: RemovalReport, older_than: float) -> bool:
        """Drop a member's reports that were raised before this time; whether there were any."""
        old = [ring for ring, at in report.raised.items() if at <= older_than]
        if not old:
            return False
        mask = sum(1 << ring for ring in old)
        subject = self._configuration.members[report.subject]
        incarnation = subject.incarnation
        self._account(-(report.rings & mask), _salt(incarnation, 0))
        self._account(-(report.leaves & mask), _salt(incarnation, 8))
        report.rings &= ~mask
        self._account(-(report.evictions & mask), _salt(incarnation, 4))
        report.leaves &= ~mask
        report.evictions &= ~mask
        for ring in old:
            self._forgotten[report.subject, ring] = report.raised.pop(ring)
        report.oldest = min(report.raised.values(), default=inf)
        report.sort_observers(self._configuration.observer_masks(subject))
        if not report.rings:
            del self.removals[report.subject]
            self._changed.pop(report.subject, None)
        return True

    def _account(self, fresh: int, salt: int) -> None:
        # Adding disjoint masks is their union, so the digest is a sum: the same in whatever order it is built.
        self._digest = (self._digest + fresh * salt) & _DIGEST_BOUND
        self.alert_bits += fresh.bit_count() if fresh >= 0 else -(-fresh).bit_count()

    def take_changed(self, now: float) -> list[Alert]:
        """Alerts about the subjects of which there is news since the last call."""
        alerts: list[Alert] = []
        joins = self.joins
        for key in self._changed:
            if isinstance(key, bytes):
                alerts.append(joins[key].alert)
            else:
                alerts.extend(self._alerts_about_member(key, now))
        self._changed.clear()
        return alerts

    def all_alerts(self, now: float) -> list[Alert]:
        """The whole table as alerts."""
        alerts: list[Alert] = []
        for subject in self.removals:
            alerts.extend(self._alerts_about_member(subject, now))
        alerts.extend(report.alert for report in self.joins.values())
        return alerts

    def _alerts_about_member(self, subject: int, now: float) -> Iterator[Alert]:
        report = self.removals[subject]
        by_age: dict[int, int] = {}
        age = 0
        for ring, raised_at in sorted(report.raised.items(), key=lambda item: item[1]):
            own = int((now - raised_at + self._transit) * _AGES_PER_SECOND) + 1
            if not by_age or own < age - self._alike:
                age = own  # of the oldest: a detour never makes a report younger
            by_age[age] = by_age.get(age, 0) | 1 << ring
        for age, rings in by_age.items():
            if leaves := rings & report.leaves:
                yield Alert(AlertKind.LEAVE, subject, leaves, age)
            if evictions := rings & report.evictions:
                yield Alert(AlertKind.EVICT, subject, evictions, age)
            if removes := rings & ~(report.leaves | report.evictions):
                yield Alert(AlertKind.REMOVE, subject, removes, age)


def ring_numbers(mask: int) -> Iterator[int]:
    """The rings in a bitmask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _salt(incarnation: bytes, offset: int) -> int:
    return int.from_bytes(incarnation[offset : offset + 7], "big") | 1
