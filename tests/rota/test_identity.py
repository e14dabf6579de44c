"""A data directory belongs to one host of one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota import identity
from rota.errors import SettingsError
from rota.identity import Identity

MINE = Identity(bytes(range(16)), "n1")


def test_round_trip(tmp_path: Path) -> None:
    assert identity.load(tmp_path) is None
    identity.save(tmp_path, MINE)
    assert identity.load(tmp_path) == MINE


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cluster_id": "zz", "name": "n1"}', '{"cluster_id": "00", "name": "n1"}']
)
def test_damage_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / identity.FILE).write_text(text)
    with pytest.raises(SettingsError, match="to start empty"):
        identity.load(tmp_path)


def test_a_founder_never_founds_over_another_clusters_data(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give --seed"):
        identity.check(MINE, name="n1", founding=True, data_dir=tmp_path)
    identity.check(MINE, name="n1", founding=False, data_dir=tmp_path)
    identity.check(None, name="n1", founding=True, data_dir=tmp_path)


def test_another_hosts_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--name n1"):
        identity.check(MINE, name="n2", founding=False, data_dir=tmp_path)
