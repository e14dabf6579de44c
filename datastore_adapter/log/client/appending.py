"""Appends: many at a time share the messages, and each gets at most one place in the log.

The appends that wait go together as a batch: one request for all their addresses, one message per chain and replica
for all their records, so that the replicas make them durable with one fsync.  What a batch cannot write plainly goes
on alone, under the rules below.  It does not retry (`log.client.log_client`), and does not order appends that are
under way together.

An append keeps the address its record may stand at.  It takes another one only when it is certain that the record
does not stand at the first and never will: so there is at most one record of it in the log.
Source: CORFU (NSDI 2012) section 2 (append); group commit: D. DeWitt et al., *Implementation Techniques for Main
Memory Database Systems*, SIGMOD 1984, section 5.2.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.errors import LogError, OutcomeUnknownError, ReplicaRefusedError, TrimmedError
from datastore_adapter.log.messages import RECORD_ID_LENGTH, Entry
from datastore_adapter.log.runtime.runtime import Event, Runtime
from datastore_adapter.log.settings import LogSettings

UnderLayout: TypeAlias = Callable[[], Awaitable[Replication]]
"""The replication under the layout of now.  Raises ReplicaUnavailableError when there is none of use."""


_ChainOfBatch: TypeAlias = tuple[Replication, tuple[str, ...], dict[int, "Append"]]
"""What goes along one chain, by address."""


class Append:
    """One append through all its attempts."""

    def __init__(self, appends: Appends, entry: Entry) -> None:
        self._appends = appends
        self.entry = entry
        self.alone = False
        """It is not to go with others any more."""
        self.tried: Event | None = None
        """The batch it goes with has ended; None: it is in none."""
        self.epoch = -1
        """Of the layout under which it got its address."""
        self.address: int | None = None
        """The address its record may stand at; another is taken only when it is certain not to."""
        self.begun = False
        """Some replica may hold the record there."""
        self.written = False
        """The record stands at `address`, on all replicas."""
        self.failure: LogError | None = None
        """Why the batch failed, until that is told."""

    async def attempt(self) -> int:
        """The address at which the record stands.  To be repeated over failures that a retry can cure."""
        if not self.alone:
            await self._with_others()
        while self.address is None or not self.written:
            replication = await self._appends.under_layout()
            if self.address is None:
                tokens = await replication.take_tokens((self.entry.stream, 1))
                self.place(replication.epoch, tokens.first, tokens.previous[0])
                continue
            begun, self.begun = self.begun, True
            try:
                self.written = await self._resolve(replication, self.address)
            except TrimmedError as error:
                if begun:
                    raise OutcomeUnknownError(
                        f"address {self.address} was trimmed before the append was confirmed"
                    ) from error
            if not self.written:
                self.address = None
        return self.address

    async def _with_others(self) -> None:
        if self.tried is None:
            self._appends.enter(self)
        assert self.tried is not None
        await self.tried.wait()
        self.tried = None
        if self.failure is not None:
            failure, self.failure = self.failure, None
            try:
                raise failure.with_traceback(None)
            finally:
                del failure  # it leads back to this frame

    def place(self, epoch: int, address: int, previous: tuple[int, ...]) -> None:
        """The token it was given."""
        entry = self.entry
        self.epoch, self.address, self.begun = epoch, address, False
        self.entry = Entry(entry.record_id, entry.stream, previous, entry.payload)

    async def _resolve(self, replication: Replication, address: int) -> bool:
        """Whether the record stands at `address`; when False, it does not and never will."""
        if self.epoch == replication.epoch:
            return await replication.write(address, self.entry)
        # The token is of a sealed epoch.  What stood at or beyond the new epoch's base was dropped; below
        # it, the address is or will be settled, with or without this record.
        if address >= replication.layout.base:
            return False
        entry = await replication.read(address) or await replication.settle(address)
        return entry.record_id == self.entry.record_id


class Appends:
    """The appends of one client that wait for their first attempt, and the batches under way.

    A batch begins as soon as something waits and not too many are under way; it takes along all that has come
    meanwhile, within bounds.  So one append alone does not wait, and many go together.
    """

    def __init__(self, runtime: Runtime, settings: LogSettings, under_layout: UnderLayout) -> None:
        self._runtime = runtime
        self._settings = settings
        self.under_layout = under_layout
        self._waiting: deque[Append] = deque()
        self._under_way = 0
        self.counters: Counter[str] = Counter()

    def begin(self, stream: str, payload: bytes) -> Append:
        """A new append, which goes with the next batch; the caller awaits its `attempt`."""
        entry = Entry(self._runtime.random.randbytes(RECORD_ID_LENGTH), stream, (), payload)
        append = Append(self, entry)
        self.enter(append)
        return append

    def enter(self, append: Append) -> None:
        """Have `append` go with the next batch."""
        append.tried = self._runtime.event()
        if self._under_way < self._settings.batches_in_flight:
            self._runtime.spawn(self._run)
            self._under_way += 1
        self._waiting.append(append)

    async def _run(self) -> None:
        """Send batches until nothing waits."""
        try:
            while self._waiting:
                batch = self._take()
                chains = await self._place(batch)
                if len(chains) == 1:
                    await self._carry(*chains[0])
                elif chains:
                    await self._carry_all(chains)
        except BaseException:
            # Cancelled with its runtime, or a defect: whoever waits goes on alone, and sees for himself.
            _release(self._waiting)
            self._waiting.clear()
            raise
        finally:
            self._under_way -= 1

    def _take(self) -> list[Append]:
        """The next batch: at least one append."""
        batch, size = [self._waiting.popleft()], 0
        while self._waiting and len(batch) < self._settings.batch_records:
            size += len(batch[-1].entry.payload)
            if size + len(self._waiting[0].entry.payload) > self._settings.batch_bytes:
                break
            batch.append(self._waiting.popleft())
        self.counters["batches"] += 1
        return batch

    async def _place(self, batch: list[Append]) -> list[_ChainOfBatch]:
        """Give the appends their tokens; which of them go to which chain.  Whatever goes to none is released."""
        placed: dict[int, Append] = {}
        try:
            replication = await self.under_layout()
            await self._take_tokens(replication, [append for append in batch if append.address is None])
            # An address of an earlier epoch may be settled already, in whichever way: that is for each alone.
            placed.update(
                (append.address, append)
                for append in batch
                if append.address is not None
                and append.epoch == replication.epoch
                and append.address >= replication.layout.trimmed_below
            )
        except LogError as error:
            for append in batch:
                append.failure = error
                # One that is refused (a stream too many) must not keep the others back.
                append.alone = isinstance(error, ReplicaRefusedError)
            return []
        finally:
            _release(append for append in batch if append.address not in placed)
        return [
            (replication, chain, {address: placed[address] for address in addresses})
            for chain, addresses in replication.by_chain(placed).items()
        ]

    async def _carry_all(self, chains: Sequence[_ChainOfBatch]) -> None:
        """Write a batch's records of several chains; returns when that has ended, or is late.

        What one moment has brought goes on together in the next batch, but does not wait for a chain that a dead
        replica holds up: no longer than once more what the first to end has taken.
        """
        enough, began, left = self._runtime.event(), self._runtime.now(), len(chains)

        async def carry(chain: _ChainOfBatch) -> None:
            nonlocal left
            try:
                await self._carry(*chain)
            finally:
                left -= 1
                if left == 0:
                    enough.set()
            if left == len(chains) - 1:
                await self._runtime.sleep(self._runtime.now() - began)
                enough.set()

        for chain in chains:
            self._runtime.spawn(partial(carry, chain))
        await enough.wait()

    async def _carry(
        self, replication: Replication, chain: tuple[str, ...], placed: dict[int, Append]
    ) -> None:
        """Write a batch's records of one chain."""
        try:
            entries = {address: append.entry for address, append in placed.items()}
            not_written = await replication.write_all(chain, entries)
            for address, append in placed.items():
                fate = not_written.get(address)
                if fate is None:
                    append.written = True
                else:
                    append.begun |= fate.begun
                    append.failure = fate.failure
        finally:
            _release(placed.values())

    async def _take_tokens(self, replication: Replication, batch: list[Append]) -> None:
        if not batch:
            return
        by_stream: dict[str, list[Append]] = {}
        for append in batch:
            by_stream.setdefault(append.entry.stream, []).append(append)
        tokens = await replication.take_tokens(
            *((stream, len(members)) for stream, members in by_stream.items())
        )
        address = tokens.first
        for members, previous in zip(by_stream.values(), tokens.previous, strict=True):
            pointers = previous
            for append in members:
                append.place(replication.epoch, address, pointers)
                pointers = (address, *pointers[: self._settings.back_pointers - 1])
                address += 1


def _release(batch: Iterable[Append]) -> None:
    for append in batch:
        if append.tried is not None:
            append.tried.set()
