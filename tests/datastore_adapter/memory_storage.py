"""Storage in memory that can lose power: for tests of single roles.

The same interface as files, which knows which bytes were made durable and forgets or mangles the others in a crash.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

from datastore_adapter.log.errors import StorageError, StorageFullError
from datastore_adapter.log.storage.file_storage import DAMAGED


class MemoryStorage:
    """Bytes by name; `crash` keeps what was durable and a random part of the rest."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._durable: dict[str, int] = {}
        """Per file, the length that survives a crash; a file not named here may vanish."""
        self._unsynced: dict[str, None] = {}
        """Files that were appended to since the last sync."""
        self.capacity: int | None = None
        """Bytes that fit; None: no limit."""
        self.reserve = 0
        """Bytes of them that are kept back for what is urgent and for small files."""
        self.small_files = 0
        """Bytes that fit besides, for small files only: those that change in place."""
        self.counters: Counter[str] = Counter()
        self.is_damaged = False
        self.is_copy = False
        """Nobody has opened it since it was copied from another one."""
        self.broken = False
        """Every operation that touches the disk fails while this is set."""
        self.syncs_to_fail = 0
        """So many of the next syncs fail."""
        self.sync_seconds = 0.0
        """What a sync takes ..."""
        self.waited = 0.0
        """... and all of them have taken: nobody waits here."""
        self.failure: StorageError | None = None
        self._is_repaired = False

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._files if name.startswith(prefix) and not name.endswith(DAMAGED))

    def size(self, name: str) -> int:
        return len(self._files.get(name, b""))

    def read(self, name: str, offset: int, length: int) -> bytes:
        with memoryview(self._files.get(name, b"")) as file:
            return bytes(file[offset : offset + length])

    def room(self) -> int:
        return sys.maxsize if self.capacity is None else max(0, self.capacity - self._used() - self.reserve)

    def append(self, name: str, data: bytes, *, urgent: bool = False) -> int:
        self._check_failure()
        if not urgent and self.room() < len(data):
            raise StorageFullError("the simulated disk is full; free some space")
        self._check(len(data))
        file = self._files.setdefault(name, bytearray())
        offset = len(file)
        file += data
        self._unsynced[name] = None
        return offset

    def sync(self) -> None:
        self._check_failure()
        try:
            self._sync(0)
        except StorageError as error:
            self.failure = error
            raise
        self._make_durable()

    def repair(self) -> None:
        if self.failure is not None and not self._is_repaired:
            self._sync(0)
            self._make_durable()
            self._is_repaired = True

    def resume(self) -> bool:
        if not self._is_repaired:
            return False
        self.failure, self._is_repaired = None, False
        return True

    def probe(self, size: int) -> None:
        self._sync(size)

    def _sync(self, more: int) -> None:
        self.waited += self.sync_seconds
        if self.syncs_to_fail:
            self.syncs_to_fail -= 1
            raise StorageError("the simulated disk failed; try again")
        self._check(more)

    def _make_durable(self) -> None:
        for name in self._unsynced:
            self._durable[name] = len(self._files[name])
        self._unsynced.clear()

    def truncate(self, name: str, size: int) -> None:
        del self._files[name][size:]
        self._durable[name] = min(size, self._durable.get(name, 0))

    def remove(self, name: str) -> None:
        self._files.pop(name, None)
        self._durable.pop(name, None)
        self._unsynced.pop(name, None)

    def forget_damage(self) -> None:
        self.is_damaged = False

    def lose_end(self, name: str, size: int) -> None:
        """Damage: bytes at the end of a file that were durable are gone, which is noticed."""
        self.truncate(name, max(0, self.size(name) - size))
        self.is_damaged = True

    def load(self, name: str) -> bytes | None:
        file = self._files.get(name)
        return None if file is None else bytes(file)

    def replace(self, name: str, data: bytes) -> None:
        self._sync(len(data) - self.small_files)
        self._files[name] = bytearray(data)
        self._durable[name] = len(data)
        self._unsynced.pop(name, None)

    def set_aside(self, name: str) -> str:
        aside = name + DAMAGED
        self._files[aside] = self._files.pop(name)
        self._durable[aside] = self._durable.pop(name)
        return aside

    def close(self) -> None:
        pass

    def copy(self) -> MemoryStorage:
        """Another disk with the files of this one as they are, the power being off."""
        other = MemoryStorage()
        other._files = {name: bytearray(file) for name, file in self._files.items()}
        other._durable = dict(self._durable)
        other.is_damaged, other.is_copy = self.is_damaged, True
        return other

    def crash(self, rng: random.Random) -> None:
        """Power loss: of what was not durable a prefix survives, perhaps followed by mangled bytes."""
        self.broken, self.failure, self._is_repaired = False, None, False
        for name in sorted(self._files):
            durable = self._durable.get(name, 0)
            file = self._files[name]
            lost = len(file) - durable
            if lost:
                kept = durable + rng.randint(0, lost)
                torn = rng.choice(
                    (b"", bytes(rng.randint(0, len(file) - kept)), rng.randbytes(rng.randint(0, 40)))
                )
                file[kept:] = torn
            if not file and name not in self._durable:
                del self._files[name]
                continue
            self._durable[name] = len(file)
        self._unsynced.clear()

    def flip_bit(self, name: str, offset: int, bit: int) -> None:
        """Bit rot."""
        self._files[name][offset] ^= 1 << bit

    def _used(self) -> int:
        return sum(map(len, self._files.values()))

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(str(self.failure))

    def _check(self, more: int) -> None:
        if self.broken:
            raise StorageError("the simulated disk is broken; replace it")
        if self.capacity is not None and self._used() + more > self.capacity:
            raise StorageFullError("the simulated disk is full; free some space")
