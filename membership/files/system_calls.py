"""The system calls by which rota keeps files, as an interface, so that a simulated file system can stand in.

The module `os` is one as it is. Whatever must survive a power cut or a failing disk (the last view, the data
directory, the log's files) takes its system calls as an argument and makes no other calls; the simulator gives it a
file system that loses what was not synced, fills up, and fails on any single call (`membership.files.simulated`).
Paths are strings; errors are OSError.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol


class FileStatus(Protocol):
    """What is used of `os.stat_result`."""

    @property
    def st_ino(self) -> int: ...

    @property
    def st_mode(self) -> int: ...

    @property
    def st_size(self) -> int: ...


class FileSystemStatus(Protocol):
    """What is used of `os.statvfs_result`."""

    @property
    def f_frsize(self) -> int: ...

    @property
    def f_blocks(self) -> int: ...

    @property
    def f_bavail(self) -> int: ...


class SystemCalls(Protocol):
    """Functions of the module `os`, with the arguments that rota gives them."""

    def open(self, path: str, flags: int, mode: int = ..., /) -> int: ...

    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, length: int, offset: int, /) -> bytes: ...

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int: ...

    def fstat(self, fd: int, /) -> FileStatus: ...

    def ftruncate(self, fd: int, length: int, /) -> None: ...

    def posix_fallocate(self, fd: int, offset: int, length: int, /) -> None: ...

    def fsync(self, fd: int, /) -> None: ...

    def fdatasync(self, fd: int, /) -> None: ...

    def replace(self, src: str, dst: str, /) -> None: ...

    def unlink(self, path: str, /) -> None: ...

    def mkdir(self, path: str, mode: int = ..., /) -> None: ...

    def listdir(self, path: str, /) -> Sequence[str]: ...

    def stat(self, path: str, /) -> FileStatus: ...

    def statvfs(self, path: str, /) -> FileSystemStatus: ...


SYSTEM: Final[SystemCalls] = os
"""The real ones."""


def read_file(system: SystemCalls, path: str, limit: int) -> bytes:
    """At most `limit` bytes of a whole file. Raises OSError, FileNotFoundError among them."""
    descriptor = system.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = min(limit, system.fstat(descriptor).st_size)
        return read_at(system, descriptor, size, 0)
    finally:
        system.close(descriptor)


def read_at(system: SystemCalls, descriptor: int, length: int, offset: int) -> bytes:
    """So many bytes at `offset`, fewer only at the end of the file."""
    parts: list[bytes] = []
    while length > 0:
        part = system.pread(descriptor, length, offset)
        if not part:
            break
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)


def write_at(system: SystemCalls, descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data`. Raises OSError; then any part of it may have been written."""
    view = memoryview(data)
    while view:
        written = system.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def sync_directory(system: SystemCalls, path: str) -> None:
    """Make the entries of a directory durable."""
    descriptor = system.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(descriptor)
    finally:
        system.close(descriptor)


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """`replace_file_on` the real system."""
    replace_file_on(SYSTEM, path, content, mode)


def replace_file_on(system: SystemCalls, path: Path, content: bytes, mode: int = 0o666) -> None:
    """The content is durable on return. Raises OSError; then a reader finds the former content, or none as before.

    Write a new file beside it, sync, rename, sync the directory: after a power cut, too, a reader finds the old content
    or the new one, whole. This waits for the disk: not for an event loop. `mode`: who may read and write the file, as
    far as the umask lets them.
    """
    fresh = f"{path}.new"
    with suppress(FileNotFoundError):
        system.unlink(fresh)  # one that was left behind might be open to others
    descriptor = system.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        write_at(system, descriptor, content, 0)
        system.fsync(descriptor)
    finally:
        system.close(descriptor)
    system.replace(fresh, str(path))
    sync_directory(system, str(path.parent))
