"""Gossip: alerts and votes travel together, to a few random members per tick, and digests repair what was lost.

News is pushed once. Every gossip message, probe and acknowledgement carries a digest; where two differ, the better
informed member sends everything it has. Nobody waits for an acknowledgement. How many are told is the broadcaster's.
Source: Rapid, section 6 (gossip as one of two broadcasters). The repair is our own; without it join storms hang.
"""

from collections.abc import Iterable, Iterator

from membership.address import Address
from membership.protocol.agreement.view_change import ViewChange
from membership.protocol.context.context import NEVER, Context
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.dissemination.broadcaster import Broadcaster
from membership.protocol.messages import Alert, Digest, Gossip
from membership.protocol.messages.sizes import GOSSIP_BYTES, alert_bytes
from membership.protocol.view.member import Member

_IDLE_TICKS = 4
_IDLE_FANOUT = 2
"""Members told per tick when there is no news and no vote yet: probes carry digests too. A voter without news may have
missed the decision, and finds out by the answers."""
_LONGEST_PAUSE = 20
"""Ticks between two gossip messages of a member that has had no news for long."""
_LONGEST_STRETCH = 16
"""A member whose event loop lags makes its gossip ticks at most this many times longer."""
_COLLECTING = 2
"""While many reports are still to come, gossip ticks are this many times longer: reports come one by one, and most of
each message would be header. One member fewer is told per tick, too; whom this misses, the next message about the same
subject reaches. The last reports are told at once, since everybody waits for them."""
_VOTERS_PAUSE = 2
"""The longest pause while there are votes."""
_REPAIRS_PER_TICK = 2
_QUIET_TICKS = 2
"""Ticks without news after which a member takes differences for losses and repairs them."""
_VOTES_PER_MESSAGE = 4
_REPAIR_DATAGRAMS = 4
"""A repair that needs more datagrams than this goes as one stream frame."""


class GossipSpreader:
    """Spreads one configuration's alerts and votes; renewed at each view change."""

    def __init__(
        self, context: Context, table: AlertTable, change: ViewChange, broadcaster: Broadcaster, now: float
    ) -> None:
        self._context = context
        self._table = table
        self._change = change
        self._broadcaster = broadcaster
        self._idle_ticks = 0
        self._known_vote_bits = 0
        self._repairs_left = _REPAIRS_PER_TICK
        self._repairs_renewed = now
        self._pulled_at = -NEVER
        self._digest = Digest()
        self._digest_key = (0, 0, 0)
        self._told_vote = False
        self.awaited = 0
        """Reports about members that are still to come before there is anything to vote for."""
        self.deadline = NEVER

    def digest(self) -> Digest:
        """Summary of what this member knows."""
        key = (self._table.checksum, self._table.alert_bits, self._change.vote_bits)
        if key != self._digest_key:
            self._digest = self._table.digest(self._change.vote_bits)
            self._digest_key = key
        return self._digest

    def wake(self, now: float) -> None:
        """There is news: gossip at the next tick, whose phase is random."""
        self._idle_ticks = 0
        interval = self._interval
        soon = now + interval * self._context.rng.random()
        if self.deadline > now + interval:
            self.deadline = soon

    @property
    def _interval(self) -> float:
        """Between two ticks. A member that lags tells more news at a time, which costs all less than more ticks."""
        interval = self._context.settings.gossip_interval
        if self._collects:
            interval *= _COLLECTING
        return self._context.loop_lag.stretched(interval, _LONGEST_STRETCH)

    def tick(self, now: float) -> None:
        """Send the news, or after a while without any, just the digest and the votes."""
        if now < self.deadline:
            return
        news = self._table.has_news or self._has_votes_to_tell()
        self._idle_ticks = 0 if news else self._idle_ticks + 1
        self.deadline = now + self._interval * self._pause()
        if not news and self._table.empty and not self._change.vote_bits:
            self.deadline = NEVER
            return
        self._known_vote_bits = self._change.vote_bits
        self._told_vote = self._change.has_voted
        digest = self.digest()
        targets = self._targets(self._fanout(news))
        for message in self._messages(self._table.take_changed(now), digest):
            self._context.send_all(targets, message)

    def _fanout(self, news: bool) -> int:
        settings = self._context.settings
        if not news:
            return settings.gossip_fanout if self._change.vote_bits else _IDLE_FANOUT
        fanout = self._broadcaster.fanout(settings, len(self._context.view) - 1)
        return max(1, fanout - 1) if self._collects else fanout

    @property
    def _collects(self) -> bool:
        """Whether there is time: so many reports are still to come, above H + L, that nobody will vote soon."""
        many = self._context.settings.high_watermark + self._context.settings.low_watermark
        return self.awaited > many and not self._change.vote_bits and self._broadcaster.passes_on

    def _has_votes_to_tell(self) -> bool:
        if self._broadcaster.passes_on:
            return self._change.vote_bits != self._known_vote_bits
        return self._change.has_voted and not self._told_vote

    def _pause(self) -> int:
        if self._idle_ticks <= _IDLE_TICKS:
            return 1
        # Among voters, a member without news has probably missed the decision, and soon finds out by gossiping.
        longest = _VOTERS_PAUSE if self._change.vote_bits else _LONGEST_PAUSE
        return min(longest, 1 << (self._idle_ticks - _IDLE_TICKS))

    def _targets(self, count: int) -> list[Address]:
        return [member.address for member in self.random_members(count, self._change.suspected)]

    def random_members(self, count: int, avoided: Iterable[int] = ()) -> list[Member]:
        """Up to `count` other members at random, rather not those avoided."""
        members = self._context.view.members
        skip = {self._context.index, *avoided}
        if len(members) - len(skip) <= count:
            chosen = [index for index in range(len(members)) if index not in skip]
        else:
            drawn = self._context.rng.sample(range(len(members)), min(len(members), count + len(skip)))
            chosen = [index for index in drawn if index not in skip][:count]
        if not chosen:  # everybody else is suspected: better to tell somebody than nobody
            others = [index for index in range(len(members)) if index != self._context.index]
            chosen = self._context.rng.sample(others, min(count, len(others)))
        return [members[index] for index in chosen]

    def _messages(self, alerts: list[Alert], digest: Digest) -> Iterator[Gossip]:
        votes = self._change.encoded_votes(_VOTES_PER_MESSAGE)
        limit = self._context.settings.datagram_payload - GOSSIP_BYTES
        vote_bytes = sum(len(value) + len(bitmap) + 6 for value, bitmap in votes)
        while len(votes) > 1 and vote_bytes > limit // 2:
            vote_bytes -= len(votes[-1][0]) + len(votes[-1][1]) + 6
            votes = votes[:-1]
        batch: list[Alert] = []
        size = vote_bytes
        for alert in alerts:
            alert_size = alert_bytes(alert)
            if size + alert_size > limit and (batch or votes):
                yield Gossip(*self._context.short_header, digest, tuple(batch), votes)
                batch, size, votes = [], 0, ()
            batch.append(alert)
            size += alert_size
        yield Gossip(*self._context.short_header, digest, tuple(batch), votes)

    def compare(self, peer: int, theirs: Digest, now: float) -> None:
        """Anti-entropy: help a peer (its index) that knows less, ask one that knows more."""
        mine = self.digest()
        if theirs == mine or self._has_fresh_news():
            return
        if now - self._repairs_renewed >= self._context.settings.gossip_interval:
            self._repairs_left = _REPAIRS_PER_TICK
            self._repairs_renewed = now
        they_miss = theirs.alert_bits < mine.alert_bits or theirs.vote_bits < mine.vote_bits
        differ = theirs.alert_bits == mine.alert_bits and theirs.alerts != mine.alerts
        if (they_miss or differ) and self._repairs_left > 0:
            self._repairs_left -= 1
            self._context.count("gossip repairs")
            self._send_everything(peer, mine, now)
        elif not they_miss and now - self._pulled_at >= self._context.settings.gossip_interval:
            self._pulled_at = now
            self._context.send(self._context.view.addresses[peer], Gossip(*self._context.short_header, mine))

    def _has_fresh_news(self) -> bool:
        """Whether the news is still spreading by itself, so that differences are no sign of a loss."""
        if self._table.has_news or self._change.vote_bits != self._known_vote_bits:
            return True
        return self.deadline != NEVER and self._idle_ticks < _QUIET_TICKS

    def _send_everything(self, peer: int, digest: Digest, now: float) -> None:
        address = self._context.view.addresses[peer]
        alerts = self._table.all_alerts(now)
        messages = list(self._messages(alerts, digest))
        if len(messages) > _REPAIR_DATAGRAMS:
            votes = self._change.encoded_votes(_VOTES_PER_MESSAGE)
            whole = Gossip(*self._context.short_header, digest, tuple(alerts), votes)
            self._context.send(address, whole, reliable=True)
            return
        for message in messages:
            self._context.send(address, message)

    def send_digest(self, peer: Member) -> None:
        """Send just the digest, so that either side finds out if it is behind."""
        self._context.send(peer.address, Gossip(*self._context.short_header, self.digest()))
