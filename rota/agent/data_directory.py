"""Whether a data directory is the one this host wrote, or a copy of it, or one that something was taken from.

A directory put back from a copy remembers less than its host may have promised since; no file in it can tell, for each
says what it said when the copy was made.  What a copy does not take along is when its files were created: so the
directory holds an anchor, a file written once, and a note of when the anchor was created and which inode it is.  Where
the file system knows no time of creation the inode decides alone.

An agent whose directory is a copy comes back as what it then is: it remembers no view, its log's disk is another one
(`datastore_adapter.log.storage.disk_identity`), and what it holds is compared with the others before it counts.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from membership.files import replace_file

ANCHOR: Final = "anchor"
NOTE: Final = "anchor.json"
SET_ASIDE: Final = ".set-aside"
"""Ends the name of a file that is of no use any more, and is kept to be looked at."""

KEPT: Final = ("agent.json", "last-view", "log")
"""What an agent keeps here besides."""

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_MASK_OFFSET, _BTIME_OFFSET = 0, 80


class Origin(NamedTuple):
    """Which file it is: its inode, and when it was created (nanoseconds; None where the file system does not say)."""

    inode: int
    created: int | None


def origin_of(path: Path) -> Origin:
    """Raises OSError."""
    return Origin(path.stat().st_ino, _creation_time(path))


def _creation_time(path: Path) -> int | None:
    # os.statx is there from Python 3.15 on.
    statx = getattr(ctypes.CDLL(None), "statx", None)
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", answer, _MASK_OFFSET)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_OFFSET)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None


def is_copy(directory: Path) -> bool:
    """Whether the directory holds what some agent kept, and is not where that agent kept it.  Raises OSError."""
    try:
        note = json.loads((directory / NOTE).read_bytes())
        noted = Origin(int(note["inode"]), note["created"])
        found = origin_of(directory / ANCHOR)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        # Never begun, or begun and cut short, unless what agents keep is there: then these were lost.
        return any((directory / name).exists() for name in KEPT)
    if noted.created is None or found.created is None:
        return noted.inode != found.inode
    return noted.created != found.created


def claim(directory: Path) -> None:
    """From now on this directory is the original; durable on return.  Raises OSError."""
    replace_file(directory / ANCHOR, b"Created once; tells this directory from a copy of it.\n")
    origin = origin_of(directory / ANCHOR)
    replace_file(directory / NOTE, json.dumps(origin._asdict()).encode())


def set_aside(path: Path) -> Path:
    """Rename a file that is of no use any more, durably; its new name.  Raises OSError."""
    aside = path.with_name(path.name + SET_ASIDE)
    path.replace(aside)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return aside
