"""The commit log: nothing that was made durable is lost or comes back wrong, whenever the power goes."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datastore_adapter import StorageError
from datastore_adapter.log.storage.commit_log import ALIGNMENT, FIRST_SIZE, Change, CommitLog
from datastore_adapter.log.storage.commits import LOG_FILES
from datastore_adapter.log.storage.file_storage import RESERVED_SHARE, FileStorage
from membership.files import read_file
from membership.files.simulated import SimulatedFiles, fail

LIMIT = 16 * ALIGNMENT
NAMES = ("unit/s00/1.log", "unit/s00/2.log", "unit/s01/1.log")
FIRST, LARGE = NAMES[0], LIMIT // 3


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(NAMES), st.sampled_from((1, 300, 5000, LIMIT // 3))),
        st.tuples(st.just("sync"), st.just(""), st.just(0)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("crash"), st.just(""), st.just(0)),
    ),
    max_size=40,
)


class Machine:
    """A storage on a disk that loses power, and what it has to hold."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._disk = SimulatedFiles(self._rng)
        self._written = dict.fromkeys(NAMES, b"")
        self._synced = dict(self._written)
        self._storage = self._open()

    def append(self, name: str, size: int) -> None:
        data = self._rng.randbytes(size)
        assert self._storage.append(name, data) == len(self._written[name])
        self._written[name] += data

    def sync(self, name: str, size: int) -> None:
        self._storage.sync()
        self._synced = dict(self._written)

    def remove(self, name: str, size: int) -> None:
        if name in self._storage.names("unit/"):
            self._storage.remove(name)  # which makes durable whatever else was appended
            self._written[name] = b""
            self._synced = dict(self._written)

    def crash(self, name: str = "", size: int = 0) -> None:
        for _ in range(3):  # of all that may be left, some: it has to be right in each
            self._check(self._disk.snapshot())
        self._disk.cut_power()
        self._check(self._disk)
        self._written = dict(self._synced)

    def _check(self, disk: SimulatedFiles) -> None:
        self._disk = disk
        disk.power_on()
        self._storage = self._open()
        for name, expected in self._synced.items():
            found = self._storage.read(name, 0, 1 << 30) if name in self._storage.names("unit/") else b""
            assert found[: len(expected)] == expected
            # Nothing follows that stood there before the file was removed or cut.
            assert not expected or len(found) <= len(self._written[name])
            if len(found) > len(expected):  # what was never synced, or a removal undone
                self._storage.truncate(name, len(expected))
                self._storage.sync()

    def _open(self) -> FileStorage:
        return FileStorage(Path("/data"), commit_log_bytes=LIMIT, system=self._disk, background=self._later)

    def _later(self, work: Callable[[], None]) -> Callable[[], None]:
        """At once, or when it is waited for."""
        if self._rng.random() < 0.5:
            work()
            return lambda: None
        return work


@pytest.mark.slow("hypothesis with many power cuts")
@settings(max_examples=100, deadline=None)
@given(operations, st.integers(0, 1 << 32))
@example(  # a new file's entry has to be durable before the file is, when that does without the log
    [("append", FIRST, 1), ("sync", "", 0), ("append", FIRST, LARGE), ("sync", "", 0)], 0
)
@example(  # a removal has to be durable before the same name is used again
    [("append", FIRST, 5000), ("sync", "", 0), ("remove", FIRST, 0), ("append", FIRST, 1), ("sync", "", 0)], 0
)
def test_what_was_synced_survives_any_number_of_power_losses(
    story: list[tuple[str, str, int]], seed: int
) -> None:
    machine = Machine(seed)
    for operation, name, size in story:
        getattr(machine, operation)(name, size)
    machine.crash()


def appended(path: Path, *blocks: bytes) -> CommitLog:
    log = CommitLog(str(path), LIMIT)
    assert list(log.recover()) == []
    for number, data in enumerate(blocks):
        log.append([Change("a", number, data)])
    return log


def test_its_file_grows_ahead_and_then_never_again(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path / "log"), 4 * FIRST_SIZE)
    sizes = set()
    while log.fits(500_000):
        log.append([Change("a", 0, bytes(500_000))])
        sizes.add((tmp_path / "log").stat().st_size)
    assert sizes == {FIRST_SIZE, 2 * FIRST_SIZE, 4 * FIRST_SIZE}
    log.clear()
    assert log.is_empty
    log.append([Change("a", 0, b"x")])
    assert (tmp_path / "log").stat().st_size == 4 * FIRST_SIZE
    log.close()


def test_after_clearing_only_what_came_since_is_there(tmp_path: Path) -> None:
    log = appended(tmp_path / "log", b"one", b"two", b"three")
    log.clear()
    log.append([Change("b", 7, b"four")])
    log.close()
    again = CommitLog(str(tmp_path / "log"), LIMIT)
    assert list(again.recover()) == [Change("b", 7, b"four")]
    again.close()


@pytest.mark.parametrize("block", [0, 1, 2])
def test_damage_before_the_end_is_no_torn_end(tmp_path: Path, block: int) -> None:
    """Block 0 is the beginning of the generation, the others hold a change each."""
    appended(tmp_path / "log", b"one", b"two", b"three").close()
    with (tmp_path / "log").open("r+b") as file:
        file.seek(block * ALIGNMENT + 20)
        file.write(b"\xff\xff")
    damaged = CommitLog(str(tmp_path / "log"), LIMIT)
    found = list(damaged.recover())
    assert damaged.is_damaged
    changes = [Change("a", 0, b"one"), Change("a", 1, b"two"), Change("a", 2, b"three")]
    # Without its beginning nobody knows which blocks are of the last generation.
    assert found == ([] if block == 0 else changes[: block - 1] + changes[block:])
    damaged.close()


def test_a_torn_last_block_was_never_acknowledged(tmp_path: Path) -> None:
    appended(tmp_path / "log", b"one", b"two", b"three").close()
    with (tmp_path / "log").open("r+b") as file:
        file.seek(3 * ALIGNMENT + 30)
        file.write(b"\xff\xff")
    torn = CommitLog(str(tmp_path / "log"), LIMIT)
    assert list(torn.recover()) == [Change("a", 0, b"one"), Change("a", 1, b"two")]
    assert not torn.is_damaged
    torn.close()


def test_a_damaged_log_is_told_until_it_was_noted(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    assert not storage.is_damaged
    for _ in range(3):
        storage.append(NAMES[0], b"x" * 100)
        storage.sync()
    storage.close()
    with (tmp_path / LOG_FILES[0]).open("r+b") as file:
        file.seek(2 * ALIGNMENT + 30)
        file.write(b"\xff")
    for _ in range(2):  # also over another start
        storage = FileStorage(tmp_path)
        assert storage.is_damaged
        assert storage.size(NAMES[0]) == 300
        storage.close()
    storage = FileStorage(tmp_path)
    storage.forget_damage()
    storage.close()
    storage = FileStorage(tmp_path)
    assert not storage.is_damaged
    storage.close()


def test_a_commit_is_one_sync_whatever_the_number_of_files(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    for number in range(20):
        storage.append(f"unit/s{number:02d}/1.log", b"x")
    before = storage.counters["syncs"]
    storage.sync()
    assert storage.counters["syncs"] == before + 1
    storage.close()


def when_waited_for(work: Callable[[], None]) -> Callable[[], None]:
    return work


def left_of(disk: SimulatedFiles, name: str) -> bytes:
    """What every power cut leaves of a file of the storage, without its commit logs."""
    disk.cut_power()
    return read_file(disk.copy(), f"/data/{name}", 1 << 30)


def test_without_room_for_the_log_the_files_are_synced() -> None:
    disk = SimulatedFiles(random.Random(0))
    storage = FileStorage(Path("/data"), system=disk, background=when_waited_for)
    storage.append(NAMES[0], bytes(2 * FIRST_SIZE))
    disk.capacity = disk.used
    storage.sync()
    assert left_of(disk, NAMES[0]) == bytes(2 * FIRST_SIZE)


def test_what_the_disk_keeps_back_is_not_for_the_log() -> None:
    disk = SimulatedFiles(random.Random(0))
    storage = FileStorage(Path("/data"), system=disk, background=when_waited_for, reserve=1 << 30)
    sizes = [disk.size(f"/data/{name}") for name in LOG_FILES]
    storage.append(NAMES[0], bytes(2 * FIRST_SIZE), urgent=True)
    disk.capacity = disk.used + disk.used // (RESERVED_SHARE - 1)
    assert storage.room() == 0
    storage.sync()
    assert [disk.size(f"/data/{name}") for name in LOG_FILES] == sizes
    storage.append(NAMES[0], b"more", urgent=True)
    storage.sync()  # there is room for that in the log, as it is
    assert read_file(disk.snapshot(), f"/data/{NAMES[0]}", 1 << 30)[: 2 * FIRST_SIZE] == bytes(2 * FIRST_SIZE)
    disk.capacity = None
    storage.append(NAMES[0], bytes(2 * FIRST_SIZE))
    storage.sync()
    assert disk.size(f"/data/{LOG_FILES[0]}") > sizes[0]


def test_a_checkpoint_that_fails_ends_the_commits() -> None:
    disk = SimulatedFiles(random.Random(0))
    storage = FileStorage(Path("/data"), commit_log_bytes=LIMIT, system=disk, background=when_waited_for)
    disk.fault = fail(errno.EIO, "fdatasync", path="/unit/")

    def commit_until_a_checkpoint_ended() -> None:
        while storage.counters["checkpoints"] < 2:
            storage.append(NAMES[0], bytes(5000))
            storage.sync()

    with pytest.raises(StorageError, match="Input/output"):
        commit_until_a_checkpoint_ended()
    with pytest.raises(StorageError, match="Input/output"):  # and for good
        storage.remove(NAMES[0])
