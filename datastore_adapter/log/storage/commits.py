"""Commits: changes of many files made durable at once, and the files themselves later.

Two commit logs in turn.  One takes the changes of each commit; when it is full the other goes on, while in the
background the files are made durable that the full one's changes went to, and it is cleared.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Final, TypeAlias

from datastore_adapter.log.storage.commit_log import Change, CommitLog
from membership.files import SystemCalls, sync_directory

LOG_FILES: Final = ("commit/0.log", "commit/1.log")
_OVERHEAD: Final = 32
"""Bytes that the encoding of one change adds at most, besides its name and data."""

Background: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Begins work beside what goes on; what it gives waits for the end of that work."""


def in_thread(work: Callable[[], None]) -> Callable[[], None]:
    """`Background` by a thread."""
    thread = Thread(target=work, name="checkpoint", daemon=True)
    thread.start()
    return thread.join


def encoded_size(change: Change) -> int:
    """At most so many bytes of a log."""
    return len(change.name.encode()) + len(change.data) + _OVERHEAD


class Commits:
    """The commits of one storage.  Errors of the system are left to the caller."""

    def __init__(
        self,
        directory: str,
        limit: int,
        *,
        system: SystemCalls,
        background: Background,
        draw: Callable[[int], bytes],
    ) -> None:
        """`limit`: bytes of each log; files are named relative to `directory`; `draw`: so many random bytes."""
        self._directory = directory
        self._limit = limit
        self._system = system
        self._background = background
        self._draw = draw
        self._logs: list[CommitLog] = []
        """The one in use is the first; none before `begin`, if none was there."""
        self._names: set[str] = set()
        """Files with changes in the log in use."""
        self._folders: set[str] = set()
        """Folders with entries that are not durable yet."""
        self._checkpoint: Callable[[], None] | None = None
        """Waits for the end of the one under way."""
        self._failure: OSError | None = None
        self.counters: Counter[str] = Counter()

    def recover(self) -> Iterator[Change]:
        """The changes of the logs, to be made again; then `is_damaged` is known, and `settle` ends it."""
        if any(map(self._has, LOG_FILES)):
            self._open()
        for log in self._logs:
            for change in log.recover():
                self._names.add(change.name)
                yield change

    @property
    def lacks_log(self) -> bool:
        """A log is not there: nothing was committed yet, or what it held is lost."""
        return not all(map(self._has, LOG_FILES))

    def _has(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            self._system.stat(self._path(name))
            return True
        return False

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
        for path in (self._folder, self._directory):
            sync_directory(self._system, path)

    def takes(self, size: int) -> bool:
        """Whether changes of so many bytes go into a log; larger ones do better without."""
        return size <= self._limit // 4

    def growth(self, size: int) -> int:
        """Bytes of the disk that it takes to add changes of so many bytes."""
        if not self._logs:
            return 0
        current, other = self._logs
        return (current if current.fits(size) else other).growth(size)

    def add(self, changes: Sequence[Change], folders: Iterable[str]) -> None:
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
            sync_directory(self._system, folder)
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
            self._checkpoint()
        for log in self._logs:
            log.close()
        self._logs.clear()

    def _open(self) -> None:
        with suppress(FileExistsError):
            self._system.mkdir(self._folder)
        self._logs = [
            CommitLog(self._path(name), self._limit, system=self._system, draw=self._draw)
            for name in LOG_FILES
        ]

    @property
    def _folder(self) -> str:
        """Of the logs."""
        return self._path(LOG_FILES[0]).rpartition("/")[0]

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _turn(self) -> None:
        """Go on with the other log; in the background, what this one's changes went to is made durable."""
        self._wait()
        names, self._names = self._names, set()
        folders, self._folders = self._folders, set()
        full = self._logs[0]
        self._logs.reverse()
        self.counters["checkpoints"] += 1
        self.counters["syncs"] += len(names) + len(folders) + 1
        self._checkpoint = self._background(partial(self._make_durable, full, sorted(names), sorted(folders)))

    def _make_durable(self, log: CommitLog, names: Iterable[str], folders: Iterable[str]) -> None:
        try:
            for name in names:
                self._sync_file(self._path(name))
            for folder in folders:
                sync_directory(self._system, folder)
            log.clear()
        except OSError as error:
            self._failure = error

    def _wait(self) -> None:
        """For the end of the checkpoint under way."""
        if self._checkpoint is not None:
            self._checkpoint()
            self._checkpoint = None
        if self._failure is not None:
            raise self._failure

    def _sync_file(self, path: str) -> None:
        # Opened anew: the storage may close its own descriptor meanwhile.
        descriptor = self._system.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._system.fdatasync(descriptor)
        finally:
            self._system.close(descriptor)
