"""The file of the last view: what was proposed since stands beside it, and is told to be durable only when it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from membership.files import replace_file
from membership.protocol.context.stable_storage import StableState
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.runtime.change_feed import ClusterState
from membership.runtime.last_view import RETRY, LastView, Remembered, _checksum

RINGS = 10


@pytest.fixture
def proposed(lab) -> Configuration:
    """Of a founding after the view of three."""
    founder, other = lab.member(0, incarnation=2), lab.member(1, incarnation=2)
    return lab.configuration(3).restart(founder, RINGS).apply(Cut.of([other]))


class Process:
    """Whose views are kept."""

    founded = False
    is_superseded = False

    def __init__(self) -> None:
        self.state = ClusterState()
        self.to_save = StableState()
        self.saved: list[StableState] = []

    def on_saved(self, state: StableState) -> None:
        self.saved.append(state)


def ids(remembered: Remembered | None) -> tuple[bytes, list[bytes]]:
    assert remembered is not None
    assert remembered.stable.view is not None
    return remembered.stable.view.id, [view.id for view in remembered.stable.accepted]


def test_proposed_views_stand_beside_the_last_one(lab, proposed: Configuration, tmp_path: Path) -> None:
    view = lab.configuration(3)
    memory = LastView(tmp_path / "view", RINGS)
    memory.save(StableState(view, (proposed,)), founded=True)
    assert ids(LastView(tmp_path / "view", RINGS).load()) == (view.id, [proposed.id])
    memory.save(StableState(proposed), founded=True)
    assert ids(LastView(tmp_path / "view", RINGS).load()) == (proposed.id, [])


def test_a_file_of_an_earlier_version_is_read(lab, tmp_path: Path) -> None:
    view = lab.configuration(3)
    body = msgspec.msgpack.encode((True, view.id, view.encoded(), False))
    replace_file(tmp_path / "view", _checksum(body) + body)
    assert ids(LastView(tmp_path / "view", RINGS).load()) == (view.id, [])


async def test_nothing_is_said_to_be_saved_before_it_is(
    lab, proposed: Configuration, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(function: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        function()

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    folder = tmp_path / "data"
    folder.mkdir()
    LastView(folder / "view", RINGS).save(StableState(lab.configuration(3)), founded=False)
    memory, process = LastView(folder / "view", RINGS), Process()
    remembered = memory.load()
    assert remembered is not None
    process.to_save = remembered.stable
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.keep, process)
        folder.rename(tmp_path / "away")
        process.to_save = StableState(remembered.stable.view, (proposed,))
        process.state.publish()
        await trio.sleep(RETRY / 2)
        assert process.saved == []
        (tmp_path / "away").rename(folder)
        await trio.sleep(RETRY)
        assert process.saved == [process.to_save]
        assert ids(LastView(folder / "view", RINGS).load())[1] == [proposed.id]
        nursery.cancel_scope.cancel()
