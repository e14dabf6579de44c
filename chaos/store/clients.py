"""Applications that use the store while things go wrong, and write down all they asked and were told.

Writers that append to the log, users of a map, one who reads again what was written, and the reading of everything at
the end. They are the log's own procedures, so they run the same in virtual time and on trio.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from chaos.checkers.history import Append, Kind, Operation, Record
from datastore_adapter import (
    LogClient,
    LogClientError,
    LogError,
    MapSettings,
    ReplicatedDict,
)
from datastore_adapter.log.errors import TrimmedError, UnwrittenError

STREAM = "chaos"
MAP = "chaos-map"
PAYLOAD = 64
"""Bytes of a record; what is tested is which records are there, not how long they are."""
OPERATIONS_PER_KEY = 40
"""Then the users go on to other keys: whether a history has an order is asked key by key, and the work grows with
each operation whose answer never came."""
KEYS = 2
WRITERS, USERS = 2, 3
READ_TOGETHER = 64
_AUDIT_PATIENCE = 5.0
"""Seconds until a record counts as one that cannot be read now."""
_SETTINGS = MapSettings(snapshot_bytes=64 << 10)


class Clients:
    """`WRITERS` writers and `USERS` users of one map, each a client of its own made by `make_client`.

    `pause`: seconds between two calls of one of them, on average.
    """

    def __init__(self, make_client: Callable[[str], LogClient], *, seed: int, pause: float) -> None:
        self.record = Record()
        self._make_client = make_client
        self._random = random.Random(seed)
        self._auditing = random.Random(f"{seed} auditor")
        self.pause = pause
        self._stopped = False
        self._values = 0

    def stop(self) -> None:
        """Each ends after the call it is at."""
        self._stopped = True

    async def use(self) -> None:
        """All of them until they are stopped. Raises LogError when one of them could not go on."""
        runtime = self._make_client("clients").runtime
        jobs: list[Callable[[], object]] = [
            *(lambda name=f"writer{n}": self._write(name) for n in range(WRITERS)),
            *(lambda name=f"user{n}": self._use_map(name) for n in range(USERS)),
            self._audit,
        ]
        for outcome in await runtime.gather(jobs):  # type: ignore[arg-type]
            if isinstance(outcome, LogError):
                raise outcome

    async def _write(self, name: str) -> None:
        client = self._make_client(name)
        number = 0
        while not self._stopped:
            number += 1
            with suppress(LogClientError):  # it may be there or not
                await self._append(client, name, number)
            await client.runtime.sleep(self._random.uniform(0, 2 * self.pause))

    async def _append(self, client: LogClient, name: str, number: int) -> None:
        value = f"{name} {number} ".encode().ljust(PAYLOAD, b".")
        called = client.runtime.now()
        place = len(self.record.appends)
        self.record.appends.append(Append(name, value, called))
        address = await client.append(STREAM, value)
        self.record.appends[place] = Append(name, value, called, client.runtime.now(), address)
        self.record.acknowledged.add(address)

    async def go_on(self, appends: int) -> None:
        """Append so many records once more, by a client that knows nothing.  Raises LogError."""
        client = self._make_client("last writer")
        for number in range(appends):
            await self._append(client, "last writer", number)

    async def _use_map(self, name: str) -> None:
        client = self._make_client(name)
        shared = ReplicatedDict(client, MAP, _SETTINGS)
        while not self._stopped:
            await self._operate(name, client, shared)
            await client.runtime.sleep(self._random.uniform(0, 2 * self.pause))

    async def _operate(self, name: str, client: LogClient, shared: ReplicatedDict) -> None:
        history = self.record.operations
        key = f"{'ab'[self._random.randrange(KEYS)]}{len(history) // OPERATIONS_PER_KEY}"
        self._values += 1
        recent = [operation.value for operation in history[-6:] if operation.key == key]
        called = drawn(self._random, name, key, b"%d" % self._values, recent, client.runtime.now())
        await recorded(history, called, shared, client.runtime.now)

    async def _audit(self) -> None:
        """Read acknowledged records again, now and then: each is there, or the store says that it cannot give it."""
        client = self._make_client("auditor")
        rng = self._auditing
        while not self._stopped:
            await client.runtime.sleep(rng.uniform(0, 2 * self.pause))
            append = rng.choice(self.record.appends) if self.record.appends else None
            if append is None or append.address is None:
                continue
            try:
                found = await client.read(append.address, timeout=_AUDIT_PATIENCE)
            except (UnwrittenError, TrimmedError) as error:
                self.record.misread.append(f"{append}, and at {client.runtime.now():.3f} s it reads: {error}")
            except LogClientError:
                continue  # it cannot be read, and says so
            else:
                if found is None or found.payload != append.value:
                    there = "a hole" if found is None else f"{found.payload!r}"
                    self.record.misread.append(
                        f"{append}, and at {client.runtime.now():.3f} s it reads {there}"
                    )

    async def read_back(self) -> None:
        """Read the whole log and the whole map, by a client that knows nothing, into the record."""
        client = self._make_client("judge")
        try:
            addresses = list(range(await client.tail()))
        except LogClientError:
            self.record.unreadable |= self.record.acknowledged
            raise
        for start in range(0, len(addresses), READ_TOGETHER):
            await self._read_some(client, addresses[start : start + READ_TOGETHER])
        began = client.runtime.now()
        found = await ReplicatedDict(client, MAP, _SETTINGS).items()
        ended = client.runtime.now()
        for key in dict.fromkeys(operation.key for operation in self.record.operations):
            self.record.operations.append(Operation("judge", key, Kind.READ, found.get(key), began, ended))

    async def _read_some(self, client: LogClient, addresses: list[int]) -> None:
        async def read(address: int) -> None:
            try:
                entry = await client.read(address)
            except (UnwrittenError, TrimmedError):
                return  # not there
            except LogClientError:
                self.record.unreadable.add(address)
            else:
                if entry is not None and entry.stream == STREAM:
                    self.record.contents[address] = entry.payload

        await client.runtime.gather([lambda address=address: read(address) for address in addresses])  # type: ignore[misc]


def drawn(
    rng: random.Random, name: str, key: str, new: bytes, recent: Sequence[bytes | None], now: float
) -> Operation:
    """A random call of client `name`; where it writes, `new` or a deletion. `recent`: what the register may hold."""
    kind = rng.choice(tuple(Kind))
    value = None if rng.random() < 0.2 else new
    # Mostly what is there, or it never takes place.
    expected = rng.choice(recent or [None]) if kind is Kind.REPLACE else None
    return Operation(name, key, kind, None if kind is Kind.READ else value, now, expected=expected)


async def recorded(
    history: list[Operation], called: Operation, shared: ReplicatedDict, now: Callable[[], float]
) -> None:
    """Carry it out, in the history from its call on: an answer that never comes leaves it open."""
    place = len(history)
    history.append(called)
    with suppress(LogClientError):
        history[place] = await carried_out(called, shared, now)


async def carried_out(called: Operation, shared: ReplicatedDict, now: Callable[[], float]) -> Operation:
    """The operation with its answer and when it came.  Raises LogError: no answer did."""
    value, succeeded = called.value, True
    if called.kind is Kind.READ:
        value = await shared.get(called.key)
    elif called.kind is Kind.REPLACE:
        succeeded = await shared.compare_and_set(called.key, called.expected, value)
    elif value is None:
        await shared.delete(called.key)
    else:
        await shared.set(called.key, value)
    return replace(called, value=value, completed=now(), succeeded=succeeded)
