"""A disk that fails on a call and works again: nothing acknowledged is lost, and the storage can be used again.

A failed sync leaves pages that count as clean and are not on the disk, so that a later one proves nothing of them.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter import StorageError
from datastore_adapter.log.messages import Read, Refused
from datastore_adapter.log.storage.commit_log import ALIGNMENT
from datastore_adapter.log.storage.file_storage import DAMAGE_FILE, FileStorage
from membership.files.simulated import SimulatedFiles, fail
from tests.datastore_adapter.harness import Harness

LIMIT = 16 * ALIGNMENT
NAMES = ("unit/s00/1.log", "unit/s00/2.log", "unit/s01/1.log")
CALLS = ("fsync", "fdatasync", "pwrite", "create", "ftruncate", "unlink")


def at_once(work: Callable[[], None]) -> Callable[[], None]:
    work()
    return lambda: None


class Machine:
    """A storage on a simulated disk, and what it has to hold."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.files = SimulatedFiles(self._random)
        self.storage = self._open()
        self._written = dict.fromkeys(NAMES, b"")
        self._acknowledged = dict(self._written)

    def _open(self) -> FileStorage:
        return FileStorage(
            Path("/data"),
            commit_log_bytes=LIMIT,
            system=self.files,
            background=at_once,
            draw=self._random.randbytes,
        )

    def append(self, name: str, size: int) -> None:
        data = self._random.randbytes(size)
        self.storage.append(name, data)
        self._written[name] += data

    def sync(self, name: str, size: int) -> None:
        self.storage.sync()
        self._acknowledged = dict(self._written)

    def remove(self, name: str, size: int) -> None:
        if name in self.storage.names("unit/"):
            self.storage.remove(name)
            self._written[name] = b""
            self._acknowledged = dict(self._written)

    def go_on(self) -> None:
        """After a call that failed."""
        if self.storage.failure is not None:
            with pytest.raises(StorageError):
                self.storage.append(NAMES[0], b"not before it is repaired")
            while self.storage.failure is not None:
                try:
                    self.storage.repair()
                    self.storage.resume()
                except StorageError:
                    continue
            self._acknowledged = dict(self._written)

    def check_after_power_cut(self) -> None:
        self.files.cut_power()
        self.files.power_on()
        self.files.fault = None
        self.storage = self._open()
        assert not self.storage.is_damaged
        for name, expected in self._acknowledged.items():
            found = self.storage.read(name, 0, 1 << 30) if name in self.storage.names("unit/") else b""
            assert found[: len(expected)] == expected


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(NAMES), st.sampled_from((1, 300, 5000, LIMIT // 3))),
        st.tuples(st.just("sync"), st.just(""), st.just(0)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just(0)),
    ),
    max_size=30,
)


@given(operations, st.integers(0, 60), st.sampled_from(CALLS), st.integers(0, 1 << 30))
def test_one_call_fails_then_the_disk_works_and_then_the_power_goes(
    steps: list[tuple[str, str, int]], after: int, call: str, seed: int
) -> None:
    machine = Machine(seed)
    machine.files.fault = fail(errno.EIO, call, after=after)
    for operation, name, size in steps:
        try:
            getattr(machine, operation)(name, size)
        except StorageError:
            machine.go_on()
    machine.check_after_power_cut()


def test_a_unit_whose_disk_was_repaired_serves_nothing_before_it_knows_what_it_lost() -> None:
    """The disk is repaired in a thread of its own, and requests come meanwhile."""
    harness = Harness(3, segments=1)
    harness.steady = False  # its copy is none until it was compared

    async def story() -> None:
        await harness.settle(harness.adapter())
        await harness.write(3)
        node, files = harness.cluster.node("n1"), harness.cluster.hosts["n1"].files
        assert files is not None
        read = Read(harness.document.layout.data_epoch, "s00", 0)
        files.failure = StorageError("cannot make it durable: Input/output error")
        files.replace(DAMAGE_FILE, b"the commit log")
        node.disk.care()
        assert isinstance(node.handle(read).reply, Refused)
        assert node.after_care(), "whoever called for care need not have known that it was stopped"
        assert not node.log_unit.is_sound("s00")
        assert not node.after_care(), "once"
        await harness.settle(harness.adapter())
        await harness.check_everything()

    harness.loop.run(story())
