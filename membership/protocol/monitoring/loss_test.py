"""The loss test: does one link lose more datagrams than the worst tolerated network explains?

Page's cumulative sum (CUSUM) over the single attempts of the probes to one subject. A lost attempt adds the logarithm
of how much likelier it is on a faulty link than on a tolerated one, an answer subtracts its own, and the sum never
falls below zero. A probe is repeated until one attempt is answered, so whole probes hide most of the loss; attempts
do not. A dead subject is found sooner by the windowed rule.
Source: E. S. Page, *Continuous Inspection Schemes*, 1954; G. Lorden, *Procedures for Reacting to a Change in
Distribution*, 1971 (no test with as few false alarms finds the change sooner).
"""

from math import exp, log

from membership.settings import Settings

_ROUNDS_TO_CONVICT = 4
"""One round moves the sum by at most this share of the threshold: a short outage is never enough."""
_MEMORY = 1.25
"""The sum stops here, in thresholds: a link that recovers is believed within a few answers."""
_EVIDENCE = 0.25
_CORROBORATION = 0.45


class LossTest:
    """The sum of one edge. One round is the attempts of one probe."""

    __slots__ = ("_most", "_per_answer", "_per_loss", "_threshold", "score")

    def __init__(self, settings: Settings) -> None:
        self._per_loss, self._per_answer = evidence_of(settings)
        self._threshold = settings.loss_threshold
        self._most = settings.loss_threshold / _ROUNDS_TO_CONVICT
        self.score = 0.0

    def on_round(self, lost: int, answered: int) -> None:
        """Learn how many attempts of one probe were lost and how many were answered."""
        step = lost * self._per_loss - answered * self._per_answer
        self.score = min(max(0.0, self.score + min(step, self._most)), _MEMORY * self._threshold)

    @property
    def harmless_losses(self) -> int:
        """How many attempts of an answered round may be lost without effect on a sum of zero."""
        return int(self._per_answer / self._per_loss)

    @property
    def near_threshold(self) -> bool:
        """Whether one more round could reach the threshold."""
        return self.score + self._most >= self._threshold

    @property
    def suspicious(self) -> bool:
        """Whether there is any net loss: worth more attempts, to know sooner."""
        return self.score > self._threshold / 8

    @property
    def has_evidence(self) -> bool:
        """Whether losses prevail of late, although not enough to report them."""
        return self.score >= _EVIDENCE * self._threshold

    @property
    def corroborates(self) -> bool:
        """Whether nearly half of the threshold is reached: enough to report after others, not to be the first."""
        return self.score >= _CORROBORATION * self._threshold

    @property
    def is_faulty(self) -> bool:
        """Whether the link should be reported."""
        return self.score >= self._threshold


def evidence_of(settings: Settings) -> tuple[float, float]:
    """What a lost attempt says for a faulty link, and an answer for one in the worst weather, as logarithms."""
    tolerated, faulty = settings.loss_tolerated, settings.loss_faulty
    return log(faulty / tolerated), log((1 - tolerated) / (1 - faulty))


def false_alarm_rounds(settings: Settings, loss: float) -> float:
    """A lower bound for the mean number of rounds between two false alarms of one edge (Wald, Lorden).

    `loss`: share of attempts that stay unanswered, for any reason, below the break-even point at which losses
    and answers balance. The bound is exp(t x threshold) with the t > 0 at which exp(t x step) has mean one.
    """
    per_loss, per_answer = evidence_of(settings)
    if not 0 < loss < per_answer / (per_loss + per_answer):
        raise ValueError(f"between 0 and the break-even point there are false alarms to count, not at {loss}")

    def mean(exponent: float) -> float:
        return loss * exp(exponent * per_loss) + (1 - loss) * exp(-exponent * per_answer)

    # The mean starts at one, dips, and crosses one again at the root.
    low, high = 0.0, 1.0
    while mean(high) < 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        # Left of the dip the mean falls: those points count as below the root too.
        low, high = (middle, high) if mean(middle) < 1 else (low, middle)
    return exp(low * settings.loss_threshold)
