"""The system calls for files of an agent in a chaos run: those of the system, which fail, or are slow, on demand.

No root is needed for it, and no disk that is really broken. It stands below the log's storage, as the disk would. What
is written is written, so that what a failed sync leaves behind is the better case of the two; the worse one is the
simulator's (`membership.files.simulated`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence


class FaultyFiles:
    """A `membership.files.SystemCalls`.  Operations are called as those of `membership.files.simulated`."""

    def __init__(self) -> None:
        self.failing: list[tuple[str, int]] = []
        """Operations of which the next call fails, and with which error; each once."""
        self.sync_seconds = 0.0
        """What each sync takes longer."""
        self.is_quota_used_up = False
        """Nothing grows any more, though the file system says that there is room."""

    def mend(self) -> None:
        """Nothing fails or is slow any more."""
        self.failing.clear()
        self.sync_seconds = 0.0
        self.is_quota_used_up = False

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        creates = bool(flags & os.O_CREAT) and not os.path.exists(path)
        self._begin("create" if creates or flags & os.O_TRUNC else "open", grows=creates)
        return os.open(path, flags, mode)

    def close(self, fd: int, /) -> None:
        try:
            self._begin("close")
        finally:
            os.close(fd)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        self._begin("pread")
        return os.pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        self._begin("pwrite", grows=offset + len(data) > os.fstat(fd).st_size)
        return os.pwrite(fd, data, offset)

    def fstat(self, fd: int, /) -> os.stat_result:
        self._begin("fstat")
        return os.fstat(fd)

    def ftruncate(self, fd: int, length: int, /) -> None:
        self._begin("ftruncate", grows=length > os.fstat(fd).st_size)
        os.ftruncate(fd, length)

    def posix_fallocate(self, fd: int, offset: int, length: int, /) -> None:
        self._begin("posix_fallocate", grows=True)
        os.posix_fallocate(fd, offset, length)

    def fsync(self, fd: int, /) -> None:
        self._begin_sync("fsync")
        os.fsync(fd)

    def fdatasync(self, fd: int, /) -> None:
        self._begin_sync("fdatasync")
        os.fdatasync(fd)

    def replace(self, src: str, dst: str, /) -> None:
        self._begin("replace")
        os.replace(src, dst)

    def unlink(self, path: str, /) -> None:
        self._begin("unlink")
        os.unlink(path)

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        self._begin("mkdir", grows=True)
        os.mkdir(path, mode)

    def listdir(self, path: str, /) -> Sequence[str]:
        self._begin("listdir")
        return os.listdir(path)

    def stat(self, path: str, /) -> os.stat_result:
        self._begin("stat")
        return os.stat(path)

    def statvfs(self, path: str, /) -> os.statvfs_result:
        self._begin("statvfs")
        return os.statvfs(path)

    def _begin_sync(self, operation: str) -> None:
        if self.sync_seconds:
            time.sleep(self.sync_seconds)
        self._begin(operation)

    def _begin(self, operation: str, *, grows: bool = False) -> None:
        for fault in self.failing:
            if fault[0] == operation:
                self.failing.remove(fault)
                raise OSError(fault[1], os.strerror(fault[1]))
        if grows and self.is_quota_used_up:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
