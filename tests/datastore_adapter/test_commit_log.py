"""The commit log: nothing that was made durable is lost or comes back wrong, whenever the power goes."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datastore_adapter import StorageError
from datastore_adapter.log.storage.commit_log import ALIGNMENT, FIRST_SIZE, Change, CommitLog
from datastore_adapter.log.storage.commits import LOG_FILES
from datastore_adapter.log.storage.file_storage import FileStorage

LIMIT = 16 * ALIGNMENT
NAMES = ("unit/s00/1.log", "unit/s00/2.log", "unit/s01/1.log")


class Disk:
    """A directory, and what of it would be there after the power went: only what was synced for certain.

    The entry of a file is durable once its directory was synced, its content once the file was.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.synced: dict[str, bytes] = {}
        self.entries: dict[str, set[str]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        with (
            mock.patch.object(os, "fdatasync", self._sync),
            mock.patch.object(os, "fsync", self._sync),
        ):
            yield

    def _sync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        name = path.relative_to(self.root).as_posix()
        if path.is_dir():
            self.entries[name] = set(os.listdir(path))
        else:
            self.synced[name] = path.read_bytes()

    def after_power_loss(self, root: Path, rng: random.Random) -> Disk:
        """Another directory with what may be left: the rest survives page by page, or not."""
        for name in sorted({*self._files(), *self.synced}):
            path = self.root / name
            durable = self.synced.get(name, b"") if self._has_entry(name) else None
            present = path.read_bytes() if path.exists() else None
            content = _mixture(durable, present, rng)
            if content is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content)
        left = Disk(root)
        left.synced = {name: (root / name).read_bytes() for name in left._files()}
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                left.entries[path.relative_to(root).as_posix()] = set(os.listdir(path))
        return left

    def _files(self) -> list[str]:
        return [path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()]

    def _has_entry(self, name: str) -> bool:
        path = Path(name)
        return all(
            child.name in self.entries.get(child.parent.as_posix(), set())
            for child in (path, *path.parents[:-1])
        )


def _mixture(durable: bytes | None, present: bytes | None, rng: random.Random) -> bytes | None:
    if present is None or (durable is None and rng.random() < 0.5):
        return durable if present is None and rng.random() < 0.5 else None
    durable = durable or b""
    size = rng.choice((len(durable), len(present), rng.randint(*sorted((len(durable), len(present))))))
    pages = bytearray(durable[:size].ljust(size, b"\0"))
    for start in range(0, size, ALIGNMENT):
        if rng.random() < 0.5:
            pages[start : start + ALIGNMENT] = present[start : min(start + ALIGNMENT, size)].ljust(
                min(ALIGNMENT, size - start), b"\0"
            )
    return bytes(pages)


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
    """A storage on such a disk, and what it has to hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._lives = 0
        self._rng = random.Random(seed)
        self._written = dict.fromkeys(NAMES, b"")
        self._synced = dict(self._written)
        self._disk = Disk(self._fresh_directory())
        self._storage = self._open(self._disk)

    def close(self) -> None:
        self._storage.close()

    def append(self, name: str, size: int) -> None:
        data = self._rng.randbytes(size)
        with self._disk.watched():
            assert self._storage.append(name, data) == len(self._written[name])
        self._written[name] += data

    def sync(self, name: str, size: int) -> None:
        with self._disk.watched():
            self._storage.sync()
        self._synced = dict(self._written)

    def remove(self, name: str, size: int) -> None:
        if name in self._storage.names("unit/"):
            with self._disk.watched():
                self._storage.remove(name)  # which makes durable whatever else was appended
            self._written[name] = b""
            self._synced = dict(self._written)

    def crash(self, name: str = "", size: int = 0) -> None:
        for _ in range(4):  # of all that may be left, some: it has to be right in each
            self._storage.close()
            left = self._disk.after_power_loss(self._fresh_directory(), self._rng)
            self._storage = self._open(left)
            self._check(left)
        self._disk = left
        self._written = dict(self._synced)

    def _check(self, disk: Disk) -> None:
        for name, expected in self._synced.items():
            found = self._storage.read(name, 0, 1 << 30) if name in self._storage.names("unit/") else b""
            assert found[: len(expected)] == expected
            # Nothing follows that stood there before the file was removed or cut.
            assert not expected or len(found) <= len(self._written[name])
            if len(found) > len(expected):  # what was never synced, or a removal undone
                with disk.watched():
                    self._storage.truncate(name, len(expected))
                    self._storage.sync()

    def _open(self, disk: Disk) -> FileStorage:
        with disk.watched():
            return FileStorage(disk.root, commit_log_bytes=LIMIT)

    def _fresh_directory(self) -> Path:
        self._lives += 1
        root = self._folder / str(self._lives)
        root.mkdir()
        return root


FIRST, LARGE = NAMES[0], LIMIT // 3


@pytest.mark.slow("hypothesis on real files")
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
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), seed)
        for operation, name, size in story:
            getattr(machine, operation)(name, size)
        machine.crash()
        machine.close()


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


def test_without_room_for_the_log_the_files_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    storage.append(NAMES[0], bytes(2 * FIRST_SIZE))

    def full(log: CommitLog, needed: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CommitLog, "_grow", full)
    disk = Disk(tmp_path)
    with disk.watched():
        storage.sync()
    assert disk.synced[NAMES[0]] == bytes(2 * FIRST_SIZE)
    storage.close()


def test_what_the_disk_keeps_back_is_not_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    sizes = [(tmp_path / name).stat().st_size for name in LOG_FILES]
    monkeypatch.setattr(FileStorage, "room", lambda storage: 0)
    disk = Disk(tmp_path)
    storage.append(NAMES[0], bytes(2 * FIRST_SIZE), urgent=True)
    with disk.watched():
        storage.sync()
    assert disk.synced[NAMES[0]] == bytes(2 * FIRST_SIZE)
    assert [(tmp_path / name).stat().st_size for name in LOG_FILES] == sizes
    storage.append(NAMES[0], b"more", urgent=True)
    storage.sync()  # there is room for that in the log, as it is
    monkeypatch.undo()
    storage.append(NAMES[0], bytes(2 * FIRST_SIZE))
    storage.sync()
    assert (tmp_path / LOG_FILES[0]).stat().st_size > sizes[0]
    storage.close()


def test_a_checkpoint_that_fails_ends_the_commits(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path, commit_log_bytes=LIMIT)

    def broken(descriptor: int) -> None:
        if "unit" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")

    def commit_until_a_checkpoint_ended() -> None:
        while storage.counters["checkpoints"] < 2:
            storage.append(NAMES[0], bytes(5000))
            storage.sync()

    with mock.patch.object(os, "fdatasync", broken), pytest.raises(StorageError, match="Input/output"):
        commit_until_a_checkpoint_ended()
    with pytest.raises(StorageError, match="Input/output"):  # and for good
        storage.remove(NAMES[0])
    storage.close()
