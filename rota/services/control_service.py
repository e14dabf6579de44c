"""Passing a request on to the controller, agent to agent.

Any agent takes a request over HTTP; only the controller can answer it.  It travels over the cluster's own
transport (service ``control``): one frame with the request, one with the answer, in MessagePack.  It is for a member,
and not for whatever other process may have its address by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgpack
import trio

from rota.errors import ApiError

if TYPE_CHECKING:
    from membership import Cluster, Member
    from membership.transport import FrameStream

SERVICE = "control"
LARGEST_REQUEST = 16 << 20
"""Bytes: the intent of a backup, with whole policies in them."""
LARGEST_ANSWER = 64 << 20
ANSWER_TIMEOUT = 60.0

Answer = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def _decode(payload: bytes, bound: int) -> dict[str, Any]:
    unpacker = msgpack.Unpacker(max_buffer_size=bound)
    try:
        unpacker.feed(payload)
        value = unpacker.unpack()
    except (ValueError, msgpack.UnpackException) as error:  # BufferFull and OutOfData are UnpackExceptions
        raise ApiError("malformed request between agents", code="malformed", status=502) from error
    if not isinstance(value, dict):
        raise ApiError("malformed request between agents", code="malformed", status=502)
    return value


async def answer_requests(stream: FrameStream, answer: Answer) -> None:
    """The controller's side of one stream: one request, one answer; ``answer`` raises :class:`ApiError` to refuse."""
    try:
        request = _decode(await stream.receive(), LARGEST_REQUEST)
        name, arguments = request.get("request"), request.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ApiError("malformed request between agents", code="malformed", status=400)
        reply: dict[str, Any] = {"answer": await answer(name, arguments)}
    except ApiError as error:
        reply = {"error": str(error), "code": error.code, "status": error.status}
    await stream.send(msgpack.packb(reply))


async def ask_member(
    cluster: Cluster, member: Member, service: str, name: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Ask this member's ``service``.  Raises :class:`TransportError` where it cannot be reached, and as :func:`ask`."""
    opening = cluster.transport.open_service(member.address, service, incarnation=member.incarnation)
    async with await opening as stream:
        return await ask(stream, name, arguments)


async def ask(stream: FrameStream, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Send one request and wait for its answer.  Raises :class:`ApiError` as the controller raised it."""
    try:
        with trio.fail_after(ANSWER_TIMEOUT):
            await stream.send(msgpack.packb({"request": name, "arguments": arguments}))
            reply = _decode(await stream.receive(), LARGEST_ANSWER)
    except trio.TooSlowError as error:
        raise ApiError(
            f"the controller did not answer within {ANSWER_TIMEOUT:.0f} s; look at `rota status`",
            code="timeout",
        ) from error
    if "error" in reply:
        raise ApiError(
            str(reply["error"]), code=str(reply.get("code")), status=int(reply.get("status") or 503)
        )
    answer: dict[str, Any] = reply["answer"]
    return answer
