"""A dictionary that many processes share: state-machine replication over a stream of the log.

The shell around `log.maps.state`.  A write is a command in the map's stream; its outcome is known once everything up
to it is applied here.  A read first applies everything that was acknowledged before it was asked for, so reads and
writes are linearizable.  Requests that come at the same time share one look at the tail.  It is no cache (a read asks
the sequencer and the layout servers), and no larger than one process's memory.
Source: M. Balakrishnan et al., *Tango*, SOSP 2013, section 3 (objects over a shared log).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from datastore_adapter.log.client.log_client import LogClient
from datastore_adapter.log.client.retention import Retention
from datastore_adapter.log.errors import (
    InvalidEntryError,
    LogError,
    LogUnavailableError,
    MapFullError,
    OutcomeUnknownError,
    TrimmedError,
)
from datastore_adapter.log.maps.records import COMMAND_ID_LENGTH, Command, Put, Replace, encode
from datastore_adapter.log.maps.settings import MapSettings
from datastore_adapter.log.maps.snapshot import MapStreams, read_snapshot, write_snapshot
from datastore_adapter.log.maps.state import MapState, Outcome
from datastore_adapter.log.runtime.runtime import Event

MAP_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOADS: Final = 8
"""Times a replica begins anew because a newer snapshot has taken the place of the one it was reading."""


class _Round:
    """One look at the tail, for everybody who asked before it began."""

    def __init__(self, ended: Event) -> None:
        self.ended = ended
        self.failure: LogError | None = None


class ReplicatedDict:
    """The map called `name` of the log that `client` knows: text keys, byte values.

    May be used by many tasks at a time; every process that uses the name sees the same map.  Nothing runs between
    calls, except for a snapshot that the last write has made due.
    """

    def __init__(self, client: LogClient, name: str, settings: MapSettings | None = None) -> None:
        if not MAP_NAME.fullmatch(name):
            raise InvalidEntryError(
                f"{name!r} is no name of a map: use 1 to 64 letters, digits, dots, dashes or underscores"
            )
        self._client = client
        self._runtime = client.runtime
        self._settings = settings or MapSettings()
        self._streams = MapStreams(name)
        self._retention = Retention(client)
        self._state: MapState | None = None
        self._forgotten_below = 0
        """`LogClient.forgotten_below` when the state was loaded."""
        self._waiting: dict[bytes, Outcome | None] = {}
        """Commands of ours under way, and what came of them."""
        self._next: _Round | None = None
        self._is_running = False
        self._is_writing_snapshot = False
        self._counters: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._streams.name

    def statistics(self) -> dict[str, int]:
        """Counters, and the size of the map as this process knows it."""
        size = {} if self._state is None else {"keys": len(self._state.values), "bytes": self._state.bytes}
        commands = Counter() if self._state is None else self._state.counters
        return dict(sorted({**self._counters, **commands, **size}.items()))

    async def get(self, key: str) -> bytes | None:
        """The value of `key`, or None."""
        return (await self._current()).values.get(key)

    async def items(self) -> dict[str, bytes]:
        """The whole map at one moment, by key."""
        values = (await self._current()).values
        return {key: values[key] for key in sorted(values)}

    async def length(self) -> int:
        """How many keys there are."""
        return len((await self._current()).values)

    async def set(self, key: str, value: bytes) -> None:
        """Raises MapFullError, InvalidEntryError; OutcomeUnknownError when it may have happened or not.

        After any other error it has not happened, and will not.
        """
        await self._change(key, value)

    async def delete(self, key: str) -> bool:
        """Whether the key was there; raises as `set` does."""
        return await self._change(key, None) is Outcome.DONE

    async def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Set (or delete: None) if the key holds `expected` (None: is absent); whether it did.

        Raises as `set` does.
        """
        self._check(key, expected, value)
        command = Replace(self._new_id(), key, expected, value, self._settings.max_bytes)
        return await self._submit(command) is Outcome.DONE

    async def snapshot(self) -> int:
        """Write the map out and free what the log need not keep for it; the address of the snapshot.

        Happens by itself every `MapSettings.snapshot_bytes`.
        """
        frozen = (await self._current()).freeze()
        address = await write_snapshot(self._client, self._streams, frozen, self._settings.chunk_bytes)
        self._counters["snapshots"] += 1
        return address

    # writing

    async def _change(self, key: str, value: bytes | None) -> Outcome:
        self._check(key, value)
        return await self._submit(Put(self._new_id(), key, value, self._settings.max_bytes))

    async def _submit(self, command: Command) -> Outcome:
        self._waiting[command.id] = None
        try:
            address = await self._client.append(self._streams.commands, encode(command))
            try:
                await self._current()
            except LogError as error:
                raise OutcomeUnknownError(
                    f"map {self.name!r}: the command is in the log at address {address}, but what came of it could not "
                    f"be read ({error}); read {command.key!r} before trying again"
                ) from error
            outcome = self._waiting[command.id]
        finally:
            del self._waiting[command.id]
        if outcome is None:
            raise OutcomeUnknownError(
                f"map {self.name!r}: the command at address {address} is in a snapshot that others have written; "
                "what came of it is not known any more"
            )
        if outcome is Outcome.FULL:
            raise MapFullError(
                f"map {self.name!r}: {command.key!r} would make it larger than {command.limit} bytes; "
                "delete something, or raise MapSettings.max_bytes"
            )
        return outcome

    def _new_id(self) -> bytes:
        return self._runtime.random.randbytes(COMMAND_ID_LENGTH)

    def _check(self, key: str, *values: bytes | None) -> None:
        try:
            length = len(key.encode())
        except UnicodeEncodeError:
            raise InvalidEntryError(f"the key {key!r} is no text that UTF-8 can hold") from None
        if not 0 < length <= self._settings.max_key:
            raise InvalidEntryError(f"a key has 1 to {self._settings.max_key} bytes, not {length}")
        for value in values:
            if value is not None and len(value) > self._settings.max_value:
                raise InvalidEntryError(
                    f"the value of {key!r} has {len(value)} bytes; at most {self._settings.max_value} are allowed"
                )

    # reading

    async def _current(self) -> MapState:
        """The map with everything applied that was acknowledged before the call."""
        round_ = self._next
        if round_ is None:
            # A round that has begun may have asked for the tail already.
            round_ = self._next = _Round(self._runtime.event())
            if not self._is_running:
                self._is_running = True
                try:
                    self._runtime.spawn(self._run)
                except LogError:  # the process is ending
                    self._is_running, self._next = False, None
                    raise
        await round_.ended.wait()
        if round_.failure is not None:
            raise round_.failure
        assert self._state is not None
        return self._state

    async def _run(self) -> None:
        """Rounds, one after the other, while somebody waits for one."""
        round_: _Round | None = None
        try:
            while self._next is not None:
                round_, self._next = self._next, None
                try:
                    await self._catch_up()
                except LogError as error:
                    round_.failure = error
                round_.ended.set()
                round_ = None
        finally:
            # Cancelled, or a defect: nobody may wait for ever.
            self._is_running = False
            for left in (round_, self._next):
                if left is not None:
                    left.failure = left.failure or LogUnavailableError(
                        f"map {self.name!r} is being closed; open it anew"
                    )
                    left.ended.set()
            self._next = None

    async def _catch_up(self) -> None:
        """Apply what is in the log up to its tail of now; begin with a snapshot where that is needed."""
        for attempt in range(LOADS):
            try:
                if self._state is None or attempt:
                    self._state = MapState(await read_snapshot(self._client, self._streams, self._retention))
                    self._forgotten_below = self._client.forgotten_below
                    self._counters["loads"] += 1
                await self._apply(self._state)
            except TrimmedError:
                continue  # somebody has written a newer snapshot, and trimmed the log behind it
            if self._forgotten_below == self._client.forgotten_below:
                return
            # Commands that are applied here were declared lost since: whoever begins now does without them, and so
            # must everybody.
        raise LogUnavailableError(
            f"map {self.name!r}: snapshots came faster than this process could read them; try again"
        )

    async def _apply(self, state: MapState) -> None:
        streams = self._streams
        reader = self._client.reader(streams.commands, state.position)
        async for record in self._retention.records(reader, streams.commands):
            before = state.written
            applied = state.apply(record.address, record.payload)
            if applied is not None and applied.id in self._waiting:
                self._waiting[applied.id] = applied.outcome
                if state.written // self._settings.snapshot_bytes > before // self._settings.snapshot_bytes:
                    self._begin_snapshot(state)
        assert reader.position is not None
        state.position = max(state.position, reader.position)

    def _begin_snapshot(self, state: MapState) -> None:
        """Ours was the command that made it due."""
        if self._is_writing_snapshot:
            return
        self._is_writing_snapshot = True
        frozen = state.freeze()

        async def write() -> None:
            try:
                await write_snapshot(self._client, self._streams, frozen, self._settings.chunk_bytes)
                self._counters["snapshots"] += 1
            except LogError:
                self._counters["snapshots_failed"] += 1  # the next that is due makes good for it
            finally:
                self._is_writing_snapshot = False

        self._runtime.spawn(write)
