"""Anti-entropy: now and then this member sends its digest to a random other one.

So a member that is behind is found even if nobody else talks to it. More often while the quorum is lost. What follows
from a difference is in gossip (the same view) and catch_up (another view).
Source: A. Demers et al., *Epidemic Algorithms for Replicated Database Maintenance*, PODC 1987.
"""

from membership.protocol.context.context import NEVER, Context
from membership.protocol.dissemination.gossip import GossipSpreader
from membership.protocol.recovery.quorum_watch import QuorumWatch


class AntiEntropy:
    """One member's timer for it, from its first view on."""

    def __init__(self, context: Context, quorum: QuorumWatch) -> None:
        self._context = context
        self._quorum = quorum
        self.deadline = NEVER

    def start(self, now: float) -> None:
        """The first view is here: begin at a random moment."""
        self.deadline = now + self._pause()

    def tick(self, gossip: GossipSpreader, now: float) -> None:
        """Send one member the digest, if it is time."""
        if now < self.deadline:
            return
        self.deadline = now + self._pause()
        for member in gossip.random_members(1):
            gossip.send_digest(member)

    def _pause(self) -> float:
        settings = self._context.settings
        pause = settings.probe_interval if self._quorum.lost else settings.anti_entropy_interval
        return pause * (0.5 + self._context.rng.random())
