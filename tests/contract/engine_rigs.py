"""The rig of real servers: Valkey and Redis clusters under the adapter of `datastore_adapter.slots`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import trio
from valkey import ConnectionError as ServerGoneError
from valkey import TimeoutError as SilentServerError

from datastore_adapter.interface import Adapter, Observation, Step
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.slots_adapter import SlotsAdapter
from tests.contract.rigs import HOSTS
from tests.fake_adapter import FakeAdapter, FakeEngine
from tests.slots import traps
from tests.slots.servers import Fleet, Options, running

SERVERS = 4
"""Of each host: any of the contract's placements finds room beside another one."""
SETTINGS = SlotsSettings()
NODE_TIMEOUT = 5.0
"""Seconds; in half of it every server has heard of each, which is what many steps wait for."""


class ServersRig:
    """One run of one test; the layout adapter is the fake engine, without segments."""

    name = "slots"
    epochs_of_a_change = 0
    serves_after_recovery = False
    settles_within = 30.0

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.layout_adapter = FakeEngine(list(HOSTS))
        self._up = set(HOSTS)
        self._adapters: list[SlotsAdapter] = []
        self._half = False

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._supervise)
                try:
                    await story()
                finally:
                    for adapter in self._adapters:
                        adapter.close()
                nursery.cancel_scope.cancel()

        trio.run(main)

    async def _supervise(self) -> None:
        """What an agent does for its servers: one that runs and answers nobody is killed and started again.

        Valkey's may be caught in a loop when a shard of three copies is handed over (docs/valkey-internals.md).
        """
        while True:
            await trio.sleep(1.0)
            for server in self.fleet.running:
                try:
                    await trio.to_thread.run_sync(server.call, "PING", abandon_on_cancel=True)
                except SilentServerError:
                    server.restart()
                except ServerGoneError:  # ended by the test
                    continue

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def adapter(self, view_epoch: int = 1) -> Adapter:
        adapter = SlotsAdapter(
            FakeAdapter(self.layout_adapter), self.fleet.addresses, EngineAccess(), SETTINGS
        )
        self._adapters.append(adapter)
        self.tell(adapter, view_epoch)
        return adapter

    async def write(self) -> None:
        await trio.to_thread.run_sync(self.fleet.wait_until_served)
        await trio.to_thread.run_sync(self.fleet.fill, 400)

    def slowed(self, step: Step) -> Step:
        """A primary waits for as long until it sends what it has."""
        self._delay(60)
        return step

    def hurried(self) -> None:
        self._delay(0)

    def _delay(self, seconds: int) -> None:
        for server in self.fleet.running:
            server.call("CONFIG", "SET", "repl-diskless-sync-delay", seconds)

    def steady(self, observation: Observation) -> Observation:
        return replace(
            observation,
            segments=tuple(
                replace(
                    segment,
                    bytes=0,
                    load=0.0,
                    replicas=tuple(replace(copy, bytes=0, lag=0) for copy in segment.replicas),
                )
                for segment in observation.segments
            ),
        )

    def crash(self, host: str) -> None:
        self.fleet.kill(host)
        self._up.discard(host)
        self.layout_adapter.up.discard(host)

    def tell(self, adapter: Adapter, view_epoch: int) -> None:
        adapter.set_hosts(view_epoch, {host: f"{host}:1" for host in HOSTS if host in self._up})

    def cut_off(self) -> None:
        for host in HOSTS[1:]:
            self.fleet.kill(host)
        self.layout_adapter.unreachable = "no majority answers"

    def leave_half_done(self) -> None:
        """What a controller leaves that dies while it moves a slot key by key."""
        data = self.fleet.fill(6, prefix="{one slot}")
        primaries = list(self.fleet.primaries().values())
        source = next(server for server in primaries if server.call("KEYS", "{one slot}*"))
        target = next(server for server in primaries if server is not source)
        traps.half_moved(source, target, list(data), 3)


@contextlib.contextmanager
def servers_rig(engine: str) -> Iterator[ServersRig]:
    with running(engine, dict.fromkeys(HOSTS, SERVERS), Options(node_timeout=NODE_TIMEOUT)) as fleet:
        yield ServersRig(fleet)
