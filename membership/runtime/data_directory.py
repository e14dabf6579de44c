"""What a host keeps on its disk: which cluster it belongs to, the last view, and whether all of that is its own.

A directory put back from a copy remembers less than its host may have promised since; no file in it can tell, for each
says what it said when the copy was made. What a copy does not take along is when its files were created: so the
directory holds an anchor, a file written once, and a note of when the anchor was created and which inode it is. Where
the file system knows no time of creation the inode decides alone.

A host whose directory is a copy comes back as what it then is: it remembers no view, its log's disk is another one
(`datastore_adapter.log.storage.disk_identity`), and what it holds is compared with the others before it counts. What
cannot be believed is put aside, never overwritten. A host that founded or joined a cluster remembers its id, so that
no agent ever serves its data to another one.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from membership.errors import MembershipError
from membership.files import SYSTEM, SystemCalls, read_file, replace_file_on, sync_directory
from membership.runtime.last_view import DamagedViewError, LastView, LastViewError, Remembered

IDENTITY: Final = "agent.json"
LAST_VIEW: Final = "last-view"
LOG: Final = "log"
ANCHOR: Final = "anchor"
NOTE: Final = "anchor.json"
SET_ASIDE: Final = ".set-aside"
"""Ends the name of a file that is of no use any more, and is kept to be looked at."""
KEPT: Final = (IDENTITY, LAST_VIEW, LOG)
"""What a host keeps here besides."""
FORMAT: Final = 1
"""Of everything in the directory. Higher with each change that makes a file unreadable, or misread, before it."""
CLUSTER_ID_BYTES: Final = 16

_SMALL_FILE: Final = 1 << 20
_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_MASK_OFFSET, _BTIME_OFFSET = 0, 80


class DataDirectoryError(MembershipError):
    """The data directory cannot be used as it is. The text says what to do."""


class DamagedIdentityError(DataDirectoryError):
    """What says whose the directory is can be read, and says nothing."""


class Identity(NamedTuple):
    """Which host of which cluster a directory belongs to."""

    cluster_id: bytes
    name: str


class Loss(NamedTuple):
    """Something in the directory cannot be believed any more."""

    text: str
    set_aside: tuple[str, ...]
    """The files that were put aside, by the paths they have now."""


class Contents(NamedTuple):
    """What a process finds when it starts."""

    identity: Identity | None
    """None: the directory is fresh, or has lost it."""
    has_view: bool
    """There is a last view that counts."""
    is_copy: bool
    """The directory is a copy, or something was taken from it; until `DataDirectory.claim`."""
    losses: tuple[Loss, ...]


class _Origin(NamedTuple):
    """Which file it is: its inode, and when it was created (nanoseconds; None where the file system does not say)."""

    inode: int
    created: int | None


class DataDirectory:
    """The directory at `path`. `rings`: as in the cluster's settings; `version`: of the program, for people."""

    def __init__(self, path: Path, rings: int, version: str, *, system: SystemCalls = SYSTEM) -> None:
        self.path = path
        self._rings = rings
        self._version = version
        self._system = system

    @property
    def last_view(self) -> Path:
        """The file of the last view."""
        return self.path / LAST_VIEW

    @property
    def copied_view(self) -> Path | None:
        """The last view that was put aside because the directory is a copy; it stays one until there is a new one."""
        path = self.path / (LAST_VIEW + SET_ASIDE)
        with suppress(LastViewError):  # put aside because it is damaged
            return path if LastView(path, self._rings, system=self._system).load() is not None else None
        return None

    def file(self) -> LastView:
        """The file of the last view, to be loaded."""
        return LastView(self.last_view, self._rings, system=self._system)

    def copied_file(self) -> LastView | None:
        """That of `copied_view`."""
        path = self.copied_view
        return None if path is None else LastView(path, self._rings, system=self._system)

    def open(self, *, has_seeds: bool) -> Contents:
        """Make the directory if need be, and put aside what cannot be believed.

        `has_seeds`: this process finds its cluster without the last view. Raises DataDirectoryError.
        """
        self._make()
        self._check_format()
        try:
            return self._open(has_seeds)
        except OSError as error:
            raise DataDirectoryError(
                f"{self.path}: {error.strerror}; make it readable and writable"
            ) from error

    def _make(self) -> None:
        try:
            missing = [path for path in (self.path, *self.path.parents) if not self._exists(path)]
            for path in reversed(missing):
                with suppress(FileExistsError):  # another process makes the same
                    self._system.mkdir(str(path))
                sync_directory(self._system, str(path.parent))
            self._system.listdir(str(self.path))
        except OSError as error:
            raise DataDirectoryError(
                f"data_dir: {self.path}: {error.strerror}; give another --data-dir"
            ) from error

    def _open(self, has_seeds: bool) -> Contents:
        losses: list[Loss] = []
        is_copy = self.is_copy()
        if is_copy:
            losses.append(
                self._lose(
                    f"{self.path} is a copy, or something was taken from it: this host remembers no view, and what it "
                    "holds counts only after it was compared with the copies of others",
                    [LAST_VIEW] if self._exists(self.last_view) else [],
                )
            )
        elif not self._exists(self.path / NOTE):
            self.claim()
        has_view = False
        try:
            found = self.file().load()
            has_view = found is not None and found.view is not None
        except DamagedViewError as error:
            if not has_seeds:
                raise DataDirectoryError(f"{error}, or give --seed") from error
            losses.append(self._lose(f"{error}: it is put aside", [LAST_VIEW]))
        except LastViewError as error:
            raise DataDirectoryError(str(error)) from error
        identity = None
        try:
            identity = self.identity()
        except DamagedIdentityError:
            losses.append(self._lose(f"{IDENTITY} is damaged: it is put aside", [IDENTITY]))
        return Contents(identity, has_view, is_copy, tuple(losses))

    def _lose(self, text: str, names: Iterable[str]) -> Loss:
        return Loss(text, tuple(str(self._set_aside(self.path / name)) for name in names))

    def _set_aside(self, path: Path) -> Path:
        """Rename a file that is of no use any more, durably; its new name. Raises OSError."""
        aside = path.with_name(path.name + SET_ASIDE)
        self._system.replace(str(path), str(aside))
        sync_directory(self._system, str(path.parent))
        return aside

    def _exists(self, path: Path) -> bool:
        try:
            self._system.stat(str(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    # Whether it is the one that this host wrote.

    def is_copy(self) -> bool:
        """Whether it holds what some host kept, and is not where that host kept it. Raises OSError."""
        try:
            note = json.loads(self._read(NOTE))
            noted = _Origin(int(note["inode"]), note["created"])
            found = self._origin_of_anchor()
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            # Never begun, or begun and cut short, unless what hosts keep is there: then these were lost.
            return any(self._exists(self.path / name) for name in KEPT)
        if noted.created is None or found.created is None:
            return noted.inode != found.inode
        return noted.created != found.created

    def claim(self) -> None:
        """From now on this directory is the original; durable on return. Raises DataDirectoryError."""
        self._write(ANCHOR, b"Created once; tells this directory from a copy of it.\n")
        self._write(NOTE, json.dumps(self._origin_of_anchor()._asdict()).encode())

    def _origin_of_anchor(self) -> _Origin:
        path = self.path / ANCHOR
        created = _creation_time(path) if self._system is SYSTEM else None
        return _Origin(self._system.stat(str(path)).st_ino, created)

    # Whose it is.

    def _check_format(self) -> None:
        """Refuse what a later version wrote, before anything of it is taken for damage. Raises DataDirectoryError."""
        try:
            raw = json.loads(self._read(IDENTITY))
            found, version = int(raw.get("format", 1)), str(raw.get("version", "later"))
        except (OSError, ValueError, TypeError, AttributeError):
            return  # none, or `identity` says what is wrong with it
        if found > FORMAT:
            raise DataDirectoryError(
                f"{self.path} was written by rota {version:.20}, in format {found}, and this rota {self._version} "
                f"reads {FORMAT}; upgrade this one, or start empty with another --data-dir: the others have the data"
            )

    def identity(self) -> Identity | None:
        """Whose it is; None for a fresh one. Raises DataDirectoryError when that is unreadable."""
        path = self.path / IDENTITY
        try:
            raw = json.loads(self._read(IDENTITY))
            identity = Identity(bytes.fromhex(raw["cluster_id"]), str(raw["name"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataDirectoryError(f"{path}: {error.strerror}; make it readable") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedIdentityError(
                f"{path}: unreadable ({error}); restore it, or remove {self.path} to start empty"
            ) from error
        if len(identity.cluster_id) != CLUSTER_ID_BYTES:
            raise DamagedIdentityError(
                f"{path}: cluster_id is not 16 bytes; restore it, or remove {self.path} to start empty"
            )
        return identity

    def save_identity(self, identity: Identity) -> None:
        """Durable before it returns: file and directory are synced. Raises DataDirectoryError."""
        record = {
            "cluster_id": identity.cluster_id.hex(),
            "name": identity.name,
            "format": FORMAT,
            "version": self._version,
        }
        self._write(IDENTITY, json.dumps(record).encode())

    def _read(self, name: str) -> bytes:
        return read_file(self._system, str(self.path / name), _SMALL_FILE)

    def _write(self, name: str, content: bytes) -> None:
        try:
            replace_file_on(self._system, self.path / name, content)
        except OSError as error:
            raise DataDirectoryError(
                f"{self.path / name}: {error.strerror}; make room, or make it writable"
            ) from error


def recall(file: LastView, copy: LastView | None) -> Remembered | None:
    """What a process starts from: its last view, or a copy of it, which does not count for what it knew.

    Raises LastViewError.
    """
    remembered = file.load()
    if remembered is None and copy is not None and (copied := copy.load()) is not None:
        return msgspec.structs.replace(copied, is_copy=True)
    return remembered


def check_owner(remembered: Identity | None, *, name: str, founding: bool, path: Path) -> None:
    """Refuse what would mix two clusters or two hosts. Raises DataDirectoryError saying what to do."""
    if remembered is None:
        return
    if remembered.name != name:
        raise DataDirectoryError(
            f"{path} belongs to host {remembered.name!r}, not {name!r}; give --name {remembered.name} "
            "or another --data-dir"
        )
    if founding:
        raise DataDirectoryError(
            f"{path} already belongs to cluster {remembered.cluster_id.hex()[:8]}; founding another over it "
            "would lose its data: give --seed with a live member to rejoin, or another --data-dir"
        )


def _creation_time(path: Path) -> int | None:
    # os.statx is there from Python 3.15 on.
    statx = getattr(ctypes.CDLL(None), "statx", None)
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", answer, _MASK_OFFSET)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_OFFSET)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None
