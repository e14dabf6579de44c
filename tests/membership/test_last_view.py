"""The file of the last view: what a power cut, a full disk and a failing one leave of it."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from membership.files import replace_file, replace_file_on
from membership.files.simulated import CHANGING, PowerCut, SimulatedFiles, cut_after, fail
from membership.protocol.context.stable_storage import StableState
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.runtime import last_view
from membership.runtime.last_view import (
    FIRST_CAPACITY,
    DamagedViewError,
    LastView,
    LastViewError,
    Remembered,
    _checksum,
)
from tests.membership.conftest import Laboratory

RINGS = 10
PATH = Path("/view")


@pytest.fixture
def proposed(lab: Laboratory) -> Configuration:
    """Of a founding after the view of three."""
    founder, other = lab.member(0, incarnation=2), lab.member(1, incarnation=2)
    return lab.configuration(3).restart(founder, RINGS).apply(Cut.of([other]))


def memories() -> list[Remembered]:
    """What a process may have to remember one after the other; each is another."""
    lab = Laboratory()
    views = [lab.configuration(count) for count in (3, 5, 4, 3, 40)]
    return [
        Remembered(StableState(views[0]), True),
        Remembered(StableState(views[1], (views[2],)), True),
        Remembered(StableState(views[1], (views[2],)), True, True),
        Remembered(StableState(None, (views[4],)), False),
        Remembered(StableState(views[3], tuple(views)), False),
    ]


Content = tuple[bool, bytes | None, tuple[bytes, ...], bool]


def content(memory: Remembered | None) -> Content | None:
    """What can be compared: views are the same only within one process."""
    if memory is None:
        return None
    view, accepted = memory.stable.view, memory.stable.accepted
    return (
        memory.founded,
        None if view is None else view.id,
        tuple(each.id for each in accepted),
        memory.is_copy,
    )


def read(disk: SimulatedFiles) -> Content | None:
    return content(LastView(PATH, RINGS, system=disk).load())


def read_file(path: Path) -> Content | None:
    return content(LastView(path, RINGS).load())


def restart(disk: SimulatedFiles) -> None:
    disk.cut_power()
    disk.power_on()


def opened(disk: SimulatedFiles) -> LastView:
    file = LastView(PATH, RINGS, system=disk)
    file.load()
    file.prepare()
    return file


def remember(file: LastView, memory: Remembered) -> None:
    file.save(memory)
    file.complete()


def test_proposed_views_stand_beside_the_last_one(
    lab: Laboratory, proposed: Configuration, tmp_path: Path
) -> None:
    for memory in (
        Remembered(StableState(lab.configuration(3), (proposed,)), True),
        Remembered(StableState(None, (proposed,)), True),
        Remembered(StableState(proposed), True, True),
    ):
        file = LastView(tmp_path / "view", RINGS)
        file.load()
        remember(file, memory)
        assert read_file(tmp_path / "view") == content(memory)


def test_a_file_of_an_earlier_version_is_read_and_becomes_one_of_this(
    lab: Laboratory, tmp_path: Path
) -> None:
    view = lab.configuration(3)
    body = msgspec.msgpack.encode((True, view.id, view.encoded(), False))
    replace_file(tmp_path / "view", _checksum(body) + body)
    file = LastView(tmp_path / "view", RINGS)
    assert content(file.load()) == (True, view.id, (), False)
    file.prepare()
    assert read_file(tmp_path / "view") == (True, view.id, (), False)
    remember(file, Remembered(StableState(view), True, True))
    assert read_file(tmp_path / "view") == (True, view.id, (), True)
    assert (tmp_path / "view").stat().st_size == 4096 + 2 * FIRST_CAPACITY


def test_a_copy_that_the_disk_does_not_give_is_made_good_by_the_other() -> None:
    disk = SimulatedFiles(random.Random(1))
    file = opened(disk)
    first, latest, *_ = memories()
    remember(file, first)
    remember(file, latest)
    for reads in (1, 2, 3):  # what lies before the copies comes first
        disk.fault = fail(errno.EIO, "pread", after=reads)
        assert read(disk) == content(latest)
        disk.fault = None


def test_the_first_save_after_an_upgrade_needs_no_room_either() -> None:
    disk = SimulatedFiles(random.Random(1))
    view = Laboratory().configuration(3)
    body = msgspec.msgpack.encode((True, view.id, view.encoded(), False))
    replace_file_on(disk, PATH, _checksum(body) + body)
    file = opened(disk)
    disk.capacity = 0
    for memory in memories():
        remember(file, memory)
        assert read(disk) == content(memory)


def test_the_room_is_taken_before_there_is_anything_to_remember() -> None:
    disk = SimulatedFiles(random.Random(1))
    file = opened(disk)
    assert read(disk) is None
    disk.capacity = disk.quota = 0
    for memory in memories():
        remember(file, memory)
        assert read(disk) == content(memory)


def test_a_record_that_outgrows_its_file_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_view, "FIRST_CAPACITY", 4096)
    disk = SimulatedFiles(random.Random(1))
    file = opened(disk)
    small, large = memories()[0], Remembered(StableState(Laboratory().configuration(200)), False)
    remember(file, small)
    disk.capacity = 0
    with pytest.raises(LastViewError, match="No space left on device; the view was not saved"):
        file.save(large)
    assert read(disk) == content(file.saved) == content(small)
    disk.capacity = None
    remember(file, large)
    disk.capacity = 0
    remember(file, small)
    assert read(disk) == content(small)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_a_power_cut_leaves_what_was_saved_last_or_what_was_being_saved(seed: int, cuts: list[int]) -> None:
    rng = random.Random(seed)
    disk = SimulatedFiles(rng)
    durable: Content | None = None
    for cut in cuts:
        disk.fault = cut_after(cut)
        saving = durable
        try:
            file = opened(disk)
            for memory in rng.sample(memories(), 4):
                saving = content(memory)
                file.save(memory)
                durable = saving
                file.complete()
        except PowerCut:
            pass
        disk.fault = None
        restart(disk)
        found = read(disk)
        assert found in (durable, saving)
        durable = found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), number=st.sampled_from([errno.EIO, errno.EROFS, errno.ENOSPC]))
def test_a_call_that_fails_leaves_what_was_saved_last_and_may_be_tried_again(seed: int, number: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedFiles(rng)
    file = opened(disk)
    durable: Remembered | None = None
    possible: list[Content | None] = [None]
    """The last that was saved, and what was tried since: a sync that fails may have written all of it."""
    for memory in rng.choices(memories(), k=6):
        disk.fault = fail(number, *CHANGING, after=rng.randrange(4))
        possible.append(content(memory))
        try:
            file.save(memory)
            durable, possible = memory, [content(memory)]
            file.complete()
        except LastViewError:
            assert file.saved is durable
        disk.fault = None
        if rng.random() < 0.5:
            restart(disk)
            assert read(disk) in possible
            remember(file := opened(disk), memory)
            durable, possible = memory, [content(memory)]


def test_a_copy_that_has_decayed_is_made_good_by_the_other(tmp_path: Path) -> None:
    first, latest, *_ = memories()
    for which in range(2):
        path = tmp_path / str(which)
        file = LastView(path, RINGS)
        remember(file, first)
        remember(file, latest)
        spoil(path, which)
        file = LastView(path, RINGS)
        assert content(file.load()) == content(latest)
        file.complete()
        spoil(path, 1 - which)
        assert read_file(path) == content(latest)
        spoil(path, which)
        with pytest.raises(DamagedViewError, match=r"is damaged .*remove it"):
            LastView(path, RINGS).load()


def spoil(path: Path, which: int) -> None:
    with path.open("r+b") as file:
        file.seek(4096 + which * FIRST_CAPACITY + 60)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
