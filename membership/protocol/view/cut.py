"""A cut: the joins, removals and metadata updates that one view change decides together, and its hash.

Votes name a cut by its hash. The hash covers everything that decides the next configuration, incarnations and
metadata included; otherwise members could install different views under one decision.
Source: Rapid, section 4.2 ("multi-process cut").
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from membership.protocol.view.member import Incarnation, Member

HASH_BYTES = 16


class Removal(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A member that goes, and how: `left` by itself, `evicted` by an operator, or neither: it failed."""

    incarnation: Incarnation
    left: bool = False
    evicted: bool = False

    @property
    def failed(self) -> bool:
        """Whether the others found it faulty, or another incarnation takes its place."""
        return not self.left and not self.evicted


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A member that stays, with new metadata."""

    incarnation: Incarnation
    metadata: tuple[tuple[str, str], ...]


class Cut(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Joins, removals and updates, each sorted by incarnation. Build it with `Cut.of`."""

    joins: tuple[Member, ...] = ()
    removals: tuple[Removal, ...] = ()
    updates: tuple[Update, ...] = ()

    @classmethod
    def of(
        cls,
        joins: Iterable[Member] = (),
        removals: Iterable[Removal] = (),
        updates: Iterable[Update] = (),
    ) -> "Cut":
        """The cut in canonical order."""
        return cls(
            tuple(sorted(joins, key=lambda member: member.incarnation)),
            tuple(sorted(removals)),
            tuple(sorted(updates)),
        )

    @property
    def hash(self) -> bytes:
        """128-bit name of this cut (blake2b of its canonical encoding)."""
        return _hash_of(self)


_HASHES_KEPT = 16
_hashes: OrderedDict[int, tuple[Cut, bytes]] = OrderedDict()


def _hash_of(cut: Cut) -> bytes:
    # By identity: to look a cut of thousands up by its value costs as much as to encode it. The cut is kept beside
    # its hash, so that no other one can have its identity.
    known = _hashes.get(id(cut))
    if known is not None:
        return known[1]
    encoded = msgspec.msgpack.encode(cut)
    value = hashlib.blake2b(encoded, digest_size=HASH_BYTES, person=b"rota cut").digest()
    _hashes[id(cut)] = (cut, value)
    if len(_hashes) > _HASHES_KEPT:
        _hashes.popitem(last=False)
    return value
