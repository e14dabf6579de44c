"""Quiet time: what many rounds of probes leave behind when nothing happens but chance losses.

What it is: an edge that takes any number of probe rounds at once, each drawn at random instead of being sent, with
the same effect on its detector and its loss test as that many rounds on a link of that loss. Simulations of weeks
need it; agents do not.
What it is not: an approximation of an edge's own state: each attempt of each round is lost independently, whether
drawn or sent, so that rounds put in before the one under way leave a state of the same distribution. Left out are
the opinions of helpers and the observer's doubts about itself (see indirect_probe, local_health): either could
only excuse a subject or put off an accusation. Rounds end where an accusation may be next (`on_the_brink`).
"""

from copy import copy
from math import log
from random import Random

from membership.protocol.monitoring.edge import Edge
from membership.protocol.monitoring.edge_detector import QuietDetector
from membership.protocol.monitoring.loss_test import LossTest
from membership.settings import Settings


class QuietEdge:
    """An edge in quiet time. `steps`: the attempts of a round are numbered 0 to this, see the monitor; a subject
    without suspicion gets every second one until it answers, a suspicious one gets all."""

    def __init__(self, edge: Edge, detector: QuietDetector, settings: Settings) -> None:
        self.edge = edge
        self._detector = detector
        self._attempts = settings.probe_attempts
        self._steps = 2 * settings.probe_attempts - 1
        self._harmless = min(edge.loss.harmless_losses, settings.probe_attempts - 1)
        # What is sent and what is answered in a round that loses so many attempts.
        regular = [sum(1 << 2 * k for k in range(count)) for count in range(settings.probe_attempts + 1)]
        self._rounds = [(regular[lost + 1], 1 << 2 * lost) for lost in range(self._attempts)]
        self._rounds.append((regular[-1], 0))

    @property
    def on_the_brink(self) -> bool:
        """Whether the next round could make the subject faulty, if it went as badly as possible."""
        return self._detector.may_turn or self.edge.loss.may_turn

    def pass_rounds(self, rounds: int, loss: float, rng: Random) -> int:
        """Let up to so many rounds pass in which each attempt is lost with probability `loss`.

        Ends early after the round that takes the edge to the brink, and does nothing when it is there already.
        Returns how many rounds passed. The round under way stays as it is.
        """
        edge = self.edge
        under_way = edge.sent, edge.answered
        notable = loss ** (self._harmless + 1)
        passed = 0
        while passed < rounds and not self.on_the_brink:
            if edge.settled:
                gap = _first_success(notable, rng)
                if gap is None or passed + gap > rounds:
                    passed = rounds
                    break
                passed += gap
                self._pass_round(self._harmless + 1, loss, rng)
            else:
                passed += 1
                self._pass_round(0, loss, rng)
        edge.sent, edge.answered = under_way
        return passed

    def snapshot(self) -> tuple[QuietDetector, LossTest, int, int]:
        """The present state, for `restore`."""
        edge = self.edge
        return copy(self._detector), copy(edge.loss), edge.sent_before, edge.answered_before

    def restore(self, state: tuple[QuietDetector, LossTest, int, int]) -> None:
        """Take back what passed since a snapshot, which can be used once."""
        edge = self.edge
        self._detector, edge.loss, edge.sent_before, edge.answered_before = state
        edge.detector = self._detector

    def _pass_round(self, lost: int, loss: float, rng: Random) -> None:
        """One round in which at least the first `lost` attempts are lost."""
        edge = self.edge
        if edge.loss.suspicious:
            edge.sent = (1 << self._steps) - 1
            edge.answered = sum(1 << step for step in range(self._steps) if rng.random() >= loss)
        else:
            while lost < self._attempts and rng.random() < loss:
                lost += 1
            edge.sent, edge.answered = self._rounds[lost]
        if edge.answered:
            self._detector.on_probe_result(True, 0.0)
        edge.conclude_round(0.0)


def _first_success(probability: float, rng: Random) -> int | None:
    """The number, from 1, of the first success of independent trials; None if there is never one."""
    if probability >= 1.0:
        return 1
    if probability <= 0.0:
        return None
    return int(log(1.0 - rng.random()) / log(1.0 - probability)) + 1
