"""Leaving: this member asks its observers to report that it leaves, waits for the decision, and makes sure it is known.

It repeats its request until a cut without it is decided, and then repeats the decision until somebody confirms it, all
within the leave time-out. To the others a leave is an alert like any other (see reporter).
"""

from enum import Enum

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import Left
from membership.protocol.messages import Decided, LeaveRequest

_BACK_OFF = 1.5
_EVERYBODY = 8
"""In views up to this size the decision is told to everybody, else to this many at random."""


class Phase(Enum):
    """How far the leave has come."""

    ASKING = "asking"
    TELLING = "telling"
    DONE = "done"


class Leaver:
    """The way out."""

    def __init__(self, context: Context, now: float) -> None:
        self._context = context
        self._pause = context.settings.rpc_retransmit
        self._ends = now + context.settings.leave_timeout
        self._decided: Decided | None = None
        self._told: tuple[Address, ...] = ()
        self._superseded = False
        self.phase = Phase.ASKING
        self.deadline = now
        if len(context.view) == 1:
            self._finish(decided=True)

    def on_decided(self, value: bytes, now: float) -> None:
        """A cut without this member is decided: make sure that somebody who stays knows it."""
        context = self._context
        if self.phase is not Phase.ASKING:
            return
        self.phase = Phase.TELLING
        self._decided = Decided(*context.header, value, context.header[1] + 1)
        others = [member.address for member in context.view.members if member != context.me]
        if len(others) > _EVERYBODY:
            others = context.rng.sample(others, _EVERYBODY)
        self._told = tuple(others)
        self._pause = context.settings.rpc_retransmit
        self.deadline = now
        if not others:
            self._finish(decided=True)

    def on_confirmed(self, *, superseded: bool) -> None:
        """Somebody in a later view says that this member is not in it."""
        if self.phase is not Phase.DONE:
            self._superseded = superseded
            self._finish(decided=True)

    def on_view_change(self, now: float) -> None:
        """A view that still has this member: ask its observers there."""
        self._pause = self._context.settings.rpc_retransmit
        self.deadline = now
        if len(self._context.view) == 1:
            self._finish(decided=True)

    def tick(self, now: float) -> None:
        """Repeat, or give up."""
        if now < self.deadline or self.phase is Phase.DONE:
            return
        if now >= self._ends:
            self._finish(decided=self.phase is Phase.TELLING)
            return
        if self._decided is not None:
            self._context.send_all(self._told, self._decided)
        else:
            masks = self._context.view.observer_masks(self._context.me)
            observers = [self._context.view.members[index].address for index, _ in masks]
            self._context.send_all(observers, LeaveRequest(*self._context.header))
        self.deadline = min(self._ends, now + self._pause)
        self._pause = min(self._pause * _BACK_OFF, self._context.settings.rpc_cap)

    def _finish(self, *, decided: bool) -> None:
        self.phase = Phase.DONE
        self.deadline = NEVER
        self._context.publish(Left(decided, self._superseded))
