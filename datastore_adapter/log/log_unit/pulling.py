"""Pulling: a new replica fetches what it lacks from another host, without a way over the controller.

The destination's part of one piece of state transfer, as a procedure: ask the source, give the answer to the own log
unit.  A replica that was one before, and comes back, first compares what it still has with the source by record ids
(`Reclaim`), so that only what is missing or wrong travels.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from datastore_adapter.log.errors import CallError
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.layout.striping import Stripe, addresses_in
from datastore_adapter.log.messages import (
    Chunk,
    Confirm,
    Done,
    Ids,
    PullChunk,
    Pulled,
    ReadChunk,
    ReadIds,
    Reclaim,
    Refused,
    Reply,
    Request,
    WriteChunk,
    WrongEpoch,
)
from datastore_adapter.log.messages.codec import entries_checksum
from datastore_adapter.log.runtime.runtime import Runtime
from datastore_adapter.log.settings import LogSettings

SOURCE: str = "source"
"""Code of the refusal when it is the source that failed: another may do."""


async def pull(
    runtime: Runtime,
    settings: LogSettings,
    document: EpochDocument | None,
    ask_unit: Callable[[Request], Awaitable[Reply]],
    request: PullChunk | Reclaim,
) -> Reply:
    """The reply to `request` at a host that knows `document`; `ask_unit` asks its log unit."""
    if document is None or request.source not in document.hosts:
        return Refused(SOURCE, f"the layout known here names no host {request.source[:40]!r}")
    piece = (request.epoch, request.segment, request.start, request.end, request.stripe, request.stripes)
    question = ReadIds(*piece) if isinstance(request, Reclaim) else ReadChunk(*piece, request.max_bytes)
    try:
        answer = await runtime.call(document.peer(request.source), question, settings.call_timeout)
    except CallError as error:
        return Refused(SOURCE, f"{request.source}: {error}")
    match answer:
        case Ids() if isinstance(request, Reclaim):
            confirm = Confirm(*piece[:3], answer.next, *piece[4:], answer.ids)
            return await _kept(ask_unit, confirm, Pulled(answer.next))
        case Chunk():
            return await _keep_chunk(ask_unit, request, answer)
        case WrongEpoch():
            return answer
        case _:
            return Refused(SOURCE, f"{request.source} answered with {type(answer).__name__}")


async def _keep_chunk(
    ask_unit: Callable[[Request], Awaitable[Reply]], request: PullChunk | Reclaim, chunk: Chunk
) -> Reply:
    if entries_checksum(chunk.entries) != chunk.checksum:
        return Refused(SOURCE, f"a chunk from {request.source} was damaged on its way")
    if chunk.trimmed_below <= request.start and not (chunk.entries and chunk.entries[0][0] == request.start):
        return Pulled(request.start)  # what is asked for first is not there, or damaged
    size = sum(len(entry.payload) + 64 for _, entry in chunk.entries)
    write = WriteChunk(request.epoch, request.segment, chunk.entries, chunk.checksum, chunk.trimmed_below)
    return await _kept(ask_unit, write, Pulled(_end_of(request, chunk), size))


async def _kept(ask_unit: Callable[[Request], Awaitable[Reply]], change: Request, result: Pulled) -> Reply:
    reply = await ask_unit(change)
    return result if isinstance(reply, Done) else reply


def _end_of(request: PullChunk | Reclaim, chunk: Chunk) -> int:
    """Where the unbroken run of copied addresses ends."""
    copied = {address for address, _ in chunk.entries}
    begin = max(request.start, chunk.trimmed_below)
    run = addresses_in(begin, max(begin, chunk.next), Stripe(request.stripe, request.stripes))
    return next((address for address in run if address not in copied), chunk.next)
