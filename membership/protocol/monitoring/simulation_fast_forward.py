"""Fast-forward, for simulations of weeks: many probe rounds at once, in which nothing happens but chance losses.

The outcome of each round is drawn at random instead of being simulated packet by packet, with the same effect on the
edge's detector and loss test: each attempt is lost independently either way. Agents never use this. Helpers' opinions
and the observer's doubts about itself are left out; either could only excuse a subject or delay an accusation. A
fast-forward ends before a round that could make the subject faulty (`near_threshold`).
"""

from copy import copy
from math import log
from random import Random

from membership.protocol.monitoring.edge import Edge
from membership.protocol.monitoring.edge_detector import UntimedDetector
from membership.protocol.monitoring.loss_test import LossTest
from membership.settings import Settings


class FastForwardEdge:
    """An edge that can be fast-forwarded. `steps`: the attempts of a round are numbered 0 to this, see the monitor; a
    subject without suspicion gets every second one until it answers, a suspicious one gets all."""

    def __init__(self, edge: Edge, detector: UntimedDetector, settings: Settings) -> None:
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
    def near_threshold(self) -> bool:
        """Whether the next round could make the subject faulty, if it went as badly as possible."""
        return self._detector.near_threshold or self.edge.loss.near_threshold

    def pass_rounds(self, rounds: int, loss: float, rng: Random) -> int:
        """Let up to so many rounds pass in which each attempt is lost with probability `loss`.

        Ends early after the round that takes the edge near its threshold; does nothing when it is there already.
        Returns how many rounds passed. The round under way stays as it is.
        """
        edge = self.edge
        under_way = edge.sent, edge.answered
        notable = loss ** (self._harmless + 1)
        passed = 0
        while passed < rounds and not self.near_threshold:
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

    def snapshot(self) -> tuple[UntimedDetector, LossTest, int, int]:
        """The present state, for `restore`."""
        edge = self.edge
        return copy(self._detector), copy(edge.loss), edge.sent_before, edge.answered_before

    def restore(self, state: tuple[UntimedDetector, LossTest, int, int]) -> None:
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
