"""Greeting: anti-entropy with anybody, so that a laggard whom nobody else talks to is found.

What it is: when a member next sends its digest to a random other one; more often while its quorum is lost.
What it is not: what follows from a difference (see gossip and catch_up).
Source: Rapid leaves catch-up open; A. Demers et al., *Epidemic Algorithms for Replicated Database Maintenance*
(PODC 1987), is the anti-entropy.
"""

from membership.protocol.context.context import NEVER, Context
from membership.protocol.dissemination.gossip import GossipSpreader
from membership.protocol.recovery.quorum_watch import QuorumWatch


class Greeting:
    """One member's greetings, from its first view on."""

    def __init__(self, context: Context, quorum: QuorumWatch) -> None:
        self._context = context
        self._quorum = quorum
        self.deadline = NEVER

    def start(self, now: float) -> None:
        """The first view is here: begin at a random moment."""
        self.deadline = now + self._pause()

    def tick(self, gossip: GossipSpreader, now: float) -> None:
        """Greet one member, if it is time."""
        if now < self.deadline:
            return
        self.deadline = now + self._pause()
        for member in gossip.random_members(1):
            gossip.greet(member)

    def _pause(self) -> float:
        settings = self._context.settings
        pause = settings.probe_interval if self._quorum.lost else settings.anti_entropy_interval
        return pause * (0.5 + self._context.rng.random())
