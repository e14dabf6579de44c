"""The system calls for files of an agent in a chaos run: those of the system, whose syncs fail or are slow on demand.

No root is needed for it, and no disk that is really broken. It stands below the log's storage, as the disk would; what
is written is written, so that what a failed sync leaves behind is the better case of the two. The worse one is the
simulator's (`chaos.simulation.file_system`).
"""

from __future__ import annotations

import errno
import os
import time


class FaultyFiles:
    """A `membership.files.SystemCalls`."""

    def __init__(self) -> None:
        self.syncs_to_fail = 0
        """So many of the next ones fail."""
        self.sync_seconds = 0.0
        """What each takes longer."""

    def fsync(self, fd: int, /) -> None:
        self._before_sync()
        os.fsync(fd)

    def fdatasync(self, fd: int, /) -> None:
        self._before_sync()
        os.fdatasync(fd)

    def _before_sync(self) -> None:
        if self.sync_seconds:
            time.sleep(self.sync_seconds)
        if self.syncs_to_fail:
            self.syncs_to_fail -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    fstat = staticmethod(os.fstat)
    ftruncate = staticmethod(os.ftruncate)
    posix_fallocate = staticmethod(os.posix_fallocate)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    listdir = staticmethod(os.listdir)
    stat = staticmethod(os.stat)
    statvfs = staticmethod(os.statvfs)
