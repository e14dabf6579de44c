"""The log's server in a thread of its own: what it shares with the agent's loop, and what not."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import trio

from datastore_adapter import LogThread, StorageError
from datastore_adapter.log.layout.document import EpochDocument, Layout, encode_document
from datastore_adapter.log.messages import (
    BatchWritten,
    Entry,
    GetStatus,
    Install,
    Join,
    Request,
    Seal,
    WriteBatch,
)
from datastore_adapter.log.messages.codec import decode_reply, encode_request
from membership.address import Address
from membership.settings import Settings
from membership.transport import FrameStream, StreamClosedError, Transport, open_service

pytestmark = pytest.mark.socket

LOOPBACK = Address("127.0.0.1", 0)
TOLD = EpochDocument(1, "id", Layout(layout_servers=("n1",)), {"n1": "n1:1"}, {"n1": b"disk"})


class Agent:
    """A transport with the log in its thread, and a service of the agent's own loop."""

    def __init__(self, nursery: trio.Nursery, transport: Transport, thread: LogThread) -> None:
        self.transport = transport
        transport.register("log", thread.serve)
        transport.register("echo", self._echo)
        nursery.start_soon(transport.run)

    @classmethod
    async def start(cls, nursery: trio.Nursery, folder: Path, settings: Settings | None = None) -> Agent:
        transport = await Transport.bind(LOOPBACK, settings=settings or Settings())
        return cls(nursery, transport, await LogThread.open("n0", folder, nursery))

    async def _echo(self, stream: FrameStream) -> None:
        async for frame in stream:
            await stream.send(frame)

    async def open(self, service: str) -> FrameStream:
        return await open_service(self.transport.bound, service)


async def ask(stream: FrameStream, *requests: Request) -> list[object]:
    for request in requests:
        await stream.send(encode_request(0, request))
    return [decode_reply(await stream.receive()).reply for _ in requests]


def batch(address: int, size: int) -> WriteBatch:
    return WriteBatch(1, (("s00", ((address, Entry(bytes([address]) * 16, "red", (), bytes(size))),)),))


async def test_a_disk_that_stalls_holds_up_the_log_and_nobody_else(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await Agent.start(nursery, tmp_path)
    async with await agent.open("log") as log, await agent.open("echo") as echo:
        await ask(log, Install(encode_document(TOLD)), Seal(0), Join(0, "s00"))
        stalled, moves = threading.Event(), threading.Event()
        sync = os.fdatasync

        def stall(descriptor: int) -> None:
            stalled.set()
            moves.wait()
            sync(descriptor)

        monkeypatch.setattr(os, "fdatasync", stall)
        await log.send(encode_request(0, batch(1, 100)))
        await trio.to_thread.run_sync(stalled.wait)
        await echo.send(b"still here")
        assert await echo.receive() == b"still here"
        moves.set()
        assert decode_reply(await log.receive()).reply == BatchWritten()
    nursery.cancel_scope.cancel()


async def test_a_reply_larger_than_the_system_takes_at_once_arrives(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    agent = await Agent.start(nursery, tmp_path)
    async with await agent.open("log") as stream, trio.open_nursery() as posting:
        posting.start_soon(stream.carry)
        await ask(stream, Install(encode_document(TOLD)), Seal(0), Join(0, "s00"))
        for address in range(20):
            stream.pending = 1
            stream.post(encode_request(address, batch(address, 1_000_000)))
        assert [decode_reply(await stream.receive()).reply for _ in range(20)] == [BatchWritten()] * 20
        posting.cancel_scope.cancel()
    nursery.cancel_scope.cancel()


async def test_a_directory_in_use_is_refused_to_a_second_thread(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    await LogThread.open("n0", tmp_path, nursery)
    with pytest.raises(StorageError, match="in use by another process"):
        await LogThread.open("n0", tmp_path, nursery)
    nursery.cancel_scope.cancel()


async def test_whoever_was_silent_longest_gives_way_also_in_the_thread(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    agent = await Agent.start(nursery, tmp_path, Settings(connections=4))
    async with await agent.open("log") as first, await agent.open("log") as second:
        await ask(first, GetStatus())
        await ask(second, GetStatus())
        async with await agent.open("log") as third:
            assert len(await ask(third, GetStatus())) == 1
        with pytest.raises(StreamClosedError):
            await first.receive()
        assert len(await ask(second, GetStatus())) == 1
        assert agent.transport.counters["streams_closed_for_others"] == 1
    nursery.cancel_scope.cancel()


async def test_a_thread_that_ends_closes_its_streams(nursery: trio.Nursery, tmp_path: Path) -> None:
    transport = await Transport.bind(LOOPBACK)
    nursery.start_soon(transport.run)
    async with trio.open_nursery() as own:
        thread = await LogThread.open("n0", tmp_path, own)
        transport.register("log", thread.serve)
        stream = await open_service(transport.bound, "log")
        await ask(stream, GetStatus())
        own.cancel_scope.cancel()
    async with stream, await open_service(transport.bound, "log") as late:
        for each in (stream, late):
            with pytest.raises(StreamClosedError):
                await each.receive()
    nursery.cancel_scope.cancel()
