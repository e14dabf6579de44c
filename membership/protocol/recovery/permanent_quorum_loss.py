"""When to give a view up: so many of its members were started again that it can never have a majority any more.

What it is: who of the view was started again, by what such processes say themselves when they look for the others, or,
those that have lost their disks, for a cluster to join; and when they answer a probe of the one that was there before.
What it is not: a way to lose a view that works: only who has found for itself that no majority is within reach gives it
up. It then starts like those it heard of, and with them (see rendezvous).
"""

from consensus import classic_quorum
from membership.address import Address
from membership.protocol.context.context import Context
from membership.protocol.view.member import Member


class Resignation:
    """This member's count of those who were started again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._view_id = b""
        self._restarted: dict[str, None] = {}

    def on_joining(self, process: Member) -> None:
        """This process wants to join, and remembers nothing. At a member's address it has taken that one's place."""
        old = self._context.view.member(process.name)
        if old is not None and old.address == process.address:
            self.on_restarted(process)

    def on_not_member(self, address: Address, incarnation: bytes) -> None:
        """Who answers at this address has no view: if it is not the member itself, it has taken that one's place."""
        index = self._context.view.index_of_address(address)
        if index is not None:
            self._note(self._context.view.members[index], incarnation)

    def on_restarted(self, process: Member) -> None:
        """This process starts, and remembers a view."""
        old = self._context.view.member(process.name)
        if old is not None:
            self._note(old, process.incarnation)

    def _note(self, old: Member, incarnation: bytes) -> None:
        view = self._context.view
        if view.id != self._view_id:
            self._view_id = view.id
            self._restarted = {}
        if old.incarnation not in (incarnation, self._context.me.incarnation):
            self._restarted[old.name] = None

    @property
    def restarted(self) -> tuple[str, ...]:
        """Their names, if no majority of the present view can be left; else empty."""
        view = self._context.view
        if view.id != self._view_id or len(view) - len(self._restarted) >= classic_quorum(len(view)):
            return ()
        return tuple(sorted(self._restarted))
