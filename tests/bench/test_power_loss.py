"""A power loss is counted with all that was acknowledged before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.log.power_loss import WRITERS, WRITES, power_loss


@pytest.mark.demo
@pytest.mark.socket
def test_one_cut_is_survived_and_told(tmp_path: Path) -> None:
    result = power_loss(1, 3, 3, tmp_path, quiet=True)
    assert result.ok
    assert result.figures["acknowledged_writes"] >= 2 * WRITERS * WRITES
    assert result.figures["lost_writes"] == result.figures["unreadable_writes"] == 0
    assert not list(tmp_path.iterdir())
