"""The proposals of one view change: the cuts that votes and decisions name by their hash.

A member keeps those it knows, asks for those it lacks, and hands them out.
Source: Rapid, section 4.3. That votes carry a hash, so that a cut travels once, is our own.
"""

from membership.protocol import messages
from membership.protocol.context.context import NEVER, Context
from membership.protocol.messages.sizes import cut_bytes
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member


class Proposals:
    """The cuts known in one configuration."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[bytes, Cut] = {}
        self._wanted: dict[bytes, float] = {}
        self.asked: Member | None = None
        """Whom this member asked last for a cut."""

    def __contains__(self, value: bytes) -> bool:
        return value in self._known

    def get(self, value: bytes) -> Cut | None:
        """The cut with this hash, if it is known."""
        return self._known.get(value)

    def add(self, cut: Cut) -> None:
        """This member's own cut."""
        self._known[cut.hash] = cut

    def want(self, value: bytes, holder: Member, now: float, *, at_once: bool = False) -> None:
        """Pull the cut with this hash from a member that must have it; once a gossip tick, unless `at_once`."""
        if value in self._known or (now < self._wanted.get(value, -NEVER) and not at_once):
            return
        if len(self._wanted) > 4 * len(self._context.view):
            self._wanted.clear()
        self._wanted[value] = now + self._context.settings.gossip_interval
        self.asked = holder
        self._context.send(holder.address, messages.PullCut(*self._context.header, value))

    def on_pull(self, message: messages.PullCut, sender: Member) -> None:
        """Hand out a cut."""
        cut = self._known.get(message.value)
        if cut is not None:
            reliable = cut_bytes(cut) > self._context.settings.datagram_payload
            body = messages.CutBody(*self._context.header, cut)
            self._context.send(sender.address, body, reliable=reliable)

    def on_body(self, message: messages.CutBody) -> bytes | None:
        """A pulled cut arrived: its hash, or None if nobody asked for it."""
        value = message.cut.hash
        if value not in self._wanted:
            self._context.drop("a cut that nobody asked for")
            return None
        del self._wanted[value]
        self._known[value] = message.cut
        return value
