"""The electorate: the fixed voters of an ensemble, how they find each other once, and which of them answer.

Source: Rapid, section 5, leaves the ensemble's own membership open; here it is fixed.

Formation. A process without saved state draws an incarnation, saves it, and greets the other addresses. Once it has
heard an incarnation from every address it saves that list, for ever, and names it in its greetings. It votes only
after every process of the list has named the very same list. Of two lists that have a process in common, that
process has named only one, so only one can come to vote; two lists with nobody in common make two clusters, with
different ids. A process that loses its state draws another incarnation, is in nobody's list, and does not vote: what
it forgot cannot be contradicted.
"""

import hashlib
from collections.abc import Sequence

from consensus import classic_quorum
from membership.address import Address
from membership.protocol.view.configuration import ID_BYTES
from membership.protocol.view.member import Member

_SILENCE = 3
"""Greetings a voter may miss before it counts as silent."""


class Electorate:
    """Who votes. `members` is empty until a list is fixed; `formed` once everybody has named it."""

    def __init__(self, me: Member, addresses: Sequence[Address]) -> None:
        self.me = me
        self.addresses = tuple(address for address in dict.fromkeys(addresses) if address != me.address)
        self.members: tuple[Member, ...] = ()
        self.formed = False
        self._met: dict[Address, Member] = {}
        self._agreeing: dict[bytes, None] = {}
        self._heard: dict[int, float] = {}
        self._orphans: dict[int, tuple[bytes, frozenset[int]]] = {}
        self._index: dict[bytes, int] = {}

    def restore(self, members: tuple[Member, ...], formed: bool, now: float) -> None:
        """Go on with the list that was saved."""
        if members:
            self._fix(members, now)
            self.formed = formed

    def _fix(self, members: tuple[Member, ...], now: float) -> None:
        self.members = members
        self._index = {member.incarnation: index for index, member in enumerate(members)}
        self._heard = dict.fromkeys(range(len(members)), now)

    @property
    def size(self) -> int:
        """How many voters there are."""
        return len(self.members)

    @property
    def index(self) -> int:
        """This process's place among the voters."""
        return self._index[self.me.incarnation]

    @property
    def cluster_id(self) -> bytes:
        """The id of the cluster this electorate records: a hash of the voters' incarnations."""
        incarnations = b"".join(member.incarnation for member in self.members)
        return hashlib.blake2b(incarnations, digest_size=ID_BYTES, person=b"rota ensemble").digest()

    def index_of(self, incarnation: bytes) -> int | None:
        """The voter with this incarnation, or None."""
        return self._index.get(incarnation)

    def others(self) -> list[Address]:
        """The addresses of the other voters."""
        return [member.address for member in self.members if member.incarnation != self.me.incarnation]

    def meet(self, member: Member, electorate: tuple[Member, ...], now: float) -> bool:
        """A greeting of an unformed ensemble's process; whether the list or its standing changed: save it."""
        if member.address not in self.addresses:
            return False
        changed = False
        if not self.members:
            self._met[member.address] = member
            if len(self._met) == len(self.addresses):
                everybody = (self.me, *self._met.values())
                self._fix(tuple(sorted(everybody, key=lambda voter: voter.incarnation)), now)
                changed = True
        if not self.formed and electorate and electorate == self.members and member in self.members:
            self._agreeing[member.incarnation] = None
            if len(self._agreeing) == len(self.members) - 1:
                self.formed = changed = True
        return changed

    # Signs of life.

    def heard(self, index: int, now: float) -> None:
        """This voter has sent something."""
        self._heard[index] = now

    def answering(self, now: float, interval: float) -> list[int]:
        """The voters heard of late, this one included. `interval`: seconds between two greetings."""
        horizon = now - _SILENCE * interval
        return [index for index in range(self.size) if index == self.index or self._heard[index] >= horizon]

    def note_orphans(self, index: int, configuration_id: bytes, orphans: tuple[int, ...]) -> None:
        """A voter's orphans: members of the cluster that neither it nor any observer hears any more."""
        self._orphans[index] = (configuration_id, frozenset(orphans))

    def agreed_orphans(self, configuration_id: bytes, now: float, interval: float) -> list[int]:
        """The members for whom no voter that answers, and these are a majority, sees anybody vouch."""
        answering = self.answering(now, interval)
        if len(answering) < classic_quorum(self.size):
            return []
        known = [self._orphans.get(index, (b"", frozenset[int]())) for index in answering]
        agreed = frozenset.intersection(
            *(orphans if about == configuration_id else frozenset() for about, orphans in known)
        )
        return sorted(agreed)

    def turn(self, configuration_id: bytes, now: float, interval: float) -> int:
        """This voter's place in the order of coordinators, which the configuration sets; the silent are passed
        over."""
        answering = self.answering(now, interval)
        start = int.from_bytes(configuration_id[:8], "big") % self.size
        order = sorted(answering, key=lambda index: (index - start) % self.size)
        return order.index(self.index)
