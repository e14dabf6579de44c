"""Who collects the evidence for promotions: the first managers of the view, and nobody else."""

from __future__ import annotations

from typing import Any, cast

import trio
from trio.testing import MockClock

from mgmt.placement.hosts import Host, HostView
from rota.agent.engine.sampling import Sampling


class Adapter:
    """Knows whether it samples."""

    def __init__(self) -> None:
        self.samples = False
        self.is_closed = False

    async def sample(self) -> None:
        self.samples = True
        try:
            await trio.sleep_forever()
        finally:
            self.samples = False

    def close(self) -> None:
        self.is_closed = True


def view(epoch: int, *names: str, no_managers: tuple[str, ...] = ()) -> HostView:
    hosts = [
        Host(name, f"{name}:1", is_manager=name not in no_managers, seniority=rank)
        for rank, name in enumerate(names)
    ]
    return HostView(epoch, tuple(hosts))


async def test_the_first_three_managers_sample(autojump_clock: MockClock) -> None:
    sampling, adapter = Sampling("n4"), Adapter()
    sampling.see(view(1, "n1", "n2", "n3", "n4"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sampling.run, cast(Any, adapter))
        for number, (seen, expected) in enumerate(
            [
                (view(2, "n1", "n2", "n3", "n4"), False),
                (view(3, "n1", "n2", "n3", "n4", no_managers=("n2",)), True),
                (view(4, "n2", "n4"), True),
                (view(5, "n1", "n2", "n3", "n5", "n4"), False),
                (view(6, "n4"), True),
            ]
        ):
            sampling.see(seen)
            await trio.sleep(1)
            assert adapter.samples is expected, number
        nursery.cancel_scope.cancel()
    assert adapter.is_closed
    assert not adapter.samples
