"""Permanent quorum loss: so many members were restarted that this view can never have a majority again.

It counts the members of the view that have been started again. They say so themselves when they look for the others or
want to join, or by answering a probe of their predecessor. A member that also finds no majority within reach then
gives the view up, starts over like those it heard of, and meets them in a refounding (see
`membership.protocol.lifecycle.founder_election`). A view that works is never given up.
"""

from consensus import classic_quorum
from membership.address import Address
from membership.protocol.context.context import Context
from membership.protocol.view.member import Member


class PermanentQuorumLoss:
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
