"""The file of a backup: what was written is read, and whatever is not what was written is refused with its place."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from datastore_adapter.log.client.copying import LogPart
from datastore_adapter.log.messages import Entry
from rota.client import backup_file
from rota.client.backup_file import (
    HEADER,
    BackupDamagedError,
    BackupError,
    BackupVersionError,
    BackupWriter,
    End,
    parts_of,
    verify,
)

INTENT: dict[str, Any] = {"version": 1, "policies": {"pack": "datastore", "texts": [["mine", "SELECT 1"]]}}
PARTS = (
    LogPart(0, 4, 0, {0: Entry(b"a" * 16, "s", (), b"first"), 3: Entry(b"b" * 16, "t", (), b"")}, (1,)),
    LogPart(7, 9, 7, {8: Entry(b"c" * 16, "s", (0,), b"last")}),
)


def write(path: Path, parts: tuple[LogPart, ...] = PARTS, address: int = 9, trimmed_below: int = 7) -> End:
    with path.open("wb") as file:
        writer = BackupWriter(file, "c0ffee", 12.0)
        for part in parts:
            writer.add(part)
        return writer.finish(address, trimmed_below, 5, INTENT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.backup"


def test_what_is_written_is_read(path: Path) -> None:
    written = write(path)
    summary = verify(path)
    assert summary.end == written
    assert (written.address, written.records, written.payload_bytes, written.lost) == (9, 3, 9, 1)
    assert written.intent == INTENT
    assert (summary.head.cluster_id, summary.head.at, summary.size) == ("c0ffee", 12.0, path.stat().st_size)
    assert tuple(parts_of(path)) == PARTS
    whole = path.read_bytes()
    end = whole.rindex(backup_file.MAGIC)
    assert written.digest == hashlib.sha256(whole[:end]).digest()


def test_every_byte_that_is_another_is_found_at_its_frame(path: Path) -> None:
    write(path)
    sound = path.read_bytes()
    frames = [offset for offset in range(len(sound)) if sound.startswith(backup_file.MAGIC, offset)]
    assert len(frames) == 4
    for position in range(len(sound)):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ 1]) + sound[position + 1 :])
        with pytest.raises(BackupError) as refused:
            verify(path)
        if position >= frames[1]:
            assert isinstance(refused.value, BackupDamagedError)
            assert refused.value.offset == max(frame for frame in frames if frame <= position)
            assert f"at byte {refused.value.offset};" in str(refused.value)


def test_a_file_that_was_cut_off_or_goes_on_is_refused(path: Path) -> None:
    write(path)
    sound = path.read_bytes()
    for length in range(1, len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(BackupDamagedError) as refused:
            verify(path)
        assert refused.value.offset <= length
    for more in (b"\x00", sound):
        path.write_bytes(sound + more)
        with pytest.raises(BackupDamagedError, match=f"at byte {len(sound)};"):
            verify(path)


@pytest.mark.parametrize(
    ("parts", "address", "trimmed_below", "complaint"),
    [
        (PARTS[:1], 5, 0, "the end does not fit"),
        ((PARTS[0], LogPart(5, 9, 0, {})), 9, 0, "addresses 4 to 5 are missing"),
        ((PARTS[0], PARTS[0]), 4, 0, "addresses 4 to 0 are missing"),
    ],
)
def test_parts_that_are_not_the_whole_are_refused(
    path: Path, parts: tuple[LogPart, ...], address: int, trimmed_below: int, complaint: str
) -> None:
    write(path, parts, address, trimmed_below)
    with pytest.raises(BackupDamagedError, match=complaint):
        verify(path)


def test_what_is_no_backup_is_called_so(path: Path) -> None:
    with pytest.raises(BackupError, match="No such file"):
        verify(path)
    path.write_bytes(b"")
    with pytest.raises(BackupError, match="the end is missing"):
        verify(path)
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(BackupError, match="is no backup of rota"):
        verify(path)


def test_one_of_a_later_version_is_refused_with_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_file, "FORMAT", 2)
    write(path)
    monkeypatch.undo()
    with pytest.raises(
        BackupVersionError, match=r"in format 2, and this rota \S+ reads 1; upgrade this rota"
    ):
        verify(path)
    path.write_bytes(b"\xa5rB2" + bytes(HEADER.size))
    with pytest.raises(BackupVersionError, match="in format 2"):
        verify(path)


def test_fields_that_a_later_version_adds_are_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(End, frozen=True):
        mood: str = "good"

    monkeypatch.setattr(backup_file, "End", Later)
    write(path)
    monkeypatch.undo()
    assert msgspec.to_builtins(verify(path).end)["records"] == 3
