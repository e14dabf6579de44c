"""Durable bytes for the log's state machines: the interface, and plain files behind it.

Append-only files that are made durable together (through a commit log, `log.storage.commits`), and small files that
are replaced whole.  It knows nothing of records or checksums (`log.log_unit.segment_store`).  Files that grow are
used by one thread at a time; `load` and `replace` may be called by another meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

from datastore_adapter.log.errors import StorageError, StorageFullError
from datastore_adapter.log.storage.commit_log import Change
from datastore_adapter.log.storage.commits import LOG_FILES, Background, Commits, encoded_size, in_thread
from membership.files import SYSTEM, SystemCalls, read_file, sync_directory, write_at

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
    """A sync failed: nothing is appended, and what was is not to be trusted, until `repair` and `resume`."""

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
        """After a `failure`: make durable whatever may not be, by writing it once more.  Raises StorageError.

        In any thread: nothing else is done with what is appended until `resume`.
        """
        ...

    def resume(self) -> bool:
        """End the `failure` if it was repaired; whether it was.  Whoever resumes sees to `is_damaged` at once."""
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
        system: SystemCalls = SYSTEM,
        background: Background = in_thread,
        draw: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`reserve`: bytes of the disk that are kept back for what is urgent, but at most a share of it.

        `background`: who makes files durable while others grow; `draw`: so many random bytes.
        """
        self.directory = directory
        self._path = str(directory)
        self._system = system
        self._reserve = reserve
        self._fsync = fsync
        self._descriptors: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        self._new_in: dict[str, None] = {}
        """Folders whose entries are made durable with the next sync."""
        self._new_folders_in: set[str] = set()
        """Folders with entries of folders that may not be durable."""
        self._changes: list[Change] = []
        """What was appended since the last sync."""
        self._changed_bytes = 0
        self._shrunk = False
        """A file was cut or removed since the last sync, which the commit log knows nothing of."""
        self.failure: StorageError | None = None
        self._is_repaired = False
        self._commits = Commits(self._path, commit_log_bytes, system=system, background=background, draw=draw)
        self.counters = self._commits.counters
        with _translated(f"cannot use directory {directory}"):
            self._make_folder(self._path)
            self._sync_folders()
            self._recover()

    def names(self, prefix: str) -> list[str]:
        folder = prefix.rpartition("/")[0]
        with _translated(f"cannot list {folder or self.directory}"):
            names = [name for name, is_folder in self._walk(f"{folder}/" if folder else "") if not is_folder]
        return sorted(name for name in names if name.startswith(prefix) and name not in LOG_FILES)

    def _walk(self, folder: str) -> Iterator[tuple[str, bool]]:
        """A folder, whose name ends with a slash or is empty, and all that is in it: names, and what is a folder.

        Without small files that are of no use.
        """
        try:
            entries = self._system.listdir(self._path_of(folder))
        except (FileNotFoundError, PermissionError):  # not there, or not ours
            return
        yield folder, True
        for entry in entries:
            name = folder + entry
            if name.endswith((".new", DAMAGED)):
                continue  # which may be gone already
            if stat.S_ISDIR(self._system.stat(self._path_of(name)).st_mode):
                yield from self._walk(f"{name}/")
            else:
                yield name, False

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _folder_of(self, name: str) -> str:
        return self._path_of(name).rpartition("/")[0]

    def size(self, name: str) -> int:
        self._open(name)
        return self._sizes[name]

    def read(self, name: str, offset: int, length: int) -> bytes:
        with _translated(f"cannot read {name}"):
            return self._system.pread(self._open(name), length, offset)

    def room(self) -> int:
        with _translated(f"cannot look at {self.directory}"):
            disk = self._system.statvfs(self._path)
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
                write_at(self._system, descriptor, data, offset)
        except StorageError:
            with _translated(f"cannot cut {name} back after a failed write"):
                self._shrunk = True
                self._system.ftruncate(descriptor, offset)
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
        if self.failure is None or self._is_repaired:
            return
        with _translated(f"cannot make {self.directory} durable"):
            self._commits.reopen()
            self._sync_folders()
            self._recover()
        self.counters["repairs"] += 1
        self._is_repaired = True

    def resume(self) -> bool:
        if not self._is_repaired:
            return False
        self.failure, self._is_repaired = None, False
        return True

    def probe(self, size: int) -> None:
        path = self._path_of(PROBE_FILE)
        with _translated("cannot write a file to try the disk"):
            descriptor = self._system.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                write_at(self._system, descriptor, bytes(size), 0)
                if self._fsync:
                    self._system.fdatasync(descriptor)
            finally:
                self._system.close(descriptor)
                self._system.unlink(path)

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
            self._system.fdatasync(self._open(name))
        self._commits.sync_folders()
        for directory in self._new_in:
            sync_directory(self._system, directory)
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
            write_at(self._system, self._open(name), data, offset)
            self._sizes[name] = max(self._sizes[name], offset + len(data))
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
            self._system.ftruncate(self._open(name), size)
        self._sizes[name] = size
        self._dirty[name] = None
        self._shrunk = True

    def remove(self, name: str) -> None:
        self._settle()
        self._dirty.pop(name, None)
        self._sizes.pop(name, None)
        descriptor = self._descriptors.pop(name, None)
        with _translated(f"cannot remove {name}"):
            if descriptor is not None:
                self._system.close(descriptor)
            with suppress(FileNotFoundError):
                self._system.unlink(self._path_of(name))
        self._new_in[self._folder_of(name)] = None
        self._shrunk = True

    @property
    def is_damaged(self) -> bool:
        return self.load(DAMAGE_FILE) is not None

    def forget_damage(self) -> None:
        with _translated(f"cannot remove {DAMAGE_FILE}"):
            with suppress(FileNotFoundError):
                self._system.unlink(self._path_of(DAMAGE_FILE))
            sync_directory(self._system, self._folder_of(DAMAGE_FILE))

    def load(self, name: str) -> bytes | None:
        with _translated(f"cannot read {name}"), suppress(FileNotFoundError):
            return read_file(self._system, self._path_of(name), sys.maxsize)
        return None

    def replace(self, name: str, data: bytes) -> None:
        path, system = self._path_of(name), self._system
        fresh = f"{path}.new"
        with _translated(f"cannot write {name}"):
            folder = self._folder_of(name)
            self._make_folder(folder)
            descriptor = system.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                write_at(system, descriptor, data, 0)
                if self._fsync:
                    system.fsync(descriptor)
            finally:
                system.close(descriptor)
            system.replace(fresh, path)
            if self._fsync:
                sync_directory(system, folder)
                for parent in [parent for parent in self._new_folders_in if folder.startswith(parent)]:
                    sync_directory(system, parent)
                    self._new_folders_in.discard(parent)

    def set_aside(self, name: str) -> str:
        aside = name + DAMAGED
        with _translated(f"cannot rename {name}"):
            self._system.replace(self._path_of(name), self._path_of(aside))
            if self._fsync:
                sync_directory(self._system, self._folder_of(name))
        return aside

    def close(self) -> None:
        self._commits.close()
        for descriptor in self._descriptors.values():
            self._system.close(descriptor)
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
        path, folder = self._path_of(name), self._folder_of(name)
        flags = os.O_RDWR | os.O_CLOEXEC
        with _translated(f"cannot open {name}"):
            try:
                descriptor = self._system.open(path, flags, 0o600)
            except FileNotFoundError:
                self._make_folder(folder)
                self._new_in.update(dict.fromkeys((*self._new_folders_in, folder)))
                descriptor = self._system.open(path, flags | os.O_CREAT, 0o600)
            self._sizes[name] = self._system.fstat(descriptor).st_size
        return descriptor

    def _close_unused(self) -> None:
        """Keep the number of open files bounded; those that wait for a sync stay open."""
        excess = len(self._descriptors) - OPEN_FILES
        for name in [name for name in self._descriptors if name not in self._dirty][: max(0, excess + 1)]:
            self._system.close(self._descriptors.pop(name))

    def _make_folder(self, folder: str) -> None:
        """Make a folder and what it lies in."""
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(self._system.stat(folder).st_mode):
                return
        parent, slash, _ = folder.rpartition("/")
        parent = parent or slash or "."
        self._make_folder(parent)
        self._system.mkdir(folder)
        self._new_folders_in.add(parent)

    def _sync_folders(self) -> None:
        """Make all entries of folders durable: whoever made them may have been killed before it did."""
        if self._fsync:
            folders = [self._path_of(name) for name, is_folder in self._walk("") if is_folder]
            for folder in (*self._new_folders_in, *folders):
                sync_directory(self._system, folder)
        self._new_folders_in.clear()


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
