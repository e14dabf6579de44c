"""K rings: K pseudo-random orders of the members, from keyed 64-bit hashes of their identities.

They form the expander graph of who observes whom. The observer of a member on a ring is its successor, its subject
is its predecessor.
Source: Rapid, section 4.1. One blake2b digest is split into eight keys, so ten rings cost two digests.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache

from membership.protocol.view.member import Member

_KEYS_PER_DIGEST = 8
_REBUILD_SHARE = 16
"""A cut that touches more than one member in this many rebuilds the rings instead of editing them."""


@lru_cache(maxsize=32768)
def ring_keys(member: Member, rings: int) -> tuple[int, ...]:
    """The member's 64-bit key on each ring. Metadata takes no part: changing it must not move anybody."""
    identity = b"\0".join(
        (member.incarnation, member.name.encode(), member.host.encode(), str(member.port).encode())
    )
    keys: list[int] = []
    for block in range(0, rings, _KEYS_PER_DIGEST):
        digest = hashlib.blake2b(identity, key=b"rota ring %d" % block, digest_size=64).digest()
        keys.extend(int.from_bytes(digest[at : at + 8], "big") for at in range(0, 64, 8))
    return tuple(keys[:rings])


class Rings:
    """Immutable: for each ring the sorted keys, and the members in the same order."""

    __slots__ = ("count", "keys", "orders")

    def __init__(
        self, count: int, keys: tuple[Sequence[int], ...], orders: tuple[Sequence[Member], ...]
    ) -> None:
        self.count = count
        self.keys = keys
        self.orders = orders

    @classmethod
    def build(cls, members: Iterable[Member], count: int) -> "Rings":
        """Sort all members on all rings."""
        # A tie of two 64-bit keys is settled by the incarnation, so the order never depends on the input.
        listed = sorted(members, key=lambda member: member.incarnation)
        hashed = [ring_keys(member, count) for member in listed]
        keys: list[Sequence[int]] = []
        orders: list[Sequence[Member]] = []
        for ring in range(count):
            ring_of = [row[ring] for row in hashed]
            order = sorted(range(len(listed)), key=ring_of.__getitem__)
            keys.append([ring_of[index] for index in order])
            orders.append([listed[index] for index in order])
        return cls(count, tuple(keys), tuple(orders))

    def __len__(self) -> int:
        return len(self.orders[0])

    def changed(
        self, joins: Sequence[Member], removals: Sequence[Member], updates: Sequence[Member] = ()
    ) -> "Rings":
        """The rings after a cut: edited when the cut is small, rebuilt when it is large.

        `updates`: new records of members that keep their places.
        """
        if (len(joins) + len(removals) + len(updates)) * _REBUILD_SHARE > len(self):
            fresh = {member.incarnation: member for member in updates}
            gone = {member.incarnation for member in removals}
            kept = [
                fresh.get(member.incarnation, member)
                for member in self.orders[0]
                if member.incarnation not in gone
            ]
            return Rings.build([*kept, *joins], self.count)
        keys = tuple(list(ring) for ring in self.keys)
        orders = tuple(list(ring) for ring in self.orders)
        for member in removals:
            for ring, key in enumerate(ring_keys(member, self.count)):
                position = self._position(keys[ring], orders[ring], key, member)
                del keys[ring][position], orders[ring][position]
        for member in updates:
            for ring, key in enumerate(ring_keys(member, self.count)):
                orders[ring][self._position(keys[ring], orders[ring], key, member)] = member
        for member in joins:
            for ring, key in enumerate(ring_keys(member, self.count)):
                position = self._position(keys[ring], orders[ring], key, member)
                keys[ring].insert(position, key)
                orders[ring].insert(position, member)
        return Rings(self.count, keys, orders)

    @staticmethod
    def _position(keys: Sequence[int], order: Sequence[Member], key: int, member: Member) -> int:
        position = bisect_left(keys, key)
        while (
            position < len(keys)
            and keys[position] == key
            and order[position].incarnation < member.incarnation
        ):
            position += 1
        return position

    def successors(self, member: Member) -> list[Member]:
        """The next member on each ring, for a member or for one that would join. Empty rings give []."""
        if not self.orders[0]:
            return []
        found = []
        for keys, order, key in zip(self.keys, self.orders, ring_keys(member, self.count), strict=True):
            position = bisect_right(keys, key)
            found.append(order[position] if position < len(order) else order[0])
        return found

    def predecessors(self, member: Member) -> list[Member]:
        """The previous member on each ring."""
        if not self.orders[0]:
            return []
        return [
            order[bisect_left(keys, key) - 1]
            for keys, order, key in zip(self.keys, self.orders, ring_keys(member, self.count), strict=True)
        ]
