"""Commits: changes of many files made durable at once, and the files themselves later.

Two commit logs in turn.  One takes the changes of each commit; when it is full the other goes on, while a thread
makes the files durable that the full one's changes went to, and clears it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Final

from datastore_adapter.log.storage.commit_log import Change, CommitLog

LOG_FILES: Final = ("commit/0.log", "commit/1.log")
_OVERHEAD: Final = 32
"""Bytes that the encoding of one change adds at most, besides its name and data."""


def encoded_size(change: Change) -> int:
    """At most so many bytes of a log."""
    return len(change.name.encode()) + len(change.data) + _OVERHEAD


class Commits:
    """The commits of one storage.  Errors of the system are left to the caller."""

    def __init__(self, directory: Path, limit: int) -> None:
        """`limit`: bytes of each log; files are named relative to `directory`."""
        self._directory = directory
        self._limit = limit
        self._logs: list[CommitLog] = []
        """The one in use is the first; none before `begin`, if none was there."""
        self._names: set[str] = set()
        """Files with changes in the log in use."""
        self._folders: set[Path] = set()
        """Folders with entries that are not durable yet."""
        self._checkpoint: Thread | None = None
        self._failure: OSError | None = None
        self.counters: Counter[str] = Counter()

    def recover(self) -> Iterator[Change]:
        """The changes of the logs, to be made again; then `is_damaged` is known, and `settle` ends it."""
        if any((self._directory / name).exists() for name in LOG_FILES):
            self._open()
        for log in self._logs:
            for change in log.recover():
                self._names.add(change.name)
                yield change

    @property
    def lacks_log(self) -> bool:
        """A log is not there: nothing was committed yet, or what it held is lost."""
        return not all((self._directory / name).exists() for name in LOG_FILES)

    @property
    def is_damaged(self) -> bool:
        """Changes that were acknowledged could not be read."""
        return any(log.is_damaged for log in self._logs)

    def begin(self) -> None:
        """Have the logs ready, so that no commit waits for their making.  After `recover`."""
        if not self._logs:
            self._open()
        for log in self._logs:
            log.begin()
        for path in (self._directory / LOG_FILES[0]).parents[:2]:
            sync_directory(path)

    def takes(self, size: int) -> bool:
        """Whether changes of so many bytes go into a log; larger ones do better without."""
        return size <= self._limit // 4

    def growth(self, size: int) -> int:
        """Bytes of the disk that it takes to add changes of so many bytes."""
        if not self._logs:
            return 0
        current, other = self._logs
        return (current if current.fits(size) else other).growth(size)

    def add(self, changes: Sequence[Change], folders: Iterable[Path]) -> None:
        """Make changes durable.  `folders` have got new entries, which need not be until the files are."""
        if not self._logs[0].fits(sum(map(encoded_size, changes))):
            self._turn()
        self._logs[0].append(changes)
        self._names.update(change.name for change in changes)
        self._folders.update(folders)
        self.counters["syncs"] += 1

    def sync_folders(self) -> None:
        """Make the entries durable that `add` has left for later: before a file is made durable without a log."""
        self._wait()
        for folder in self._folders:
            sync_directory(folder)
        self.counters["syncs"] += len(self._folders)
        self._folders.clear()

    def settle(self) -> None:
        """Make the files durable that any change went to, and forget the changes."""
        if self._names or any(not log.is_empty for log in self._logs):
            self._turn()
            self._wait()
            for log in self._logs:
                if not log.is_empty:
                    log.clear()

    def reopen(self) -> None:
        """After an error: what is known of the logs is what is in them; `recover` is next."""
        self.close()
        self._checkpoint, self._failure = None, None
        self._names.clear()

    def close(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.join()
        for log in self._logs:
            log.close()
        self._logs.clear()

    def _open(self) -> None:
        (self._directory / LOG_FILES[0]).parent.mkdir(exist_ok=True)
        self._logs = [CommitLog(self._directory / name, self._limit) for name in LOG_FILES]

    def _turn(self) -> None:
        """Go on with the other log; a thread makes durable what this one's changes went to."""
        self._wait()
        names, self._names = self._names, set()
        folders, self._folders = self._folders, set()
        files = [self._directory / name for name in sorted(names)]
        full = self._logs[0]
        self._logs.reverse()
        self.counters["checkpoints"] += 1
        self.counters["syncs"] += len(files) + len(folders) + 1
        self._checkpoint = Thread(
            target=self._make_durable, args=(full, files, folders), name="checkpoint", daemon=True
        )
        self._checkpoint.start()

    def _make_durable(self, log: CommitLog, files: Iterable[Path], folders: Iterable[Path]) -> None:
        try:
            for file in files:
                _sync_file(file)
            for folder in folders:
                sync_directory(folder)
            log.clear()
        except OSError as error:
            self._failure = error

    def _wait(self) -> None:
        """For the end of the checkpoint under way."""
        if self._checkpoint is not None:
            self._checkpoint.join()
            self._checkpoint = None
        if self._failure is not None:
            raise self._failure


def _sync_file(path: Path) -> None:
    # Opened anew: the storage may close its own descriptor meanwhile.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
