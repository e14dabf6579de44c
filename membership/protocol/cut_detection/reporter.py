"""The reporter: the alerts this member raises as an observer, in one configuration.

It reports removals, leaves, joins and updates, in batches. It echoes the reports of others about subjects that stay
unstable (reinforcement), forgets noise, and reports no new subject once this member has proposed a cut.
Source: Rapid, section 4.2 (reinforcement after a time-out). Added to the paper: an observer without any evidence of its
own echoes only after a longer time-out, and joins and leaves are reinforced like removals.
"""

from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import Accused
from membership.protocol.cut_detection.alert_batch import AlertBatch
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.cut_detection.cut_detector import Assessment, CutDetector
from membership.protocol.messages import Alert, AlertKind
from membership.protocol.monitoring.edge import Edge
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.member import Member

_CHECKS_PER_LIFETIME = 10


class Reporter:
    """Raises this member's alerts in one configuration."""

    def __init__(self, context: Context, table: AlertTable, detector: CutDetector, monitor: Monitor) -> None:
        self._context = context
        self._table = table
        self._detector = detector
        self._monitor = monitor
        self._batch = AlertBatch(context.settings, len(context.view), context.loop_lag)
        self._accused: dict[int, float] = {}
        self._unstable_since: dict[int, float] = {}
        self._suspects: frozenset[int] = frozenset()
        self._in_doubt = False
        self._echoed: dict[int | bytes, None] = {}
        self._going: frozenset[int] = frozenset()
        self._own_rings: dict[bytes, int] = {}
        """Of members, by incarnation; it is asked with every alert."""
        self._next_check = NEVER
        self._next_forgetting = NEVER

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self._batch.deadline, self._next_check, self._next_forgetting)

    def own_rings(self, subject: Member) -> int:
        """Rings on which this member observes the subject (a member or a joiner)."""
        known = self._own_rings.get(subject.incarnation)
        if known is None:
            view, own = self._context.view, self._context.index
            known = next((mask for observer, mask in view.observer_masks(subject) if observer == own), 0)
            if subject in view:
                self._own_rings[subject.incarnation] = known
        return known

    # What is reported.

    def report_join(self, joiner: Member, now: float, *, at_once: bool = False) -> bool:
        """Report a joiner, or a member's new record; False if this member does not observe it."""
        rings = self.own_rings(joiner)
        if not rings:
            return False
        report = self._table.joins.get(joiner.incarnation)
        if report is None or rings & ~report.rings:
            kind = AlertKind.UPDATE if joiner in self._context.view else AlertKind.JOIN
            self._batch.add_join(joiner, rings, now, kind, at_once=at_once)
        return True

    def report_leave(self, subject: int, now: float) -> bool:
        """Report a member that said it leaves; False if this member does not observe it."""
        rings = self.own_rings(self._context.view.members[subject])
        if not rings:
            return False
        known = self._table.removals.get(subject)
        if known is None or rings & ~known.leaves:
            self._batch.add_removal(AlertKind.LEAVE, subject, rings, now)
        return True

    def report_eviction(self, subject: int, now: float) -> bool:
        """Report a member that an operator wants out; False if this member does not observe it."""
        rings = self.own_rings(self._context.view.members[subject])
        if not rings:
            return False
        known = self._table.removals.get(subject)
        if known is None or rings & ~known.evictions:
            self._batch.add_removal(AlertKind.EVICT, subject, rings, now)
        return True

    def accuse_failed(self, now: float, *, in_doubt: bool = False) -> None:
        """Report the subjects that the monitor finds faulty, and confirm the reports from time to time.

        While a majority of the members seems out of reach (`in_doubt`), nothing is reported; while most subjects
        are silent, only what others report too: more likely the fault is here.
        """
        self._in_doubt = in_doubt
        self._accuse_all(self._monitor.failed_edges(), now)
        self._corroborate(now)

    def _corroborate(self, now: float) -> None:
        """While a view change is under way, report subjects that are about to be found faulty, so that they go with it.

        All observers of a subject find it silent at nearly the same time, so the first report of anybody may be the
        only warning. Losses may be chance: they wait until somebody is suspected.
        """
        if self._table.removals:
            corroborating = self._monitor.corroborating_edges()
            self._accuse_all([edge for edge in corroborating if self._suspects or edge.stays_silent], now)

    def _accuse_all(self, edges: list[Edge], now: float) -> None:
        confirmed = now - self._context.settings.report_lifetime / 3
        for edge in edges:
            if self._accused.get(edge.index, -NEVER) > confirmed:
                continue
            if not edge.has_evidence():
                continue  # the window still holds old failures, but the subject answers again
            doubtful = self._in_doubt or (
                self._monitor.doubts_itself and edge.index not in self._table.removals
            )
            if doubtful and not edge.certain:
                self._context.count("accusations withheld in self-doubt")
                continue
            self._accuse(edge.index, edge.rings, now)

    def _accuse(self, subject: int, rings: int, now: float) -> None:
        if subject not in self._accused:
            self._context.publish(Accused(self._context.view.members[subject]))
        self._accused[subject] = now
        self._batch.add_removal(AlertKind.REMOVE, subject, rings, now)

    # Time.

    def note(self, assessment: Assessment, now: float) -> None:
        """Remember since when each member has been unstable (joiners: see the table)."""
        self._suspects = assessment.suspects
        self._going = frozenset(assessment.stable_removals)
        self._corroborate(now)
        since = self._unstable_since
        self._unstable_since = {subject: since.get(subject, now) for subject in assessment.unstable_removals}
        if not assessment.held_up:
            self._next_check = NEVER
        elif self._next_check == NEVER:
            self._next_check = now + self._context.settings.reinforcement_timeout / 2
        if self._table.removals and self._next_forgetting == NEVER:
            self._next_forgetting = now + self._forgetting_pause

    def tick(self, now: float, holding: bool) -> bool:
        """Flush, reinforce, forget. Whether the table changed. While `holding`, no new subject is reported."""
        changed = False
        if now >= self._next_check:
            changed |= self._reinforce(now)
            self._next_check = now + self._context.settings.reinforcement_timeout / 2
        if now >= self._batch.deadline:
            alerts = self._batch.take_due(now)
            for alert in alerts:
                if not holding or self._is_known(alert):
                    changed |= self._table.merge(alert, now)
                    self._context.count("alerts raised")
        if now >= self._next_forgetting:
            changed |= self._forget(now)
        return changed

    def _is_known(self, alert: Alert) -> bool:
        """Whether others report this subject too: then holding back would only keep it unstable for longer."""
        if alert.member is not None:
            return alert.member.incarnation in self._table.joins
        return alert.subject in self._table.removals

    def _forget(self, now: float) -> bool:
        """Forget noise, and reports that led nowhere and are not confirmed any more."""
        settings = self._context.settings
        noise = {report.subject for report in self._detector.noise()}
        changed = False
        for report in list(self._table.removals.values()):
            lifetime = settings.noise_lifetime if report.subject in noise else settings.report_lifetime
            if self._table.forget(report, now - lifetime):
                changed = True
                self._accused.pop(report.subject, None)  # an edge that is still faulty accuses anew
                self._echoed.pop(report.subject, None)
        self._next_forgetting = now + self._forgetting_pause if self._table.removals else NEVER
        return changed

    @property
    def _forgetting_pause(self) -> float:
        return self._context.settings.report_lifetime / _CHECKS_PER_LIFETIME

    def _reinforce(self, now: float) -> bool:
        """Echo what stays unstable for long; whether others need not wait any more for some of it."""
        released = False
        ripe = now - self._context.settings.reinforcement_timeout
        overripe = now - self._context.settings.blind_reinforcement_timeout
        table = self._table
        for incarnation, report in (*table.unstable_joins.items(), *table.contested_joins.items()):
            # Who takes a member's place is reported on own evidence only, unless that member is going anyway.
            if report.conflicts and report.unstable_since <= ripe and not report.overdue:
                report.overdue = released = True
            due = report.unstable_since <= ripe and incarnation not in self._echoed
            if due and self._going.issuperset(report.conflicts):
                self._echoed[incarnation] = None
                self._echo_join(report.member, now)
        for subject, since in self._unstable_since.items():
            if since > ripe or subject in self._echoed:
                continue
            if self._table.removals[subject].leaves:
                self.report_leave(subject, now)
            elif self._table.removals[subject].evictions:
                self.report_eviction(subject, now)
            elif since <= overripe or self._has_evidence(subject):
                self._echo_removal(subject, now)
            else:
                continue
            self._echoed[subject] = None
        return released

    def _has_evidence(self, subject: int) -> bool:
        edge = self._monitor.edge_to(self._context.view, subject)
        return edge is not None and (edge.failed or edge.has_evidence())

    def _echo_join(self, joiner: Member, now: float) -> None:
        if self.report_join(joiner, now, at_once=True):
            self._context.count("joins reinforced")

    def _echo_removal(self, subject: int, now: float) -> None:
        rings = self.own_rings(self._context.view.members[subject])
        if rings & ~self._table.removals[subject].rings:
            self._accuse(subject, rings, now)
            self._context.count("removals reinforced")
