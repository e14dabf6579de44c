"""Waiting on trio for what a process hears of its cluster: the same for its members and for its ensemble.

What it is: `changes` and `wait_for` of `membership.Cluster` and `membership.Ensemble`.
What it is not: what never waits (see surface), nor the commands.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from membership.change import ChangeFeed, MembershipEndedError
from membership.configuration import Configuration
from membership.surface import Surface, timed_out


class TrioSurface(Surface):
    """What waits, in a trio task."""

    def changes(self) -> ChangeFeed:
        """Every change from here on, the first with the whole present view as joined.

        A subscriber that is busy loses no fact: what happens meanwhile is merged into its next change.
        The iteration ends when this process has left, or was evicted and stays out, and with the block.
        """
        return self._state.subscribe()

    async def wait_for(
        self, condition: Callable[[Configuration], bool], timeout: float | None = None
    ) -> Configuration:
        """The first view from here on, the present one included, that meets `condition`.

        timeout: seconds after which a WaitTimeoutError is raised; None waits for ever. Raises
        MembershipEndedError when no view will come any more: this process leaves or stays out, or the block ends.
        """
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            async for change in self.changes():
                if condition(change.view):
                    return change.view
            raise MembershipEndedError("this process is no member any more; no further view will come")
        assert timeout is not None
        raise timed_out(timeout, self._state.view)
