"""The file of the last view: what a power cut, a full disk and a failing one leave of it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from membership.files import replace_file
from membership.files.simulated import CHANGING, PowerCut, SimulatedFiles, cut_after, fail
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
from tests.budget import budgeted
from tests.membership.conftest import Lab

RINGS = 10
PATH = Path("/view")


@pytest.fixture
def proposed(lab: Lab) -> Configuration:
    """Of a founding after the view of three."""
    founder, other = lab.member(0, incarnation=2), lab.member(1, incarnation=2)
    return lab.configuration(3).restart(founder, RINGS).apply(Cut.of([other]))


def memories() -> list[Remembered]:
    """What a process may have to remember one after the other; each is another."""
    lab = Lab()
    views = [lab.configuration(count) for count in (3, 5, 4, 3, 40)]
    return [
        Remembered(views[0], True),
        Remembered(views[1], True, (views[2],)),
        Remembered(views[1], True, (views[2],), True),
        Remembered(views[4], False),
        Remembered(views[3], False, tuple(views)),
    ]


def read(disk: SimulatedFiles) -> Remembered | None:
    return LastView(PATH, RINGS, system=disk).load()


def opened(disk: SimulatedFiles) -> LastView:
    file = LastView(PATH, RINGS, system=disk)
    file.load()
    file.prepare()
    return file


def remember(file: LastView, memory: Remembered) -> None:
    file.save(memory)
    file.complete()


def test_proposed_views_stand_beside_the_last_one(lab: Lab, proposed: Configuration, tmp_path: Path) -> None:
    for memory in (
        Remembered(lab.configuration(3), True, (proposed,)),
        Remembered(proposed, True),
        Remembered(proposed, True, (), True),
    ):
        file = LastView(tmp_path / "view", RINGS)
        file.load()
        remember(file, memory)
        assert LastView(tmp_path / "view", RINGS).load() == memory


def test_a_file_of_an_earlier_version_is_read_and_becomes_one_of_this(lab: Lab, tmp_path: Path) -> None:
    view = lab.configuration(3)
    body = msgspec.msgpack.encode((True, view.id, view.encoded(), False))
    replace_file(tmp_path / "view", _checksum(body) + body)
    file = LastView(tmp_path / "view", RINGS)
    assert file.load() == Remembered(view, True)
    file.prepare()
    assert LastView(tmp_path / "view", RINGS).load() == Remembered(view, True)
    remember(file, Remembered(view, True, (), True))
    assert LastView(tmp_path / "view", RINGS).load() == Remembered(view, True, (), True)
    assert (tmp_path / "view").stat().st_size == 4096 + 2 * FIRST_CAPACITY


def test_the_room_is_taken_before_there_is_anything_to_remember() -> None:
    disk = SimulatedFiles(random.Random(1))
    file = opened(disk)
    assert read(disk) is None
    disk.capacity = disk.quota = 0
    for memory in memories():
        remember(file, memory)
        assert read(disk) == memory


def test_a_record_that_outgrows_its_file_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_view, "FIRST_CAPACITY", 4096)
    disk = SimulatedFiles(random.Random(1))
    file = opened(disk)
    small, *_, large = memories()
    remember(file, small)
    disk.capacity = 0
    with pytest.raises(LastViewError, match="No space left on device; the view was not saved"):
        file.save(large)
    assert (read(disk), file.saved) == (small, small)
    disk.capacity = None
    remember(file, large)
    disk.capacity = 0
    remember(file, small)
    assert read(disk) == small


@settings(max_examples=budgeted(60), deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_a_power_cut_leaves_what_was_saved_last_or_what_was_being_saved(seed: int, cuts: list[int]) -> None:
    rng = random.Random(seed)
    disk = SimulatedFiles(rng)
    durable: Remembered | None = None
    for cut in cuts:
        disk.fault = cut_after(cut)
        saving: Remembered | None = durable
        try:
            file = opened(disk)
            for saving in rng.sample(memories(), 4):
                file.save(saving)
                durable = saving
                file.complete()
        except PowerCut:
            pass
        disk.fault = None
        disk.lose_power()
        found = read(disk)
        assert found in (durable, saving)
        durable = found


@settings(max_examples=budgeted(60), deadline=None)
@given(seed=st.integers(0, 2**32), number=st.sampled_from([errno.EIO, errno.EROFS, errno.ENOSPC]))
def test_a_call_that_fails_leaves_what_was_saved_last_and_may_be_tried_again(seed: int, number: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedFiles(rng)
    file = opened(disk)
    durable: Remembered | None = None
    for memory in rng.choices(memories(), k=6):
        disk.fault = fail(number, *CHANGING, after=rng.randrange(4))
        try:
            file.save(memory)
            durable = memory
            file.complete()
        except LastViewError:
            assert file.saved == durable
        disk.fault = None
        if rng.random() < 0.5:
            disk.lose_power()
            assert read(disk) in (durable, memory)
            remember(file := opened(disk), memory)
            durable = memory


def test_a_copy_that_has_decayed_is_made_good_by_the_other(tmp_path: Path) -> None:
    first, latest, *_ = memories()
    for which in range(2):
        path = tmp_path / str(which)
        file = LastView(path, RINGS)
        remember(file, first)
        remember(file, latest)
        spoil(path, which)
        file = LastView(path, RINGS)
        assert file.load() == latest
        file.complete()
        spoil(path, 1 - which)
        assert LastView(path, RINGS).load() == latest
        spoil(path, which)
        with pytest.raises(DamagedViewError, match=r"is damaged .*remove it"):
            LastView(path, RINGS).load()


def spoil(path: Path, which: int) -> None:
    with path.open("r+b") as file:
        file.seek(4096 + which * FIRST_CAPACITY + 60)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
