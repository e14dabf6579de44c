"""Ensembles and their clusters over a transport in memory and files on a real disk, in simulated time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import membership
from membership import (
    Address,
    Cluster,
    Ensemble,
    EnsembleError,
    InMemoryNetwork,
    JoinArgumentError,
    JoinTimeoutError,
    KeyRing,
    Mode,
    RecoveryError,
    Settings,
    StateError,
)
from membership.runtime.voter_storage import StateDirectory

SETTINGS = Settings.local()
VOTERS = [Address(f"10.1.0.{number}", 7946) for number in range(1, 4)]


def address(number: int) -> Address:
    return Address(f"10.0.0.{number}", 7946)


class World:
    """Voters and members on one in-memory network, each in a task that can be killed."""

    def __init__(self, nursery: trio.Nursery, folder: Path) -> None:
        self.keys: KeyRing | None = None
        self.network = InMemoryNetwork()
        self.ensembles: dict[int, Ensemble] = {}
        self.clusters: dict[int, Cluster] = {}
        self._nursery = nursery
        self._folder = folder
        self._scopes: dict[tuple[str, int], trio.CancelScope] = {}
        self._ended: dict[tuple[str, int], trio.Event] = {}

    def serve(self, *numbers: int) -> None:
        for number in numbers:
            self._nursery.start_soon(self._serve, number)

    def join(self, *numbers: int, **options: Any) -> None:
        for number in numbers:
            self._nursery.start_soon(self._join, number, options)

    async def _serve(self, number: int) -> None:
        key = ("voter", number)
        self._ended[key] = trio.Event()
        with trio.CancelScope() as self._scopes[key]:
            async with membership.serve_ensemble(
                VOTERS[number],
                VOTERS,
                state=self._folder / str(number),
                settings=SETTINGS,
                network=self.network,
                keys=self.keys,
                rng=random.Random(number),
            ) as self.ensembles[number]:
                await trio.sleep_forever()
        self._ended[key].set()

    async def _join(self, number: int, options: dict[str, Any]) -> None:
        key = ("member", number)
        self._ended[key] = trio.Event()
        with trio.CancelScope() as self._scopes[key]:
            async with membership.join(
                address(number),
                VOTERS,
                mode=Mode.CENTRALISED,
                settings=SETTINGS,
                network=self.network,
                keys=self.keys,
                rng=random.Random(100 + number),
                **options,
            ) as self.clusters[number]:
                await trio.sleep_forever()
        self._ended[key].set()

    async def kill(self, kind: str, number: int) -> None:
        self._scopes[kind, number].cancel()
        await self._ended[kind, number].wait()
        (self.clusters if kind == "member" else self.ensembles).pop(number, None)  # type: ignore[attr-defined]

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        with trio.fail_after(seconds):
            while not condition():  # noqa: ASYNC110  # virtual time
                await trio.sleep(0.05)

    async def until_size(self, size: int) -> None:
        await self.until(
            lambda: (
                len(self.clusters) == size
                and {len(cluster.view) for cluster in self.clusters.values()} == {size}
            )
        )


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], Any]:
    @asynccontextmanager
    async def running() -> AsyncIterator[World]:
        async with trio.open_nursery() as nursery:
            yield World(nursery, tmp_path)
            nursery.cancel_scope.cancel()

    return running


async def test_members_join_crash_and_leave(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        run.join(1, 2, 3, 4, 5)
        await run.until_size(5)
        await run.kill("member", 2)
        await run.until_size(4)
        assert run.clusters[1].view.member("10.0.0.2:7946") is None
        assert {ensemble.view.id for ensemble in run.ensembles.values()} == {run.clusters[1].view.id}
        assert await run.clusters[3].leave()
        run.clusters.pop(3)
        await run.until_size(3)


async def test_the_last_member_stays_listed_and_its_leave_is_not_agreed(
    world, autojump_clock: MockClock
) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        run.join(1, 2)
        await run.until_size(2)
        assert await run.clusters[1].leave()
        run.clusters.pop(1)
        await run.until_size(1)
        assert not await run.clusters[2].leave()
        assert {len(ensemble.view) for ensemble in run.ensembles.values()} == {1}


async def test_voters_are_killed_and_come_back_with_their_state(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        run.join(1, 2, 3)
        await run.until_size(3)
        epoch, me = run.clusters[1].view.epoch, run.ensembles[1].me
        for number in range(3):
            await run.kill("voter", number)
        run.serve(0, 1, 2)
        run.join(4)
        await run.until_size(4)
        assert run.clusters[1].view.epoch == epoch + 1
        assert run.ensembles[1].me == me


async def test_one_voter_less_and_everything_goes_on(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        run.join(1, 2, 3)
        await run.until_size(3)
        await run.kill("voter", 0)
        run.join(4)
        await run.until_size(4)
        await run.kill("member", 1)
        await run.until_size(3)


async def test_under_keys_a_dead_member_is_removed_too(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.keys = KeyRing.generate()
        run.serve(0, 1, 2)
        run.join(1, 2, 3, 4)
        await run.until_size(4)
        await run.kill("member", 4)
        await run.until_size(3)
        for ensemble in run.ensembles.values():
            refused = ("messages_dropped_rings_of_others", "messages_dropped_proof_false")
            assert not [name for name in refused if name in ensemble.statistics()]


async def test_metadata_and_evictions_are_agreed(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        run.join(1, 2, 3, rejoin=False)
        await run.until_size(3)
        await run.clusters[1].set_metadata({"rack": "r7"})
        assert run.clusters[1].me.attributes == {"rack": "r7"}
        await run.clusters[1].evict("10.0.0.3:7946")
        run.clusters.pop(3)
        await run.until_size(2)


async def test_the_first_view_waits_for_all_the_ensemble(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.serve(0, 1)
        run.join(1)
        await trio.sleep(5.0)
        assert not run.clusters
        assert run.ensembles[0].view is None
        run.serve(2)
        await run.until_size(1)


async def test_an_ensemble_asked_in_the_other_mode_says_which_one_is_right(
    world, autojump_clock: MockClock
) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        with pytest.raises(JoinTimeoutError, match="centralised mode"):
            async with membership.join(
                address(1), VOTERS, settings=SETTINGS, network=run.network, join_timeout=3.0
            ):
                pass


async def test_a_cluster_without_ensemble_says_so(autojump_clock: MockClock) -> None:
    network = InMemoryNetwork()
    async with membership.join(address(1), settings=SETTINGS, network=network) as founder:
        with pytest.raises(JoinTimeoutError, match="has no ensemble"):
            async with membership.join(
                address(2),
                [address(1)],
                mode=Mode.CENTRALISED,
                settings=SETTINGS,
                network=network,
                join_timeout=3.0,
            ):
                pass
        assert len(founder.view) == 1


async def test_members_cannot_recover_what_the_ensemble_holds(world, autojump_clock: MockClock) -> None:
    async with world() as run:
        run.serve(0, 1, 2)
        run.join(1)
        await run.until_size(1)
        with pytest.raises(RecoveryError, match="start the members of the ensemble again"):
            await run.clusters[1].recover(["10.0.0.1:7946"])


@pytest.mark.parametrize("options", [{"found": True}, {"expect": 3}])
async def test_members_neither_found_nor_expect(options: dict[str, Any]) -> None:
    with pytest.raises(JoinArgumentError, match="the ensemble founds"):
        async with membership.join(
            address(1), VOTERS, mode=Mode.CENTRALISED, network=InMemoryNetwork(), **options
        ):
            pass


async def test_too_few_members_are_no_ensemble_and_nothing_stays_locked(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(EnsembleError, match="at least 3"):
            async with membership.serve_ensemble(
                VOTERS[0], VOTERS[:2], state=tmp_path, network=InMemoryNetwork()
            ):
                pass


class TestStateDirectory:
    def test_what_was_saved_is_there_again(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path / "state")
        assert directory.load() is None
        directory.save(b"one")
        directory.save(b"two")
        directory.close()
        again = StateDirectory(tmp_path / "state")
        assert again.load() == b"two"
        again.close()

    def test_two_processes_cannot_have_the_same_state(self, tmp_path: Path) -> None:
        directory = StateDirectory(tmp_path)
        with pytest.raises(StateError, match="in use by another process"):
            StateDirectory(tmp_path)
        directory.close()
        StateDirectory(tmp_path).close()

    def test_a_file_in_its_place_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StateError, match="give another directory"):
            StateDirectory(tmp_path / "file")
