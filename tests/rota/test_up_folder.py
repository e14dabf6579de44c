"""The folder of ``rota up --dir`` belongs to one ``rota up`` at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.errors import LocalClusterError
from rota.local.up import _directory


def test_a_second_one_is_refused_before_it_starts_anything(tmp_path: Path) -> None:
    """It would bring hosts back that are down, and take them away again when it fails."""
    place = tmp_path / "cluster"
    refused = pytest.raises(LocalClusterError, match="in use by another `rota up`")
    with _directory(place), refused, _directory(place):
        pytest.fail("it must not get so far")
    with _directory(place) as again:
        assert again == place
