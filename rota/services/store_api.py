"""What a node answers about the embedded store: streams of the log, and maps on top of them.

It translates between the log's own values and JSON.  A map that is asked for is held in memory as a whole, so only the
few used last are kept; the others are read from the log again when they are asked for.
"""

from __future__ import annotations

import base64
from codecs import getincrementaldecoder
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from datastore_adapter import (
    ExtentAwayError,
    InvalidEntryError,
    LogClient,
    LogError,
    LogUnavailableError,
    MapFullError,
    NotCopiedError,
    OutcomeUnknownError,
    ProtocolError,
    Record,
    RecordLostError,
    ReplicatedDict,
    TrimmedError,
    UnwrittenError,
)
from datastore_adapter.log.client.copying import decode_part, encode_part
from datastore_adapter.log.client.stream_search import StreamSize
from datastore_adapter.log.maps.snapshot import MAP_STREAMS
from datastore_adapter.log.runtime.runtime import Event
from rota.errors import ApiError
from rota.http.answers import (
    Appended,
    Cut,
    MapChange,
    MapEntries,
    MapEntry,
    RecordEntry,
    Records,
    StreamEntry,
    Streams,
)
from rota.http.limits import STREAM_NAME
from rota.version import VERSION

LONGEST_LISTING = 10_000
APPEND_TIMEOUT = 30.0
LARGEST_ANSWER = 16 << 20
"""Bytes of the values in one answer, about: what is left out is asked for again, from there on."""
NAMES_TIMEOUT = 10.0
"""Seconds for what streams there are, for somebody who waits."""
SIZES_TIMEOUT = 5.0
"""Seconds for how much there is of each stream; without it they are named only, if that is told in such a time."""
SIZES_KEPT = 2.0
"""Seconds for which they are good for others who ask: several consoles cost hardly more than one."""
SERVER_ERRORS = 500
"""Statuses from here on are no fault of who asked."""
MAPS_AT_ONCE = 4
"""Maps held in memory, each up to `MapSettings.max_bytes`."""
_CODES: tuple[tuple[type[LogError], str, int], ...] = (
    (InvalidEntryError, "bad_request", 400),
    (MapFullError, "full", 409),
    (NotCopiedError, "not_copied", 409),
    (ProtocolError, "bad_request", 400),
    (TrimmedError, "trimmed", 410),
    (UnwrittenError, "unwritten", 404),
    (ExtentAwayError, "away", 503),
    (OutcomeUnknownError, "outcome_unknown", 504),
    (RecordLostError, "lost", 410),
    (LogError, "log", 503),
)


class StoreApi:
    """Implements ``rota.http.backend.Store`` over ``client``.

    ``has_sizes``: whether all hosts know the question how much there is of each stream.
    """

    def __init__(self, client: LogClient, has_sizes: Callable[[], bool] = lambda: True) -> None:
        self._client = client
        self._has_sizes = has_sizes
        self._listed: Streams | ApiError | None = None
        self._listed_at = 0.0
        self._listing: Event | None = None
        """Happens when whoever asks now has the answer."""
        self._append_seconds: list[float] = []
        self.failed_appends = 0
        """So far, but for those that were refused as malformed."""
        self._maps: OrderedDict[str, ReplicatedDict] = OrderedDict()

    async def streams(self, *, only_names: bool = False) -> Streams:
        """What there are records of, but for what the log keeps for itself.  Raises :class:`ApiError`."""
        if only_names:
            try:
                return _listing(dict.fromkeys(await self._names(NAMES_TIMEOUT)))
            except LogError as error:
                raise _api_error(error) from error
        while self._listing is not None:  # somebody asks already: what they are told is told to all
            await self._listing.wait()
        if self._listed is None or self._client.runtime.now() - self._listed_at >= SIZES_KEPT:
            await self._list()
        if isinstance(self._listed, ApiError):
            raise ApiError(str(self._listed), code=self._listed.code, status=self._listed.status)
        assert self._listed is not None
        return self._listed

    async def _list(self) -> None:
        self._listing = self._client.runtime.event()
        try:
            try:
                self._listed = _listing(await self._sizes())
            except LogError as error:
                self._listed = _api_error(error)
            self._listed_at = self._client.runtime.now()
        finally:  # perhaps cancelled: then the next one asks
            self._listing.set()
            self._listing = None

    async def _sizes(self) -> Mapping[str, StreamSize | None]:
        """By stream; None where there are hosts that cannot tell, as those of an earlier version, or not in time."""
        if self._has_sizes():
            with suppress(LogUnavailableError):
                sizes = await self._client.sizes(timeout=SIZES_TIMEOUT)
                if sizes is not None:
                    return sizes
        return dict.fromkeys(await self._names(SIZES_TIMEOUT))

    async def _names(self, seconds: float) -> Iterable[str]:
        began = self._client.runtime.now()
        document, tail = await self._client.cut(timeout=seconds)
        left = max(0.0, began + seconds - self._client.runtime.now())
        return await self._client.names(document.layout.trimmed_below, tail, timeout=left)

    async def append(self, stream: str, payload: bytes) -> Appended:
        _check_stream(stream)
        began = self._client.runtime.now()
        try:
            address = await self._client.append(stream, payload, timeout=APPEND_TIMEOUT)
        except LogError as error:
            refusal = _api_error(error)
            self.failed_appends += refusal.status >= SERVER_ERRORS
            raise refusal from error
        self._append_seconds.append(self._client.runtime.now() - began)
        return {"stream": stream, "address": address, "bytes": len(payload)}

    def append_seconds(self) -> float | None:
        """What an append took on average since this was asked last; None: there was none."""
        taken, self._append_seconds = self._append_seconds, []
        return sum(taken) / len(taken) if taken else None

    async def read(
        self, stream: str, address: int | None, limit: int, start: int | None = None, most: int | None = None
    ) -> Records:
        """One record, the first from `start` on, or the latest; oldest first; of each the first `most` bytes.

        Raises :class:`ApiError`.
        """
        _check_stream(stream)
        asked, limit = limit, min(limit, LONGEST_LISTING)
        try:
            if start is not None and address is None:
                records = await self._first(stream, start, limit)
            elif address is None:
                found = await self._client.latest(stream, limit, max_bytes=LARGEST_ANSWER)
                records = found[::-1]
            else:
                record = await self._client.read(address)
                records = [record] if record is not None and record.stream == stream else []
        except LogError as error:
            raise _api_error(error) from error
        is_full = sum(len(record.payload) for record in records) >= LARGEST_ANSWER
        is_full |= len(records) >= LONGEST_LISTING
        more = is_full and address is None and len(records) < asked
        return {"stream": stream, "records": [_record(record, most) for record in records], "more": more}

    async def _first(self, stream: str, start: int, limit: int) -> list[Record]:
        records: list[Record] = []
        bytes_left = LARGEST_ANSWER
        async for record in self._client.stream(stream, start):
            records.append(record)
            bytes_left -= len(record.payload)
            if len(records) >= limit or bytes_left <= 0:
                break
        return records

    async def follow(self, stream: str, start: int | None) -> AsyncGenerator[RecordEntry]:
        """The records from `start` on and whatever follows.  Raises :class:`ApiError`."""
        _check_stream(stream)
        try:
            async for record in self._client.stream(stream, start, follow=True):
                yield _record(record)
        except LogError as error:
            raise _api_error(error) from error

    async def cut(self) -> Cut:
        """Where the log ends, and the intent of that moment."""
        try:
            document, address = await self._client.cut()
        except LogError as error:
            raise _api_error(error) from error
        return {
            "cluster_id": document.cluster_id,
            "layout_epoch": document.epoch,
            "address": address,
            "intent": document.intent,
            "version": VERSION,
        }

    async def part(self, start: int, end: int) -> bytes:
        """A part of all that is in the log, for a backup."""
        try:
            return encode_part(await self._client.read_part(start, end))
        except LogError as error:
            raise _api_error(error) from error

    async def check_empty(self) -> None:
        """Raises :class:`ApiError` unless nothing was ever written."""
        tail = (await self.cut())["address"]
        if tail:
            raise ApiError(
                f"this cluster's log has {tail} addresses, and a backup is restored into an empty one; "
                "start agents with empty data directories (or go on with a restore that was cut short: --resume)",
                code="not_empty",
                status=409,
            )

    async def write_part(self, data: bytes) -> None:
        """Put a part of a backup into the log."""
        try:
            await self._client.write_part(decode_part(data))
        except NotCopiedError as error:
            raise ApiError(
                f"{error}; somebody wrote to the log meanwhile, or a host was lost: start all agents with empty data "
                "directories, let nobody write, and restore again",
                code="not_copied",
                status=409,
            ) from error
        except LogError as error:
            raise _api_error(error) from error

    async def entries(
        self, name: str, limit: int, most: int | None = None, after: str | None = None
    ) -> MapEntries:
        """The first keys of a map (behind one), in order, with the first `most` bytes of each value.

        And how many keys there are in all.
        """
        try:
            found = await self._map(name).items()
        except LogError as error:
            raise _api_error(error) from error
        shown: list[MapEntry] = []
        bytes_left = LARGEST_ANSWER
        for key, value in found.items():
            if after is not None and key <= after:
                continue
            if len(shown) >= limit or bytes_left <= 0:
                break
            shown.append(_entry(key, value, most))
            bytes_left -= len(value[:most])
        return {"map": name, "keys": len(found), "entries": shown}

    async def change(self, name: str, request: Mapping[str, Any]) -> MapChange:
        """Get, set, delete or replace one key.  Raises :class:`ApiError`, also for a request that is none."""
        action, key = request.get("action"), request.get("key")
        if action not in ("get", "set", "delete", "replace") or not isinstance(key, str):
            raise ApiError(
                'send {"action": "get", "key": KEY}, or "set", "delete", "replace"; GET / shows how',
                code="bad_request",
                status=400,
            )
        value, expected = _bytes_of(request, "value"), _bytes_of(request, "expected")
        if action == "set" and value is None:
            raise ApiError('"value" is missing: base64 of what to set', code="bad_request", status=400)
        try:
            return await self._carry_out(self._map(name), str(action), key, value, expected)
        except LogError as error:
            raise _api_error(error) from error

    async def _carry_out(
        self, shared: ReplicatedDict, action: str, key: str, value: bytes | None, expected: bytes | None
    ) -> MapChange:
        entry: MapEntry | None = None
        done = True
        if action == "get":
            found = await shared.get(key)
            done, entry = found is not None, None if found is None else _entry(key, found)
        elif action == "replace":
            done = await shared.compare_and_set(key, expected, value)
        elif value is not None and action == "set":
            await shared.set(key, value)
        else:
            done = await shared.delete(key)
        return {"map": shared.name, "key": key, "action": action, "done": done, "entry": entry}

    def _map(self, name: str) -> ReplicatedDict:
        shared = self._maps.pop(name, None) or ReplicatedDict(self._client, name)
        self._maps[name] = shared
        if len(self._maps) > MAPS_AT_ONCE:
            self._maps.popitem(last=False)
        return shared


def _listing(sizes: Mapping[str, StreamSize | None]) -> Streams:
    maps: dict[str, list[StreamSize | None]] = {}
    for name, size in sizes.items():
        if name.startswith(MAP_STREAMS):
            of_map = name.removeprefix(MAP_STREAMS).removesuffix("/chunks").removesuffix("/manifests")
            maps.setdefault(of_map, []).append(size)
    streams = {name: [size] for name, size in sizes.items() if STREAM_NAME.fullmatch(name)}
    return {
        "streams": [_stream(name, of) for name, of in sorted(streams.items())[:LONGEST_LISTING]],
        "maps": [_stream(name, of) for name, of in sorted(maps.items())[:LONGEST_LISTING]],
        "left_off": sum(max(0, len(each) - LONGEST_LISTING) for each in (streams, maps)),
    }


def _stream(name: str, sizes: Iterable[StreamSize | None]) -> StreamEntry:
    known = [size for size in sizes if size is not None]
    if not known:
        return {"name": name, "records": None, "bytes": None}
    return {
        "name": name,
        "records": sum(size.records for size in known),
        "bytes": sum(size.bytes for size in known),
    }


def _bytes_of(request: Mapping[str, Any], name: str) -> bytes | None:
    text = request.get(name)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise ApiError(f'"{name}" is not base64', code="bad_request", status=400) from None


def _api_error(error: LogError) -> ApiError:
    code, status = next((code, status) for kind, code, status in _CODES if isinstance(error, kind))
    return ApiError(str(error), code=code, status=status)


def _check_stream(stream: str) -> None:
    if not STREAM_NAME.fullmatch(stream):
        raise ApiError(
            "a stream's name is 1 to 64 letters, digits, dots, dashes or underscores",
            code="bad_request",
            status=400,
        )


def _record(record: Record, most: int | None = None) -> RecordEntry:
    payload = record.payload
    text, hexadecimal = _shown(payload, most)
    return {"address": record.address, "text": text, "hex": hexadecimal, "bytes": len(payload)}


def _entry(key: str, value: bytes, most: int | None = None) -> MapEntry:
    text, hexadecimal = _shown(value, most)
    return {"key": key, "text": text, "hex": hexadecimal, "bytes": len(value)}


def _shown(value: bytes, most: int | None) -> tuple[str, str]:
    """As UTF-8 and as hexadecimal digits; a character that the cut goes through is left out of the text."""
    head = value[:most]
    is_whole = len(head) == len(value)
    return getincrementaldecoder("utf-8")("replace").decode(head, final=is_whole), head.hex()
