"""Catching up across views: members that are behind are found by the configuration id in every message, and helped.

Here are the decided cuts that a member keeps for others, its answers to those that are behind, the notice to those
that were removed, and its own questions when it is behind itself. Within one view, gossip repairs what is missing.
Source: Rapid leaves this open; without it a laggard would keep its old view for ever.
"""

from collections import OrderedDict, deque

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.messages import (
    EMPTY_DIGEST,
    CatchUpRequest,
    Decided,
    DecidedChain,
    EvictedNotice,
    Gossip,
    MemberMessage,
    Message,
    PullCut,
)
from membership.protocol.messages.sizes import cut_bytes
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import SHORT_BYTES

_PEERS_KEPT = 4096
_QUICK_QUESTIONS = 5
"""Questions after a view change that wait for a gossip tick each: one is lost, rather than slow to be answered."""


def send_steps(
    context: Context, address: Address, epoch: int, configuration_id: bytes, chain: list[Cut]
) -> None:
    """Send a peer the cuts decided since its configuration; the whole view if they are not known, or too long."""
    size = sum(cut_bytes(cut) for cut in chain)
    limit = context.settings.datagram_payload
    # The steps tell who left and who failed, a whole view does not; so it must be much the smaller.
    if not chain or size > max(limit, len(context.view.encoded())):
        context.count("configurations sent")
        context.send(address, context.whole_view(), reliable=True)
        return
    answer = DecidedChain(context.me.incarnation, epoch, configuration_id, tuple(chain))
    context.send(address, answer, reliable=size > limit)


class CatchUp:
    """Who is behind whom."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._decisions: OrderedDict[bytes, tuple[bytes, int, Cut]] = OrderedDict()  # by the short id
        self._helped: OrderedDict[bytes, float] = OrderedDict()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._early: deque[tuple[Address, Message]] = deque(maxlen=context.settings.early_messages_kept)
        self._asked_at = -NEVER
        self._questions = 0
        self._first_epoch = 0
        self._installed_at = -NEVER

    def on_first_view(self, epoch: int) -> None:
        """This member took part in decisions from this epoch on."""
        self._first_epoch = epoch

    def remember(self, configuration_id: bytes, epoch: int, cut: Cut, now: float) -> None:
        """Keep a decided cut for those who missed it."""
        self._installed_at = now
        self._questions = 0
        self._decisions[configuration_id[:SHORT_BYTES]] = (configuration_id, epoch, cut)
        self._evicted.update(
            (removal.incarnation[:SHORT_BYTES], None) for removal in cut.removals if removal.evicted
        )
        while len(self._evicted) > _PEERS_KEPT:
            self._evicted.popitem(last=False)
        while len(self._decisions) > self._context.settings.decisions_kept:
            self._decisions.popitem(last=False)

    def forget_decisions(self) -> None:
        """A whole configuration was installed: what came before it no longer leads to it step by step."""
        self._decisions.clear()

    # Others are behind.

    def help(self, message: MemberMessage, source: Address, now: float) -> None:
        """The sender of this message is at an older epoch than this member, which has not just got there itself."""
        index = self._context.view.index_of_sender(message.sender)
        if index is not None and now < self._installed_at + self._context.settings.gossip_interval:
            return  # what it sent crossed the news of the decision, which is on its way to everybody
        sender = message.sender[:SHORT_BYTES]
        last = self._helped.get(sender, -NEVER)
        if now - last < self._context.settings.catch_up_interval:
            return
        self._helped[sender] = now
        self._helped.move_to_end(sender)
        while len(self._helped) > _PEERS_KEPT or self._is_forgettable(now):
            self._helped.popitem(last=False)
        if index is None:
            self._send_notice(source, message.sender)
            return
        address = self._context.view.members[index].address
        known = self._decisions.get(message.configuration_id[:SHORT_BYTES])
        if known is None or known[1] < self._first_epoch:
            # It would not know this member, or needs more than a hint: show it that there is a newer view.
            self._context.send(address, Gossip(*self._context.short_header, EMPTY_DIGEST))
            return
        identifier, _, cut = known
        hint = Decided(
            self._context.me.incarnation,
            message.epoch,
            identifier,
            cut.hash,
            self._context.view.epoch,
        )
        self._context.send(address, hint)

    def _send_notice(self, destination: Address, incarnation: bytes) -> None:
        self._context.count("evicted notices sent")
        view = self._context.view
        notice = EvictedNotice(
            incarnation, view.epoch, incarnation[:SHORT_BYTES] in self._evicted, view.lineage
        )
        self._context.send(destination, notice)

    def _is_forgettable(self, now: float) -> bool:
        """Whether the peer helped longest ago may be helped again anyway."""
        return now - next(iter(self._helped.values())) >= self._context.settings.catch_up_interval

    def on_request(self, message: CatchUpRequest | PullCut, source: Address) -> None:
        """A peer asks what it has missed, or for the cut of a decision that was installed here meanwhile."""
        view = self._context.view
        index = view.index_of_incarnation(message.sender)
        if index is None:
            self._send_notice(source, message.sender)
            return
        if message.configuration_id == view.id:
            return
        address = view.members[index].address
        chain = self._chain_from(message.configuration_id)
        send_steps(self._context, address, message.epoch, message.configuration_id, chain)

    def _chain_from(self, configuration_id: bytes) -> list[Cut]:
        chain: list[Cut] = []
        for identifier, _, cut in self._decisions.values():
            if identifier == configuration_id or chain:
                chain.append(cut)
        return chain

    # This member is behind.

    def note_newer(self, source: Address, message: MemberMessage, now: float) -> None:
        """A message from a newer view: keep it until that view is here, and ask for it."""
        self._early.append((source, message))
        self.ask(source, now)

    def ask(self, address: Address, now: float) -> None:
        """Ask somebody who is further; at most once in a while."""
        settings = self._context.settings
        quick = self._questions < _QUICK_QUESTIONS
        if now - self._asked_at < (settings.gossip_interval if quick else settings.catch_up_interval):
            return
        self._asked_at = now
        self._questions += 1
        self._context.count("catch-up requests")
        self._context.send(address, CatchUpRequest(*self._context.header))

    def expected(self, now: float) -> bool:
        """Whether an answer may come from somebody who is not in this member's view."""
        return now - self._asked_at < 20 * self._context.settings.catch_up_interval

    def take_early(self) -> list[tuple[Address, Message]]:
        """Messages kept for the view just installed; those for still newer ones stay."""
        view = self._context.view
        ready = [
            item
            for item in self._early
            if isinstance(item[1], MemberMessage) and view.is_named(item[1].configuration_id)
        ]
        later = [
            item for item in self._early if isinstance(item[1], MemberMessage) and item[1].epoch > view.epoch
        ]
        self._early.clear()
        self._early.extend(later)
        return ready
