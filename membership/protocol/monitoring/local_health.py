"""Local health: is the trouble with the subjects, or with this observer?

A score of this observer's own trouble, 0 when healthy, raised by signs that the fault is here and lowered by every
round without one. An observer must see a subject fail for that many more rounds before it reports it. Nobody else
hears of the score.
Source: the local health multiplier of Lifeguard (Dadgar, Phillips, Currey 2018); the signs, their weights and what
the score does are our own.
"""

WORST = 8
"""Rounds that the score is worth at most, so that a recovered observer is itself again after as many."""

_LAG = 2
_MOST_FAIL = 1
_OTHERS_REACH = 2
_NOBODY_HELPS = 2


class LocalHealth:
    """The score of one observer."""

    __slots__ = ("score",)

    def __init__(self) -> None:
        self.score = 0

    def on_lag(self) -> None:
        """This observer's own loop was late: it was starved or stopped."""
        self._add(_LAG)

    def on_round(
        self,
        *,
        edges: int,
        silent: int,
        reached: int,
        unreached: int,
        unhelpful: int,
        elsewhere: bool = False,
    ) -> None:
        """A round of probes is over.

        Of `edges` subjects, `silent` did not answer. About those, helpers reported `reached` times that they
        reached one, `unreached` times that they did not, and `unhelpful` times they said nothing at all.
        `elsewhere`: enough edges of this observer are perfectly well, so its silent subjects may well be dead.
        """
        trouble = 0
        if 2 * silent > edges and not elsewhere:
            trouble += _MOST_FAIL
        several = silent >= 2
        if several and reached >= 2 and reached > unreached:
            trouble += _OTHERS_REACH  # several subjects that only this observer cannot reach
        if several and unhelpful > reached + unreached and not elsewhere:
            trouble += _NOBODY_HELPS  # neither the subjects nor the helpers: what they share is this observer
        self._add(trouble or -1)

    def _add(self, points: int) -> None:
        self.score = min(max(0, self.score + points), WORST)
