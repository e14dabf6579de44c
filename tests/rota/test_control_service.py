"""Requests between agents: round trip, refusal, malformed frames."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgpack
import msgspec
import pytest
import trio
from trio.testing import MockClock

import membership
from membership.transport import OtherMemberError
from rota.errors import ApiError
from rota.services.control_service import SERVICE, answer_requests, ask, ask_member


class Half:
    """One end of a pair of frame streams in memory."""

    def __init__(self, out: trio.MemorySendChannel[bytes], back: trio.MemoryReceiveChannel[bytes]) -> None:
        self._out, self._back = out, back

    async def send(self, payload: bytes) -> None:
        await self._out.send(payload)

    async def receive(self) -> bytes:
        return await self._back.receive()


def pair() -> tuple[Any, Any]:
    there, from_here = trio.open_memory_channel[bytes](1)
    back, from_there = trio.open_memory_channel[bytes](1)
    return Half(there, from_there), Half(back, from_here)


async def answer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "drain" and arguments["host"] == "n9":
        raise ApiError("no host 'n9' in the view", code="unknown_host", status=404)
    return {"request": name, **arguments, "nested": {"list": [1, None, 2.5]}}


async def test_a_request_is_answered() -> None:
    here, there = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_requests, there, answer)
        reply = await ask(here, "drain", {"host": "n1"})
    assert reply == {"request": "drain", "host": "n1", "nested": {"list": [1, None, 2.5]}}


async def test_a_refusal_arrives_as_it_was_raised() -> None:
    here, there = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_requests, there, answer)
        try:
            await ask(here, "drain", {"host": "n9"})
        except ApiError as error:
            refused = error
    assert (str(refused), refused.code, refused.status) == ("no host 'n9' in the view", "unknown_host", 404)


async def test_a_request_is_for_one_member_whoever_has_its_address(autojump_clock: MockClock) -> None:
    network, settings = membership.InMemoryNetwork(), membership.Settings.local()
    services = {SERVICE: partial(answer_requests, answer=answer)}
    join = partial(membership.join, network=network, settings=settings, services=services)
    async with join("10.0.0.1:1") as here, join("10.0.0.2:1", ["10.0.0.1:1"]) as there:
        reply = await ask_member(here, there.me, SERVICE, "drain", {"host": "n1"})
        assert reply["host"] == "n1"
        before = msgspec.structs.replace(there.me, incarnation=b"its predecessor.")
        with pytest.raises(OtherMemberError):
            await ask_member(here, before, SERVICE, "drain", {"host": "n1"})
        assert there.statistics()["streams_refused_other_member"] == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgpack.packb([1]),
        msgpack.packb({"request": 3}),
        b"\xdd\xff\xff\xff\xff",
        bytes(1 << 17),
    ],
)
async def test_a_malformed_request_is_refused(payload: bytes) -> None:
    here, there = pair()
    await here.send(payload)
    await answer_requests(there, answer)
    assert "malformed" in msgpack.unpackb(await here.receive())["error"]
