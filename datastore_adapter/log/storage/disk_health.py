"""How the disk of a host is: whether it is full, whether it failed lately, and how long it takes to sync.

What the host's roles meet is noted here, and told in its status, so that others can relieve it before it is in
anybody's way.  A state machine with explicit time; looking after the disk (`care`) is all that touches it.

Whatever stopped the log unit counts as a failure until the storage was repaired, for then not even reads are served.
A disk that failed counts as failed for a while after it works again, longer each time: one that fails now and then
is none to rely on.  So does one that was full for a reason that the file system does not tell (a quota, no inodes
left): it has room again when it has taken as much as that.
Source: P. Huang et al., *Gray Failure: The Achilles' Heel of Cloud-Scale Systems*, HotOS 2017 (tell what is observed
from within); A. Rebello et al., *Can Applications Recover from fsync Failures?*, USENIX ATC 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from datastore_adapter.interface import DiskState
from datastore_adapter.log.errors import StorageError, StorageFullError
from datastore_adapter.log.messages import Refused, Reply
from datastore_adapter.log.settings import LogSettings
from datastore_adapter.log.storage.file_storage import Storage

CARE_INTERVAL: Final = 1.0
"""Seconds between two looks after a disk that needs it."""
_FULL: Final = "full"
_FAILED: Final = "storage"
DISK_REFUSALS: Final = frozenset((_FULL, _FAILED))
"""Codes of the refusals of a host whose disk takes nothing."""
_PROBE_BYTES: Final = 4096
_SMOOTHING: Final = 1 / 8
"""Weight of the last sync in the moving average."""
_SUSPICIOUS: Final = 0.05
"""Seconds of a sync from which on a disk at rest is tried now and then: else nobody would see that it is fast again."""
_AT_REST: Final = 5.0
"""Seconds without a sync after which the last ones say nothing about now."""
_LONGEST_PROBATION: Final = 3600.0


def refused_by(error: StorageError) -> Refused:
    """What a role answers that met it; `DiskHealth.note` takes it from there."""
    return Refused(_FULL if isinstance(error, StorageFullError) else _FAILED, str(error))


@dataclass(frozen=True, slots=True)
class DiskReport:
    """What a host tells of its disk."""

    full: bool
    """It takes no more records."""
    room: int
    """Bytes that it still takes, about, once it was full; -1: it never was."""
    failure: str
    """Why it counts as failed, in words; empty: it does not.  It does whenever it stopped the log unit, be it that a
    sync met a quota."""
    sync_seconds: float
    """What a sync takes of late, or has taken so far; 0: not known."""
    stopped: bool
    """It has failed, and has not worked since."""

    @property
    def state(self) -> str:
        """In a word: ``ok``, ``full`` or ``failed``."""
        return (
            str(DiskState.FAILED if self.failure else DiskState.FULL) if self.failure or self.full else "ok"
        )


class DiskHealth:
    """Of the disk below one `storage`; `clock` tells seconds."""

    def __init__(self, storage: Storage, settings: LogSettings, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._is_full = False
        self._was_full = False
        self._refusals = self._refusals_settled = 0
        """How often it refused to take more although there seemed to be room; how many of them a trial has followed."""
        self._failure = ""
        self._failures = self._failures_settled = 0
        """How often it failed; how many of them were followed by a trial in which it worked."""
        self._failed_at = -math.inf
        self._probation = 0.0
        self._room = 0
        self._sync_seconds = 0.0
        self._syncing_since = math.inf
        self._synced_at = -math.inf

    def note(self, reply: Reply) -> None:
        """A role gave this answer."""
        if not isinstance(reply, Refused):
            return
        if reply.code == _FULL:
            self._is_full = self._was_full = True
            self._refusals += self._seems_to_have_room()
        elif reply.code == _FAILED:
            self._note_failure(reply.message)

    def _note_failure(self, why: str) -> None:
        now = self._clock()
        if not self._counts_as_failed(now):
            first, since = self._settings.disk_probation, now - self._failed_at
            is_repeated = since < _LONGEST_PROBATION
            self._probation = min(2 * self._probation, _LONGEST_PROBATION) if is_repeated else first
        self._failure, self._failed_at = why, now
        self._failures += 1

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """In it something is made durable; unless that fails it counts."""
        self._syncing_since = began = self._clock()
        try:
            yield
            now = self._clock()
            before = self._sync_seconds or now - began
            self._sync_seconds = before + _SMOOTHING * (now - began - before)
            self._synced_at = now
        finally:
            self._syncing_since = math.inf

    def look(self) -> None:
        """See how much room there is.  It counts as full until there is room for a good many records."""
        try:
            free = 0 if self._refuses else self._storage.room()
        except StorageError as error:
            self.note(refused_by(error))
            return
        self._is_full = free < (self._enough if self._is_full else self._settings.max_payload)
        self._was_full |= self._is_full
        # Rounded down to a power of two, so that it does not change all the time.
        self._room = 1 << free.bit_length() >> 1

    def report(self) -> DiskReport:
        """How it was at the last look.  May be asked by any thread while another waits for the disk."""
        now = self._clock()
        stop = self._storage.failure
        failure = self._failure if self._counts_as_failed(now) else ""
        if stop is not None:
            failure = str(stop)
        room = self._room if self._was_full else -1
        sync_seconds = max(self._sync_seconds, now - self._syncing_since)
        stopped = stop is not None or not self._works
        return DiskReport(self._is_full, room, failure, sync_seconds, stopped)

    @property
    def needs_care(self) -> bool:
        """Whether `care` is to be called in a while."""
        at_rest = self._clock() - self._synced_at >= _AT_REST
        return (
            self._storage.failure is not None
            or not self._works
            or self._refuses
            or (at_rest and self._sync_seconds >= _SUSPICIOUS)
        )

    def care(self) -> None:
        """Repair the storage after a failure, and try the disk.  It waits for the disk, and may run in any thread.

        What fails meanwhile is not made good by it.  A storage that was repaired is to be resumed.
        """
        failures, refusals = self._failures, self._refusals
        try:
            self._storage.repair()
            if self._refuses:
                self._storage.probe(self._enough)
            with self.syncing():
                self._storage.probe(_PROBE_BYTES)
        except StorageError as error:
            self.note(refused_by(error))
        else:
            self._failures_settled, self._refusals_settled = failures, refusals

    @property
    def _works(self) -> bool:
        """Since the last failure it was tried, and worked."""
        return self._failures == self._failures_settled

    @property
    def _refuses(self) -> bool:
        """It refuses to take more although there seems to be room."""
        return self._refusals != self._refusals_settled

    @property
    def _enough(self) -> int:
        return 4 * self._settings.max_payload

    def _seems_to_have_room(self) -> bool:
        try:
            return self._storage.room() >= self._settings.max_payload
        except StorageError:
            return False

    def _counts_as_failed(self, now: float) -> bool:
        return not self._works or now < self._failed_at + self._probation
