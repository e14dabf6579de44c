"""The simulated file system does what the kernel does, and what a power cut or a failing disk may do besides."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.files import SystemCalls, read_at, read_file, replace_file_on, sync_directory, write_at
from membership.files.simulated import PAGE, SECTOR, PowerCut, SimulatedFiles, cut_after, fail

NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/a", "missing/a", "a/b")
FLAGS = (
    os.O_RDONLY,
    os.O_RDONLY | os.O_DIRECTORY,
    os.O_RDWR,
    os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    os.O_RDWR | os.O_CREAT | os.O_TRUNC,
)
SEEDS = range(60)

paths = st.sampled_from(NAMES)
descriptors = st.integers(0, 4)
offsets = st.sampled_from((-1, 0, 1, SECTOR, PAGE - 1, PAGE, 3 * PAGE))
lengths = st.sampled_from((0, 1, 700, PAGE, 2 * PAGE + 5))
steps = st.one_of(
    st.tuples(st.just("open"), paths, st.sampled_from(FLAGS)),
    st.tuples(st.just("mkdir"), paths),
    st.tuples(st.just("listdir"), paths),
    st.tuples(st.just("unlink"), paths),
    st.tuples(st.just("replace"), paths, paths),
    st.tuples(st.just("stat"), paths),
    st.tuples(st.just("close"), descriptors),
    st.tuples(st.just("pread"), descriptors, lengths, offsets),
    st.tuples(st.just("pwrite"), descriptors, lengths, offsets),
    st.tuples(st.just("ftruncate"), descriptors, offsets),
    st.tuples(st.just("posix_fallocate"), descriptors, offsets, lengths),
    st.tuples(st.just("fstat"), descriptors),
    st.tuples(st.just("fsync"), descriptors),
    st.tuples(st.just("fdatasync"), descriptors),
)


def perform(system: SystemCalls, root: str, script: list[tuple]) -> list[object]:
    """What each step answers; descriptors are called by the order in which they were opened."""
    opened: list[int] = []
    answers: list[object] = []
    for number, (operation, *arguments) in enumerate(script):
        try:
            if operation in ("open", "mkdir", "listdir", "unlink", "replace", "stat"):
                where = [f"{root}/{argument}" for argument in arguments if isinstance(argument, str)]
                rest = [argument for argument in arguments if not isinstance(argument, str)]
                answer = getattr(system, operation)(*where, *rest)
            else:
                descriptor, *rest = arguments
                if descriptor >= len(opened):
                    continue
                if operation == "pwrite":
                    rest[0] = bytes([number % 251 + 1]) * rest[0]
                answer = getattr(system, operation)(opened[descriptor], *rest)
        except OSError as error:
            answers.append(errno.errorcode[error.errno or 0])
            continue
        if operation == "open":
            opened.append(answer)
            answer = None
        elif operation == "close":
            opened.remove(opened[arguments[0]])
        elif operation == "listdir":
            answer = sorted(answer)
        elif operation in ("stat", "fstat"):
            is_directory = bool(answer.st_mode & 0o040000)
            answer = (answer.st_mode & 0o170700, None if is_directory else answer.st_size)
        answers.append(answer)
    for descriptor in opened:
        system.close(descriptor)
    return answers


@given(st.lists(steps, max_size=30))
def test_it_answers_as_the_kernel_does(tmp_path_factory: pytest.TempPathFactory, script: list[tuple]) -> None:
    files = SimulatedFiles(random.Random(0))
    files.mkdir("/r")
    real = perform(os, str(tmp_path_factory.mktemp("r")), script)
    assert perform(files, "/r", script) == real


def both(test: Callable[[SystemCalls, str], None]) -> Callable[..., None]:
    """The test on the real file system and on the simulated one."""

    @pytest.mark.parametrize("kind", ["real", "simulated"])
    def run(tmp_path: Path, kind: str) -> None:
        if kind == "real":
            test(os, str(tmp_path))
        else:
            test(SimulatedFiles(random.Random(0)), "")

    return run


@both
def test_a_file_that_was_opened_outlives_its_name(system: SystemCalls, root: str) -> None:
    descriptor = system.open(f"{root}/a", os.O_RDWR | os.O_CREAT)
    write_at(system, descriptor, b"former", 0)
    replace_file_on(system, Path(f"{root}/a"), b"new")
    assert read_at(system, descriptor, 100, 0) == b"former"
    assert read_file(system, f"{root}/a", 100) == b"new"
    system.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        system.pread(descriptor, 1, 0)


def make(files: SimulatedFiles, path: str, content: bytes) -> None:
    descriptor = files.open(path, os.O_RDWR | os.O_CREAT)
    write_at(files, descriptor, content, 0)
    files.fdatasync(descriptor)
    files.close(descriptor)


def crashed(files: SimulatedFiles) -> SimulatedFiles:
    files.fault = None
    files.cut_power()
    files.power_on()
    return files


def outcomes(run: Callable[[SimulatedFiles], None], path: str = "/a") -> set[bytes | None]:
    """What a power cut may leave of the file after `run`, by a number of seeds."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        files = SimulatedFiles(random.Random(seed))
        run(files)
        crashed(files)
        found.add(read_file(files, path, 1 << 20) if path in files.files() else None)
    return found


def test_what_was_synced_survives_and_the_rest_may_be_torn() -> None:
    former, fresh = b"f" * (3 * PAGE), b"n" * (3 * PAGE)

    def overwrite(files: SimulatedFiles) -> None:
        make(files, "/a", former)
        sync_directory(files, "/")
        descriptor = files.open("/a", os.O_RDWR)
        write_at(files, descriptor, fresh, 0)

    found = outcomes(overwrite)
    assert {former, fresh} < found  # and mixtures
    for content in found:
        assert content is not None
        sectors = [content[start : start + SECTOR] for start in range(0, len(content), SECTOR)]
        assert len(content) == len(former)
        assert set(sectors) <= {former[:SECTOR], fresh[:SECTOR]}


def test_sizes_are_lost_as_well() -> None:
    def append(files: SimulatedFiles) -> None:
        make(files, "/a", b"durable")
        sync_directory(files, "/")
        write_at(files, files.open("/a", os.O_RDWR), b" and not", 7)

    def shorten(files: SimulatedFiles) -> None:
        make(files, "/a", b"x" * PAGE + b"y" * PAGE)
        sync_directory(files, "/")
        files.ftruncate(files.open("/a", os.O_RDWR), PAGE)

    found = outcomes(append)
    assert {b"durable", b"durable and not", b"durable and"} & found >= {b"durable", b"durable and not"}
    assert all(content is not None and content.startswith(b"durable") for content in found)
    assert outcomes(shorten) == {b"x" * PAGE, b"x" * PAGE + b"y" * PAGE}


def test_a_new_name_may_vanish_until_its_directory_is_synced() -> None:
    def nested(files: SimulatedFiles) -> None:
        files.mkdir("/d")
        make(files, "/d/a", b"content")

    def synced(files: SimulatedFiles) -> None:
        nested(files)
        sync_directory(files, "/d")
        sync_directory(files, "/")

    def removed(files: SimulatedFiles) -> None:
        synced(files)
        files.unlink("/d/a")

    assert outcomes(nested, "/d/a") == {None, b"content"}
    assert outcomes(synced, "/d/a") == {b"content"}
    assert outcomes(removed, "/d/a") == {None, b"content"}


def test_names_become_durable_in_any_order_and_a_rename_is_atomic() -> None:
    left = set()
    for seed in SEEDS:
        files = SimulatedFiles(random.Random(seed))
        make(files, "/a", b"a")
        sync_directory(files, "/")
        make(files, "/b", b"b")
        files.replace("/a", "/c")
        left.add(tuple(crashed(files).files()))
    assert left == {("/a",), ("/a", "/b"), ("/c",), ("/b", "/c")}


@given(
    st.integers(0, 1 << 30),
    st.binary(min_size=1, max_size=2 * PAGE),
    st.binary(min_size=1, max_size=2 * PAGE),
)
def test_a_replaced_file_is_old_or_new_wherever_the_power_goes(
    seed: int, former: bytes, fresh: bytes
) -> None:
    files = SimulatedFiles(random.Random(seed))
    path = Path("/a")
    replace_file_on(files, path, former)
    made = files.changes
    replace_file_on(files, path, fresh)
    assert read_file(crashed(files), "/a", 1 << 20) == fresh
    for changes in range(made):
        replace_file_on(files, path, former)
        files.fault = cut_after(changes)
        with pytest.raises(PowerCut):
            replace_file_on(files, path, fresh)
        with pytest.raises(PowerCut):
            files.stat("/a")
        assert read_file(crashed(files), "/a", 1 << 20) in (former, fresh)


def test_what_a_failed_sync_was_to_write_is_read_until_the_power_goes() -> None:
    def failed(files: SimulatedFiles) -> None:
        make(files, "/a", b"-" * 100)
        sync_directory(files, "/")
        descriptor = files.open("/a", os.O_RDWR)
        write_at(files, descriptor, b"x" * 100, 0)
        files.fault = fail(errno.EIO, "fdatasync")
        with pytest.raises(OSError, match="Input/output error"):
            files.fdatasync(descriptor)
        files.fdatasync(descriptor)  # says nothing of what the former one has lost
        assert read_at(files, descriptor, 100, 0) == b"x" * 100

    assert b"-" * 100 in outcomes(failed)


def test_one_call_fails_and_no_other() -> None:
    files = SimulatedFiles(random.Random(0))
    descriptor = files.open("/a", os.O_RDWR | os.O_CREAT)
    files.open("/b", os.O_RDWR | os.O_CREAT)
    files.fault = fail(errno.EIO, "pwrite", path="a", after=1)
    write_at(files, descriptor, b"1", 0)
    with pytest.raises(OSError, match="/a") as failure:
        files.pwrite(descriptor, b"2", 1)
    assert failure.value.errno == errno.EIO
    write_at(files, descriptor, b"3", 1)
    assert read_file(files, "/a", 10) == b"13"


def test_a_full_disk_takes_what_fits_and_changes_in_place_need_no_room() -> None:
    files = SimulatedFiles(random.Random(0))
    files.capacity = 2 * PAGE
    descriptor = files.open("/a", os.O_RDWR | os.O_CREAT)
    assert files.pwrite(descriptor, b"x" * (3 * PAGE), 0) == 2 * PAGE
    assert files.statvfs("/").f_bavail == 0
    assert files.pwrite(descriptor, b"y" * PAGE, PAGE) == PAGE
    with pytest.raises(OSError, match="No space left"):
        files.pwrite(descriptor, b"z", 2 * PAGE)
    with pytest.raises(OSError, match="No space left"):
        files.posix_fallocate(descriptor, 0, 3 * PAGE)
    files.unlink("/a")
    assert files.statvfs("/").f_bavail == 0  # until it is closed
    files.close(descriptor)
    assert files.statvfs("/").f_bavail == 2


def test_statvfs_shows_neither_quota_nor_the_number_of_files() -> None:
    files = SimulatedFiles(random.Random(0))
    files.capacity, files.quota, files.most_files = 1 << 20, PAGE, 1
    descriptor = files.open("/a", os.O_RDWR | os.O_CREAT)
    write_at(files, descriptor, b"x" * PAGE, 0)
    with pytest.raises(OSError, match="quota"):
        files.pwrite(descriptor, b"x", PAGE)
    with pytest.raises(OSError, match="No space left"):
        files.open("/b", os.O_RDWR | os.O_CREAT)
    assert files.statvfs("/").f_bavail == (1 << 20) // PAGE - 1
    files.is_read_only = True
    with pytest.raises(OSError, match="Read-only"):
        files.pwrite(descriptor, b"x", 0)


def test_writes_may_be_short_and_syncs_take_time() -> None:
    files = SimulatedFiles(random.Random(0))
    files.short_writes, files.sync_seconds = 0.5, 2.0
    descriptor = files.open("/a", os.O_RDWR | os.O_CREAT)
    assert 0 < min(files.pwrite(descriptor, b"x" * 100, 0) for _ in range(20)) < 100
    write_at(files, descriptor, b"y" * 100, 0)
    assert read_at(files, descriptor, 200, 0) == b"y" * 100
    files.fdatasync(descriptor)
    files.fsync(descriptor)
    assert files.busy_seconds == 4.0


def test_what_an_operator_does_to_a_disk() -> None:
    files = SimulatedFiles(random.Random(0))
    files.mkdir("/d")
    for name in ("/d/a", "/d/b", "/c"):
        make(files, name, b"\0" * 10)
    copy = files.copy()
    assert copy.files() == files.files() == ["/c", "/d/a", "/d/b"]
    assert {files.stat(path).st_ino for path in files.files()}.isdisjoint(
        copy.stat(path).st_ino for path in copy.files()
    )
    files.flip_bit("/c", 3, 7)
    files.cut("/c", 5)
    files.remove("/d")
    crashed(files)
    assert (files.files(), read_file(files, "/c", 10)) == (["/c"], b"\0\0\0\x80\0")
    assert crashed(copy).files() == ["/c", "/d/a", "/d/b"]
    inode = files.stat("/c").st_ino
    files.erase()
    make(files, "/c", b"")
    assert files.stat("/c").st_ino > inode


def test_a_process_that_is_killed_leaves_its_writes_to_the_kernel() -> None:
    files = SimulatedFiles(random.Random(0))
    descriptor = files.open("/a", os.O_RDWR | os.O_CREAT)
    write_at(files, descriptor, b"written", 0)
    files.kill()
    assert read_file(files, "/a", 100) == b"written"
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.fsync(descriptor)


def test_the_same_seed_leaves_the_same_disk() -> None:
    def left(seed: int) -> list[bytes]:
        files = SimulatedFiles(random.Random(seed))
        for name in "abcdef":
            write_at(files, files.open(f"/{name}", os.O_RDWR | os.O_CREAT), name.encode() * 20_000, 0)
        crashed(files)
        return [read_file(files, path, 1 << 20) for path in files.files()]

    assert left(5) == left(5) != left(6)
