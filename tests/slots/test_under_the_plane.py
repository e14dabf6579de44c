"""The control loop and the policies on real servers: a cluster's life, and one that somebody else has made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from valkey import ValkeyError
from valkey.cluster import ValkeyCluster

from datastore_adapter.slots.settings import EngineAccess
from datastore_adapter.slots.slots_adapter import SlotsAdapter
from mgmt.control.controller import Controller
from mgmt.control.events import ControlEvent
from mgmt.control.settings import ControlSettings
from mgmt.placement.hosts import Host, HostView
from mgmt.placement.intent import Intent
from tests.fake_adapter import FakeAdapter, FakeEngine
from tests.mgmt.control.harness import make_hosts
from tests.slots.servers import Fleet, Options, running

pytestmark = pytest.mark.engine

HOSTS = {host.name: host for host in make_hosts(6, 3)}
"""n1 and n4 are in one rack, as are n2 and n5, and n3 and n6."""
SHARDS = Intent.initial(3, replication_factor=2, expect=6)
QUICK = Options(node_timeout=5.0)
SETTINGS = ControlSettings(solve_budget=60.0, longest_solve_budget=60.0)


class Plane:
    """One controller, on n1."""

    def __init__(self, fleet: Fleet, initial: Intent) -> None:
        self.fleet = fleet
        self.layout_adapter = FakeEngine(list(HOSTS))
        self.adapter = SlotsAdapter(FakeAdapter(self.layout_adapter), fleet.addresses, EngineAccess())
        self.events: list[ControlEvent] = []
        self.controller = Controller(
            self.adapter, "n1", initial=initial, settings=SETTINGS, listener=self.events.append
        )
        self._send, self._views = trio.open_memory_channel[HostView](16)
        self.epoch = 0

    def tell(self, hosts: dict[str, Host]) -> None:
        self.epoch += 1
        self._send.send_nowait(HostView(self.epoch, tuple(hosts.values())))

    async def until(self, condition: Callable[[], bool], within: float = 90.0) -> None:
        with trio.move_on_after(within):
            while not condition():  # noqa: ASYNC110 - the product offers no events for tests
                await trio.sleep(0.05)
            return
        raise AssertionError([event.text for event in self.events][-12:])

    async def settled(self) -> None:
        def is_settled() -> bool:
            status = self.controller.status()
            return bool(status["settled"]) and status["view_epoch"] == self.epoch

        await self.until(is_settled)
        status = self.controller.status()
        assert (status["rack_violations"], status["under_replicated"]) == (0, 0)

    def run(self, story: Callable[[], Any]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.controller.run, self._views)
                nursery.start_soon(self.adapter.sample)
                await story()
                nursery.cancel_scope.cancel()

        try:
            trio.run(main)
        finally:
            self.adapter.close()

    async def racks(self) -> dict[str, list[str]]:
        observation = await self.adapter.observe()
        return {
            segment.key: [HOSTS[copy.host].failure_domain for copy in segment.replicas]
            for segment in observation.segments  # type: ignore[union-attr]
        }


@contextmanager
def traffic(fleet: Fleet) -> Iterator[list[str]]:
    """A foreign client that follows redirections, and what it was told that was no answer."""
    errors: list[str] = []
    over = threading.Event()
    first = fleet.running[0]
    client = ValkeyCluster(host=first.ip, port=first.port, socket_timeout=5.0)

    def work() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                client.set(f"traffic:{number % 500}", number)
                assert client.get(f"traffic:{number % 500}") == str(number).encode()
            except (ValkeyError, AssertionError) as error:
                errors.append(repr(error))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield errors
    finally:
        over.set()
        thread.join()
        client.close()


def test_the_life_of_a_cluster(engine: str) -> None:
    """It is made, loses a host with a primary, and another one is drained: racks and keys are what they should be."""
    with running(engine, dict.fromkeys(HOSTS, 2), QUICK) as fleet:
        plane = Plane(fleet, SHARDS)

        async def story() -> None:
            plane.tell(HOSTS)
            await plane.settled()
            data = fleet.fill(500)
            lost = next(s.host for s in fleet.primaries().values() if s.host != "n1")
            await trio.sleep(1.0)
            fleet.kill(lost)
            plane.tell({name: host for name, host in HOSTS.items() if name != lost})
            await plane.settled()
            kinds = [event.data["kind"] for event in plane.events if event.kind == "step-started"]
            assert kinds.index("failover") < kinds.index("replicate")
            await trio.to_thread.run_sync(fleet.wait_until_served)
            assert fleet.lost(data) == []
            drained = next(s.host for s in fleet.primaries().values() if s.host not in ("n1", lost))
            await plane.controller.requests.drain(drained)
            await plane.settled()
            await trio.to_thread.run_sync(fleet.wait_until_served)
            assert not any(len(server.nodes()) > 1 for server in fleet.hosts[drained])
            assert fleet.lost(data) == []

        plane.run(story)


@pytest.mark.parametrize(
    ("engine", "made"),
    [
        ("valkey", "in one rack"),
        ("redis", "on one host"),
        pytest.param(
            "valkey",
            "on one host",
            marks=pytest.mark.sweep("real servers under traffic; two other combinations run before"),
        ),
        pytest.param(
            "redis",
            "in one rack",
            marks=pytest.mark.sweep("real servers under traffic; two other combinations run before"),
        ),
    ],
    indirect=["engine"],
)
def test_a_cluster_that_puts_copies_anywhere_is_made_rack_safe_under_traffic(engine: str, made: str) -> None:
    with running(engine, dict.fromkeys(HOSTS, 2 if made == "on one host" else 1), QUICK) as fleet:
        hosts = fleet.hosts
        if made == "in one rack":  # and every server is in use
            fleet.create([[hosts[a][0], hosts[b][0]] for a, b in (("n1", "n4"), ("n2", "n5"), ("n3", "n6"))])
        else:
            fleet.create([[*hosts["n1"]], [hosts["n2"][0], hosts["n3"][0]], [hosts["n5"][0], hosts["n6"][0]]])
        data = fleet.fill(1000)
        before = {server.address: server.nodes().keys() for server in fleet.running}
        plane = Plane(fleet, replace(SHARDS, observing=True))

        async def story() -> None:
            plane.tell(HOSTS)
            await plane.until(lambda: plane.controller.status()["phase"] == "observing")
            dry = await plane.controller.requests.plan()
            assert len([m for m in dry.plan.moves if m.required]) == (3 if made == "in one rack" else 1), (
                dry.text()
            )
            assert {server.address: server.nodes().keys() for server in fleet.running} == before
            with traffic(fleet) as errors:
                await plane.controller.requests.apply()
                await plane.settled()
            assert errors == []
            assert all(len(set(racks)) == len(racks) == 2 for racks in (await plane.racks()).values())
            await trio.to_thread.run_sync(fleet.wait_until_served)
            assert fleet.lost(data) == []

        plane.run(story)
