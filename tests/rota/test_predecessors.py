"""An empty server is not started where replicas still look for their primary: they would be emptied."""

from __future__ import annotations

import pytest
import trio

from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.nodes_table import parse_nodes
from rota.agent.engine.predecessors import followers, until_nobody_follows
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

        async def wait() -> None:
            await until_nobody_follows([primary.address], lambda: others, connections, tell)
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
