"""Who collects what replicas are judged by when their primary is lost: the controller, and who may follow it at once.

More would do no harm, but that each asks every server, and twice a second.
"""

from __future__ import annotations

from typing import Final

import trio

from datastore_adapter.slots.slots_adapter import SlotsAdapter
from mgmt.placement.hosts import HostView, managers_of

SAMPLERS: Final = 3
"""The controller and the managers after it: whoever becomes the controller has to have done it before.  When more than
so many are lost at once, the next controller finds out what it can from the replicas themselves."""


class Sampling:
    """Of one host; :meth:`see` follows the views while :meth:`run` goes on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_wanted = False
        self._changed = trio.Event()

    def see(self, view: HostView) -> None:
        is_wanted = any(host.name == self._name for host in managers_of(view)[:SAMPLERS])
        if is_wanted != self._is_wanted:
            self._is_wanted = is_wanted
            self._changed.set()

    async def run(self, adapter: SlotsAdapter) -> None:
        """Sample while it is wanted, until cancelled."""
        try:
            while True:
                changed = self._changed = trio.Event()
                if self._is_wanted:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(adapter.sample)
                        await changed.wait()
                        nursery.cancel_scope.cancel()
                else:
                    await changed.wait()
        finally:
            adapter.close()
