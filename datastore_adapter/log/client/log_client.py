"""The log's client: append, read, iterate streams, with all retries.

What an application embeds.  It finds the layout by itself from any agents' addresses, follows it from epoch to epoch,
and gives each append exactly one place in the log as far as its caller can tell.  Concurrent appends have no order
beyond the addresses they get.
Source: CORFU (NSDI 2012) section 2 (append, read, fill); Tango (SOSP 2013) section 5 (streams).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Final, TypeVar, cast

from datastore_adapter.log.client.appending import Appends
from datastore_adapter.log.client.copying import SPAN, Copying, Excerpt, LogPart, bounded
from datastore_adapter.log.client.current_epoch import ensure_current
from datastore_adapter.log.client.layout_cache import LayoutCache
from datastore_adapter.log.client.record import Record
from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.client.stream_reader import StreamReader
from datastore_adapter.log.client.stream_search import HOLES_AT_ONCE, Found, StreamSearch, StreamSize
from datastore_adapter.log.errors import (
    CallError,
    EpochSealedError,
    ExtentAwayError,
    InvalidStreamError,
    LogUnavailableError,
    NoLayoutError,
    OutcomeUnknownError,
    PayloadTooLargeError,
    RecordLostError,
    ReplicaRefusedError,
    ReplicaUnavailableError,
    TrimmedError,
    UnwrittenError,
)
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.messages import (
    STREAM_NAME_LIMIT,
    UNKNOWN,
    Addresses,
    Done,
    Entry,
    LastAddresses,
    Trim,
)
from datastore_adapter.log.runtime.runtime import Backoff, Runtime, call_all, results_of
from datastore_adapter.log.sequencer.back_pointers import BackPointerWalk, StreamTail
from datastore_adapter.log.settings import LogSettings

T = TypeVar("T")

READ_AT_ONCE: Final = 16
"""Records of those that a search found."""
SEARCHED_FIRST: Final = 4096
"""Addresses that are searched at first for the latest records that no pointer leads to; then twice as many."""


class LogClient:
    """A client of one log.  `seeds` are ``host:port`` of any agents; one that answers is enough.

    May be used by many tasks at a time.  Nothing runs between calls.
    """

    def __init__(self, runtime: Runtime, seeds: Sequence[str], settings: LogSettings | None = None) -> None:
        if not seeds:
            raise NoLayoutError("a client needs the address of at least one agent")
        self._runtime = runtime
        self._settings = settings or LogSettings()
        self._appends = Appends(runtime, self._settings, self._replication)
        self._counters: Counter[str] = Counter()
        self._layouts = LayoutCache(runtime, self._settings, seeds, self._counters)

    @property
    def runtime(self) -> Runtime:
        """The world it works in."""
        return self._runtime

    @property
    def document(self) -> EpochDocument | None:
        """The epoch document it works with at the moment."""
        return self._layouts.document

    @property
    def epoch(self) -> int:
        """The data epoch it works in; -1: it knows of none yet."""
        return -1 if self.document is None else self.document.layout.data_epoch

    @property
    def base(self) -> int:
        """Where that epoch began: what was written before it lies below this address, and stays."""
        return 0 if self.document is None else self.document.layout.base

    @property
    def pointers_from(self) -> int:
        """Back-pointers lead to every record from this address on; lower ones have to be searched for."""
        return 0 if self.document is None else self.document.layout.pointers_from

    @property
    def settled_below(self) -> int:
        """No record will ever appear below this address, as far as it knows."""
        return 0 if self.document is None else self.document.layout.settled_below

    @property
    def forgotten_below(self) -> int:
        """Below it there are addresses whose records were declared lost; 0: nowhere."""
        return 0 if self.document is None else self.document.layout.forgotten_below

    def away_within(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last address in ``[start, end)`` that only hosts that are away hold, as far as it knows."""
        return None if self.document is None else self.document.layout.away_within(start, end)

    def statistics(self) -> dict[str, int]:
        """Counters: operations, batches of appends, retries, holes filled."""
        return dict(sorted({**self._counters, **self._appends.counters}.items()))

    async def append(self, stream: str, payload: bytes, *, timeout: float | None = None) -> int:
        """Append a record; its address.  On return every replica of its chain holds it durably.

        Appends that wait at the same time share messages and fsyncs; one alone does not wait for others.
        `timeout` in seconds, default `LogSettings.append_timeout`.  Raises OutcomeUnknownError when that
        passes without an answer; PayloadTooLargeError and InvalidStreamError at once.
        """
        self._check(stream, payload)
        appending = self._appends.begin(stream, payload)
        seconds = self._settings.append_timeout if timeout is None else timeout
        try:
            address = await self._retry(appending.attempt, seconds, waits_for_hosts=True)
        except LogUnavailableError as error:
            if appending.address is None:
                raise  # nothing was written anywhere
            raise OutcomeUnknownError(
                f"append to {stream!r} was not confirmed within {seconds:g} s ({error}); it may be in the log"
            ) from error
        self._counters["appends"] += 1
        return address

    async def read(self, address: int, *, timeout: float | None = None) -> Record | None:
        """The record at `address`, or None where a hole was filled because its writer gave up.

        Raises UnwrittenError beyond the tail, TrimmedError, RecordLostError, LogUnavailableError, and at once
        ExtentAwayError (one of the last) where nobody who has it is there.
        """
        if address < 0:
            raise UnwrittenError(f"addresses begin at 0, not {address}")
        entry = await self._retry(partial(self._read, address), timeout)
        self._counters["reads"] += 1
        return _record(address, entry)

    async def tail(self, *, timeout: float | None = None) -> int:
        """One above the highest address handed out so far."""
        return await self._retry(self._tail, timeout)

    async def stream(
        self, name: str, start: int | None = None, *, follow: bool = False, timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """The records of stream `name` from address `start` to the tail of now, in order of address.

        Without `start` from the first that is not trimmed; with it, TrimmedError if some were trimmed from
        there on.  Holes are filled on the way, so that nothing can appear there afterwards.  With `follow` it
        never ends, and looks for more every `LogSettings.follow_pause`.  `timeout`, default
        `LogSettings.read_timeout`, is for each step.
        """
        reader = self.reader(name, start, timeout=timeout)
        while True:
            async for record in reader.advance():
                yield record
            if not follow:
                return
            await self._runtime.sleep(self._settings.follow_pause)

    def reader(self, name: str, start: int | None = None, *, timeout: float | None = None) -> StreamReader:
        """A reader of stream `name` that remembers where it stands; arguments as of `stream`."""
        return StreamReader(self, name, start, timeout=timeout)

    async def latest(
        self, name: str, count: int, *, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[Record]:
        """The last `count` records of stream `name`, the latest first, found by back-pointers.

        No further ones are read once their payloads have `max_bytes` together.
        Raises ExtentAwayError where hosts that are away may have some of them.
        """
        told = await self.last_addresses(name, timeout=timeout)
        walk = BackPointerWalk(self.pointers_from, told.tail, told.latest)
        records: list[Record] = []
        bytes_left = inf if max_bytes is None else max_bytes
        reached_first = not told.latest and not self.pointers_from
        while walk.unread and len(records) < count and bytes_left > 0:
            address = walk.unread[-1]
            try:
                record = await self.read(address, timeout=timeout)
            except TrimmedError:
                return records
            except UnwrittenError:
                record = None  # given out, and not written until a new epoch began
            if record is not None and record.stream != name:
                record = None  # given again there, to another stream, whose pointers lead elsewhere
            walk.learn(address, () if record is None else record.previous)
            if record is not None:
                records.append(record)
                bytes_left -= len(record.payload)
                reached_first |= not record.previous and not self.pointers_from
        if len(records) < count and bytes_left > 0 and not reached_first:
            end = max(walk.covered_from, self.pointers_from)
            addresses = await self._latest_below(end, name, count - len(records), timeout)
            while addresses and bytes_left > 0:
                found = await self.read_all(addresses[:READ_AT_ONCE], timeout=timeout)
                theirs = [record for record in found if record is not None and record.stream == name]
                records += theirs
                bytes_left -= sum(len(record.payload) for record in theirs)
                del addresses[:READ_AT_ONCE]
        return records

    async def _latest_below(self, end: int, name: str, count: int, timeout: float | None) -> list[int]:
        """Where no pointer leads: the last `count` addresses below `end`, latest first, by searching backwards."""
        latest: list[int] = []
        span = SEARCHED_FIRST
        while end > 0 and len(latest) < count:
            begin = self._search_from(end, span)
            try:
                found, trimmed = await self._found(name, begin, end, timeout)
            except ExtentAwayError:
                if self._search_from(end, span) == begin:
                    raise
                continue  # the layout that says so is new here
            latest = found + latest
            end, span = (begin if begin > trimmed else 0), 2 * span
        return latest[-count:][::-1]

    def _search_from(self, end: int, span: int) -> int:
        """Where a search up to `end` begins: behind the last address that hosts hold that are away, or there."""
        away = self.away_within(0, end)
        return max(0, end - span, 0 if away is None else min(away[1] + 1, end - 1))

    async def _found(self, name: str, start: int, end: int, timeout: float | None) -> tuple[list[int], int]:
        """All addresses of the stream in ``[start, end)``, and below which one they were trimmed."""
        addresses: list[int] = []
        position, trimmed = start, 0
        while position < end:
            found = await self.find(name, position, end, timeout=timeout)
            addresses += found.addresses
            position, trimmed = found.complete_below, max(trimmed, found.trimmed_below)
        return addresses, trimmed

    async def last_addresses(self, stream: str, *, timeout: float | None = None) -> StreamTail:
        """The tail, and the latest addresses of `stream` below it; some may be, or become, holes.

        Every append that was acknowledged before the call lies below that tail.
        """
        return await self._retry(partial(self._last, stream), timeout)

    async def find(self, stream: str | None, start: int, end: int, *, timeout: float | None = None) -> Found:
        """A part of the records of `stream` in ``[start, end)`` and how far it goes, every hole there filled.

        `end` must not be above the tail; without a stream only the holes are filled.
        """
        return await self._retry(partial(self._find, stream, start, end), timeout)

    async def names(self, start: int, end: int, *, timeout: float | None = None) -> set[str]:
        """Every stream that has a record in ``[start, end)``; settle the range first (`find`).

        With a `timeout` it is for all of them; without one each answer has its own, however many are needed.
        """
        until = inf if timeout is None else self._runtime.now() + timeout
        return await self._retry(partial(self._names, start, end, until), timeout)

    async def sizes(self, *, timeout: float | None = None) -> dict[str, StreamSize] | None:
        """Every stream and about how much there is of it; None where a host of an earlier version cannot tell.

        It settles nothing: what is being appended or copied may be counted or not.
        """
        until = self._runtime.now() + (self._settings.read_timeout if timeout is None else timeout)
        return await self._retry(partial(self._sizes, until), timeout)

    async def read_all(
        self, addresses: Sequence[int], *, timeout: float | None = None
    ) -> list[Record | None]:
        """The records at the addresses, read at the same time, None for holes; raises as `read` does."""
        jobs = [partial(self.read, address, timeout=timeout) for address in addresses]
        return results_of(await self._runtime.gather(jobs))

    async def cut(self, *, timeout: float | None = None) -> tuple[EpochDocument, int]:
        """The epoch document in force and the tail, both of one moment."""
        return await self._retry(self._cut, timeout)

    async def read_part(
        self, start: int, end: int, max_bytes: int = 1 << 20, *, timeout: float | None = None
    ) -> LogPart:
        """All records of ``[start, end)``, as far as about `max_bytes` go, every hole there filled.

        `end` must not be above the tail.  Where records were trimmed the part begins behind them, perhaps beyond `end`.
        """
        end = min(end, start + SPAN)
        excerpt = await self._retry(partial(self._excerpt, start, end, max_bytes), timeout)
        missing, until, trimmed = excerpt.missing, excerpt.next, excerpt.trimmed_below
        if len(missing) > HOLES_AT_ONCE:
            missing, until = missing[:HOLES_AT_ONCE], missing[HOLES_AT_ONCE]
        jobs = [partial(self._standing, address, timeout) for address in missing]
        found = dict(zip(missing, results_of(await self._runtime.gather(jobs)), strict=True))
        entries = excerpt.entries | {a: entry for a, entry in found.items() if isinstance(entry, Entry)}
        trimmed = max(trimmed, *(below for below in found.values() if isinstance(below, int)), 0)
        lost = tuple(address for address, entry in found.items() if entry is None)
        begin = max(start, trimmed)
        return bounded(LogPart(begin, max(begin, until), trimmed, entries, lost), max_bytes)

    async def write_part(self, part: LogPart, *, timeout: float | None = None) -> None:
        """Bring a part of another log into this one, which must hold just what comes before it.

        Raises NotCopiedError.  May be repeated, also after a crash.
        """
        await self._retry(partial(self._take_part, part), timeout)
        if part.trimmed_below == part.start:
            await self.trim(
                part.start, timeout=timeout
            )  # before anything makes these addresses holes to be filled
        await self._retry(partial(self._write_part, part), timeout)

    async def trim(self, address: int, *, timeout: float | None = None) -> None:
        """Forget all records of all streams below `address`; the disk space is freed by whole files.

        Raises UnwrittenError beyond the tail.  To free what one stream no longer needs, see `log.client.retention`.
        """
        tail = await self.tail(timeout=timeout)
        if address > tail:
            raise UnwrittenError(
                f"address {address} is beyond the log's tail, {tail}; trim at most up to that"
            )
        await self._retry(partial(self._trim, address), timeout)

    # attempts: one try each, under the layout of that moment

    async def _read(self, address: int) -> Entry:
        replication = await self._replication()
        entry = await replication.read(address)
        if entry is not None:
            return entry
        if address >= await self._tail():
            raise UnwrittenError(f"address {address} is at or beyond the log's tail")
        entry = await self._late(replication, address)
        if entry is not None:
            return entry
        await self._search(replication).fill(address)
        entry = await replication.read(address)
        if entry is None:
            raise ReplicaUnavailableError(f"address {address} is being completed by somebody else")
        return entry

    async def _late(self, replication: Replication, address: int) -> Entry | None:
        """The entry, if its writer is under way: it has `LogSettings.hole_timeout` until others take its address."""
        settings = self._settings
        backoff = Backoff(
            self._runtime, settings.backoff_first, max(settings.backoff_first, settings.hole_timeout / 4)
        )
        deadline = self._runtime.now() + settings.hole_timeout
        while self._runtime.now() < deadline:
            await backoff.pause()
            entry = await replication.read(address)
            if entry is not None:
                return entry
        return None

    async def _tail(self) -> int:
        replication = await self._replication()
        return (await self._told_now(replication, replication.take_tokens)).first

    async def _last(self, stream: str) -> StreamTail:
        replication = await self._replication()
        request = LastAddresses(replication.epoch, stream)
        ask = partial(replication.call, replication.sequencer, request)
        reply = await self._told_now(replication, ask)
        if not isinstance(reply, Addresses):
            raise ReplicaUnavailableError(f"the sequencer answered with {type(reply).__name__}")
        return StreamTail(replication.epoch, reply.tail, reply.addresses)

    async def _told_now(self, replication: Replication, ask: Callable[[], Awaitable[T]]) -> T:
        """What a sequencer says, with the certainty that it was not deposed before the question."""
        jobs: list[Callable[[], Awaitable[object]]] = [
            ask,
            partial(ensure_current, self._runtime, self._settings, replication),
        ]
        return cast("T", results_of(await self._runtime.gather(jobs))[0])

    async def _find(self, stream: str | None, start: int, end: int) -> Found:
        return await self._search(await self._replication()).find(stream, start, end)

    async def _names(self, start: int, end: int, until: float) -> set[str]:
        return await self._search(await self._replication()).names(start, end, until)

    async def _sizes(self, until: float) -> dict[str, StreamSize] | None:
        try:
            return await self._search(await self._replication()).sizes(until)
        except ReplicaRefusedError as error:
            if error.code != UNKNOWN:
                raise
            return None

    async def _cut(self) -> tuple[EpochDocument, int]:
        replication = await self._replication()
        tokens = await self._told_now(replication, replication.take_tokens)
        return replication.document, tokens.first

    async def _excerpt(self, start: int, end: int, max_bytes: int) -> Excerpt:
        return await Copying(self._runtime, await self._replication()).read(start, end, max_bytes)

    async def _standing(self, address: int, timeout: float | None) -> Entry | int | None:
        """What stands at an address; below which one all is trimmed; None where nobody has it any more."""
        try:
            return await self._retry(partial(self._read, address), timeout)
        except TrimmedError as error:
            return error.below
        except RecordLostError:
            return None
        except UnwrittenError:  # the tail that the caller was told was an earlier sequencer's
            return await self._retry(partial(self._settle, address), timeout)

    async def _settle(self, address: int) -> Entry:
        return await (await self._replication()).settle(address)

    async def _take_part(self, part: LogPart) -> None:
        tail = await self._tail()
        if tail < part.next:
            await Copying(self._runtime, await self._replication()).take(tail, part)

    async def _write_part(self, part: LogPart) -> None:
        await Copying(self._runtime, await self._replication()).write(part)

    def _search(self, replication: Replication) -> StreamSearch:
        return StreamSearch(self._runtime, self._settings, replication, self._counters)

    async def _trim(self, address: int) -> None:
        replication = await self._replication()
        document = replication.document
        # Who only has what is away need not hear of it: the layout says from where on there is anything.
        hosts = {host for segment in replication.layout.segments for host in segment.serving_hosts()}
        peers = {host: document.peer(host) for host in sorted(hosts)}
        request = Trim(replication.epoch, address)
        replies = await call_all(self._runtime, peers, request, self._settings.call_timeout)
        for host in peers:
            if host not in replies:
                raise ReplicaUnavailableError(f"{host} did not answer")
            if not isinstance(replication.checked(host, replies[host]), Done):
                raise ReplicaUnavailableError(f"{host} did not trim")

    async def _replication(self) -> Replication:
        return Replication(self._runtime, self._settings, await self._layouts.current())

    # retries

    async def _retry(
        self, attempt: Callable[[], Awaitable[T]], timeout: float | None, *, waits_for_hosts: bool = False
    ) -> T:
        """Repeat `attempt` over failures that a retry or a new layout can cure, or hosts that come back."""
        seconds = self._settings.read_timeout if timeout is None else timeout
        deadline = self._runtime.now() + seconds
        backoff = Backoff(self._runtime, self._settings.backoff_first, self._settings.backoff_limit)
        known: EpochDocument | None = None
        while True:
            try:
                return await attempt()
            except (EpochSealedError, ReplicaUnavailableError, CallError) as error:
                self._counters["retries"] += 1
                if isinstance(error, EpochSealedError):
                    self._layouts.sealed = max(self._layouts.sealed, error.sealed)
                if isinstance(error, ExtentAwayError) and self.document is known and not waits_for_hosts:
                    raise  # this is no hitch: the layout itself says so, and has not changed meanwhile
                known = self.document
                if self._runtime.now() >= deadline:
                    kind = NoLayoutError if self.document is None else LogUnavailableError
                    raise kind(
                        f"no success within {seconds:g} s: {error}{self._layouts.trouble()}"
                    ) from error
                replica_failed = isinstance(error, ReplicaUnavailableError)
            # Not while an error is handled, which leads back to this frame.
            await backoff.pause()
            if replica_failed:
                await self._refresh()

    async def _refresh(self) -> None:
        """After a replica failed: see whether the layout has moved on without it."""
        if self.document is not None:
            try:
                await self._layouts.fetch()
            except ReplicaUnavailableError:
                self._counters["layout_misses"] += 1

    def _check(self, stream: str, payload: bytes) -> None:
        if not 0 < len(stream.encode()) <= STREAM_NAME_LIMIT:
            raise InvalidStreamError(
                f"a stream's name has 1 to {STREAM_NAME_LIMIT} bytes, not {len(stream.encode())}"
            )
        if len(payload) > self._settings.max_payload:
            raise PayloadTooLargeError(
                f"a payload of {len(payload)} bytes; at most {self._settings.max_payload} fit into one record"
            )


def _record(address: int, entry: Entry) -> Record | None:
    return None if entry.is_junk else Record(address, entry.stream, entry.payload, entry.previous)
