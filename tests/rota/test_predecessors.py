"""An empty server is not started where replicas still look for their primary: they would be emptied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from datastore_adapter.slots.errors import ServerUnreachableError
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.nodes_table import parse_nodes
from rota.agent.engine.configuration import Ports, ServerOptions
from rota.agent.engine.predecessors import LONG_SILENCE, Predecessors, followers
from rota.agent.engine.servers import EngineServers
from tests.slots import traps
from tests.slots.conftest import engine  # noqa: F401 - a fixture
from tests.slots.servers import Options, running

A, B, C, D = (letter * 40 for letter in "abcd")
TABLE = f"""\
{A} 10.0.0.1:7000@17000,n0 master,fail - 0 0 1 disconnected 0-5000
{B} 10.0.0.2:7000@17000,n1 myself,master - 0 0 2 connected 5001-16383
{C} 10.0.0.3:7000@17000,n2 slave {A} 0 0 1 connected
{D} 10.0.0.1:7001@17001,n0 slave {B} 0 0 2 disconnected
"""


def test_who_follows_the_server_that_was_there_before() -> None:
    table = parse_nodes(TABLE.encode())
    assert followers([table], "10.0.0.1:7000") == ["10.0.0.3:7000"]
    assert followers([table], "10.0.0.2:7000") == ["10.0.0.1:7001"]
    assert followers([table], "10.0.0.1:7001") == []
    assert followers([], "10.0.0.1:7000") == []


def test_replicas_that_are_gone_follow_nobody_once_another_server_has_all_slots() -> None:
    """What is dead for good holds nobody up for good."""
    gone = TABLE.replace(f"slave {A}", f"slave,fail {A}")
    assert followers([parse_nodes(gone.encode())], "10.0.0.1:7000") == ["10.0.0.3:7000"], (
        "it may hold the last data"
    )
    led = gone.replace("disconnected 0-5000", "disconnected").replace("5001-16383", "0-16383")
    assert followers([parse_nodes(led.encode())], "10.0.0.1:7000") == []
    there = led.replace("slave,fail", "slave")
    assert followers([parse_nodes(there.encode())], "10.0.0.1:7000") == ["10.0.0.3:7000"], (
        "it would be emptied"
    )


class World:
    """Servers of other hosts that answer with a table, or not at all; and what their agents say."""

    def __init__(self, answers: Mapping[str, str | None]) -> None:
        self.answers = dict(answers)
        self.empty: set[str] = set()
        self.told: list[str] = []
        self.predecessors = Predecessors(
            cast("Servers", self),
            lambda: list(self.answers),
            self.is_empty,
            lambda _, text: self.told.append(text),
        )

    async def call(self, address: str, *command: str) -> bytes:
        answer = self.answers[address]
        if answer is None:
            raise ServerUnreachableError(f"{address} does not answer")
        return answer.encode()

    async def is_empty(self, address: str) -> bool:
        return address in self.empty

    async def may_start(self) -> bool:
        return await self.predecessors.may_start("10.0.0.1:7000")


FOLLOWS_NOBODY = f"{B} 10.0.0.2:7000@17000,n1 myself,master - 0 0 2 connected 0-16383\n"


async def test_silence_is_no_answer_until_its_host_has_left() -> None:
    world = World({"10.0.0.2:7000": FOLLOWS_NOBODY, "10.0.0.3:7000": None})
    for _ in range(LONG_SILENCE - 1):
        assert not await world.may_start()
    assert world.told == [], "it may just be about to start"
    assert not await world.may_start()
    assert not await world.may_start()
    (text,) = world.told
    assert text.startswith("10.0.0.3:7000 may follow the server that was at 10.0.0.1:7000")
    world.answers["10.0.0.3:7000"] = TABLE
    assert not await world.may_start()
    assert world.told[1].startswith("10.0.0.3:7000 still followed")
    world.answers["10.0.0.3:7000"] = None
    assert not await world.may_start()
    del world.answers["10.0.0.3:7000"]
    assert await world.may_start()
    assert len(world.told) == 2


async def test_hosts_that_are_all_new_do_not_wait_for_each_other() -> None:
    world = World({"10.0.0.2:7000": None, "10.0.0.3:7000": None})
    world.empty = {"10.0.0.2:7000", "10.0.0.3:7000"}
    assert await world.may_start()
    world.empty.remove("10.0.0.3:7000")
    assert not await world.may_start()


class Started(EngineServers):
    """Which are started, without a process."""

    def __init__(self, world: World, directory: Path, ports: list[Ports]) -> None:
        options = ServerOptions(Path("none"), "10.0.0.1", "10.0.0.1")
        super().__init__(directory, ports, options, may_start=world.predecessors.may_start)
        self.started: list[int] = []

    async def _start(self, number: int) -> None:
        self.started.append(number)

    async def _watch(self, number: int) -> None:
        await trio.sleep_forever()


async def test_only_the_empty_server_waits(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Neither the other ones of its host do, nor what goes on once they run."""
    world = World({"10.0.0.3:7000": TABLE})
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "nodes.conf").touch()
    servers = Started(world, tmp_path, [Ports(7000, 17000), Ports(7002, 17002)])
    async with trio.open_nursery() as nursery:
        await nursery.start(servers.run)
        await trio.sleep(10)
        assert servers.started == [1]
        world.answers["10.0.0.3:7000"] = FOLLOWS_NOBODY
        await trio.sleep(1)
        assert servers.started == [1, 0]
        nursery.cancel_scope.cancel()


@pytest.mark.engine
async def test_it_is_started_when_the_shard_has_another_primary(engine: str) -> None:  # noqa: F811
    told: list[str] = []
    with running(engine, ["n0", "n1", "n2", "n3"], Options(node_timeout=60.0)) as fleet:
        (primary,), (replica,), (second,), (third,) = fleet.hosts.values()
        fleet.create([[primary, replica], [second], [third]])
        data = fleet.fill(100)
        others = [server.address for server in (replica, second, third)]
        connections = Servers(EngineAccess(), SlotsSettings())
        primary.kill()
        may_start, has_waited = trio.Event(), trio.Event()

        def tell(kind: str, text: str) -> None:
            told.append(text)
            has_waited.set()

        async def is_empty(address: str) -> bool:
            return False

        predecessors = Predecessors(connections, lambda: others, is_empty, tell)

        async def wait() -> None:
            while not await predecessors.may_start(primary.address):  # noqa: ASYNC110 - as an agent looks
                await trio.sleep(0.1)
            may_start.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await has_waited.wait()
            assert not may_start.is_set()
            await trio.to_thread.run_sync(traps.promoted, fleet, replica)
            with trio.fail_after(20):
                await may_start.wait()
        connections.close()
        assert len(told) == 1
        assert told[0].startswith(
            f"{replica.address} still followed the server that was at {primary.address}"
        )
        assert fleet.lost(data) == []
