"""The history of removals: which members were removed as faulty, how often, and whether they are back.

It decides for how long the links of a joiner must work before it is admitted again (see
`membership.protocol.lifecycle.readmission`). It is bounded. Every member keeps it from the decided cuts, and passes it
on with a whole view to those that did not see them. Members do not agree on it: it only delays a join.
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
"""Each removal multiplies the test time by this. With 4 s at first, a host whose network fails for 20 s, works for
20 s, and so on, comes back once, and then not before it has worked for half a minute."""
_MOST_REMOVALS = 3
"""The test time grows no more from here: 64 times that of the first removal."""
_CRASH_LOOP = 4
"""A process that was removed so often, and was started anew, has what is wrong with it in itself and not in its links:
its successors are tested for 8 times that of the first removal, so that a crash loop changes the view seldom."""
_FORGIVEN = 10
"""A member that stays in the view for so many times its test time has its removals forgotten."""
_KEPT_AT_LEAST = 100
"""So many are remembered, or as many as there are members if those are more, ..."""
_KEPT = 1000
"""... but never more than these."""


def longest_test_time(settings: Settings) -> float:
    """The longest time, in seconds, for which a joiner's links must work before it is admitted."""
    return _test_time(settings, _MOST_REMOVALS)


def _test_time(settings: Settings, removals: int) -> float:
    growth = _GROWTH ** (min(removals, _MOST_REMOVALS) - 1)
    return settings.probe_failures * settings.probe_interval * float(growth)


class RemovedMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry, as it travels."""

    name: Name
    host: Host
    port: Port
    removals: Annotated[int, msgspec.Meta(ge=1, le=_MOST_REMOVALS)]
    is_back: bool
    is_crash_loop: bool = False


RemovedMembers = Annotated[tuple[RemovedMember, ...], msgspec.Meta(max_length=_KEPT)]


class _Entry:
    """`back_at`: when it was admitted again, None while it is out."""

    __slots__ = ("address", "back_at", "name", "removals")

    def __init__(self, name: str, address: Address, removals: int, back_at: float | None) -> None:
        self.name = name
        self.address = address
        self.removals = removals
        self.back_at = back_at


class RemovalHistory:
    """One member's history, by names and addresses: a new process at either counts as the same member."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._most = _KEPT_AT_LEAST
        self._by_name: dict[str, _Entry] = {}
        self._by_address: dict[Address, _Entry] = {}

    def test_time(self, joiner: Member, *, is_new: bool = False) -> float:
        """Seconds for which the links of this joiner must work before it is admitted; 0 for who was not removed.

        `is_new`: it has just started.  Then the one before it may have died with sound links, and it is not taken for
        one whose links fail again and again.
        """
        found = (self._by_name.get(joiner.name), self._by_address.get(joiner.address))
        removals = [entry.removals for entry in found if entry and entry.back_at is None]
        if not removals:
            return 0
        if is_new:
            return _test_time(self._settings, 2 if max(removals) >= _CRASH_LOOP else 1)
        return _test_time(self._settings, max(removals))

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
                self._keep(_Entry(joiner.name, joiner.address, entry.removals, now))

    def _add(self, member: Member, now: float) -> None:
        earlier = self._by_name.get(member.name)
        self._forget(earlier)
        removals = 1
        if earlier is not None:
            stayed = 0.0 if earlier.back_at is None else now - earlier.back_at
            if stayed < _FORGIVEN * _test_time(self._settings, earlier.removals):
                removals = min(earlier.removals + 1, _CRASH_LOOP)
        self._keep(_Entry(member.name, member.address, removals, None))

    def _keep(self, entry: _Entry) -> None:
        self._forget(self._by_address.get(entry.address))
        self._by_name[entry.name] = self._by_address[entry.address] = entry
        while len(self._by_name) > self._most:
            self._forget(next(iter(self._by_name.values())))

    def _forget(self, entry: _Entry | None) -> None:
        if entry is not None:
            del self._by_name[entry.name], self._by_address[entry.address]

    def everything(self) -> tuple[RemovedMember, ...]:
        """What a member that is given the whole view must know."""
        return tuple(
            RemovedMember(
                entry.name,
                *entry.address,
                min(entry.removals, _MOST_REMOVALS),
                entry.back_at is not None,
                entry.removals >= _CRASH_LOOP,
            )
            for entry in self._by_name.values()
        )

    def learn(self, faulty: Iterable[RemovedMember], now: float) -> None:
        """The whole view was received, and with it what its sender remembers."""
        self._by_name.clear()
        self._by_address.clear()
        self._most = _KEPT  # what the sender keeps
        for entry in faulty:
            if entry.name not in self._by_name:
                address = Address(entry.host, entry.port)
                removals = _CRASH_LOOP if entry.is_crash_loop else entry.removals
                self._keep(_Entry(entry.name, address, removals, now if entry.is_back else None))
