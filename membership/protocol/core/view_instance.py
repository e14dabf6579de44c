"""One view at work: from its installation to the decision on its successor.

It joins the components that live as long as one configuration: alert table, cut detector, reporter, view change and
gossip. Alerts lead to an assessment, a clean cut to a vote, votes to a decision.
Source: Rapid, section 4, whose three steps meet here.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from membership.address import Address
from membership.protocol import messages
from membership.protocol.agreement.view_change import ViewChange
from membership.protocol.context.context import Context
from membership.protocol.context.refusals import Refusal
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.cut_detection.cut_detector import CutDetector
from membership.protocol.cut_detection.reporter import Reporter
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.dissemination.gossip import GossipSpreader
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.cut import Cut


class ViewInstance:
    """The running view change of one configuration."""

    def __init__(self, context: Context, monitor: Monitor, broadcaster: Broadcaster, now: float) -> None:
        self._context = context
        self.table = AlertTable(context.view, context.settings)
        self.detector = CutDetector(context.view, self.table, context.settings)
        self.change = ViewChange(context)
        self.reporter = Reporter(context, self.table, self.detector, monitor)
        self.gossip = GossipSpreader(context, self.table, self.change, broadcaster, now)
        self._passes_on = broadcaster.passes_on
        self._known_vote_bits = 0
        self._assessment_due = False
        self._handlers: dict[type[messages.Message], Callable[[Any, int, float], None]] = {
            messages.Gossip: self._on_gossip,
            messages.PullCut: self._on_pull,
            messages.CutBody: self._on_body,
            messages.Prepare: self._on_prepare,
            messages.Promised: self._on_promised,
            messages.Accept: self._on_accept,
            messages.Accepted: self._on_accepted,
            messages.Rejected: self._on_rejected,
            messages.Decided: self._on_decided,
        }

    @property
    def decision(self) -> Cut | None:
        """The decided cut, once the decision and its body are known."""
        return self.change.decision

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self.reporter.deadline, self.gossip.deadline, self.change.deadline)

    def handle(self, message: messages.MemberMessage, index: int, now: float) -> None:
        """A message about this configuration, from its member with this index."""
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(message, index, now)
            self._wake_for_votes(now)

    def tick(self, now: float) -> None:
        """Report, assess, coordinate and gossip what is due."""
        if now >= self.reporter.deadline and self.reporter.tick(now, self.change.holding):
            self._after_alerts(now)
        if self._assessment_due and now >= self.gossip.deadline:
            self._assess(now)
        if now >= self.change.deadline:
            self.change.tick(now)
        self._wake_for_votes(now)
        if self.decision is None:
            self.gossip.tick(now)

    def acknowledge(self, probe: messages.Probe, destination: Address) -> None:
        """Answer a probe: this process is here, and so much it knows of the view change."""
        digest = self.gossip.digest() or None
        answer = messages.ProbeAcknowledged(*self._context.short_header, probe.sequence, digest)
        self._context.send(destination, answer)

    # Alerts.

    def _on_gossip(self, message: messages.Gossip, index: int, now: float) -> None:
        sender = self._context.view.members[index]
        changed = False
        signatures = self._context.signatures
        if signatures is not None and not signatures.take(message):
            self._context.drop(Refusal.PROOF_FALSE)
        for alert in self.table.possible_news(message.alerts, now):
            changed |= self._merge(alert, now)
        self.change.merge_votes(message.votes, sender, now)
        if changed:
            self._after_alerts(now)
        if self.decision is None:
            self._wake_for_votes(now)
            self.gossip.compare(index, message.digest, now)

    def _merge(self, alert: messages.Alert, now: float) -> bool:
        refusal = self.table.refusal(alert)
        if refusal is not None:
            self._context.drop(refusal)
            return False
        if alert.member is None:
            own = self.reporter.own_rings(self._context.view.members[alert.subject])
            known = self.table.removals.get(alert.subject)
            forged = own & alert.rings & ~(0 if known is None else known.rings)
            if forged:
                # Only this member may report on its rings. An echo of its own forgotten noise ends here too.
                self._context.count("reports in this member's name refused")
                alert = messages.Alert(alert.kind, alert.subject, alert.rings & ~forged, alert.age)
                if not alert.rings:
                    return False
        if self._context.signatures is not None:
            proven = self._context.signatures.proven(alert)
            if proven != alert.rings:
                self._context.drop(Refusal.RINGS_OF_OTHERS)
                if not proven:
                    return False
                alert = msgspec.structs.replace(alert, rings=proven)
        return self.table.merge(alert, now, spread=self._passes_on)

    def _after_alerts(self, now: float) -> None:
        self.gossip.wake(now)
        self._assessment_due = True
        if not self.detector.is_costly:
            self._assess(now)

    def _assess(self, now: float) -> None:
        self._assessment_due = False
        assessment = self.detector.assess()
        self.change.suspected = assessment.suspects
        self.gossip.awaited = assessment.awaited
        self.reporter.note(assessment, now)
        if assessment.ready and not self.change.holding:
            self.change.propose(self.detector.cut(assessment), now)

    # Votes and classic rounds.

    def on_saved(self, now: float) -> None:
        """Something has become durable."""
        self.change.on_saved(now)
        self._wake_for_votes(now)

    def _wake_for_votes(self, now: float) -> None:
        if self.change.vote_bits != self._known_vote_bits:
            self._known_vote_bits = self.change.vote_bits
            self.gossip.wake(now)

    def _on_pull(self, message: messages.PullCut, index: int, now: float) -> None:
        self.change.proposals.on_pull(message, self._context.view.members[index])

    def _on_body(self, message: messages.CutBody, index: int, now: float) -> None:
        self.change.on_body(message, now)

    def _on_prepare(self, message: messages.Prepare, index: int, now: float) -> None:
        if self._is_own_ballot(message, index):
            self.change.on_prepare(message, self._context.view.members[index], now)

    def _on_accept(self, message: messages.Accept, index: int, now: float) -> None:
        if self._is_own_ballot(message, index):
            self.change.on_accept(message, self._context.view.members[index], now)

    def _is_own_ballot(self, message: messages.Prepare | messages.Accept, index: int) -> bool:
        """A coordinator uses its own ballots only, and only classic ones."""
        if message.coordinator == index and message.round >= 2:
            return True
        self._context.drop("a classic round under a ballot of somebody else")
        return False

    def _on_promised(self, message: messages.Promised, index: int, now: float) -> None:
        self.change.on_promised(message, index, now)

    def _on_accepted(self, message: messages.Accepted, index: int, now: float) -> None:
        self.change.on_accepted(message, index)

    def _on_rejected(self, message: messages.Rejected, index: int, now: float) -> None:
        self.change.on_rejected(message, now)

    def _on_decided(self, message: messages.Decided, index: int, now: float) -> None:
        self.change.on_decided(message.value, self._context.view.members[index], now)
