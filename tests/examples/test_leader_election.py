"""Leaders by view, fenced by epoch: whatever a deposed leader still writes is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import membership
from membership.protocol.view.cut import Cut, Removal
from tests.examples.running import PATIENCE, Program, load

example = load("leader_election")


def member(number: int) -> membership.Member:
    address = membership.Address("127.0.0.1", 1000 + number)
    return membership.Member.create(f"m{number}", address, bytes([number]) * 16)


# The rule


def test_the_leader_is_the_longest_serving_member_and_stays_when_others_come() -> None:
    view = membership.Configuration.found(member(5), bytes(16), 10)
    assert example.leader_of(view) == member(5)
    view = view.apply(Cut.of([member(1), member(9)]))
    assert example.leader_of(view) == member(5)
    view = view.apply(Cut.of([], [Removal(member(5).incarnation)]))
    second = example.leader_of(view)
    assert second in (member(1), member(9))
    view = view.apply(Cut.of([member(5)]))
    assert example.leader_of(view) == second, "who comes back is the youngest"


writes = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=40)


@given(writes)
def test_no_write_is_accepted_after_one_of_a_later_epoch_and_none_of_two_writers_in_one(
    wanted: list[tuple[int, str]],
) -> None:
    register = example.Register()
    accepted: list[tuple[int, str]] = []
    for number, (epoch, writer) in enumerate(wanted):
        # Twin: judged by the whole history.
        allowed = all(epoch > e or (epoch == e and writer == w) for e, w in accepted)
        assert (register.write("c", epoch, writer, number) is None) == allowed
        if allowed:
            accepted.append((epoch, writer))
            assert register.value == number
    assert register.accepted == len(accepted)
    assert register.refused == len(wanted) - len(accepted)


def test_epochs_of_another_cluster_do_not_count() -> None:
    register = example.Register()
    assert register.write("one", 3, "a", 1) is None
    assert "another cluster" in register.write("two", 9, "b", 2)
    assert register.value == 1


# With real members


class History(example.Register):  # type: ignore[misc]  # loaded at run time
    """Remembers every write, and tells whoever waits."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[int, str, bool]] = []
        self._news = asyncio.Event()

    def write(self, cluster: str, epoch: int, writer: str, value: Any) -> str | None:
        refusal: str | None = super().write(cluster, epoch, writer, value)
        self.history.append((epoch, writer, refusal is None))
        self._news.set()
        return refusal

    async def wait_for(
        self, condition: Callable[[tuple[int, str, bool]], bool], since: int = 0
    ) -> tuple[int, str, bool]:
        """The first write, not counting `since` of them, that meets the condition."""
        seen = since
        async with asyncio.timeout(PATIENCE):
            while True:
                for write in self.history[seen:]:
                    if condition(write):
                        return write
                seen = len(self.history)
                self._news.clear()
                await self._news.wait()

    def check(self) -> None:
        accepted = [(epoch, writer) for epoch, writer, fine in self.history if fine]
        assert [epoch for epoch, _ in accepted] == sorted(epoch for epoch, _ in accepted)
        writers = dict(accepted)
        assert all(writers[epoch] == writer for epoch, writer in accepted), "two leaders in one epoch"


@pytest.mark.socket
def test_a_leader_that_is_cut_off_writes_in_vain_and_comes_back_as_the_youngest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        history = History()
        storage = example.Storage(history)
        server = await example.listen(storage, "127.0.0.1:0")
        # It does not notice for long that it has no majority, so it goes on until it is refused.
        settings = replace(membership.Settings.local(), quorum_timeout=PATIENCE)
        team = example.Team(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", settings)
        names = ["n0", "n1", "n2", "n3", "n4"]
        async with server:
            task = asyncio.create_task(team.run(names, "127.0.0.1:0", []))
            await history.wait_for(lambda write: write[1].startswith("n0/") and write[0] >= 1)
            async with asyncio.timeout(PATIENCE):
                while len(team.clusters) < 5:  # noqa: ASYNC110 - any of the members may come last
                    await asyncio.sleep(0.01)
                await team.clusters["n0"].wait_for(lambda view: len(view.members) == 5)

            team.cut_off("n0")
            epoch, writer, fine = await history.wait_for(lambda write: not write[1].startswith("n0/"))
            assert fine
            since = next(index for index, write in enumerate(history.history) if write[1] == writer)
            old = await history.wait_for(lambda write: write[1].startswith("n0/"), since)
            assert not old[2], "the deposed leader's write came after its successor's"
            assert old[0] < epoch
            assert team.clusters["n0"].view.epoch == old[0], "it does not know yet"

            team.heal("n0")
            async with asyncio.timeout(PATIENCE):
                later = await team.clusters["n0"].wait_for(
                    lambda view: view.epoch > epoch and view.member("n0") is not None
                )
            assert example.leader_of(later).name == writer.partition("/")[0]
            assert later.by_seniority()[-1].name == "n0"
            await history.wait_for(lambda write: write[1] == writer and write[0] == later.epoch)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        history.check()

    asyncio.run(main())
    assert "n0: refused, so I do not lead" in capsys.readouterr().out


@pytest.mark.socket
def test_the_program_elects_another_leader_when_one_is_killed() -> None:
    with Program("leader_election", "storage", "--listen", "127.0.0.1:0") as storage:
        where = storage.wait_for(lambda line: line.startswith("storage at ")).rpartition(" ")[2]
        options = ["--storage", where, "--trouble", "0", "--listen", "127.0.0.1:0"]
        with contextlib.ExitStack() as programs:
            old = programs.enter_context(
                Program("leader_election", "members", "1", "--name", "old", *options)
            )
            first = old.wait_for(lambda line: line.startswith("old0 is in at ")).split()[4].rstrip(":")
            new = programs.enter_context(
                Program("leader_election", "members", "4", "--name", "new", "--seed", first, *options)
            )
            new.wait_for(lambda line: line.endswith("of 5 members"))
            storage.wait_for(lambda line: "old0/" in line and "writes" in line)
            assert not any("new" in line for line in storage.lines), "the oldest leads"
            old.kill()
            storage.wait_for(lambda line: "new" in line and "writes" in line)
