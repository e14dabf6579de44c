"""The log over real sockets and real files: one story, and what a server does with garbage."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from datastore_adapter import LogAdapter, LogClient, LogServer, LogSettings, StorageError, TrioRuntime
from datastore_adapter.interface import Done, Fence, Observation, Placement, Running, ServiceRoles
from datastore_adapter.log.messages import Refused
from datastore_adapter.log.messages.codec import decode_reply
from membership.address import Address
from membership.transport import StreamClosedError, Transport, open_service

pytestmark = pytest.mark.socket

CLUSTER = b"sixteen bytes id"
LOOPBACK = Address("127.0.0.1", 0)


class Host:
    """One agent's store: transport, server, data directory; `stop` is as abrupt as a task can be."""

    def __init__(self, name: str, data_dir: Path) -> None:
        self.name = name
        self.data_dir = data_dir
        self.listen = LOOPBACK
        self._scope = trio.CancelScope()
        self._stopped = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._scope, self._stopped = trio.CancelScope(), trio.Event()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    transport = await Transport.bind(self.listen, cluster_id=CLUSTER)
                    self.listen = transport.bound
                    self.server = await LogServer.open(self.name, self.data_dir, nursery)
                    self.server.use(TrioRuntime(nursery, cluster_id=CLUSTER))
                    transport.register("log", self.server.serve)
                    nursery.start_soon(transport.run)
                    task_status.started()
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._stopped.wait()


async def execute(adapter: LogAdapter, target: Placement, view: int) -> None:
    observation = await adapter.observe()
    assert isinstance(observation, Observation)
    for step in adapter.lower(observation, target).steps:
        await adapter.start(step, Fence(view, observation.layout_epoch, "plan", step.number))
        while True:
            status = await adapter.poll(step)
            if not isinstance(status, Running):
                break
            await trio.sleep(0.005)
        assert status == Done(), status


async def test_found_place_append_kill_repair_restart(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        hosts = [Host(f"n{i}", tmp_path / f"n{i}") for i in range(4)]
        for host in hosts:
            await nursery.start(host.run)
        await hosts[0].server.found(CLUSTER.hex(), str(hosts[0].listen))
        runtime = TrioRuntime(nursery, cluster_id=CLUSTER)
        adapter = LogAdapter(runtime, settings=LogSettings.local())
        addresses = {host.name: str(host.listen) for host in hosts}
        adapter.set_hosts(1, addresses)
        roles = ServiceRoles(("n0", "n1", "n2"), ("n1",), ("n0", "n1", "n2", "n3"))
        chains = {"s00": ("n0", "n1", "n2"), "s01": ("n1", "n2", "n3"), "s02": ("n2", "n3", "n0")}
        await execute(adapter, Placement(chains, roles), 1)

        client = LogClient(runtime, [addresses["n3"]], LogSettings.local())
        written: dict[int, bytes] = {}

        async def append(first: int, count: int) -> None:
            for number in range(first, first + count):
                payload = f"record {number}".encode()
                written[await client.append("story", payload)] = payload

        async with trio.open_nursery() as writers:
            for start in range(0, 100, 25):
                writers.start_soon(append, start, 25)

        await hosts[1].stop()  # the sequencer, a layout server, a head and a middle of chains
        adapter.set_hosts(2, {name: address for name, address in addresses.items() if name != "n1"})
        async with trio.open_nursery() as writers:
            writers.start_soon(append, 100, 20)
            roles = ServiceRoles(("n0", "n3", "n2"), ("n2",), ("n0", "n2", "n3"))
            chains = {"s00": ("n0", "n2", "n3"), "s01": ("n2", "n3", "n0"), "s02": ("n2", "n3", "n0")}
            await execute(adapter, Placement(chains, roles), 2)
        assert len(written) == 120
        for address, payload in written.items():
            record = await client.read(address)
            assert record is not None
            assert record.payload == payload

        for host in (hosts[0], hosts[2], hosts[3]):  # everybody down, and up again
            await host.stop()
        for host in (hosts[0], hosts[2], hosts[3]):
            await nursery.start(host.run)
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        assert observation.unfinished  # the sequencer has forgotten its tokens
        (step,) = (await adapter.repair(observation)).steps
        await adapter.start(step, Fence(2, observation.layout_epoch, "repair", 0))
        await append(120, 5)
        found = {record.address: record.payload async for record in client.stream("story")}
        assert found == written
        nursery.cancel_scope.cancel()


async def test_an_unknown_request_is_refused_and_a_stream_of_garbage_is_closed_and_counted(
    tmp_path: Path,
) -> None:
    async with trio.open_nursery() as nursery:
        host = Host("n0", tmp_path)
        await nursery.start(host.run)
        async with await open_service(host.listen, "log", cluster_id=CLUSTER) as stream:
            await stream.send(msgspec.msgpack.encode([5, [99, "of a later version"]]))
            reply = decode_reply(await stream.receive())
            assert reply.number == 5
            assert isinstance(reply.reply, Refused)
            assert (reply.reply.code, "upgrade it" in reply.reply.message) == ("unknown", True)
            await stream.send(b"\xc1 not a request")
            with pytest.raises(StreamClosedError):
                await stream.receive()
        assert host.server.statistics()["server.malformed"] == 1
        nursery.cancel_scope.cancel()


async def test_two_processes_cannot_share_a_data_directory(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        await LogServer.open("n0", tmp_path, nursery)
        with pytest.raises(StorageError, match="in use by another process"):
            await LogServer.open("n0", tmp_path, nursery)
        nursery.cancel_scope.cancel()
