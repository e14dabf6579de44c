"""Cold start without a chosen founder: processes that name each other as seeds agree on who founds the cluster.

What it is: with `expect=N` and seeds, and as long as no cluster answers, each process greets its seeds, and promises
itself to the lowest address it hears of among those that others name as seeds. Who is promised by more than half of its
seeds, and has met N processes, itself included, founds; the others then join it, all in one view change.
What it is not: consensus among restarting processes: promises are kept in memory. Who collects and dies before the
first view must be started again, at the same address.

Why there is never more than one founder, when all name the same processes (with or without themselves): a promise is
given to one candidate at a time and taken back only when that candidate has promised itself to another (then it counts
no earlier promise any more: its turn is over), or when another process answers at its address (then it is dead). Two
founders would each need more than half of the others' promises, and candidates that found promise themselves to nobody.
"""

from typing import NamedTuple

from membership.address import Address
from membership.context import NEVER, Context
from membership.effects import JoinWaiting
from membership.member import Member
from membership.messages import ColdStart

JOINING_TOO = "this process is joining too"
"""What a joiner answers to another one when no cold start is under way."""

_PEERS_KEPT = 4096
_NOBODY = b""
_PATIENCE = 3
"""Longest retransmission intervals in which whoever names this process as a seed will have greeted it."""


class _Peer(NamedTuple):
    member: Member
    candidate: bool
    turn: int
    follows: bytes
    follows_turn: int


class Rendezvous:
    """One process's part in a cold start; idle unless more than one process is expected."""

    def __init__(self, context: Context, expect: int, seeds: tuple[Address, ...]) -> None:
        self._context = context
        self.expect = expect
        self._seeds = seeds
        self._peers: dict[Address, _Peer] = {}
        self._candidate = False
        self._patient_until = 0.0
        self._turn = 0
        self._followed: Member | None = None
        self._followed_turn = 0
        self._met = 0
        self._pause = context.settings.rpc_retransmit
        self.deadline = NEVER

    def set_seeds(self, seeds: tuple[Address, ...]) -> None:
        """Whom to greet, this process not among them."""
        self._seeds = seeds

    def start(self, now: float) -> None:
        """Begin, if there is anything to do."""
        if self.expect > 1:
            self.deadline = now
            self._patient_until = now + _PATIENCE * self._context.settings.rpc_cap

    @property
    def followed(self) -> Address | None:
        """Who will found, as far as this process knows."""
        return None if self._followed is None else self._followed.address

    def stop(self) -> None:
        """A cluster is there: nobody needs to found one."""
        self.deadline = NEVER

    def tick(self, now: float) -> None:
        """Greet the seeds, and whom this process follows."""
        if now < self.deadline:
            return
        self._context.send_all(
            dict.fromkeys((*self._seeds, *([self.followed] if self.followed else []))), self._greeting(True)
        )
        self.deadline = now + self._pause * (0.75 + 0.5 * self._context.rng.random())
        self._pause = min(1.5 * self._pause, self._context.settings.rpc_cap)

    def _greeting(self, asking: bool) -> ColdStart:
        followed = _NOBODY if self._followed is None else self._followed.incarnation
        return ColdStart(self._context.me, self._candidate, self._turn, followed, self._followed_turn, asking)

    def on_greeting(self, message: ColdStart, now: float) -> None:
        """Another process is starting too."""
        if self.deadline == NEVER or message.sender.incarnation == self._context.me.incarnation:
            return
        address = message.sender.address
        if address not in self._peers and len(self._peers) >= _PEERS_KEPT:
            return
        known = self._peers.get(address)
        if known is not None and known.member == message.sender and message.turn < known.turn:
            return  # overtaken by a later one
        self._peers[address] = _Peer(
            message.sender, message.candidate, message.turn, message.follows, message.follows_turn
        )
        self._candidate = self._candidate or message.asking
        before = self._followed
        self._choose(now)
        if message.asking or self._followed != before:
            self._context.send(address, self._greeting(False))
        self._tell()

    def _choose(self, now: float) -> None:
        if self._followed is not None and self._is_released(self._followed):
            self._followed = None
        if self._followed is not None:
            return
        candidates = [peer for peer in self._peers.values() if peer.candidate and not peer.follows]
        lowest = min(candidates, key=lambda peer: _rank(peer.member), default=None)
        # A process that nobody has named yet may still be named by one that has not greeted it again.
        eligible = self._candidate or now < self._patient_until
        if lowest is None or (eligible and _rank(self._context.me) < _rank(lowest.member)):
            return
        self._followed, self._followed_turn = lowest.member, lowest.turn
        self._turn += 1  # promises given to this process until now do not count any more

    def _is_released(self, followed: Member) -> bool:
        """Whether the one this process promised itself to will certainly not found on the strength of it."""
        peer = self._peers[followed.address]
        return (
            peer.member.incarnation != followed.incarnation
            or peer.turn > self._followed_turn
            or bool(peer.follows)
        )

    def _promisers(self) -> list[Address]:
        me = self._context.me.incarnation
        return [
            address
            for address, peer in self._peers.items()
            if (peer.follows, peer.follows_turn) == (me, self._turn)
        ]

    @property
    def founds(self) -> bool:
        """Whether this process is the one to found the cluster."""
        if self._followed is not None or not self._candidate or self.deadline == NEVER:
            return False
        promisers = self._promisers()
        seeds = sum(1 for address in promisers if address in self._seeds)
        return 2 * seeds > len(self._seeds) and len(promisers) + 1 >= self.expect

    def _tell(self) -> None:
        met = len(self._peers) + 1
        if met != self._met:
            self._met = met
            self._context.publish(JoinWaiting(self.standing))

    @property
    def standing(self) -> str:
        """How far the cold start has come, for those who ask."""
        if self.deadline == NEVER:
            return JOINING_TOO
        met = len(self._peers) + 1
        return f"the cluster starts with {self.expect} processes, {met} have met so far"


def _rank(member: Member) -> tuple[str, int, bytes]:
    return member.host, member.port, member.incarnation
