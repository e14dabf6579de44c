"""The sequencer: hands out addresses, each once, with pointers to earlier records of the stream.

A counter in memory and the latest addresses per stream, as a state machine.  Safety does not need it.  Log units are
write-once, so a wrong token costs a retry; but the pointers of a stream are only right when a sequencer begins from
what the sealed log units know.  That is why it works only after a bootstrap, at most once per epoch, and why it
remembers on disk which epochs it used up: a restarted one has forgotten the tokens it gave and needs a new epoch.
For the same reason it can be sealed: a sealed epoch gets no further address, so that all its records lie below the
tail that is told then.
Source: CORFU (NSDI 2012) section 2.2 (sequencer); M. Balakrishnan et al., *Tango*, SOSP 2013, section 5
(streams, back-pointers).
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import msgspec

from datastore_adapter.log.errors import StorageError
from datastore_adapter.log.messages import (
    Addresses,
    AddStreamTails,
    BeginBootstrap,
    Done,
    FinishBootstrap,
    LastAddresses,
    NotReady,
    Refused,
    Reply,
    Request,
    SealTokens,
    TakeTokens,
    Tokens,
    TokensSealed,
    WrongEpoch,
)
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.disk_health import refused_by
from datastore_adapter.log.storage.durable_record import load_record, save_record
from datastore_adapter.log.storage.file_storage import Storage

SEQUENCER_FILE: Final = "sequencer/epoch"


class SequencerRecord(msgspec.Struct, frozen=True, array_like=True):
    """The latest epoch that this sequencer has handed out addresses of, or was sealed in; -1: none."""

    epoch: int = -1
    sealed_tail: int = -1
    """The tail at which the epoch was sealed; -1: it was not."""


class _Bootstrap:
    """What a bootstrap under way has told so far."""

    def __init__(self, epoch: int, session: int, tail: int) -> None:
        self.epoch = epoch
        self.session = session
        self.tail = tail
        self.streams: dict[str, tuple[int, ...]] = {}


class Sequencer:
    """One host's sequencer; idle until it is bootstrapped."""

    def __init__(self, storage: Storage, settings: LogSettings, disk: bytes = b"") -> None:
        """`disk`: the identity of the disk it remembers by."""
        self._storage = storage
        self._settings = settings
        self._disk = disk
        self._bootstrap: _Bootstrap | None = None
        self._streams: dict[str, deque[int]] = {}
        used = load_record(storage, SEQUENCER_FILE, SequencerRecord)
        if used is None:
            used = SequencerRecord()
            save_record(storage, SEQUENCER_FILE, used)
        self._used = used.epoch
        self._sealed_tail = used.sealed_tail
        """Of the epoch used last."""
        self.tail = 0
        self.epoch = -1
        """The epoch it hands out tokens of; -1: none."""
        self.counters: Counter[str] = Counter()

    def handle(self, request: Request) -> Reply:
        """Carry out one request.  Only `FinishBootstrap` and `SealTokens` touch the disk."""
        match request:
            case TakeTokens():
                return self._refusal(request.epoch) or self._take(request)
            case LastAddresses():
                return self._refusal(request.epoch) or self._last(request.stream)
            case BeginBootstrap() | AddStreamTails() | FinishBootstrap():
                return self._bootstrap_refusal(request.epoch) or self._continue(request)
            case SealTokens():
                return self._seal(request.epoch)
            case _:
                return Refused("role", f"a sequencer does not serve {type(request).__name__}")

    def _refusal(self, epoch: int) -> Reply | None:
        if epoch == self.epoch and epoch >= 0:
            return None
        sealed = self._used if self._sealed_tail >= 0 else self.epoch - 1
        if epoch <= sealed:
            self.counters["wrong_epoch"] += 1
            return WrongEpoch(sealed)
        return NotReady()

    def _take(self, request: TakeTokens) -> Reply:
        fresh = {stream for stream, _ in request.streams if stream not in self._streams}
        if fresh and len(self._streams) + len(fresh) > self._settings.max_streams:
            return Refused("streams", f"more than {self._settings.max_streams} streams; use fewer")
        first = self.tail
        previous = tuple([self._hand_out(stream, count) for stream, count in request.streams])
        self.counters["tokens"] += self.tail - first
        return Tokens(first, previous)

    def _hand_out(self, stream: str, count: int) -> tuple[int, ...]:
        """Give the next `count` addresses to `stream`; the latest ones it had before."""
        known = self._streams.get(stream)
        if known is None:
            known = self._streams[stream] = deque(maxlen=self._settings.back_pointers)
        previous = tuple(known)
        known.extendleft(range(self.tail, self.tail + count))
        self.tail += count
        return previous

    def _last(self, stream: str) -> Reply:
        return Addresses(self.tail, tuple(self._streams.get(stream, ())))

    def _bootstrap_refusal(self, epoch: int) -> Reply | None:
        if epoch == self.epoch:
            return Done()  # already at work in this epoch: a repeated bootstrap changes nothing
        if epoch < self._used:
            return WrongEpoch(self._used - 1)
        if epoch == self._used and self._sealed_tail >= 0:
            return WrongEpoch(epoch)
        if epoch == self._used:
            return Refused("used", f"this sequencer was restarted in epoch {epoch}; a new epoch is needed")
        return None

    def _continue(self, request: BeginBootstrap | AddStreamTails | FinishBootstrap) -> Reply:
        if isinstance(request, BeginBootstrap):
            if self._bootstrap is None or self._bootstrap.epoch <= request.epoch:
                self._bootstrap = _Bootstrap(request.epoch, request.session, request.tail)
            return Done()
        current = self._bootstrap
        if current is None or (current.epoch, current.session) != (request.epoch, request.session):
            return Refused("session", "another bootstrap has begun since; begin again")
        if isinstance(request, AddStreamTails):
            current.streams.update(request.streams)
            return Done()
        try:
            save_record(self._storage, SEQUENCER_FILE, SequencerRecord(request.epoch))
        except StorageError as error:
            return refused_by(error)
        self._start(current)
        return Done()

    def _seal(self, epoch: int) -> Reply:
        if epoch < self._used:
            return WrongEpoch(self._used - 1)
        if epoch == self._used and self._sealed_tail < 0 and self.epoch != epoch:
            return Refused("used", f"this sequencer was restarted in epoch {epoch}, and forgot what it gave")
        if epoch > self._used or self._sealed_tail < 0:
            tail = self.tail if self.epoch == epoch else 0
            try:
                save_record(self._storage, SEQUENCER_FILE, SequencerRecord(epoch, tail))
            except StorageError as error:
                # Perhaps it is on the disk after all: no token may follow it.
                self._used, self.epoch = epoch, -1
                return refused_by(error)
            self._used, self._sealed_tail, self.epoch = epoch, tail, -1
            self.counters["seals"] += 1
        return TokensSealed(self._sealed_tail, self._disk)

    def _start(self, bootstrap: _Bootstrap) -> None:
        self._bootstrap = None
        self._used = self.epoch = bootstrap.epoch
        self._sealed_tail = -1
        self.tail = max(self.tail, bootstrap.tail)  # tokens never go backwards
        self._streams = {
            stream: deque(addresses, maxlen=self._settings.back_pointers)
            for stream, addresses in bootstrap.streams.items()
        }
        self.counters["bootstraps"] += 1
