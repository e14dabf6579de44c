"""What only asyncio has: cancellation, its debug mode, one trio guest per loop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio

import membership
from membership import ClusterStatus, aio
from tests.membership.facades import PATIENCE, SETTINGS
from tests.own_addresses import own_address

pytestmark = pytest.mark.socket


def join(*seeds: str, **options: Any) -> Any:
    return aio.join("127.0.0.1:0", seeds, settings=SETTINGS, **options)


def size(count: int) -> Callable[[membership.Configuration], bool]:
    return lambda view: len(view.members) == count


def names(members: tuple[membership.Member, ...]) -> list[str]:
    return sorted(member.name for member in members)


@pytest.fixture
def run(caplog: pytest.LogCaptureFixture) -> Any:
    """Run in asyncio's debug mode; nothing may be left, nor complained about."""

    def run(main: Callable[[], Any]) -> Any:
        async def guarded() -> Any:
            async with asyncio.timeout(2 * PATIENCE):
                result = await main()
            assert not trio.lowlevel.in_trio_run(), "the guest outlives the blocks"
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return result

        result = asyncio.run(guarded(), debug=True)
        complaints = [
            record
            for record in caplog.records
            if record.name == "asyncio" and record.levelno >= logging.WARNING and "took" not in record.message
        ]
        assert complaints == []
        return result

    return run


def test_many_clusters_share_one_guest(run: Any) -> None:
    async def member(founder: aio.Cluster, name: str) -> None:
        async with join(str(founder.me.address), name=name) as cluster:
            await cluster.wait_for(lambda view: view.member(name) is not None, PATIENCE)
            await founder.wait_for(size(6), PATIENCE)

    async def main() -> None:
        async with join(name="one") as one, join(name="two") as two:
            assert one.cluster_id != two.cluster_id
            async with asyncio.TaskGroup() as tasks:
                for number in range(5):
                    tasks.create_task(member(one, f"one-{number}"))
                    tasks.create_task(member(two, f"two-{number}"))
            for each in (one, two):
                await each.wait_for(size(1), PATIENCE)

    run(main)


def test_a_cancelled_block_vanishes_and_the_others_see_a_failure(run: Any) -> None:
    async def ben(seed: str, inside: asyncio.Event) -> None:
        async with join(seed, name="ben"):
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        # Two could not remove a member: one of them is no majority.
        async with join(name="ada") as ada, join(str(ada.me.address), name="cleo"):
            inside = asyncio.Event()
            task = asyncio.create_task(ben(str(ada.me.address), inside))
            await inside.wait()
            await ada.wait_for(size(3), PATIENCE)
            changes = ada.changes()
            await changes.__anext__()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            change = await changes.__anext__()
            assert (names(change.failed), names(change.left)) == (["ben"], [])

    run(main)


def test_joining_can_be_given_up(run: Any) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), join(str(own_address())):
                pytest.fail("joined")
        # And with another cluster in the loop, which does not notice.
        async with join() as cluster:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), join(str(own_address())):
                    pytest.fail("joined")
            assert cluster.status is ClusterStatus.MEMBER

    run(main)


def test_a_cancelled_wait_loses_no_change(run: Any) -> None:
    async def main() -> None:
        async with join(name="ada") as ada:
            changes = ada.changes()
            await changes.__anext__()
            async with join(str(ada.me.address), name="ben"):
                joined: list[str] = []
                while not joined:
                    try:
                        change = await asyncio.wait_for(changes.__anext__(), 0.001)
                    except TimeoutError:
                        continue
                    joined = names(change.joined)
                assert joined == ["ben"]

    run(main)


def test_a_cancelled_leave_does_not_hold_the_task(run: Any) -> None:
    async def main() -> None:
        async with join(name="ada") as ada, join(str(ada.me.address), name="ben") as ben:
            await ada.wait_for(size(2), PATIENCE)
            task = asyncio.create_task(ben.leave())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await ben.leave()

    run(main)


def test_two_tasks_may_begin_the_guest_at_once_and_end_it_at_once(run: Any) -> None:
    async def short() -> None:
        async with join():
            pass

    async def main() -> None:
        for _ in range(3):
            await asyncio.gather(short(), short(), short())

    run(main)


def test_within_a_foreign_guest_it_says_what_to_do() -> None:
    async def main() -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        finish = trio.Event()
        loop = asyncio.get_running_loop()
        trio.lowlevel.start_guest_run(
            finish.wait,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=lambda _: ended.set_result(None),
            host_uses_signal_set_wakeup_fd=True,
        )
        try:
            with pytest.raises(RuntimeError, match=r"use membership\.join in there"):
                async with join():
                    pytest.fail("joined")
        finally:
            finish.set()
            await ended

    asyncio.run(main())


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_cancels_the_main_task_and_nothing_is_left() -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            async with join() as cluster:
                asyncio.get_running_loop().call_later(0.05, interrupt)
                async for change in cluster.changes():
                    seen.append(change.status)  # noqa: PERF401 - a comprehension would show nothing while it runs
        except asyncio.CancelledError:
            seen.append("cancelled")
            assert not trio.lowlevel.in_trio_run()
            raise

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert seen == [ClusterStatus.MEMBER, "cancelled"]


def test_an_interrupt_under_a_loop_that_leaves_signals_alone_reaches_its_caller() -> None:
    loop = asyncio.new_event_loop()

    async def main() -> None:
        async with join() as cluster:
            # In trio's turn, where it would be trio's to raise.
            trio.lowlevel.current_trio_token().run_sync_soon(interrupt)
            async for _ in cluster.changes():
                pass

    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_a_loop_with_its_own_signal_handler_keeps_it(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, asked.set)
        try:
            async with join() as cluster:
                os.kill(os.getpid(), signal.SIGTERM)
                await asked.wait()
                assert await cluster.leave()
            asked.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await asked.wait()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    run(main)


def test_a_failure_at_the_very_end_of_a_block_is_raised_and_cancels_nobody_else(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as raised:  # noqa: PT012 - the block is what is tested
            async with join() as cluster:
                driver = cluster._driver

                def broken(now: float) -> Any:
                    raise RuntimeError("a defect")

                monkeypatch.setattr(driver.core, "tick", broken)
                driver._wake_at = 0.0
                driver.transport.wake()
                while driver.state.failure is None:  # noqa: ASYNC110 - no waiting: the block must end itself
                    await asyncio.sleep(0)
        assert raised.value.subgroup(RuntimeError) is not None
        await asyncio.sleep(0.01)

    run(main)
