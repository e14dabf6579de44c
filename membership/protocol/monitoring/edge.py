"""One edge: what this observer knows of one distinct subject.

The failure detector and the loss test of the edge, the probe attempts of the present and the last round, and whether
the edge counts as failed. The monitor does the probing.
"""

from typing import cast

from membership.protocol.monitoring.edge_detector import EdgeDetector, UntimedDetector
from membership.protocol.monitoring.local_health import LocalHealth
from membership.protocol.monitoring.loss_test import LossTest
from membership.protocol.view.member import Member


class Edge:
    """One distinct subject of this member. Attempts are bitmasks: bit k is the k-th step of the round."""

    __slots__ = (
        "_by_order",
        "answered",
        "answered_before",
        "clean_rounds",
        "confirmed",
        "declared_dead",
        "detector",
        "excused",
        "failed",
        "faulty_rounds",
        "index",
        "loss",
        "replaced",
        "reported",
        "reported_until",
        "rings",
        "sent",
        "sent_before",
        "subject",
        "unhealthy",
    )

    def __init__(self, subject: Member, detector: EdgeDetector, loss: LossTest) -> None:
        self.subject = subject
        self.detector = detector
        self.loss = loss
        self._by_order = isinstance(detector, UntimedDetector)
        self.index = -1
        self.rings = 0
        self.sent = 0
        """None in a round that leaves the subject out."""
        self.answered = 0
        self.sent_before = 0
        self.answered_before = 0
        self.clean_rounds = 0
        """Rounds of this observer without any sign of trouble with the subject, here or at another observer."""
        self.faulty_rounds = 0
        self.failed = False
        self.replaced = False
        """Another process answers at the subject's address: no doubt is possible."""
        self.unhealthy = False
        """The application's own check says that the subject does not work."""
        self.declared_dead = False
        """The application knows for certain that the subject is gone."""
        self.reported = False
        """The application has reported the edge as failed; that stands for a while (`reported_until`)."""
        self.reported_until = 0.0
        self.excused = False
        """Others reach the subject all the time: the link is broken, not the subject."""
        self.confirmed = False
        """Others do not reach the subject either: its silence says nothing about this observer."""

    @property
    def certain(self) -> bool:
        """Whether this is knowledge rather than an opinion: this observer's own health plays no part."""
        return self.replaced or self.declared_dead or self.reported

    def has_evidence(self) -> bool:
        """Whether there is any recent sign of trouble."""
        return (
            self.certain
            or self.unhealthy
            or self.detector.has_evidence()
            or (self.loss.has_evidence and self._lost_most_of_late())
        )

    @property
    def sound(self) -> bool:
        """Whether nothing at all speaks against this edge."""
        return not (self.has_evidence() or self.loss.suspicious)

    @property
    def settled(self) -> bool:
        """Whether rounds that lose no more attempts than are harmless change nothing. Never if times matter."""
        if self.loss.score or not self._by_order or not cast(UntimedDetector, self.detector).is_settled:
            return False
        answered = (self.answered_before & self.sent_before).bit_count()
        lost = self.sent_before.bit_count() - answered
        return lost <= self.loss.harmless_losses and (answered > 0 or not self.sent_before)

    def count_clean_round(self, *, healthy: bool) -> None:
        """A round is over, whether or not it had a probe for the subject. `healthy`: this observer is well itself."""
        troubled = not self.sent_before or self.failed or self.certain or self.unhealthy or self.excused
        self.clean_rounds = self.clean_rounds + 1 if healthy and not troubled and self.settled else 0

    def _lost_most_of_late(self) -> bool:
        """Whether the last round lost half of its attempts or more: a link that healed is believed at once."""
        answered = self.answered_before & self.sent_before
        return 2 * answered.bit_count() <= self.sent_before.bit_count()

    def corroborates(self) -> bool:
        """Whether the evidence is enough to report the subject after other observers, though not to be the first."""
        return (self.loss.corroborates or self.stays_silent) and not self.excused

    @property
    def stays_silent(self) -> bool:
        """Whether the subject will be found faulty unless it answers the present probe, and has not yet."""
        return self._by_order and not self.answered and cast(UntimedDetector, self.detector).near_threshold

    def conclude_round(self, now: float) -> None:
        """The time for the answers of this round is up (`now`: seconds of observation).

        The attempts are judged one round later: an answer that took the long way is no loss.
        """
        if not self.answered:
            self.detector.on_probe_result(False, now)
        sent = self.sent_before
        if sent != 1 or self.answered_before != 1 or self.loss.score:
            answered = self.answered_before & sent
            self.loss.on_round((sent & ~answered).bit_count(), answered.bit_count())
        self.sent_before, self.answered_before = self.sent, self.answered

    def discard_round(self) -> None:
        """This observer was late itself: answers may wait unread, so attempts say nothing."""
        self.sent_before = self.answered_before = 0

    def judge(self, now: float, health: LocalHealth) -> bool:
        """Form an opinion at the end of a round (`now`: seconds of observation); whether it changed."""
        self.reported = self.reported and now < self.reported_until
        opinion = self.unhealthy or (
            (self.detector.is_faulty(now) or self.loss.is_faulty) and not self.excused
        )
        self.faulty_rounds = self.faulty_rounds + 1 if opinion else 0
        failed = (
            self.declared_dead
            or self.reported
            or (opinion and (self.failed or self.faulty_rounds > health.score))
        )
        changed = failed != self.failed
        self.failed = failed
        return changed
