"""Durable bytes for the log's state machines: the interface, and plain files behind it.

What it is: append-only files that are made durable together, and small files that are replaced whole.
What it is not: aware of records or checksums (`datastore_adapter.segment_store`).  Files that grow are used by
one thread at a time; `load` and `replace` may be called by another meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from datastore_adapter.errors import StorageError, StorageFullError

OPEN_FILES: Final = 256
"""Files kept open at a time, plus those that wait for a sync."""


class Storage(Protocol):
    """Names are relative paths of one or more parts, separated by '/'."""

    counters: Counter[str]
    """What it cost: syncs of files, bytes made durable by them."""

    def names(self, prefix: str) -> list[str]:
        """All names that start with `prefix`, sorted."""
        ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """At most `length` bytes; fewer at the end of the file."""
        ...

    def append(self, name: str, data: bytes) -> int:
        """Append to the file, made if need be; the offset of the data.  Durable after `sync`.

        Raises StorageFullError or StorageError, and leaves the file as it was.
        """
        ...

    def sync(self) -> None:
        """Make everything appended durable.  After an error nothing may be trusted to be."""
        ...

    def truncate(self, name: str, size: int) -> None: ...

    def remove(self, name: str) -> None: ...

    def load(self, name: str) -> bytes | None:
        """A small file as a whole, or None."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file as a whole, atomically; durable on return."""
        ...

    def close(self) -> None: ...


class FileStorage:
    """Storage in the files of one directory."""

    def __init__(self, directory: Path, *, fsync: bool = True) -> None:
        self.directory = directory
        self._fsync = fsync
        self._descriptors: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        self._new_in: dict[Path, None] = {}
        self._unsynced_bytes = 0
        self.counters: Counter[str] = Counter()
        with _translated(f"cannot use directory {directory}"):
            directory.mkdir(parents=True, exist_ok=True)

    def names(self, prefix: str) -> list[str]:
        folder = self.directory / prefix.rpartition("/")[0]
        with _translated(f"cannot list {folder}"):
            files = [path for path in folder.rglob("*") if path.is_file()]
        names = [path.relative_to(self.directory).as_posix() for path in files]
        return sorted(name for name in names if name.startswith(prefix) and not name.endswith(".new"))

    def size(self, name: str) -> int:
        self._open(name)
        return self._sizes[name]

    def read(self, name: str, offset: int, length: int) -> bytes:
        with _translated(f"cannot read {name}"):
            return os.pread(self._open(name), length, offset)

    def append(self, name: str, data: bytes) -> int:
        descriptor = self._open(name)
        offset = self._sizes[name]
        self._dirty[name] = None
        try:
            with _translated(f"cannot write {name}"):
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, data[written:], offset + written)
        except StorageError:
            with _translated(f"cannot cut {name} back after a failed write"):
                os.ftruncate(descriptor, offset)
            raise
        self._sizes[name] = offset + len(data)
        self._unsynced_bytes += len(data)
        return offset

    def sync(self) -> None:
        if self._fsync:
            with _translated(f"cannot make {self.directory} durable"):
                for name in self._dirty:
                    os.fdatasync(self._descriptors[name])
                for directory in self._new_in:
                    _sync_directory(directory)
            self.counters["syncs"] += len(self._dirty)
            self.counters["synced_bytes"] += self._unsynced_bytes
        self._unsynced_bytes = 0
        self._dirty.clear()
        self._new_in.clear()

    def truncate(self, name: str, size: int) -> None:
        with _translated(f"cannot cut {name}"):
            os.ftruncate(self._open(name), size)
        self._sizes[name] = size
        self._dirty[name] = None

    def remove(self, name: str) -> None:
        self._dirty.pop(name, None)
        self._sizes.pop(name, None)
        descriptor = self._descriptors.pop(name, None)
        path = self.directory / name
        with _translated(f"cannot remove {name}"):
            if descriptor is not None:
                os.close(descriptor)
            path.unlink(missing_ok=True)
        self._new_in[path.parent] = None

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
                    _sync_directory(folder)

    def close(self) -> None:
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


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and what it lies in; the folders that have got a new entry and need a sync."""
    if folder.is_dir():
        return []
    changed = [*_make_folder(folder.parent), folder.parent]
    folder.mkdir(exist_ok=True)
    return changed


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(f"{what}: no space left; free some and retry") from error
        raise StorageError(f"{what}: {error.strerror}; check the disk") from error
