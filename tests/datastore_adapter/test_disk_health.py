"""What a host tells of its disk: full, for how long failed, and what a sync takes."""

from __future__ import annotations

import pytest

from datastore_adapter import LogSettings, StorageError, StorageFullError
from datastore_adapter.log.messages import Done
from datastore_adapter.log.storage.disk_health import DiskHealth, refused_by
from tests.datastore_adapter.memory_storage import MemoryStorage

RECORD = 4096
SETTINGS = LogSettings(max_payload=RECORD, disk_probation=60.0)
FULL = refused_by(StorageFullError("no space left"))
BROKEN = refused_by(StorageError("cannot write: Input/output error"))


class Disk:
    """A disk, and a clock that is set by hand; a sync takes what the storage says."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.now = 0.0
        self.health = DiskHealth(self.storage, SETTINGS, lambda: self.now + self.storage.waited)

    def sync(self, seconds: float) -> None:
        self.storage.sync_seconds = seconds
        with self.health.syncing():
            self.storage.sync()


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_it_is_full_until_there_is_room_for_a_good_many_records(disk: Disk) -> None:
    for records, is_full in ((9.0, False), (0.9, True), (2.0, True), (5.0, False), (1.0, False), (0.0, True)):
        disk.storage.capacity = room = int(records * RECORD)
        disk.health.look()
        report = disk.health.report()
        assert report.full is is_full
        assert records == 9 or report.room <= room < max(1, 2 * report.room), "told roughly, once it was full"


def test_a_disk_that_refuses_although_it_seems_to_have_room_is_full_until_it_has_taken_as_much(
    disk: Disk,
) -> None:
    """A quota, or no inodes left: `statvfs` knows nothing of it."""
    disk.health.note(FULL)
    disk.health.look()
    assert disk.health.report().full
    assert disk.health.needs_care
    disk.storage.capacity, disk.storage.reserve = 4 * RECORD - 1, -100 * RECORD
    disk.health.care()
    disk.health.look()
    assert disk.health.report().full, "it took some bytes, but not four records"
    disk.storage.capacity = 4 * RECORD
    disk.health.care()
    disk.health.look()
    assert not disk.health.report().full
    assert not disk.health.needs_care


def test_a_failed_disk_is_on_probation_once_it_works_and_longer_each_time(disk: Disk) -> None:
    for probation in (60.0, 120.0, 240.0):
        disk.storage.broken = True
        disk.health.note(BROKEN)
        disk.now += 1000.0
        disk.health.care()
        assert disk.health.report().failure == "the simulated disk is broken; replace it"
        assert disk.health.needs_care
        disk.storage.broken = False
        disk.health.care()
        assert not disk.health.needs_care
        disk.now += probation - 1
        assert disk.health.report().state == "failed"
        disk.now += 1
        assert disk.health.report().state == "ok"
    disk.now += 3600.0
    disk.health.note(BROKEN)
    disk.health.care()
    disk.now += 60.0
    assert disk.health.report().state == "ok", "what was long ago is forgotten"


def test_other_answers_say_nothing_of_the_disk(disk: Disk) -> None:
    disk.health.note(Done())
    assert disk.health.report().state == "ok"


def test_after_a_failed_sync_the_storage_is_repaired(disk: Disk) -> None:
    disk.storage.syncs_to_fail = 2
    with pytest.raises(StorageError):
        disk.storage.sync()
    assert disk.health.needs_care
    disk.health.care()
    assert not disk.storage.resume()
    disk.health.care()
    assert disk.storage.failure is not None, "whoever lost something is to know first"
    assert disk.storage.resume()
    assert disk.storage.failure is None


def test_what_fails_while_the_disk_is_tried_is_not_made_good_by_that(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried in a thread of its own."""
    probe = disk.storage.probe

    def fail_meanwhile(size: int) -> None:
        probe(size)
        disk.health.note(BROKEN)
        disk.health.note(FULL)

    disk.health.note(BROKEN)
    with monkeypatch.context() as patch:
        patch.setattr(disk.storage, "probe", fail_meanwhile)
        disk.health.care()
    assert disk.health.report().stopped
    disk.health.look()
    assert disk.health.report().full
    disk.health.care()
    disk.health.look()
    assert not disk.health.report().stopped
    assert not disk.health.report().full


def test_what_a_sync_takes_follows_quickly_and_forgets_a_single_hiccup(disk: Disk) -> None:
    for _ in range(20):
        disk.sync(0.002)
    assert disk.health.report().sync_seconds == pytest.approx(0.002)
    disk.sync(0.2)
    for _ in range(10):
        disk.sync(0.002)
    assert disk.health.report().sync_seconds < 0.01
    disk.sync(2.0)
    assert disk.health.report().sync_seconds > 0.2


def test_a_sync_that_does_not_end_is_told_as_it_goes_on(disk: Disk) -> None:
    with disk.health.syncing():
        disk.now += 30.0
        assert disk.health.report().sync_seconds == 30.0


def test_a_slow_disk_at_rest_is_tried_until_it_is_fast(disk: Disk) -> None:
    """Nobody writes to a host that is relieved: without a trial it would be slow for ever."""
    disk.sync(2.0)
    assert not disk.health.needs_care, "it was just used"
    disk.storage.sync_seconds = 0.001
    tried = 0
    while disk.health.report().sync_seconds >= 0.05:
        disk.now += 5.0
        assert disk.health.needs_care
        disk.health.care()
        tried += 1
    assert tried < 40
    disk.now += 100.0
    assert not disk.health.needs_care
