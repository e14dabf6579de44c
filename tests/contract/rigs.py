"""What the contract of adapters is tried on: each engine with adapters, time, and faults, under one set of names.

A further engine (a real one, too) is another class here, or in `engine_rigs`; the contract itself names none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import trio
import trio.testing

from datastore_adapter.interface import Adapter, Fence, Observation, Placement, ServiceRoles, Step
from tests.datastore_adapter.harness import Harness
from tests.fake_adapter import FakeAdapter, FakeEngine

HOSTS = tuple(f"n{number}" for number in range(6))
SEGMENTS = ("s00", "s01", "s02", "s03")
INTENT: Mapping[str, Any] = {"replication_factor": 3, "plan": None}


def intent_for(target: Placement, **more: Any) -> Mapping[str, Any]:
    """What the control loop has agreed before the first step of a plan, as far as an engine may read it."""
    return {
        **INTENT,
        "plan": {"segments": {key: list(chain) for key, chain in target.segments.items()}},
        **more,
    }


class Rig(Protocol):
    """One engine."""

    name: str
    """As the adapter calls its engine."""
    epochs_of_a_change: int
    """By how many a step that changes the layout moves its epoch on: none, where others agree on the epoch."""
    serves_after_recovery: bool
    """Whether the data is served again without its majority, or only its layout is agreed on again."""

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story to its end, in virtual time where there is any."""
        ...

    settles_within: float
    """Seconds for which what a step has done may not be seen by all, where servers tell each other by gossip."""

    async def sleep(self, seconds: float) -> None: ...

    def adapter(self, view_epoch: int = 1) -> Adapter:
        """A further controller's adapter, told the hosts that live."""
        ...

    async def write(self) -> None:
        """Have the engine hold some data in every segment."""
        ...

    def slowed(self, step: Step) -> Step:
        """The same transfer, slow enough to be met while it runs."""
        ...

    def hurried(self) -> None:
        """From now on transfers are as fast as ever."""
        ...

    def steady(self, observation: Observation) -> Observation:
        """The same without what changes all the time by itself, such as the bytes that a server takes."""
        ...

    def crash(self, host: str) -> None:
        """A host dies; adapters learn of it from `tell`."""
        ...

    def tell(self, adapter: Adapter, view_epoch: int) -> None:
        """A new view of the hosts that live."""
        ...

    def cut_off(self) -> None:
        """From now on no majority of the engine answers anybody."""
        ...

    def leave_half_done(self) -> None:
        """The next change of the layout is given up by its controller in the middle, and not completed by it."""
        ...


class FakeRig:
    name = "fake"
    epochs_of_a_change = 1
    serves_after_recovery = True
    settles_within = 0.0

    def __init__(self) -> None:
        self.engine = FakeEngine(list(HOSTS))

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def adapter(self, view_epoch: int = 1) -> Adapter:
        adapter = FakeAdapter(self.engine)
        self.tell(adapter, view_epoch)
        return adapter

    async def write(self) -> None:
        """Its segments have their bytes from the beginning."""

    def slowed(self, step: Step) -> Step:
        self._rate, self.engine.rate = self.engine.rate, 100.0
        return step

    def hurried(self) -> None:
        self.engine.rate = self._rate

    def steady(self, observation: Observation) -> Observation:
        return observation

    def crash(self, host: str) -> None:
        self.engine.up.discard(host)

    def tell(self, adapter: Adapter, view_epoch: int) -> None:
        adapter.set_hosts(view_epoch, {host: f"{host}:1" for host in HOSTS if host in self.engine.up})

    def cut_off(self) -> None:
        self.engine.unreachable = "no majority answers"

    def leave_half_done(self) -> None:
        self.engine.left_open = True


class LogRig:
    name = "log"
    epochs_of_a_change = 1
    serves_after_recovery = True
    settles_within = 0.0

    def __init__(self) -> None:
        self.harness = Harness(len(HOSTS), segments=len(SEGMENTS))
        self._half = False
        self.harness.on_request = self._look

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def coroutine() -> None:
            await story()

        self.harness.loop.run(coroutine())

    async def sleep(self, seconds: float) -> None:
        await self.harness.runtime.sleep(seconds)

    def adapter(self, view_epoch: int = 1) -> Adapter:
        adapter = self.harness.adapter(f"controller {view_epoch}")
        self.tell(adapter, view_epoch)
        return adapter

    async def write(self) -> None:
        await self.harness.write(60)

    def slowed(self, step: Step) -> Step:
        return replace(step, bytes_per_second=200.0)

    def hurried(self) -> None:
        """The step itself says how slow it is."""

    def steady(self, observation: Observation) -> Observation:
        return observation

    def crash(self, host: str) -> None:
        self.harness.crash(host)

    def tell(self, adapter: Adapter, view_epoch: int) -> None:
        adapter.set_hosts(view_epoch, self.harness.members)

    def cut_off(self) -> None:
        self.harness.crash(*HOSTS[1:])

    def leave_half_done(self) -> None:
        self._half = True

    def _look(self, source: str, destination: str, request: object) -> None:
        """The controller is cut off from everybody as soon as it has sealed the log units."""
        if self._half and type(request).__name__ == "Accept":
            self._half = False
            self.harness.cluster.isolate(source, HOSTS)


def placement(chains: Mapping[str, tuple[str, ...]], first: str = "n0") -> Placement:
    """Roles that any engine takes: layout servers and sequencer beginning with `first`."""
    others = [host for host in HOSTS if host != first]
    named = sorted({host for chain in chains.values() for host in chain})
    return Placement(dict(chains), ServiceRoles((first, *others[:2]), (first,), tuple(named)))


def chains_of(observation: Observation) -> dict[str, tuple[str, ...]]:
    """Hosts of each segment, the primary first."""
    return {
        segment.key: tuple(copy.host for copy in sorted(segment.replicas, key=lambda copy: copy.position))
        for segment in observation.segments
    }


def fence_for(observation: Observation, view_epoch: int = 1, step: int = 0) -> Fence:
    return Fence(view_epoch, observation.layout_epoch, "plan", step)
