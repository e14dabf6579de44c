"""What only threads have: many of them, interrupts, and a thread in the background whose end must be seen."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import membership
from membership import ClusterStatus, MembershipEndedError, blocking
from tests.membership.facades import PATIENCE, SETTINGS

pytestmark = pytest.mark.socket

ROOT = Path(__file__).parents[2]


def join(*seeds: str, **options: Any) -> Any:
    return blocking.join("127.0.0.1:0", seeds, settings=SETTINGS, **options)


def size(count: int) -> Callable[[membership.Configuration], bool]:
    return lambda view: len(view.members) == count


def names(members: tuple[membership.Member, ...]) -> list[str]:
    return sorted(member.name for member in members)


def background_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "membership"]


class Beside:
    """Threads whose failures are the test's."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, function: Callable[[], object]) -> None:
        def target() -> None:
            try:
                function()
            except BaseException as error:
                self._failures.append(error)

        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        if self._failures:
            raise BaseExceptionGroup("threads", self._failures)


def test_many_threads_use_one_cluster() -> None:
    beside = Beside()
    endings: list[list[str]] = []

    def listen(cluster: blocking.Cluster) -> None:
        mirror: dict[str, membership.Member] = {}
        for change in cluster.changes():
            for gone in (*change.left, *change.failed):
                del mirror[gone.name]
            mirror.update({member.name: member for member in (*change.joined, *change.updated)})
            assert mirror == {member.name: member for member in change.view.members}
        endings.append(sorted(mirror))

    def ask(cluster: blocking.Cluster) -> None:
        while cluster.status is ClusterStatus.MEMBER:
            assert cluster.me in cluster.view
            try:
                cluster.statistics()
            except MembershipEndedError:
                return

    with join(name="ada") as ada:
        for _ in range(3):
            beside.start(lambda: listen(ada))
            beside.start(lambda: ask(ada))
        with join(str(ada.me.address), name="ben") as ben, join(str(ada.me.address), name="cleo"):
            ben.wait_for(size(3), PATIENCE)
        ada.wait_for(size(1), PATIENCE)
    beside.join()
    assert endings == [["ada"]] * 3
    assert background_threads() == []


def test_a_feed_can_be_asked_with_a_limit() -> None:
    with join() as cluster:
        feed = cluster.changes()
        assert feed.next_within(0) is not None
        assert feed.next_within(0) is None
        assert feed.next_within(0.01) is None
        assert not feed.ended
        cluster.leave()
        last = feed.next_within(PATIENCE)
        while last is not None and last.status is not ClusterStatus.LEFT:
            last = feed.next_within(PATIENCE)
        assert last is not None
        assert feed.next_within(PATIENCE) is None
        assert feed.ended


def test_the_threads_block_ends_while_another_leaves() -> None:
    beside = Beside()
    with join(name="ada") as ada:
        with join(str(ada.me.address), name="ben") as ben:
            ben.wait_for(size(2), PATIENCE)

            def leave() -> None:
                with contextlib.suppress(
                    MembershipEndedError
                ):  # when the block, which leaves too, ends first
                    assert ben.leave()

            beside.start(leave)
        beside.join()
        ada.wait_for(size(1), PATIENCE)


def test_a_blocking_call_in_trios_own_thread_is_refused() -> None:
    refused: list[BaseException] = []
    clusters: list[blocking.Cluster] = []

    async def handler(stream: membership.FrameStream) -> None:
        try:
            clusters[0].leave()
        except blocking.WrongThreadError as error:
            refused.append(error)
        await stream.send(b"done")

    with join(services={"test": handler}) as cluster:
        clusters.append(cluster)

        async def ask() -> None:
            stream = await membership.open_service(cluster.me.address, "test")
            assert await stream.receive() == b"done"
            await stream.aclose()

        trio.run(ask)
    assert len(refused) == 1


# Interrupts, in the main thread of a process as in life


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("waiting", ["changes", "wait_for", "call"])
def test_an_interrupt_ends_a_wait_and_the_block_leaves_gracefully(waiting: str) -> None:
    def wait(cluster: blocking.Cluster) -> None:
        if waiting == "changes":
            for _ in cluster.changes():
                pass
        elif waiting == "wait_for":
            cluster.wait_for(size(7), PATIENCE)
        else:

            async def never() -> None:
                await trio.sleep_forever()

            cluster._call(never)

    def hold(ada: blocking.Cluster) -> None:
        with join(str(ada.me.address), name="ben") as ben:
            ada.wait_for(size(2), PATIENCE)
            feed.next_within(PATIENCE)
            threading.Timer(0.05, interrupt).start()
            wait(ben)

    with join(name="ada") as ada:
        feed = ada.changes()
        with pytest.raises(KeyboardInterrupt):
            hold(ada)
        change = feed.next_within(PATIENCE)
        assert change is not None
        assert names(change.left) == ["ben"]
    assert background_threads() == []


def test_an_interrupt_while_joining_gives_up() -> None:
    timer = threading.Timer(0.2, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt), join(expect=2):
        pytest.fail("joined")
    assert background_threads() == []


def test_a_second_interrupt_does_not_wait_for_the_leave() -> None:
    leaving = threading.Event()

    def twice() -> None:
        interrupt()
        assert leaving.wait(PATIENCE)
        interrupt()

    def hold() -> None:
        with join() as cluster:
            cluster._driver.leave = leaving.set  # type: ignore[method-assign]  # a leave that is never decided
            thread.start()
            cluster.wait_for(size(7), PATIENCE)

    thread = threading.Thread(target=twice)
    with pytest.raises(KeyboardInterrupt):
        hold()
    thread.join()
    assert background_threads() == []


def test_a_process_that_exits_within_a_block_does_not_hang() -> None:
    program = textwrap.dedent("""
        import threading
        import membership
        inside = threading.Event()
        def hold():
            with membership.blocking.join("127.0.0.1:0"):
                inside.set()
                threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        inside.wait()
        print("inside")
    """)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "inside\n", "")
