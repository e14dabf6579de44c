"""A server dies and another one answers at its address: it gets nothing that was meant for the dead one."""

from __future__ import annotations

import shutil
from functools import partial

import pytest
import trio

from datastore_adapter.interface import ReplicaState
from datastore_adapter.slots.errors import OtherServerError
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from datastore_adapter.slots.state.cluster_state import (
    ClusterState,
    HostNames,
    NoMajority,
    Report,
    combine,
)
from datastore_adapter.slots.state.nodes_table import parse_nodes
from datastore_adapter.slots.state.server_info import parse_info
from tests.slots.controllers import Controller, chains_of, placement, story
from tests.slots.servers import Fleet, Options, Server, running, wait_until

DEAD, OTHER, REPLICA, NEW = (letter * 40 for letter in "abcd")
HOSTS = {DEAD: "n0", OTHER: "n1", REPLICA: "n2", NEW: "n0"}
ADDRESSES = {OTHER: "10.0.0.2:7000", REPLICA: "10.0.0.3:7000", NEW: "10.0.0.1:7000"}
LINES = {
    DEAD: "{id} :0@0,,n0 {me}master,noaddr - 0 0 1 disconnected 0-5000",
    OTHER: "{id} 10.0.0.2:7000@17000 {me}master - 0 0 2 connected 5001-16383",
    REPLICA: "{id} 10.0.0.3:7000@17000 {me}slave " + DEAD + " 0 0 1 connected",
    NEW: "{id} 10.0.0.1:7000@17000 {me}master - 0 0 0 connected",
}


def report(node_id: str, *known: str) -> Report:
    """What the server says that knows these."""
    lines = [
        LINES[each].format(id=each, me="myself," if each == node_id else "") for each in (node_id, *known)
    ]
    info = parse_info(b"redis_version:7.2.4\r\nredis_mode:cluster\r\nrole:master\r\n")
    return Report(ADDRESSES[node_id], HOSTS[node_id], parse_nodes("\n".join(lines).encode()), info)


def combined(*reports: Report) -> ClusterState | NoMajority:
    names = HostNames(by_node=dict(HOSTS))
    return combine(reports, names, frozenset(HOSTS.values()))


def test_a_primary_whose_address_another_server_has_is_away_and_keeps_its_slots() -> None:
    """As Redis 7 tells it for ever: `noaddr`, and never failed."""
    state = combined(report(OTHER, DEAD, REPLICA), report(REPLICA, OTHER, DEAD), report(NEW))
    assert isinstance(state, ClusterState)
    dead = state.members[DEAD]
    assert (dead.host, dead.report, dead.record.is_suspect) == ("n0", None, True)
    assert state.owners[DEAD] == ((0, 5000),)
    assert [spare.node_id for spare in state.spares] == [NEW]
    assert [member.node_id for member in state.replicas_of(DEAD)] == [REPLICA]


def test_nobody_speaks_for_primaries_whose_addresses_others_have() -> None:
    """One of two: no majority, whoever answers at the address of the other."""
    assert isinstance(combined(report(OTHER, DEAD), report(NEW)), NoMajority)


class Stand:
    """One server as a script: it answers CLUSTER MYID, and OK to everything else, which it keeps."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.told: list[bytes] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        received = b""
        async for data in stream:
            received += data
            *whole, received = received.split(b"\r\n")
            # Commands come as arrays: the lengths are of no interest here.
            words = b" ".join(line for line in whole if line[:1] not in b"*$")
            if words == b"CLUSTER MYID":
                await stream.send_all(b"$40\r\n" + self.node_id.encode() + b"\r\n")
            elif words:
                self.told.append(words)
                await stream.send_all(b"+OK\r\n")


@pytest.mark.socket
async def test_a_command_for_one_server_is_not_sent_to_another_at_its_address() -> None:
    server = Stand(NEW)
    servers = Servers(EngineAccess(), SlotsSettings())
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        meant = Recipient(address, DEAD)
        with pytest.raises(OtherServerError, match=f"dddddddd.*{address}.*aaaaaaaa"):
            await servers.call(meant, "CLUSTER", "RESET", "HARD")
        assert server.told == []
        assert servers.counters["other_server"] == 1
        assert await servers.call(Recipient(address, NEW), "CLUSTER", "RESET", "HARD") == b"OK"
        # The connection stays, and is another server's from now on, as after a restart without its files.
        server.node_id = OTHER
        with pytest.raises(OtherServerError):
            await servers.call(Recipient(address, NEW), "CLUSTER", "RESET", "HARD")
        assert server.told == [b"CLUSTER RESET HARD"]
        servers.close()
        nursery.cancel_scope.cancel()


def started_empty(dead: Server) -> Server:
    """Another server at the address of this one, which has never been in a cluster."""
    shutil.rmtree(dead.directory)
    other = Server(dead.engine, dead.host, dead.ip, dead.port, dead.directory, dead.options)
    other.start()
    other.wait_until_up()
    return other


@pytest.mark.engine
def test_nothing_is_done_to_an_empty_server_in_the_name_of_the_dead_one(engine: str) -> None:
    """The shard is failed over to the replica that has its data, and the empty server is one to spare."""
    with running(engine, {"n0": 1, "n1": 2, "n2": 1}, Options(node_timeout=60.0)) as fleet:
        (primary,), (second, replica), (third,) = fleet.hosts.values()
        fleet.create([[primary, replica], [second], [third]])
        data = fleet.fill(300)
        controller = Controller(fleet)

        async def main() -> None:
            await controller.reach(placement({"s00": "n0 n1", "s01": "n1", "s02": "n2"}))
            before = await controller.adapter._cluster.read_state()
            assert isinstance(before, ClusterState)
            meant = before.members[primary.node_id]
            # Else that of Redis would be emptied by its new primary within a second.
            replica.call("CONFIG", "SET", "masterauth", "no password for whoever comes next")
            primary.kill()
            empty = await trio.to_thread.run_sync(started_empty, primary)
            try:
                context = controller.adapter._step_context(controller.fence(await controller.observed()))
                for words in (("FAILOVER",), ("RESET", "HARD"), ("FORGET", second.node_id)):
                    with pytest.raises(OtherServerError):
                        await context.command(Recipient(meant.address, meant.node_id), "CLUSTER", *words)
                assert len(empty.nodes()) == 1
                await trio.to_thread.run_sync(wait_until, lambda: is_away(fleet, meant.node_id), "it is away")
                observation = await controller.observed()
                (shard,) = (each for each in observation.segments if each.key == "s00")
                assert {copy.host: copy.state for copy in shard.replicas}["n1"] is ReplicaState.IN_SYNC
                await controller.repair()
                assert chains_of(await controller.observed())["s00"].split()[0] == "n1"
                assert len(empty.nodes()) == 1
                assert fleet.lost(data) == []
            finally:
                empty.kill()

        story(controller, main)


def is_away(fleet: Fleet, node_id: str) -> bool:
    """Whether all servers have noticed that another one answers where this one was."""
    return all("noaddr" in server.nodes()[node_id].flags for server in fleet.running)
