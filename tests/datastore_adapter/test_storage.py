"""Both storages keep the same promises; the one in memory can lose power besides."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from datastore_adapter import StorageError, StorageFullError
from datastore_adapter.log.storage.durable_record import load_record, save_record
from datastore_adapter.log.storage.file_storage import OPEN_FILES, FileStorage, Storage
from tests.datastore_adapter.memory_storage import MemoryStorage


@pytest.fixture(params=["files", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    made: Storage = FileStorage(tmp_path / "data") if request.param == "files" else MemoryStorage()
    yield made
    made.close()


def test_files_grow_are_read_cut_and_removed(storage: Storage) -> None:
    assert storage.names("") == []
    assert [storage.append("unit/a", b"hello"), storage.append("unit/a", b"world")] == [0, 5]
    storage.append("unit/b", b"")
    storage.sync()
    assert storage.names("unit/") == ["unit/a", "unit/b"]
    assert (storage.size("unit/a"), storage.read("unit/a", 3, 4), storage.read("unit/a", 8, 99)) == (
        10,
        b"lowo",
        b"ld",
    )
    storage.truncate("unit/a", 5)
    assert storage.append("unit/a", b"!") == 5
    assert storage.read("unit/a", 0, 99) == b"hello!"
    storage.remove("unit/a")
    assert storage.names("unit/") == ["unit/b"]


def test_a_small_file_is_replaced_as_a_whole(storage: Storage) -> None:
    assert storage.load("state/x") is None
    storage.replace("state/x", b"one")
    storage.replace("state/x", b"two, longer")
    assert storage.load("state/x") == b"two, longer"


class Pair(msgspec.Struct, frozen=True, array_like=True):
    left: int
    right: bytes


def test_a_durable_record_comes_back_or_complains(storage: Storage) -> None:
    assert load_record(storage, "state/pair", Pair) is None
    save_record(storage, "state/pair", Pair(3, b"x"))
    assert load_record(storage, "state/pair", Pair) == Pair(3, b"x")
    data = storage.load("state/pair")
    assert data is not None
    for position in range(len(data)):
        storage.replace("state/pair", data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(StorageError, match="state/pair is damaged"):
            load_record(storage, "state/pair", Pair)
    storage.replace("state/pair", b"")
    with pytest.raises(StorageError):
        load_record(storage, "state/pair", Pair)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    storage.append("a", b"before")
    original, calls = os.pwrite, []

    def full(descriptor: int, data: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 1:
            return original(descriptor, data[:3], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageFullError, match="no space left"):
        storage.append("a", b"lost")
    monkeypatch.undo()
    assert storage.append("a", b"!") == 6
    assert storage.read("a", 0, 99) == b"before!"
    storage.close()


def test_what_is_kept_back_is_for_what_is_urgent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path, reserve=1000)
    real = os.statvfs(tmp_path)
    for free, disk, room in ((900, 1 << 20, 0), (1500, 1 << 20, 500), (900, 1600, 800)):
        fields = list(real)
        fields[1], fields[2], fields[4] = 1, disk, free
        monkeypatch.setattr(os, "statvfs", lambda path, fields=fields: os.statvfs_result(fields))
        assert storage.room() == room
        with pytest.raises(StorageFullError, match="free some"):
            storage.append("a", bytes(room + 1))
        storage.append("a", bytes(room + 1), urgent=True)
        storage.append("a", bytes(room))
    storage.close()


def test_a_directory_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use directory"):
        FileStorage(tmp_path / "file" / "data")


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_keeps_what_is_durable_and_mangles_the_rest(seed: int) -> None:
    storage = MemoryStorage()
    storage.append("a", b"durable")
    storage.replace("b", b"whole")
    storage.sync()
    storage.append("a", b"volatile")
    storage.append("new", b"volatile")
    storage.crash(random.Random(seed))
    assert storage.read("a", 0, 7) == b"durable"
    assert storage.load("b") == b"whole"
    assert storage.size("a") <= 7 + 8 + 40


def test_the_number_of_open_files_is_bounded(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    for number in range(OPEN_FILES + 50):
        storage.append(f"many/{number:04d}", b"content")
        storage.sync()
    assert len(os.listdir("/proc/self/fd")) < OPEN_FILES + 40
    assert storage.read("many/0000", 0, 99) == b"content"
    assert storage.append("many/0001", b"!") == 7
    assert len(storage.names("many/")) == OPEN_FILES + 50
    storage.close()
