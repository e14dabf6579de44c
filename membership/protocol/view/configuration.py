"""The configuration (view): who is in, agreed by all members under one epoch.

An immutable value: the members in canonical order (ring 0), their rings, and lookups that are memoised on it.
Source: Rapid, section 3. The id is a hash chain, so equal ids mean equal histories.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated

import msgspec

from membership.address import Address
from membership.errors import MembershipError
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import SHORT_BYTES, Member
from membership.protocol.view.rings import Rings

ID_BYTES = 16
Identifier = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]


LINEAGE_LIMIT = 64
Lineage = Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=LINEAGE_LIMIT)]
"""The recoveries a chain of views went through, oldest first."""

RECOVERY_STRIDE = 1_000_000_000
"""A recovered chain's epochs begin at the next multiple of this. The old chain, should it be alive after all, does
not get there, so the recovered one counts as the newer wherever they meet, also as a fencing token."""

RECOVERY_BYTES = 16
"""Length of the identifier of a recovery."""
RESTART_STRIDE = 1_000
"""After a power cut the epochs go on from the next multiple of this: above those of any view that was decided, but that
none of those who came back has on its disk."""


class ConfigurationError(MembershipError, ValueError):
    """Raised when a cut does not fit a configuration, or bytes do not hold one. Nothing is installed."""


class ConfigurationRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A configuration as it travels to a joiner or to a member that is far behind."""

    epoch: Annotated[int, msgspec.Meta(ge=0)]
    id: Identifier
    cluster_id: Identifier
    members: tuple[Member, ...]
    joined_epochs: tuple[int, ...]
    lineage: Lineage = ()


RECORD_DECODER = msgspec.msgpack.Decoder(ConfigurationRecord)


class Configuration:
    """One view. Build the first with `found`, every next one with `apply`, a received one with `decode`."""

    __slots__ = (
        "_by_address",
        "_by_name",
        "_by_short",
        "_encoded",
        "_index",
        "_observer_masks",
        "_observers",
        "_seniority",
        "_subjects",
        "addresses",
        "cluster_id",
        "epoch",
        "id",
        "joined_epochs",
        "lineage",
        "members",
        "rings",
        "short_id",
    )

    def __init__(
        self,
        epoch: int,
        identifier: bytes,
        cluster_id: bytes,
        rings: Rings,
        joined: dict[bytes, int],
        lineage: tuple[bytes, ...] = (),
    ) -> None:
        self.epoch = epoch
        self.id = identifier
        self.short_id = identifier[:SHORT_BYTES]
        self.cluster_id = cluster_id
        self.rings = rings
        self.lineage = lineage
        """The recoveries this chain went through; each begins a chain of its own."""
        self.members: tuple[Member, ...] = tuple(rings.orders[0])
        self.joined_epochs: tuple[int, ...] = tuple(joined[member.incarnation] for member in self.members)
        self._index = {member.incarnation: index for index, member in enumerate(self.members)}
        self._by_short = {
            member.incarnation[:SHORT_BYTES]: index for index, member in enumerate(self.members)
        }
        self._by_name = {member.name: index for index, member in enumerate(self.members)}
        self.addresses: tuple[Address, ...] = tuple(member.address for member in self.members)
        self._by_address = {address: index for index, address in enumerate(self.addresses)}
        self._observers: dict[bytes, tuple[int, ...]] = {}
        self._subjects: dict[int, tuple[int, ...]] = {}
        self._observer_masks: dict[bytes, tuple[tuple[int, int], ...]] = {}
        self._seniority: tuple[Member, ...] | None = None
        self._encoded: bytes | None = None

    @classmethod
    def found(cls, founder: Member, cluster_id: bytes, rings: int) -> "Configuration":
        """Epoch 0 of a new cluster: its founder alone."""
        identifier = _chain(cluster_id, founder.incarnation)
        return cls(0, identifier, cluster_id, Rings.build([founder], rings), {founder.incarnation: 0})

    def apply(self, cut: Cut) -> "Configuration":
        """The next configuration. Raises ConfigurationError if the cut does not fit this one."""
        removed = []
        for removal in cut.removals:
            index = self._index.get(removal.incarnation)
            if index is None:
                raise ConfigurationError("the cut removes a process that is not a member")
            removed.append(self.members[index])
        gone = {member.incarnation for member in removed}
        if len(gone) < len(removed):
            raise ConfigurationError("the cut removes a member twice")
        self._check_joins(cut, gone)
        updated = self._updated(cut, gone)
        joined = dict(zip(self._index, self.joined_epochs, strict=True))
        for member in removed:
            del joined[member.incarnation]
        joined.update((member.incarnation, self.epoch + 1) for member in cut.joins)
        rings = self.rings.changed(cut.joins, removed, updated)
        identifier = _chain(self.id, cut.hash)
        return Configuration(self.epoch + 1, identifier, self.cluster_id, rings, joined, self.lineage)

    def recover(self, survivors: Iterable[bytes], recovery: bytes) -> "Configuration":
        """The first view of a new chain, of these incarnations only, marked with this 16 byte identifier.

        Raises ConfigurationError if none or one that is not a member survives, or after too many recoveries.
        """
        staying = set(survivors)
        if not staying or not staying <= self._index.keys() or len(self.lineage) >= LINEAGE_LIMIT:
            raise ConfigurationError("a chain is recovered from members of its last view, 64 times at most")
        removed = [member for member in self.members if member.incarnation not in staying]
        joined = {
            incarnation: epoch
            for incarnation, epoch in zip(self._index, self.joined_epochs, strict=True)
            if incarnation in staying
        }
        epoch = (self.epoch // RECOVERY_STRIDE + 1) * RECOVERY_STRIDE
        # The marker: no cut's hash can lead to this id, because it is hashed for another purpose.
        identifier = hashlib.blake2b(
            b"".join((self.id, recovery, *sorted(staying))), digest_size=ID_BYTES, person=b"rota recovery"
        ).digest()
        rings = self.rings.changed((), removed)
        lineage = (*self.lineage, recovery)
        return Configuration(epoch, identifier, self.cluster_id, rings, joined, lineage)

    def restart(self, founder: Member, rings: int, recovery: bytes = b"") -> "Configuration":
        """The view after this one when enough of its processes have been started again: the founder alone.

        `recovery`: an operator said that those are enough; the chain is a new one, marked with this identifier.
        """
        stride = RECOVERY_STRIDE if recovery else RESTART_STRIDE
        epoch = (self.epoch // stride + 1) * stride
        lineage = (*self.lineage, recovery) if recovery else self.lineage
        # No cut's hash can lead to this id either.
        identifier = hashlib.blake2b(
            self.id + founder.incarnation, digest_size=ID_BYTES, person=b"rota restart"
        ).digest()
        joined = {founder.incarnation: epoch}
        return Configuration(
            epoch, identifier, self.cluster_id, Rings.build([founder], rings), joined, lineage
        )

    def _updated(self, cut: Cut, gone: set[bytes]) -> list[Member]:
        updated: dict[bytes, Member] = {}
        for update in cut.updates:
            index = self._index.get(update.incarnation)
            if index is None or update.incarnation in gone or update.incarnation in updated:
                raise ConfigurationError("the cut updates a process that is not a member, or one twice")
            record = msgspec.structs.replace(self.members[index], metadata=update.metadata)
            updated[update.incarnation] = record
        return list(updated.values())

    def _check_joins(self, cut: Cut, gone: set[bytes]) -> None:
        taken: set[str | Address | bytes] = set()
        for member in cut.joins:
            clash = any(other.incarnation not in gone for other in self.conflicts(member))
            if clash or not taken.isdisjoint(member.claims):
                raise ConfigurationError(f"the cut joins {member} whose name or address is taken")
            taken |= member.claims
        if len(gone) == len(self.members) and not cut.joins:
            raise ConfigurationError("the cut removes everybody")

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: Member) -> bool:
        return member.incarnation in self._index

    def __repr__(self) -> str:
        return f"<Configuration epoch {self.epoch} id {self.id.hex()[:8]} of {len(self.members)}>"

    def index_of(self, name: str) -> int | None:
        """Canonical index of the member with this name, or None."""
        return self._by_name.get(name)

    def member(self, name: str) -> Member | None:
        """The member with this name, or None."""
        index = self._by_name.get(name)
        return None if index is None else self.members[index]

    def index_of_incarnation(self, incarnation: bytes) -> int | None:
        """Canonical index of this very incarnation, or None."""
        return self._index.get(incarnation)

    def index_of_sender(self, sender: bytes) -> int | None:
        """Canonical index of this incarnation, or of the one that begins with these eight bytes, or None."""
        return self._by_short.get(sender) if len(sender) == SHORT_BYTES else self._index.get(sender)

    def is_named(self, identifier: bytes) -> bool:
        """Whether this is the configuration's id, or the first eight bytes of it."""
        return identifier in (self.id, self.short_id)

    def index_of_address(self, address: Address) -> int | None:
        """Canonical index of the member at this address, or None."""
        return self._by_address.get(address)

    def conflicts(self, member: Member) -> tuple[Member, ...]:
        """Members that hold this name or address, or an incarnation that begins alike: frequent messages name
        their sender by those bytes."""
        indices = (
            self._by_name.get(member.name),
            self._by_address.get(member.address),
            self._by_short.get(member.incarnation[:SHORT_BYTES]),
        )
        return tuple(self.members[index] for index in sorted({i for i in indices if i is not None}))

    def observers_of(self, member: Member) -> tuple[int, ...]:
        """Index of the observer on each ring, with repetitions; for a joiner its temporary observers."""
        found = self._observers.get(member.incarnation)
        if found is None:
            self._bound_memory_of_joiners()
            found = tuple(self._index[other.incarnation] for other in self.rings.successors(member))
            self._observers[member.incarnation] = found
        return found

    def observer_masks(self, member: Member) -> tuple[tuple[int, int], ...]:
        """Each distinct observer's index with the bitmask of its rings, in order of its first ring."""
        found = self._observer_masks.get(member.incarnation)
        if found is None:
            masks: dict[int, int] = {}
            for ring, index in enumerate(self.observers_of(member)):
                masks[index] = masks.get(index, 0) | 1 << ring
            found = tuple(masks.items())
            self._observer_masks[member.incarnation] = found
        return found

    def subjects_of(self, member: Member) -> tuple[int, ...]:
        """Index of the subject on each ring, with repetitions."""
        index = self._index[member.incarnation]
        found = self._subjects.get(index)
        if found is None:
            found = tuple(self._index[other.incarnation] for other in self.rings.predecessors(member))
            self._subjects[index] = found
        return found

    def by_seniority(self) -> tuple[Member, ...]:
        """All members, longest serving first: ordered by (epoch of joining, canonical index)."""
        if self._seniority is None:
            order = sorted(range(len(self.members)), key=lambda index: (self.joined_epochs[index], index))
            self._seniority = tuple(self.members[index] for index in order)
        return self._seniority

    def encoded(self) -> bytes:
        """This configuration as bytes, encoded once."""
        if self._encoded is None:
            record = ConfigurationRecord(
                self.epoch, self.id, self.cluster_id, self.members, self.joined_epochs, self.lineage
            )
            self._encoded = msgspec.msgpack.encode(record)
        return self._encoded

    def _bound_memory_of_joiners(self) -> None:
        # Joiners come from outside and may be invented; members are at most len(self).
        if len(self._observers) > 4 * len(self.members) + 4096:
            self._observers.clear()
            self._observer_masks.clear()


def _chain(parent: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(parent + value, digest_size=ID_BYTES, person=b"rota view").digest()
