"""Cut detection at one voter: what the cluster's members report about one view, until it amounts to a clean cut.

It is the alert table and the cut detector of the decentralised mode, fed with first-hand reports. Around them: joins
are batched, silent observers are asked, noise is forgotten. The other voters see almost the same reports in almost the
same order; where they differ, agreement settles it.
Source: Rapid, sections 4.2 and 5. Added to the paper: joiners and leavers speak to the ensemble themselves, so it is
their observer on every ring; and while a whole cluster is silent, the ensemble is everybody's observer.
"""

from dataclasses import replace

import msgspec

from membership.protocol.context.alert_signatures import AlertSignatures
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.refusals import Refusal
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.cut_detection.cut_detector import Assessment, CutDetector
from membership.protocol.messages import Alert, AlertKind, Digest, EnsembleAlerts, EnsembleReport
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member

_CHECKS_PER_LIFETIME = 10
_QUESTIONS_PER_TIMEOUT = 2


class CutDetection:
    """The reports about one configuration."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings = context.settings
        self._table = AlertTable(context.view, settings)
        self._detector = CutDetector(context.view, self._table, settings)
        self._signatures: AlertSignatures | None = None
        if context.signer is not None:
            self._signatures = AlertSignatures(context.view, -1, context.signer, settings.datagram_payload)
        self._assessment = Assessment()
        self._changed = False
        self._every_ring = (1 << settings.rings) - 1
        self._batch: dict[bytes, Member] = {}
        self._joins_due = self._joins_cap = NEVER
        self._unstable_since: dict[int, float] = {}
        self._given_up: dict[int, None] = {}
        self._merged_at = -NEVER
        self._next_alarm = NEVER
        self._next_question = NEVER
        self._next_forgetting = NEVER

    # Reports.

    def report(self, message: EnsembleReport, observer: int, now: float) -> None:
        """A member reports its subjects. Only removals, only on the rings on which it observes them, and signed by
        itself where members sign."""
        members = self._context.view.members
        self._take_proofs(message)
        for alert in message.alerts:
            refusal: str | None = self._table.refusal(alert)
            if refusal is None and alert.kind is not AlertKind.REMOVE:
                refusal = Refusal.REPORT_OF_REQUESTS
            if refusal is None:
                masks = dict(self._context.view.observer_masks(members[alert.subject]))
                if alert.rings & ~masks.get(observer, 0):
                    refusal = Refusal.REPORT_NOT_OBSERVED
            if refusal is None and self._proven(alert) != alert.rings:
                refusal = Refusal.RINGS_OF_OTHERS
            if refusal is None:
                self._merge(Alert(AlertKind.REMOVE, alert.subject, alert.rings), now)
            else:
                self._context.drop(refusal)

    def merge_shared(self, message: EnsembleAlerts, now: float) -> None:
        """Another voter's reports. Where members sign, it can not make up any."""
        self._take_proofs(message)
        for alert in message.alerts:
            refusal = self._table.refusal(alert)
            proven = 0 if refusal is not None else self._proven(alert)
            if refusal is None and proven != alert.rings:
                refusal = Refusal.RINGS_OF_OTHERS
            if refusal is not None:
                self._context.drop(refusal)
            if proven:
                self._merge(msgspec.structs.replace(alert, rings=proven), now)

    def _take_proofs(self, message: EnsembleReport | EnsembleAlerts) -> None:
        if self._signatures is not None and not self._signatures.take(message):
            self._context.drop(Refusal.PROOF_FALSE)

    def _proven(self, alert: Alert) -> int:
        return alert.rings if self._signatures is None else self._signatures.proven(alert)

    def leave(self, subject: int, now: float) -> None:
        """A member says that it leaves."""
        known = self._table.removals.get(subject)
        if known is None or known.leaves != self._every_ring:
            self._merge(Alert(AlertKind.LEAVE, subject, self._every_ring), now)

    def evict(self, subject: int, now: float) -> None:
        """An operator wants a member out."""
        self._merge(Alert(AlertKind.EVICT, subject, self._every_ring), now)

    def update(self, record: Member, now: float) -> None:
        """A member wants this record, with other metadata, in the view."""
        alert = Alert(AlertKind.UPDATE, -1, self._every_ring, 0, record)
        refusal = self._table.refusal(alert)
        if refusal is None:
            self._merge(alert, now)
        else:
            self._context.drop(refusal)

    def declare_failed(self, subject: int, now: float) -> None:
        """This voter has waited long enough for a member's observers."""
        self._merge(Alert(AlertKind.REMOVE, subject, self._every_ring), now)

    def give_up(self, subject: int, now: float) -> None:
        """The voters agree that a member is an orphan: it goes, whoever its accusers are."""
        if subject not in self._given_up:
            self._context.count("members given up")
            self._given_up[subject] = None
            self._changed = True
            self.declare_failed(subject, now)

    def join(self, joiner: Member, now: float, *, at_once: bool = False) -> None:
        """A process asks to join. It waits a little for others that start at the same time."""
        if joiner.incarnation in self._table.joins or joiner.incarnation in self._batch:
            return
        if not self._batch:
            self._joins_cap = now + self._context.settings.join_batch_cap
        self._batch[joiner.incarnation] = joiner
        quiet = 0.0 if at_once else self._context.settings.join_batch_quiet
        self._joins_due = min(now + quiet, self._joins_cap)

    def _merge(self, alert: Alert, now: float) -> None:
        if self._table.merge(alert, now):
            self._context.count("alerts merged")
            self._merged_at = now
            self._changed = True

    # What it amounts to.

    def cut(self) -> Cut | None:
        """The cut to propose, or None while there is none or something is unstable."""
        if not self._assessment.ready:
            return None
        cut = self._detector.cut(self._assessment)
        if cut.joins or len(cut.removals) < len(self._context.view):
            return cut
        # A cluster does not vanish: the last of those who go together stays, until somebody comes.
        last = self._context.view.members[0].incarnation
        rest = [removal for removal in cut.removals if removal.incarnation != last]
        return Cut.of((), rest) if rest else None

    @property
    def held_up(self) -> bool:
        """Whether something is unstable, so that this voter would rather wait than vote."""
        return self._assessment.held_up

    def quiet_since(self, moment: float) -> bool:
        """Whether no report came after this moment, so that differing digests are no matter of milliseconds."""
        return self._merged_at <= moment

    def suspected(self, subject: int) -> bool:
        """Whether the reports about this member are more than noise."""
        report = self._table.removals.get(subject)
        return report is not None and report.rings.bit_count() >= self._context.settings.low_watermark

    def accusers(self, subject: int) -> frozenset[int]:
        """The observers that report this member."""
        report = self._table.removals.get(subject)
        if report is None:
            return frozenset()
        masks = self._context.view.observer_masks(self._context.view.members[subject])
        return frozenset(observer for observer, mask in masks if mask & report.rings)

    def digest(self) -> Digest:
        """Summary of the reports, to compare with other voters'."""
        return self._table.digest(0)

    def everything(self, now: float) -> EnsembleAlerts:
        """All reports, for a voter that lacks some; where members sign, those that it will believe. (What members say
        for themselves they say to every voter.)"""
        alerts = self._table.all_alerts(now)
        known = (tuple(alerts), ()) if self._signatures is None else self._signatures.provable(alerts)
        return EnsembleAlerts(*self._context.header, *known)

    # Time.

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self._joins_due, self._next_alarm, self._next_question, self._next_forgetting)

    def tick(self, now: float) -> None:
        """Flush joins, forget, and assess if anything changed."""
        if now >= self._joins_due:
            for joiner in self._batch.values():
                if self._table.refusal(Alert(AlertKind.JOIN, -1, self._every_ring, 0, joiner)) is None:
                    self._merge(Alert(AlertKind.JOIN, -1, self._every_ring, 0, joiner), now)
            self._batch.clear()
            self._joins_due = self._joins_cap = NEVER
        if now >= self._next_forgetting:
            self._forget(now)
        if self._changed:
            self._changed = False
            self._assess(now)

    def _assess(self, now: float) -> None:
        self._assessment = self._detector.assess()
        if self._given_up:
            self._assessment = self._without_given_up(self._assessment)
        self._table.take_changed(now)  # nobody is told of single changes; digests find what is missing
        known = self._unstable_since
        self._unstable_since = {
            subject: known.get(subject, now) for subject in self._assessment.unstable_removals
        }
        if not self._assessment.suspects:
            self._next_alarm = NEVER
        elif self._next_alarm == NEVER:
            self._next_alarm = now
        if not self._unstable_since:
            self._next_question = NEVER
        elif self._next_question == NEVER:
            self._next_question = now + self._context.settings.reinforcement_timeout / _QUESTIONS_PER_TIMEOUT
        if self._table.removals and self._next_forgetting == NEVER:
            self._next_forgetting = now + self._forgetting_pause

    def _without_given_up(self, assessment: Assessment) -> Assessment:
        going = frozenset((*assessment.stable_removals, *self._given_up))
        return replace(
            assessment,
            stable_removals=tuple(sorted(going)),
            unstable_removals=tuple(index for index in assessment.unstable_removals if index not in going),
        )

    @property
    def _forgetting_pause(self) -> float:
        return self._context.settings.report_lifetime / _CHECKS_PER_LIFETIME

    def _forget(self, now: float) -> None:
        """Forget noise, and reports that led nowhere and are not repeated any more."""
        settings = self._context.settings
        noise = {report.subject for report in self._detector.noise()}
        for report in list(self._table.removals.values()):
            lifetime = settings.noise_lifetime if report.subject in noise else settings.report_lifetime
            self._changed |= self._table.forget(report, now - lifetime)
        self._given_up = {subject: None for subject in self._given_up if subject in self._table.removals}
        self._next_forgetting = now + self._forgetting_pause if self._table.removals else NEVER

    def alarm_due(self, now: float) -> bool:
        """Whether it is time to tell the members that somebody is suspected. Call it when about to tell them.

        They then report on less evidence, so that members that fail together go together, also those that nobody has
        reported yet. The alarm is repeated after a while, for those that it did not reach.
        """
        if now < self._next_alarm:
            return False
        self._next_alarm = now + self._context.settings.reinforcement_timeout
        return True

    def questions(self, now: float) -> dict[int, list[int]]:
        """Observer by observer, the subjects that others report and it does not, for a while already.

        Subjects unstable for very long are declared failed, so that none blocks view changes for ever.
        """
        if now < self._next_question:
            return {}
        settings = self._context.settings
        self._next_question = now + settings.reinforcement_timeout / _QUESTIONS_PER_TIMEOUT
        questions: dict[int, list[int]] = {}
        for subject, since in self._unstable_since.items():
            if now - since >= settings.blind_reinforcement_timeout:
                self._context.count("removals reinforced")
                self.declare_failed(subject, now)
            elif now - since >= settings.reinforcement_timeout:
                rings = self._table.removals[subject].rings
                for observer, mask in self._context.view.observer_masks(self._context.view.members[subject]):
                    if mask & ~rings:
                        questions.setdefault(observer, []).append(subject)
        return questions
