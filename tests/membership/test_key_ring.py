"""Keys, rings and key files: the rotation in three steps, and every way to get them wrong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from membership import Key, KeyNotInRingError, KeyRing, KeyRingError
from membership.wire.key_ring import LARGEST_RING, read_key_file, write_key_file

OLD, NEW, OTHER = (Key.of(bytes([number]) * 32) for number in (1, 2, 3))


def test_a_rotation_in_three_steps() -> None:
    ring = KeyRing([OLD])
    assert ring.install(NEW)
    assert ring.primary == OLD
    assert ring.ids == (OLD.id, NEW.id)
    assert ring.use(NEW.id)
    assert ring.ids == (NEW.id, OLD.id)
    assert ring.remove(OLD.id)
    assert ring.keys == (NEW,)
    assert ring.by_id(OLD.id_bytes) is None
    assert ring.was_removed(OLD.id_bytes)


def test_each_step_may_be_repeated() -> None:
    ring = KeyRing([OLD])
    assert ring.install(NEW)
    version = ring.version
    assert not ring.install(NEW)
    assert not ring.use(OLD.id)
    assert not ring.remove(OTHER.id)
    assert ring.version == version


def test_what_a_ring_refuses() -> None:
    ring = KeyRing([OLD])
    with pytest.raises(KeyRingError, match="use another one first"):
        ring.remove(OLD.id)
    with pytest.raises(KeyNotInRingError, match=NEW.id):
        ring.use(NEW.id)
    with pytest.raises(KeyRingError, match="at least one"):
        KeyRing([])
    with pytest.raises(KeyRingError, match="at most"):
        KeyRing(Key.generate() for _ in range(LARGEST_RING + 1))
    full = KeyRing(Key.generate() for _ in range(LARGEST_RING))
    with pytest.raises(KeyRingError, match="at most"):
        full.install(Key.generate())
    with pytest.raises(KeyRingError, match="another key has the same id"):
        ring.install(Key(bytes(31) + b"x", OLD.id_bytes))


def test_reading_the_file_again_changes_only_what_differs() -> None:
    ring = KeyRing([OLD, NEW])
    version = ring.version
    assert not ring.replace([OLD, NEW])
    assert ring.version == version
    assert ring.replace([NEW, OTHER])
    assert ring.ids == (NEW.id, OTHER.id)
    assert ring.was_removed(OLD.id_bytes)
    assert ring.install(OLD)
    assert not ring.was_removed(OLD.id_bytes)


def test_removed_keys_are_remembered_within_bounds() -> None:
    ring = KeyRing([OLD])
    for _ in range(200):
        key = Key.generate()
        ring.install(key)
        ring.remove(key.id)
    assert len(ring._removed) <= 64


def test_a_key_shows_itself_to_nobody() -> None:
    for text in (repr(OLD), str(OLD), f"{OLD}"):
        assert OLD.text not in text
        assert "\\x01" not in text
        assert OLD.id in text
    with pytest.raises(KeyRingError) as caught:
        Key.parse("c2VjcmV0")
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "not base64!", "c2hvcnQ=", "A" * 44, "é" * 44])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(KeyRingError):
        Key.parse(text)


def test_a_generated_key_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    ring = KeyRing.generate()
    ring.install(NEW)
    write_key_file(path, ring.keys)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KeyRing.from_file(path).keys == ring.keys
    assert KeyRing.from_file(str(path)).keys == ring.keys
    write_key_file(path, [NEW])
    assert read_key_file(path) == [NEW]
    assert os.listdir(tmp_path) == ["keys"]
    with pytest.raises(KeyRingError, match="is there already"):
        write_key_file(path, [OLD], overwrite=False)
    assert os.listdir(tmp_path) == ["keys"]


def test_remarks_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(f"# the key of 2026\n\n  {NEW.text}  \n{OLD.text}\n")
    assert read_key_file(path) == [NEW, OLD]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "there is no key in it"),
        (b"# nothing\n", "there is no key in it"),
        (OLD.text.encode() + b"\nno key!\n", ":2: not a key"),
        (b"\xff\xfe\n", ":1: not a key"),
        (b"#" * 70_000, "too long"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(KeyRingError) as caught:
        read_key_file(path)
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)
    assert OLD.text not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_key_file(path, [OLD])
    for mode in (0o644, 0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(KeyRingError, match=f"mode {mode:04o}.*chmod 600"):
            read_key_file(path)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError, match="nowhere: cannot be read: No such file"):
        read_key_file(tmp_path / "nowhere")
    with pytest.raises(KeyRingError, match="cannot be read"):
        read_key_file(tmp_path)
    with pytest.raises(KeyRingError, match="cannot be written"):
        write_key_file(tmp_path / "no" / "such" / "place", [OLD])
