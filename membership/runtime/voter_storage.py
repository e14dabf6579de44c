"""The directory with a voter's saved state: one file, replaced as a whole, durable before the voter says any more.

The directory is locked while the voter runs. What the bytes mean is in `membership.ensemble.durable_state`.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from membership.errors import MembershipError
from membership.files import replace_file

_FILE: Final = "ensemble-state"
_LOCK: Final = "ensemble-lock"


class StateError(MembershipError):
    """The directory of an ensemble member's state cannot be used. The text says what to do."""


class StateDirectory:
    """An open directory. `close` lets another process have it."""

    def __init__(self, path: Path) -> None:
        """Make it if need be, and lock it. Raises StateError."""
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}; give another directory for the state") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StateError(
                f"{path} is in use by another process; each ensemble member needs its own"
            ) from error

    def load(self) -> bytes | None:
        """The record, or None if there was never one. Raises StateError."""
        try:
            return (self._path / _FILE).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{self._path / _FILE}: {error.strerror}; make it readable") from error

    def save(self, record: bytes) -> None:
        """Replace the record; it is durable on return. Raises StateError: then nothing more may be said."""
        try:
            replace_file(self._path / _FILE, record)
        except OSError as error:
            raise StateError(
                f"{self._path}: {error.strerror}; a member of an ensemble that cannot save must stop"
            ) from error

    def close(self) -> None:
        """Unlock it."""
        os.close(self._lock)
