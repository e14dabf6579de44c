"""``rota up`` and ``rota demo --keep`` say where the console is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from membership import Address
from rota.local.demo import Narrator, _keep
from rota.local.up import _show


def cluster() -> Any:
    agent = SimpleNamespace(name="n1", api=Address("::1", 7947), alive=True)
    return SimpleNamespace(
        agents={"n1": agent},
        live=lambda: [agent],
        in_order=lambda: [agent],
        plan=SimpleNamespace(directory=Path("d"), store="log"),
    )


async def test_a_demo_that_is_kept(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.move_on_after(1):
        await _keep(cluster(), Narrator(quiet=False))
    assert "console: http://[::1]:7947/ " in capsys.readouterr().out


async def test_a_cluster_that_is_up(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.move_on_after(1):
        await _show(cluster(), live=False)
    assert "console: http://[::1]:7947/ answers" in capsys.readouterr().err
