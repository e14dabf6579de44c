"""Who was removed as faulty: so many times, and whether it is back.

What it is: the bounded memory that decides how long the links of a joiner must prove themselves (see probation). Every
member keeps it by the decided cuts, and hands it on with the whole view to those who did not see them.
What it is not: agreed. It holds nobody out for good, and an application is told of it by the views alone.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from membership.address import Address
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Host, Member, Name, Port
from membership.settings import Settings

_GROWTH = 8
"""Times the patience of the last offence. With 4 s at first a host whose network fails for 20 s, works for 20 s and so
on comes back once, and then not before it has worked for half a minute."""
_MOST_OFFENCES = 3
"""Patience grows no more from here: to 64 times that of the first offence."""
_FORGIVEN = 10
"""Times its patience that a member must stay in the view, then its offences are forgotten."""
_KEPT_AT_LEAST = 100
"""So many are remembered, or as many as there are members if those are more, ..."""
_KEPT = 1000
"""... but never more than these."""


def longest_patience(settings: Settings) -> float:
    """Seconds for which the links of the worst offender must work before it is admitted."""
    return _patience(settings, _MOST_OFFENCES)


def _patience(settings: Settings, offences: int) -> float:
    return settings.probe_failures * settings.probe_interval * float(_GROWTH ** (offences - 1))


class FaultyMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry, as it travels."""

    name: Name
    host: Host
    port: Port
    offences: Annotated[int, msgspec.Meta(ge=1, le=_MOST_OFFENCES)]
    is_back: bool


FaultyList = Annotated[tuple[FaultyMember, ...], msgspec.Meta(max_length=_KEPT)]


class _Entry:
    """`back_at`: when it was admitted again, None while it is out."""

    __slots__ = ("address", "back_at", "name", "offences")

    def __init__(self, name: str, address: Address, offences: int, back_at: float | None) -> None:
        self.name = name
        self.address = address
        self.offences = offences
        self.back_at = back_at


class FaultyMembers:
    """The memory of one member, by names and addresses: a new process at either is the same offender."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._most = _KEPT_AT_LEAST
        self._by_name: dict[str, _Entry] = {}
        self._by_address: dict[Address, _Entry] = {}

    def patience(self, joiner: Member) -> float:
        """Seconds for which the links of this joiner must work before it is admitted; 0 for who was not removed."""
        found = (self._by_name.get(joiner.name), self._by_address.get(joiner.address))
        return max(
            (self._patience_of(entry) for entry in found if entry and entry.back_at is None), default=0
        )

    def _patience_of(self, entry: _Entry) -> float:
        return _patience(self._settings, entry.offences)

    def on_cut(self, view: Configuration, cut: Cut, now: float) -> None:
        """This cut was decided in this view."""
        if not cut.removals and not self._by_name:
            return  # the mass of joins of a cold start is of no interest
        self._most = min(max(_KEPT_AT_LEAST, len(view)), _KEPT)
        claimed = {claim for joiner in cut.joins for claim in (joiner.name, joiner.address)}
        for removal in cut.removals:
            index = view.index_of_incarnation(removal.incarnation)
            assert index is not None
            member = view.members[index]
            if not removal.failed:
                self._forget(self._by_name.get(member.name))
            elif claimed.isdisjoint((member.name, member.address)):  # else it was started again, and replaced
                self._add(member, now)
        for joiner in cut.joins:
            entry = self._by_name.get(joiner.name) or self._by_address.get(joiner.address)
            if entry is not None:
                self._forget(entry)
                self._keep(_Entry(joiner.name, joiner.address, entry.offences, now))

    def _add(self, member: Member, now: float) -> None:
        earlier = self._by_name.get(member.name)
        self._forget(earlier)
        offences = 1
        if earlier is not None:
            stayed = 0.0 if earlier.back_at is None else now - earlier.back_at
            if stayed < _FORGIVEN * self._patience_of(earlier):
                offences = min(earlier.offences + 1, _MOST_OFFENCES)
        self._keep(_Entry(member.name, member.address, offences, None))

    def _keep(self, entry: _Entry) -> None:
        self._forget(self._by_address.get(entry.address))
        self._by_name[entry.name] = self._by_address[entry.address] = entry
        while len(self._by_name) > self._most:
            self._forget(next(iter(self._by_name.values())))

    def _forget(self, entry: _Entry | None) -> None:
        if entry is not None:
            del self._by_name[entry.name], self._by_address[entry.address]

    def everything(self) -> tuple[FaultyMember, ...]:
        """What a member that is given the whole view must know."""
        return tuple(
            FaultyMember(entry.name, *entry.address, entry.offences, entry.back_at is not None)
            for entry in self._by_name.values()
        )

    def learn(self, faulty: Iterable[FaultyMember], now: float) -> None:
        """The whole view was received, and with it what its sender remembers."""
        self._by_name.clear()
        self._by_address.clear()
        self._most = _KEPT  # what the sender keeps
        for entry in faulty:
            if entry.name not in self._by_name:
                address = Address(entry.host, entry.port)
                self._keep(_Entry(entry.name, address, entry.offences, now if entry.is_back else None))
