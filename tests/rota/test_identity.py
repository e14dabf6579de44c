"""A data directory belongs to one host of one cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.agent import identity
from rota.agent.identity import Identity
from rota.agent.node import Node
from rota.agent.settings import AgentSettings
from rota.errors import SettingsError

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


def test_what_a_later_version_wrote_is_refused_and_not_taken_for_damage(tmp_path: Path) -> None:
    later = '{"format": 2, "version": "9.1.0", "who": "n1"}'
    (tmp_path / identity.FILE).write_text(later)
    with pytest.raises(
        SettingsError, match=r"by rota 9\.1\.0, in format 2, and this rota .* reads 1; upgrade"
    ):
        Node(AgentSettings(name="n1", data_dir=tmp_path))._open_data_dir()
    assert [file.name for file in tmp_path.iterdir()] == [identity.FILE], "nothing was put aside or begun"
    assert (tmp_path / identity.FILE).read_text() == later


def test_a_directory_of_version_0_1_opens(tmp_path: Path) -> None:
    (tmp_path / identity.FILE).write_text(json.dumps({"cluster_id": bytes(range(16)).hex(), "name": "n1"}))
    identity.check_format(tmp_path)
    assert identity.load(tmp_path) == MINE


def test_a_founder_never_founds_over_another_clusters_data(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give --seed"):
        identity.check(MINE, name="n1", founding=True, data_dir=tmp_path)
    identity.check(MINE, name="n1", founding=False, data_dir=tmp_path)
    identity.check(None, name="n1", founding=True, data_dir=tmp_path)


def test_another_hosts_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--name n1"):
        identity.check(MINE, name="n2", founding=False, data_dir=tmp_path)
