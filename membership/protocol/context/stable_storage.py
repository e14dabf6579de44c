"""Stable storage: what a process must find again after a power cut, before it may say what rests on it.

One record holds the last view in force and the views accepted since, and is written as a whole: a crash leaves the new
record or the one before. The core says what is to be written and goes on; what rests on it waits until it is durable.
Source: L. Lamport, *Paxos Made Simple*, section 2.5 (implementing a state machine: the acceptor's stable storage).
"""

from collections.abc import Callable, Iterable

import msgspec

from membership.protocol.view.configuration import Configuration


class StableState(msgspec.Struct, frozen=True):
    """What is on the disk of a process, or is to be."""

    view: Configuration | None = None
    """The last view in force that it was in; None: it was in none so far."""
    accepted: tuple[Configuration, ...] = ()
    """The views that it has accepted since, each of which may have come into force (see founder_election). The next
    view that is installed takes the place of all of them."""


class StableStorage:
    """What one process has written, and what of it is durable.

    `found`: what was on its disk when it started. Without `has_disk` memory is all there is, and is as good as durable.
    """

    def __init__(
        self, found: StableState, publish: Callable[[StableState], None], *, has_disk: bool = False
    ) -> None:
        self.state = found
        """What is to be on disk, as soon as it can be."""
        self.durable = found
        """What is known to be."""
        self._publish = publish
        self.has_disk = has_disk

    def install(self, view: Configuration) -> None:
        """This view is in force, and this process in it."""
        self._write(StableState(view))

    def accept(self, views: Iterable[Configuration]) -> None:
        """Have these accepted views beside the present one, and no others."""
        self._write(StableState(self.state.view, tuple(views)))

    def _write(self, state: StableState) -> None:
        self.state = state
        if not self.has_disk:
            self.durable = state
        self._publish(state)

    def on_saved(self, state: StableState) -> None:
        """This is what is on the disk now."""
        self.durable = state

    def has_accepted(self, view: Configuration) -> bool:
        """Whether it is durable that this process has accepted this view, in the present one."""
        return self._is_up_to_date and any(accepted.id == view.id for accepted in self.durable.accepted)

    @property
    def _is_up_to_date(self) -> bool:
        """Whether the present view is durable."""
        wanted, durable = self.state.view, self.durable.view
        return wanted is None or (durable is not None and durable.id == wanted.id)
