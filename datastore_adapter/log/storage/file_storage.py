"""Durable bytes for the log's state machines: the interface, and plain files behind it.

Append-only files that are made durable together (through a commit log, `log.storage.commits`), and small files that
are replaced whole.  It knows nothing of records or checksums (`log.log_unit.segment_store`).  Files that grow are
used by one thread at a time; `load` and `replace` may be called by another meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

from datastore_adapter.log.errors import StorageError, StorageFullError
from datastore_adapter.log.storage.commit_log import Change, write_at
from datastore_adapter.log.storage.commits import LOG_FILES, Commits, encoded_size, sync_directory

COMMIT_LOG_BYTES: Final = 16 << 20
"""Of each of the two commit logs, which grow up to that."""
PROBE_FILE: Final = "probe"
DAMAGE_FILE: Final = "commit/damage"
DAMAGED: Final = ".damaged"
"""Ends the name of a small file that was set aside."""
RESERVED_SHARE: Final = 16
"""Of a small disk at most one part of so many is kept back."""
OPEN_FILES: Final = 256
"""Files kept open at a time, plus those that wait for a sync."""


class Storage(Protocol):
    """Names are relative paths of one or more parts, separated by '/'."""

    counters: Counter[str]
    """What it cost: syncs of files, bytes made durable by them."""
    failure: StorageError | None
    """A sync failed: nothing is appended, and what was is not to be trusted, until `repair`."""

    def names(self, prefix: str) -> list[str]:
        """All names that start with `prefix`, sorted."""
        ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """At most `length` bytes; fewer at the end of the file."""
        ...

    def append(self, name: str, data: bytes, *, urgent: bool = False) -> int:
        """Append to the file, made if need be; the offset of the data.  Durable after `sync`.

        What is urgent may use the room that is kept back (`room`).  Raises StorageFullError or StorageError, and
        leaves the file as it was.
        """
        ...

    def room(self) -> int:
        """Bytes that may be appended; some room is kept back for what is urgent and for small files."""
        ...

    def sync(self) -> None:
        """Make everything appended durable.  An error, here or where another call needs a sync, is a `failure`."""
        ...

    def repair(self) -> None:
        """After a `failure`: make durable whatever may not be, by writing it once more.  Raises StorageError."""
        ...

    def probe(self, size: int) -> None:
        """Write so many bytes durably, and take them away again; at any time, in any thread.  Raises StorageError."""
        ...

    def truncate(self, name: str, size: int) -> None: ...

    def remove(self, name: str) -> None: ...

    @property
    def is_damaged(self) -> bool:
        """Something that was durable may be missing at the end of any file; until `forget_damage`."""
        ...

    def forget_damage(self) -> None:
        """Durably: whoever has to know has noted it."""
        ...

    def load(self, name: str) -> bytes | None:
        """A small file as a whole, or None."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file as a whole, atomically; durable on return."""
        ...

    def set_aside(self, name: str) -> str:
        """Give a small file that is of no use another name, so that it can be looked at; that name."""
        ...

    def close(self) -> None: ...


class FileStorage:
    """Storage in the files of one directory.

    Opening it makes the changes in the commit log again.  Raises StorageError.
    """

    def __init__(
        self,
        directory: Path,
        *,
        fsync: bool = True,
        commit_log_bytes: int = COMMIT_LOG_BYTES,
        reserve: int = 0,
    ) -> None:
        """`reserve`: bytes of the disk that are kept back for what is urgent, but at most a share of it."""
        self.directory = directory
        self._path = str(directory)
        self._reserve = reserve
        self._fsync = fsync
        self._descriptors: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        self._new_in: dict[Path, None] = {}
        self._changes: list[Change] = []
        """What was appended since the last sync."""
        self._changed_bytes = 0
        self._shrunk = False
        """A file was cut or removed since the last sync, which the commit log knows nothing of."""
        self.failure: StorageError | None = None
        self._commits = Commits(directory, commit_log_bytes)
        self.counters = self._commits.counters
        with _translated(f"cannot use directory {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
            self._recover()

    def names(self, prefix: str) -> list[str]:
        folder = self.directory / prefix.rpartition("/")[0]
        with _translated(f"cannot list {folder}"):
            files = [path for path in folder.rglob("*") if path.is_file()]
        names = [path.relative_to(self.directory).as_posix() for path in files]
        ours = (name for name in names if not name.endswith((".new", DAMAGED)) and name not in LOG_FILES)
        return sorted(name for name in ours if name.startswith(prefix))

    def size(self, name: str) -> int:
        self._open(name)
        return self._sizes[name]

    def read(self, name: str, offset: int, length: int) -> bytes:
        with _translated(f"cannot read {name}"):
            return os.pread(self._open(name), length, offset)

    def room(self) -> int:
        with _translated(f"cannot look at {self.directory}"):
            disk = os.statvfs(self._path)
        kept_back = min(self._reserve, disk.f_blocks * disk.f_frsize // RESERVED_SHARE)
        return max(0, disk.f_bavail * disk.f_frsize - kept_back)

    def append(self, name: str, data: bytes, *, urgent: bool = False) -> int:
        self._check()
        if not urgent and self.room() < len(data):
            raise StorageFullError(f"cannot write {name}: no space left; free some and retry")
        descriptor = self._open(name)
        offset = self._sizes[name]
        self._dirty[name] = None
        try:
            with _translated(f"cannot write {name}"):
                write_at(descriptor, data, offset)
        except StorageError:
            with _translated(f"cannot cut {name} back after a failed write"):
                self._shrunk = True
                os.ftruncate(descriptor, offset)
            raise
        self._sizes[name] = offset + len(data)
        self._note(Change(name, offset, data))
        return offset

    def sync(self) -> None:
        with self._synced():
            if self._fsync:
                growth = self._commits.growth(self._changed_bytes)
                # What is kept back is not for the commit log: the files have their room already.
                has_room = growth == 0 or growth <= self.room()
                if self._shrunk or not has_room or not self._commits.takes(self._changed_bytes):
                    self._sync_files()
                else:
                    self._commit()
                self.counters["synced_bytes"] += sum(len(change.data) for change in self._changes)

    @contextmanager
    def _synced(self) -> Iterator[None]:
        """In it everything appended is made durable, or it is not known what is."""
        self._check()
        try:
            with _translated(f"cannot make {self.directory} durable"):
                yield
        except StorageError as error:
            self.failure = error
            raise
        self._forget_changes()

    def _check(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(str(self.failure))

    def repair(self) -> None:
        """Linux takes pages that could not be written for clean, so that no later sync tells of them: a sync that
        succeeds proves nothing of what was written before one that failed.  But whatever may have been lost is here,
        or in a block of the commit log that was synced; written again its pages are dirty again, and a sync of these
        is proof."""
        if self.failure is None:
            return
        with _translated(f"cannot make {self.directory} durable"):
            self._commits.reopen()
            self._recover()
        self.counters["repairs"] += 1
        self.failure = None

    def probe(self, size: int) -> None:
        path = self.directory / PROBE_FILE
        with _translated("cannot write a file to try the disk"):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                write_at(descriptor, bytes(size), 0)
                if self._fsync:
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
                path.unlink(missing_ok=True)

    def _commit(self) -> None:
        if not self._changes:
            return
        try:
            self._commits.add(self._changes, self._new_in)
        except OSError as error:
            if not _is_full(error):
                raise
            self._sync_files()  # the log could not grow; the files have their room already

    def _sync_files(self) -> None:
        """Make durable what was appended, without the commit log."""
        for name in self._dirty:
            os.fdatasync(self._open(name))
        self._commits.sync_folders()
        for directory in self._new_in:
            sync_directory(directory)
        self.counters["syncs"] += len(self._dirty) + len(self._new_in)

    def _note(self, change: Change) -> None:
        if self._fsync:
            self._changes.append(change)
            self._changed_bytes += encoded_size(change)

    def _forget_changes(self) -> None:
        self._dirty.clear()
        self._new_in.clear()
        self._changes = []
        self._changed_bytes = 0
        self._shrunk = False

    def _settle(self) -> None:
        """Before a file shrinks or goes: no change in the commit log may come back to it."""
        with self._synced():
            if self._fsync:
                self._sync_files()
                self._commits.settle()

    def _recover(self) -> None:
        """Make the changes in the commit log, and those since the last sync, once more, durably."""
        lacks_log = self._commits.lacks_log and bool(self.names("unit/"))
        for name, offset, data in chain(self._commits.recover(), self._changes):
            write_at(self._open(name), data, offset)
            self._sizes[name] = max(self._sizes[name], offset + len(data))
            # Of a file that is there already the entry may not be durable.
            self._new_in.update(dict.fromkeys(_folders_of(name, self.directory)))
        self._sync_files()
        if self._commits.is_damaged or (lacks_log and self._fsync):
            self.replace(DAMAGE_FILE, b"the commit log")  # outlives the log's clearing
        self._commits.settle()
        if self._fsync:
            self._commits.begin()
        self._forget_changes()

    def truncate(self, name: str, size: int) -> None:
        self._settle()
        with _translated(f"cannot cut {name}"):
            os.ftruncate(self._open(name), size)
        self._sizes[name] = size
        self._dirty[name] = None
        self._shrunk = True

    def remove(self, name: str) -> None:
        self._settle()
        self._dirty.pop(name, None)
        self._sizes.pop(name, None)
        descriptor = self._descriptors.pop(name, None)
        path = self.directory / name
        with _translated(f"cannot remove {name}"):
            if descriptor is not None:
                os.close(descriptor)
            path.unlink(missing_ok=True)
        self._new_in[path.parent] = None
        self._shrunk = True

    @property
    def is_damaged(self) -> bool:
        return self.load(DAMAGE_FILE) is not None

    def forget_damage(self) -> None:
        with _translated(f"cannot remove {DAMAGE_FILE}"):
            (self.directory / DAMAGE_FILE).unlink(missing_ok=True)
            sync_directory((self.directory / DAMAGE_FILE).parent)

    def load(self, name: str) -> bytes | None:
        with _translated(f"cannot read {name}"):
            path = self.directory / name
            return path.read_bytes() if path.exists() else None

    def replace(self, name: str, data: bytes) -> None:
        path = self.directory / name
        fresh = path.with_name(path.name + ".new")
        with _translated(f"cannot write {name}"):
            changed = [*_make_folder(path.parent), path.parent]
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(fresh, path)
            if self._fsync:
                for folder in changed:
                    sync_directory(folder)

    def set_aside(self, name: str) -> str:
        path = self.directory / name
        aside = path.with_name(path.name + DAMAGED)
        with _translated(f"cannot rename {name}"):
            os.replace(path, aside)
            if self._fsync:
                sync_directory(path.parent)
        return aside.relative_to(self.directory).as_posix()

    def close(self) -> None:
        self._commits.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        self._sizes.clear()

    def _open(self, name: str) -> int:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is None:
            descriptor = self._open_file(name)
        self._descriptors[name] = descriptor  # the latest used is the last
        return descriptor

    def _open_file(self, name: str) -> int:
        self._close_unused()
        path = self.directory / name
        with _translated(f"cannot open {name}"):
            if not path.exists():
                self._new_in.update(dict.fromkeys([*_make_folder(path.parent), path.parent]))
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._sizes[name] = os.fstat(descriptor).st_size
        return descriptor

    def _close_unused(self) -> None:
        """Keep the number of open files bounded; those that wait for a sync stay open."""
        excess = len(self._descriptors) - OPEN_FILES
        for name in [name for name in self._descriptors if name not in self._dirty][: max(0, excess + 1)]:
            os.close(self._descriptors.pop(name))


def _folders_of(name: str, directory: Path) -> list[Path]:
    """The folders in which the file lies, down from `directory`."""
    parents = (directory / name).relative_to(directory).parents
    return [directory / parent for parent in parents]


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and what it lies in; the folders that have got a new entry and need a sync."""
    if folder.is_dir():
        return []
    changed = [*_make_folder(folder.parent), folder.parent]
    folder.mkdir(exist_ok=True)
    return changed


def _is_full(error: OSError) -> bool:
    # EFBIG: this process may write no further, as by `ulimit -f`.
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _translated:  # noqa: N801  # reads as the word it is; a generator would cost each write twice as much
    """Errors of the system as errors of the storage, which say what was to be done."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, OSError):
            return
        if _is_full(error):
            raise StorageFullError(f"{self._what}: no space left; free some and retry") from error
        raise StorageError(f"{self._what}: {error.strerror}; check the disk") from error
