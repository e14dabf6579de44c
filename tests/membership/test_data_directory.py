"""A data directory belongs to one host of one cluster, is told from its copies, and is put aside where it lies."""

from __future__ import annotations

import errno
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from membership.files.simulated import PowerCut, SimulatedFiles, cut_after
from membership.protocol.context.stable_storage import StableState
from membership.runtime.data_directory import (
    ANCHOR,
    IDENTITY,
    LAST_VIEW,
    NOTE,
    DataDirectory,
    DataDirectoryError,
    Identity,
    check_owner,
    recall,
)
from membership.runtime.last_view import LastView, Remembered
from tests.membership.conftest import Laboratory

MINE = Identity(bytes(range(16)), "n1")
RINGS = 10
PATH = Path("/var/rota/n1")


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path, RINGS, "0.2")


def simulated(disk: SimulatedFiles) -> DataDirectory:
    return DataDirectory(PATH, RINGS, "0.2", system=disk)


def lived_in(lab: Laboratory) -> SimulatedFiles:
    """The disk of a host that has been a member."""
    disk = SimulatedFiles(random.Random(1))
    directory = simulated(disk)
    directory.open(has_seeds=True)
    directory.save_identity(MINE)
    file = LastView(directory.last_view, RINGS, system=disk)
    file.save(Remembered(StableState(lab.configuration(3)), True))
    file.complete()
    return disk


def remembers(disk: SimulatedFiles) -> tuple[int, bool] | None:
    """The epoch of the view that a process starts from, and whether it counts as a copy."""
    directory = simulated(disk)
    copied = directory.copied_view
    found = recall(
        LastView(directory.last_view, RINGS, system=disk),
        None if copied is None else LastView(copied, RINGS, system=disk),
    )
    return None if found is None or found.view is None else (found.view.epoch, found.is_copy)


def test_round_trip(directory: DataDirectory) -> None:
    assert directory.open(has_seeds=False).identity is None
    directory.save_identity(MINE)
    assert directory.identity() == MINE
    assert directory.open(has_seeds=False) == (MINE, False, False, ())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cluster_id": "zz", "name": "n1"}', '{"cluster_id": "00", "name": "n1"}']
)
def test_a_damaged_identity_is_one_clear_error_and_put_aside(directory: DataDirectory, text: str) -> None:
    directory.open(has_seeds=False)
    (directory.path / IDENTITY).write_text(text)
    with pytest.raises(DataDirectoryError, match="to start empty"):
        directory.identity()
    contents = directory.open(has_seeds=False)
    assert contents.identity is None
    assert [loss.set_aside for loss in contents.losses] == [(str(directory.path / f"{IDENTITY}.set-aside"),)]


def test_an_identity_that_the_disk_does_not_give_is_no_damage(lab: Laboratory) -> None:
    disk = lived_in(lab)
    disk.fault = lambda operation, path: errno.EIO if path.endswith(IDENTITY) else None
    with pytest.raises(DataDirectoryError, match="Input/output error"):
        simulated(disk).open(has_seeds=True)
    disk.fault = None
    assert simulated(disk).open(has_seeds=True).identity == MINE


def test_a_directory_that_takes_nothing_is_one_clear_error() -> None:
    disk = SimulatedFiles(random.Random(1))
    disk.capacity = 0
    with pytest.raises(DataDirectoryError, match="No space left on device"):
        simulated(disk).open(has_seeds=True)


def test_what_a_later_version_wrote_is_refused_and_not_taken_for_damage(directory: DataDirectory) -> None:
    later = '{"format": 2, "version": "9.1.0", "who": "n1"}'
    (directory.path / IDENTITY).write_text(later)
    with pytest.raises(
        DataDirectoryError, match=r"by rota 9\.1\.0, in format 2, and this rota 0\.2 reads 1; upgrade"
    ):
        directory.open(has_seeds=True)
    assert [file.name for file in directory.path.iterdir()] == [IDENTITY], "nothing was put aside or begun"
    assert (directory.path / IDENTITY).read_text() == later


def test_a_directory_of_version_0_1_opens(directory: DataDirectory) -> None:
    record = json.dumps({"cluster_id": bytes(range(16)).hex(), "name": "n1"})
    (directory.path / IDENTITY).write_text(record)
    assert directory.open(has_seeds=True).identity == MINE


def test_a_founder_never_founds_over_another_clusters_data(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="give --seed"):
        check_owner(MINE, name="n1", founding=True, path=tmp_path)
    check_owner(MINE, name="n1", founding=False, path=tmp_path)
    check_owner(None, name="n1", founding=True, path=tmp_path)


def test_another_hosts_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="--name n1"):
        check_owner(MINE, name="n2", founding=False, path=tmp_path)


def test_the_original_is_known_and_a_copy_of_it_too(lab: Laboratory) -> None:
    disk = lived_in(lab)
    assert simulated(disk).open(has_seeds=True) == (MINE, True, False, ())
    disk.cut_power()
    disk.power_on()
    assert remembers(disk) == (1, False)
    copy = disk.copy()
    contents = simulated(copy).open(has_seeds=True)
    assert (contents.is_copy, contents.has_view) == (True, False)
    assert "is a copy" in contents.losses[0].text
    assert remembers(copy) == (1, True), "it helps to find the others, and counts for nothing"
    simulated(copy).claim()
    assert not simulated(copy).open(has_seeds=True).is_copy
    assert remembers(copy) == (1, True)


@pytest.mark.parametrize("lost", [ANCHOR, NOTE])
def test_a_directory_without_its_anchor_counts_as_a_copy(lab: Laboratory, lost: str) -> None:
    disk = lived_in(lab)
    disk.remove(str(PATH / lost))
    assert simulated(disk).open(has_seeds=True).is_copy


def test_a_damaged_last_view_is_put_aside_by_who_has_a_seed(lab: Laboratory) -> None:
    disk = lived_in(lab)
    disk.cut(str(PATH / LAST_VIEW), 4100)
    with pytest.raises(DataDirectoryError, match=r"is damaged .* or give --seed"):
        simulated(disk).open(has_seeds=False)
    contents = simulated(disk).open(has_seeds=True)
    assert [loss.set_aside for loss in contents.losses] == [(f"{PATH}/last-view.set-aside",)]
    assert remembers(disk) is None


@pytest.mark.parametrize("cut", range(14))
def test_a_power_cut_while_a_directory_is_begun_leaves_none_that_passes_for_a_copy(cut: int) -> None:
    disk = SimulatedFiles(random.Random(cut))
    disk.fault = cut_after(cut)
    with suppress(PowerCut):
        simulated(disk).open(has_seeds=True)
    disk.fault = None
    disk.cut_power()
    disk.power_on()
    assert not simulated(disk).open(has_seeds=True).is_copy
